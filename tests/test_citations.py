"""Cited works and numbers: each is complete, each is cited by a key that exists, both languages cite alike."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

from viz.sources import NUMBERS, SOURCES, published_growth
from viz.text import LANGUAGES, Words, number, words

FIELD = re.compile(r"(cite|cited)\[([^\]]*)\]")


def cited_keys(lang: str) -> set[tuple[str, str, str]]:
    """(text id, "cite" or "cited", key) of everything that the texts of a language cite."""
    return {
        (label, *match.groups())
        for label, templates in words(lang).templates().items()
        for template in templates
        for _, field, _, _ in string.Formatter().parse(template)
        if field and (match := FIELD.fullmatch(field))
    }


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_key_in_the_texts_exists(lang: str) -> None:
    tables = {"cite": SOURCES, "cited": NUMBERS}
    unknown = {entry for entry in cited_keys(lang) if entry[2] not in tables[entry[1]]}
    assert not unknown


def test_both_languages_cite_the_same() -> None:
    assert cited_keys("zh") == cited_keys("en")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_texts_name_no_work_but_by_its_key(lang: str) -> None:
    """An address or an arXiv number typed in a text would be a second table."""
    for label, templates in words(lang).templates().items():
        for template in templates:
            assert not re.search(r"arxiv|https?://|\b\d{4}\.\d{5}\b", template, re.IGNORECASE), label


@pytest.mark.parametrize("key", SOURCES)
def test_a_source_is_complete(key: str) -> None:
    source = SOURCES[key]
    assert re.fullmatch(r"https://(arxiv\.org/abs/\d{4}\.\d{4,5}|github\.com/[\w./-]+/pull/\d+)", source.url)
    assert source.title
    for lang in LANGUAGES:
        label = source.label(lang)
        assert label.endswith(str(source.year))
        assert not re.search(r"[\[\]()]", label)  # it becomes the text of a link
    assert "et al" not in source.label("zh")
    if source.url.startswith("https://arxiv.org"):
        submitted = 2000 + int(source.url.rsplit("/", 1)[-1][:2])
        assert source.year == submitted


def test_no_work_stands_twice() -> None:
    assert len({source.url for source in SOURCES.values()}) == len(SOURCES)
    for lang in LANGUAGES:
        assert len({source.label(lang) for source in SOURCES.values()}) == len(SOURCES)


@pytest.mark.parametrize("key", NUMBERS)
def test_a_number_has_its_source(key: str) -> None:
    cited = NUMBERS[key]
    assert cited.source in SOURCES
    assert cited.what


def test_published_growth_is_sorted_and_of_one_statistic() -> None:
    growth = published_growth()
    assert [(cited.about, cited.value) for cited in growth] == [
        ("Qwen3.5-0.8B", 14),
        ("Qwen3.5-9B", 240),
        ("Qwen2.5-1.5B", 280),
        ("Qwen2.5-7B", 480),
        ("Qwen3-8B", 890),
        ("Qwen3-1.7B", 2100),
    ]
    assert len({(cited.source, cited.what) for cited in growth}) == 1


def test_texts_are_filled_in_without_the_caller(tmp_path: Path) -> None:
    (tmp_path / "zh" / "page").mkdir(parents=True)
    (tmp_path / "zh" / "page.toml").write_text(
        'a = "{cited[llama2_perplexity_eps_1e_6]}"\n', encoding="utf-8"
    )
    (tmp_path / "zh" / "page" / "p.md").write_text("{cite[xiong2020]}：{n}", encoding="utf-8")
    chinese = Words("zh", tmp_path)
    assert chinese.t("page.a") == number(5.8986, 4) == "5.899"
    assert chinese.prose("page/p", n=1) == "[Xiong 等 2020](https://arxiv.org/abs/2002.04745)：1"


def test_an_unknown_key_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "en").mkdir()
    (tmp_path / "en" / "page.toml").write_text('a = "{cite[nobody1999]}"\n', encoding="utf-8")
    with pytest.raises(KeyError, match="nobody1999"):
        Words("en", tmp_path).t("page.a")

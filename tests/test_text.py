"""The two languages say the same things, values are filled in safely, numbers are written one way."""

from __future__ import annotations

import math
import re
import string
from pathlib import Path

import pytest
from babel import Locale
from hypothesis import given
from hypothesis import strategies as st

from viz.text import (
    END_OF_ISOLATE,
    ISOLATE,
    LANGUAGES,
    NOT_A_NUMBER,
    PLURAL_CATEGORIES,
    TEXT_FOLDER,
    THIN_SPACE,
    WORD_JOINER,
    Words,
    inked,
    literal,
    number,
    words,
)

EMOJI = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf\ufe0f]")


def fields(template: str) -> set[str]:
    """The names a template asks for."""
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_id_exists_in_both_languages_and_asks_for_the_same_values(lang: str) -> None:
    ours, english = words(lang).templates(), words("en").templates()
    assert set(ours) == set(english)
    for label, templates in ours.items():
        asked = set().union(*map(fields, templates))
        assert asked == set().union(*map(fields, english[label])), label


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_plural_has_the_forms_that_its_language_needs(lang: str) -> None:
    needed = set(Locale(lang).plural_form.tags) | {"other"}
    for label, entry in words(lang)._labels.items():
        if isinstance(entry, dict):
            assert needed <= set(entry) <= PLURAL_CATEGORIES, label


@pytest.mark.parametrize("lang", LANGUAGES)
def test_no_text_is_empty_or_dressed_with_emoji(lang: str) -> None:
    for label, templates in words(lang).templates().items():
        for template in templates:
            assert template.strip(), label
            assert not EMOJI.search(template), label


def test_chinese_is_written_in_chinese() -> None:
    for piece, templates in words("zh").templates().items():
        sentences = re.sub(
            r"\$\$.*?\$\$|```.*?```", "", "".join(templates), flags=re.DOTALL
        )  # formulas, code
        if "/" in piece and sentences.strip():
            assert re.search("[\u4e00-\u9fff]", sentences), piece


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_formula_on_lines_of_its_own_is_fenced_by_lines_of_two_dollars(lang: str) -> None:
    """A formula that opens behind text, or runs on from its opening line, turns all after it into source."""
    for label, templates in words(lang).templates().items():
        for template in templates:
            fences = [line for line in template.splitlines() if "$$" in line]
            assert set(fences) <= {"$$"}, label
            assert len(fences) % 2 == 0, label


def written(folder: Path, toml: str, markdown: str = "") -> Words:
    (folder / "en").mkdir()
    (folder / "en" / "page.toml").write_text(toml, encoding="utf-8")
    (folder / "en" / "page").mkdir()
    (folder / "en" / "page" / "why.md").write_text(markdown, encoding="utf-8")
    return Words("en", folder)


def test_labels_tables_plurals_and_prose(tmp_path: Path) -> None:
    english = written(
        tmp_path,
        'a = "A {x}"\nmany = { one = "{n} token", other = "{n} tokens" }\n[deep]\nb = "B"\n',
        "It grew {factor}-fold: $\\sqrt{{d}}$.\n",
    )
    assert english.t("page.a", x=1) == "A 1"
    assert english.t("page.deep.b") == "B"
    assert [english.t("page.many", n=n) for n in (0, 1, 2)] == ["0 tokens", "1 token", "2 tokens"]
    assert english.prose("page/why", factor="187") == "It grew 187-fold: $\\sqrt{d}$."


@pytest.mark.parametrize("missing", ["page.no", "other.a", "page.a"])
def test_a_missing_id_or_value_is_an_error(tmp_path: Path, missing: str) -> None:
    with pytest.raises(KeyError):
        written(tmp_path, 'a = "A {x}"\n').t(missing)


def test_a_label_that_is_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"page\.a"):
        written(tmp_path, "a = 3\n")


def test_unknown_language() -> None:
    with pytest.raises(ValueError, match="fr"):
        words("fr")


def test_a_line_end_leaves_no_gap_between_chinese_characters(tmp_path: Path) -> None:
    (tmp_path / "zh" / "page").mkdir(parents=True)
    prose = "第一行，\n第二行\n:orange[**残差**]\n是 {n}\nRMSNorm\n\n- 一，\n  续\n- 二\n"
    (tmp_path / "zh" / "page" / "p.md").write_text(prose, encoding="utf-8")
    drawn = Words("zh", tmp_path).prose("page/p", n=3)
    assert drawn == "第一行，第二行:orange[**残差**]是 3\nRMSNorm\n\n- 一，续\n- 二"


def test_values_are_not_templates(tmp_path: Path) -> None:
    assert written(tmp_path, 'a = "A {x}"\n').t("page.a", x="{y} {0}") == "A {y} {0}"


@given(st.text())
def test_literal_escapes_every_mark_and_loses_nothing(text: str) -> None:
    escaped = literal(text)
    # no mark of ASCII punctuation is left without its backslash
    assert not re.search(r"(?<!\\)(?:\\\\)*[^\w\s\\\x80-\U0010ffff\x00-\x1f\x7f]", escaped)
    shown = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", escaped).replace("\u00a0", " ")
    for added in (WORD_JOINER, ISOLATE, END_OF_ISOLATE):
        shown = shown.replace(added, "")
    wanted = inked(text.replace("\n", "⏎").replace("\r", "␍").replace("\t", "⇥"))
    assert shown == wanted.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("value", "digits", "written_as"),
    [
        (186.84, 3, "187"),
        (0.47942, 3, "0.479"),
        (29.8795, 4, "29.88"),
        (-0.5, 3, "−0.500"),
        (1234.5, 3, "1 234"),
        (1_234_567.8, 3, "1 234 568"),
        (0.0, 3, "0"),
        (1e-6, 3, "10⁻⁶"),
        (3.26e9, 3, "3.26·10⁹"),
        (9.999, 3, "10.0"),
        (999.6, 3, "1 000"),
        (math.nan, 3, NOT_A_NUMBER),
        (math.inf, 3, NOT_A_NUMBER),
    ],
)
def test_numbers(value: float, digits: int, written_as: str) -> None:
    assert number(value, digits) == written_as.replace(" ", THIN_SPACE)


def test_texts_are_where_the_design_says() -> None:
    assert TEXT_FOLDER.is_dir()
    assert {path.name for path in TEXT_FOLDER.iterdir()} == set(LANGUAGES)


# What is so by definition, or a choice of this program, and so may stand in a text: the start of γ, float16's limits,
# the answers of a question, the shape of an example. Whatever is measured or cited is a {value}.
MAY_BE_TYPED = {"0.02", "0.9", "1.1", "100", "1000", "256", "500", "2023"}
NOT_PROSE = re.compile(
    r"\{[^{}]*\}|\]\((?:term|page):[^)]*\)|```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$"
    r"|(?:b?float|sha)\d+|(?:Qwen|Gemma|OLMo|LLaMA|GPT|Llama)[ -]?[\d.]+",
    re.DOTALL,
)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_no_measured_number_is_typed(lang: str) -> None:
    for piece, texts in words(lang).templates().items():
        for text in texts:
            plain = re.sub(r"(?<=\d)[,\u202f ](?=\d{3})", "", NOT_PROSE.sub(" ", text))
            found = re.findall(r"\d+\.\d+|\d{3,}", plain)
            assert set(found) <= MAY_BE_TYPED | {"65500"}, (piece, found)

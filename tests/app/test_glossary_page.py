"""The glossary page in both languages: every term, its meaning, and a link that leads to a page."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from streamlit.testing.v1 import AppTest

from viz.book import open_pages
from viz.glossary import GROUPS, TERMS, english_name
from viz.text import LANGUAGES, words

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
LINK = re.compile(r"\[([^\[\]]+)\]\(([^()\s]+)\)")


def opened(lang: str, stem: str = "glossary") -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    app.query_params["lang"] = lang
    app.switch_page(f"pages/{stem}.py").run()
    assert not app.exception
    return app


@LANGUAGE
def test_every_term_is_there_under_its_name(lang: str) -> None:
    app, text = opened(lang), words(lang)
    assert [header.value for header in app.header] == [text.t(f"glossary.group.{name}") for name in GROUPS]
    names = [text.t(f"glossary.name.{term.key}") for term in TERMS]
    assert [heading.value for heading in app.subheader] == names
    assert [heading.proto.anchor for heading in app.subheader] == [term.key for term in TERMS]
    captions = [caption.value for caption in app.caption]
    for term in TERMS:
        english = english_name(term.key, text)
        assert not english or english in captions


@LANGUAGE
def test_every_term_leads_to_a_page_in_the_language(lang: str) -> None:
    app, text = opened(lang), words(lang)
    existing = {page.stem for page in open_pages()}
    entries = [markdown.value for markdown in app.markdown if "→\u00a0" in markdown.value]
    for term, entry in zip(TERMS, entries, strict=True):
        title = text.t(f"common.page.{term.page}")
        links = {shown: address for shown, address in LINK.findall(entry) if shown.startswith("→")}
        if term.page not in existing:
            assert not links
            continue
        address = urlsplit(links[f"→\u00a0{title}"])
        assert address.path == {"start": "./"}.get(term.page, term.page)
        assert parse_qs(address.query) == {"lang": [lang], **{k: [v] for k, v in term.choices.items()}}


@LANGUAGE
def test_a_page_explains_a_term_once(lang: str) -> None:
    for page in open_pages():
        app = opened(lang, page.stem)
        drawn = "\n".join(markdown.value for markdown in app.markdown)
        notes = re.findall(r'popover id="term-([^"]+)"', drawn)
        assert len(notes) == len(set(notes))
        assert re.findall(r'popovertarget="term-([^"]+)"', drawn) == notes
        assert "](term:" not in drawn
        assert "](page:" not in drawn


@LANGUAGE
def test_the_formula_page_explains_its_terms(lang: str) -> None:
    drawn = "\n".join(markdown.value for markdown in opened(lang, "formula").markdown)
    explained = set(re.findall(r'popover id="term-([^"]+)"', drawn))
    assert explained == {
        "token", "rms", "rms_norm", "learned_gain", "epsilon", "l2_norm", "hidden_size", "layer_norm",
        "variance", "upcast",
    }  # fmt: skip

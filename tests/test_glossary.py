"""The glossary is complete in both languages, every mark in the texts resolves, and a term is explained once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st
from term_html import without_notes

from viz.book import BOOK, entry
from viz.glossary import GROUPS, TERMS, english_name, explanation, group, term
from viz.markup import ANY_MARK, PAGE_MARK, TERM_MARK, marked_up, unmarked
from viz.text import LANGUAGES, literal, words

KEYS = [entry.key for entry in TERMS]
LESSON_TERMS = {  # what the lesson promises to explain
    "rms_norm", "layer_norm", "pre_norm", "post_norm", "variance", "l2_norm", "learned_gain", "identity_path",
    "residual_stream", "epsilon", "qk_norm", "final_norm", "attention_sink", "massive_activation",
    "softmax_saturation", "entropy", "scale_invariance", "logits", "upcast",
}  # fmt: skip
SENTENCE_END = {"en": r"[.!?](?=\s|$)", "zh": r"[。！？]"}
ENGLISH, CHINESE = words("en"), words("zh")


def href(stem: str, choices: Mapping[str, str]) -> str | None:
    """A stand-in for `Page.href`: every page but the quiz has an address."""
    return None if stem == "quiz" else f"/{stem}?" + "&".join(f"{k}={v}" for k, v in choices.items())


def drawn(text: str, explained: dict[str, str] | None = None, where: str = "here") -> str:
    return marked_up(text, ENGLISH, where, {} if explained is None else explained, href)


def test_every_term_of_the_lesson_is_there_once() -> None:
    assert set(KEYS) >= LESSON_TERMS
    assert len(KEYS) == len(set(KEYS))
    assert [entry for name in GROUPS for entry in group(name)] == list(TERMS)


@pytest.mark.parametrize("key", KEYS)
def test_a_term_leads_to_a_page_of_the_book(key: str) -> None:
    assert entry(term(key).page) in BOOK


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("key", KEYS)
def test_an_explanation_is_one_paragraph_of_one_to_three_sentences(key: str, lang: str) -> None:
    text = explanation(key, words(lang))
    assert "\n\n" not in text  # it must fit into a span
    assert not re.search(r"^\s*[-#>|*] ", text, re.MULTILINE)
    bare = re.sub(r"\]\([^)]*\)", "]", text).replace("et al.", "et al")
    assert 1 <= len(re.findall(SENTENCE_END[lang], bare)) <= 3
    assert not ANY_MARK.search(text)  # a note opens no note


def test_chinese_has_the_english_name_beside_its_own() -> None:
    for key in KEYS:
        assert english_name(key, ENGLISH) == ""
        assert (english_name(key, CHINESE) == "") == (
            CHINESE.t(f"glossary.name.{key}") == ENGLISH.t(f"glossary.name.{key}")
        )
    assert english_name("residual_stream", CHINESE) == "residual stream"


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_mark_in_the_texts_resolves(lang: str) -> None:
    for label, templates in words(lang).templates().items():
        for template in (re.sub(r"\(page:\{\w+\}", "(page:start", text) for text in templates):
            marks = TERM_MARK.findall(template) + PAGE_MARK.findall(template)
            assert len(marks) == len(ANY_MARK.findall(template)), f"{label}: a mark is not written right"
            for _, key in TERM_MARK.findall(template):
                term(key)
            for _, stem, query in PAGE_MARK.findall(template):
                entry(stem)
                parse_qsl(query, strict_parsing=bool(query))


def marks_by_page(lang: str) -> dict[str, set[tuple[str, ...]]]:
    """The terms and links that the texts of each page mark."""
    marks: dict[str, set[tuple[str, ...]]] = {}
    for label, templates in words(lang).templates().items():
        page = re.split("[/.]", label)[0]
        for pattern in (TERM_MARK, PAGE_MARK):
            found = {mark[1:] for template in templates for mark in pattern.findall(template)}
            marks.setdefault(page, set()).update(found)
    return marks


def test_both_languages_explain_the_same_terms_and_link_to_the_same_pages() -> None:
    chinese, english = marks_by_page("zh"), marks_by_page("en")
    assert chinese == english


def test_no_bold_stands_outside_the_brackets_after_a_chinese_character() -> None:
    """Markdown would show the asterisks."""
    for label, templates in CHINESE.templates().items():
        for template in templates:
            assert not re.search(r"[\u4e00-\u9fff\uff00-\uffef]\*\*\[", template), label
            assert not re.search(r"\)\*\*[\u4e00-\u9fff]", template), label


def test_a_term_becomes_a_button_with_its_note_beside_it() -> None:
    html = drawn("The [**residual stream**](term:residual_stream) grows.")
    assert html.startswith('The <button type="button" class="lab-term" popovertarget="term-residual_stream">')
    assert ">**residual stream**</button><span popover id=" in html
    assert 'id="term-residual_stream"' in html
    assert "[He et al. 2015](https://arxiv.org/abs/1512.03385)" in html
    assert "/start?" in html
    assert html.endswith("</span> grows.")


@pytest.mark.parametrize("after", [".", "。", "，", "）。", "”,"])
def test_no_line_ends_between_a_term_and_what_ends_its_clause(after: str) -> None:
    html = drawn(f"The [token](term:token){after} And so on.")
    assert html.startswith('The <span class="lab-together"><button ')
    assert html.endswith(f"</span>{after}</span> And so on.")
    assert without_notes(html) == f"The token{after} And so on."


def test_a_term_is_explained_where_it_first_stands() -> None:
    explained: dict[str, str] = {}
    text = "[token](term:token) and [tokens](term:token)"
    first = drawn(text, explained, "a")
    assert first.count("<button") == first.count("popover id=") == 1
    assert first.endswith(" and tokens")
    assert drawn(text, explained, "b") == "token and tokens"
    assert drawn(text, explained, "a") == first  # drawn again, as a fragment is
    assert "<button" in drawn("[d](term:hidden_size)", explained, "b")


def test_a_page_becomes_a_link_in_its_state() -> None:
    assert (
        drawn("See [the probe](page:probe?axis=linear&layer=11).")
        == "See [the probe](/probe?axis=linear&layer=11)."
    )
    assert drawn("[The quiz](page:quiz)!") == "The quiz!"  # nowhere to go


@pytest.mark.parametrize("text", ["[x](term:nothing)", "[x](term:)", "a [x](term:a b)"])
def test_an_unknown_or_broken_mark_is_not_passed_over(text: str) -> None:
    if TERM_MARK.search(text):
        with pytest.raises(KeyError):
            drawn(text)
    else:  # the test of the texts finds it
        assert ANY_MARK.search(text)


def test_a_note_without_a_page_to_go_to_has_no_link() -> None:
    html = marked_up("[token](term:token)", ENGLISH, "here", {}, lambda stem, choices: None)
    assert "lab-note-way" not in html


@given(st.text())
def test_what_a_reader_typed_is_no_mark_and_no_html(text: str) -> None:
    for typed in (text, f"[{text}](term:token)", f"<b>{text}</b>[x](page:probe)"):
        escaped = literal(typed)
        assert drawn(escaped) == escaped
        assert not re.search(r"(?<!\\)<", escaped)


def test_marks_can_be_taken_off() -> None:
    assert unmarked("[a](term:token), [b](page:probe?x=1), [c](https://d.e)") == "a, b, [c](https://d.e)"

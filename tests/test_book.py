"""The table of pages: order, addresses, and that only pages which exist are shown."""

from __future__ import annotations

import pytest

from viz import book
from viz.text import LANGUAGES, words

ORDER = (
    "start", "saturation", "formula", "scale", "gain", "placement", "probe",
    "release", "code", "train", "quiz", "glossary",
)  # fmt: skip


def test_the_pages_in_reading_order() -> None:
    assert tuple(page.stem for page in book.BOOK) == ORDER
    sections = [page.section for page in book.BOOK]
    assert sections == sorted(sections, key=book.SECTIONS.index)
    assert book.BOOK[0].stem == book.DEFAULT


def test_the_short_route_takes_about_seven_minutes() -> None:
    core = [page.stem for page in book.BOOK if page.core]
    assert core == ["start", "saturation", "formula", "probe"]
    assert book.core_minutes() == 7


def test_only_pages_with_a_script_are_open_and_every_script_is_in_the_book() -> None:
    scripts = {path.stem for path in book.PAGES_FOLDER.glob("*.py")}
    assert {page.stem for page in book.open_pages()} == scripts


def test_neighbours_skip_pages_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    there = tuple(book.entry(stem) for stem in ("start", "gain", "probe"))
    monkeypatch.setattr(book, "open_pages", lambda: there)
    assert book.neighbours("start") == (None, there[1])
    assert book.neighbours("gain") == (there[0], there[2])
    assert book.neighbours("probe") == (there[1], None)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_page_and_section_has_a_name(lang: str) -> None:
    for page in book.BOOK:
        assert words(lang).t(f"common.page.{page.stem}")
    for section in book.SECTIONS:
        assert words(lang).t(f"common.section.{section}")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_open_page_has_a_title(lang: str) -> None:
    for page in book.open_pages():
        assert words(lang).t(f"{page.stem}.title")


def test_a_page_that_is_not_in_the_book() -> None:
    with pytest.raises(KeyError):
        book.entry("nowhere")

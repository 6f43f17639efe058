"""The table of pages: what the book holds, in reading order.

A page is listed before its script exists; only those whose script is there are shown, so a later page
appears by adding its file. Neither Streamlit nor torch is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

PAGES_FOLDER: Final = Path(__file__).resolve().parent.parent / "pages"
SECTIONS: Final = ("lesson", "labs", "check")

Layout = Literal["reading", "bench"]  # a column to read, or the wider bench of the probe


@dataclass(frozen=True, slots=True)
class PageEntry:
    """One page of the book. Its title and section are `common.page.<stem>` and `common.section.<section>`."""

    stem: str  # of its script, and its address
    section: str  # one of SECTIONS
    minutes: int  # of reading, an estimate
    core: bool = False  # on the short route through the lesson
    layout: Layout = "reading"

    @property
    def script(self) -> Path:
        """Where the page's script is, or will be."""
        return PAGES_FOLDER / f"{self.stem}.py"


BOOK: Final[tuple[PageEntry, ...]] = (
    PageEntry("start", "lesson", minutes=1, core=True),
    PageEntry("saturation", "lesson", minutes=2, core=True),
    PageEntry("formula", "lesson", minutes=2, core=True),
    PageEntry("scale", "lesson", minutes=2),
    PageEntry("gain", "lesson", minutes=3),
    PageEntry("placement", "lesson", minutes=3),
    PageEntry("probe", "lesson", minutes=2, core=True, layout="bench"),
    PageEntry("release", "labs", minutes=4),
    PageEntry("code", "labs", minutes=3),
    PageEntry("train", "labs", minutes=4),
    PageEntry("quiz", "check", minutes=8),
    PageEntry("glossary", "check", minutes=3),
)

DEFAULT: Final = "start"  # at the address "/"


def open_pages() -> tuple[PageEntry, ...]:
    """The pages whose script exists, in reading order."""
    return tuple(entry for entry in BOOK if entry.script.is_file())


def entry(stem: str) -> PageEntry:
    """The page of this stem. Raises KeyError when the book has none."""
    for candidate in BOOK:
        if candidate.stem == stem:
            return candidate
    raise KeyError(stem)


def neighbours(stem: str) -> tuple[PageEntry | None, PageEntry | None]:
    """The page before and the page after this one, of those that exist."""
    pages = open_pages()
    position = [page.stem for page in pages].index(stem)
    before = pages[position - 1] if position > 0 else None
    after = pages[position + 1] if position + 1 < len(pages) else None
    return before, after


def core_minutes() -> int:
    """Reading time of the short route."""
    return sum(page.minutes for page in BOOK if page.core)

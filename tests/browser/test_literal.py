"""Fault 20: markup in a reader's text is shown letter for letter where Streamlit draws Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.conftest import Open
from browser.server import Server, running_app
from playwright.sync_api import Page

HOSTILE: list[str] = json.loads((Path(__file__).parent / "hostile.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def literal_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("literal") / "log.txt"
    with running_app(log, script="tests/browser/literal_page.py") as server:
        yield server


def shown(page: Page, key: str) -> str:
    text = page.locator(
        f".st-key-{key} [data-testid=stMarkdown], .st-key-{key} [data-testid=stMarkdownContainer]"
    )
    return text.first.inner_text().replace("\u2060", "").replace("\u00a0", " ").strip("\n")


def test_hostile_text_is_shown_letter_for_letter(literal_page: Server, open_address: Open) -> None:
    page = open_address(literal_page.url)
    page.locator(f".st-key-caption-{len(HOSTILE) - 1}").wait_for()
    for position, text in enumerate(HOSTILE):
        assert shown(page, f"body-{position}") == text.strip()  # st.markdown strips a whole body
        assert (
            page.locator(f".st-key-table-{position} td")
            .first.inner_text()
            .replace("\u2060", "")
            .replace("\u00a0", " ")
            == text
        )
        assert shown(page, f"caption-{position}") == f"before {text} after"
    drawn = page.locator(
        "[class*=st-key-body-] p *, [class*=st-key-table-] td *, [class*=st-key-caption-] p *"
    )
    assert drawn.count() == 0  # nothing became an element: no link, no image, no bold, no icon, no formula

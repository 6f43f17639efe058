"""Fault 21: the server's log stays clean while torch is loaded and every page is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from browser.conftest import Open
from browser.server import Server
from playwright.sync_api import expect

from model_probe.catalog import CHECKPOINT_VARIABLE
from viz.book import DEFAULT, open_pages
from viz.text import words


@pytest.mark.parametrize("watcher", [None, "auto"])
def test_fault_21_no_page_trips_over_torch(
    fresh_app: Callable[..., Server],
    open_address: Open,
    tiny_folder: Callable[[str], Path],
    watcher: str | None,
) -> None:
    settings = {} if watcher is None else {"STREAMLIT_SERVER_FILE_WATCHER_TYPE": watcher}
    server = fresh_app(**settings, **{CHECKPOINT_VARIABLE: str(tiny_folder("qwen3_5"))})
    page = open_address(f"{server.url}/probe?lang=en")
    page.get_by_role("button", name=words("en").t("probe.run")).click()
    expect(page.get_by_text("Measured here on").first).to_be_visible(timeout=120_000)
    for entry in open_pages():
        page.goto(f"{server.url}/{'' if entry.stem == DEFAULT else entry.stem}?lang=en")
        expect(page.get_by_role("heading", level=1)).to_have_text(words("en").t(f"{entry.stem}.title"))
        expect(page.locator(".st-key-shell-footer")).to_be_visible()
    for complaint in ("Traceback", "Error", "Warning", "WARNING", "torch.classes"):
        assert complaint not in server.log()

"""The opener of a saved trace in a real browser: Streamlit's own English words are replaced by the page's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browser.conftest import Open
from browser.ready import at_rest
from browser.server import Server
from playwright.sync_api import expect

from viz.compare_controls import MEGABYTES
from viz.probe_controls import HEATMAP
from viz.text import LANGUAGES, words


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_opener_speaks_the_pages_language(
    app: Server, open_address: Open, tmp_path: Path, lang: str
) -> None:
    text = words(lang)
    page = open_address(f"{app.url}/probe?lang={lang}&compare=file")
    expect(page.locator(f".st-key-{HEATMAP} .main-svg").first).to_be_visible()
    opener = page.locator(".st-key-compare-opener")
    button = opener.locator("button", has=page.locator("[data-testid=stIconMaterial]")).first
    expect(button).to_have_accessible_name(text.t("compare.choose_file"))
    at_rest(page)
    large = tmp_path / "large.json"
    large.write_bytes(b" " * (MEGABYTES * 2**20 + 1))
    opener.locator("input[type=file]").set_input_files(large)
    alert = opener.locator("[role=alert]")
    expect(alert).to_be_attached()
    said = alert.evaluate("e => getComputedStyle(e, '::after').content")
    assert json.loads(said) == text.t("compare.not_taken", n=MEGABYTES)
    assert alert.evaluate("e => getComputedStyle(e).visibility") == "hidden"


def test_nothing_scrolls_sideways_on_a_phone_while_comparing(app: Server, open_address: Open) -> None:
    page = open_address(f"{app.url}/probe?lang=en&compare=river", width=390)
    expect(page.locator(".st-key-probe-compared")).to_be_visible()
    expect(page.locator(f".st-key-{HEATMAP} .main-svg").first).to_be_visible()
    main = page.locator("[data-testid=stMain]")
    assert main.evaluate("e => e.scrollWidth <= e.clientWidth")

"""The page `code` in a browser: both questions by keyboard, a choice that stays in the address, a run on a click."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import Open
from browser.server import Server
from playwright.sync_api import Page, expect

from model_probe.code_results import load_code_results
from viz.text import words

ENGLISH = words("en")


def show(page: Page) -> None:
    """Both questions put aside, by keyboard."""
    for name in ("order", "loud"):
        page.locator(f".st-key-code-{name}-show button").focus()
        page.keyboard.press("Enter")
        expect(page.locator(f".st-key-code-{name}-show")).to_have_count(0)


def test_a_choice_changes_chart_table_and_address(app: Server, open_address: Open) -> None:
    page = open_address(f"{app.url}/code?lang=en&break=no_upcast")
    show(page)
    table = page.get_by_role("region", name="float32")
    expect(table.get_by_role("row")).to_have_count(len(load_code_results().table.variants))
    page.get_by_role("radio", name="bfloat16").or_(page.get_by_role("button", name="bfloat16")).first.click()
    expect(page.get_by_role("region", name="bfloat16").get_by_role("row")).to_have_count(
        len(load_code_results().table.variants)
    )
    expect(page).to_have_url(f"{app.url}/code?lang=en&break=no_upcast&dtype=bfloat16")
    lines = page.locator(".lab-code").last
    expect(lines.locator("del")).to_contain_text("wide = x.float()")
    expect(lines.locator("ins")).to_contain_text("wide = x")
    expect(page.get_by_test_id("stException")).to_have_count(0)


def test_a_run_here_says_so(fresh_app: Callable[..., Server], open_address: Open, tmp_path: Path) -> None:
    server = fresh_app(RMSNORM_LAB_CACHE=str(tmp_path / "empty"), HF_HUB_CACHE=str(tmp_path / "hub"))
    page = open_address(f"{server.url}/code?lang=en")
    show(page)
    page.get_by_role("button", name=ENGLISH.t("code.run.run")).click()
    here = ENGLISH.t("code.provenance.live", date="").strip()
    expect(page.get_by_text(here).first).to_be_visible(timeout=60_000)
    expect(page.get_by_role("button", name=ENGLISH.t("code.run.stop"))).to_have_count(0)
    assert "Traceback" not in server.log()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility_rules_hold_for_the_answers_too(app: Server, open_address: Open, scheme: str) -> None:
    page = open_address(f"{app.url}/code?lang=en", width=390, color_scheme=scheme)
    show(page)
    expect(page.locator(".lab-code-table")).to_have_count(2)
    expect(page.locator("[data-stale=true]")).to_have_count(0)
    violations = Axe().run(page).response["violations"]
    assert [v["id"] for v in violations if v["impact"] in ("serious", "critical")] == []

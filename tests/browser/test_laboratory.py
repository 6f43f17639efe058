"""The laboratory on `placement` in a real browser: keyboard, a stop in the middle, rules of accessibility, no cut."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import Open
from browser.ready import at_rest
from browser.server import Server
from playwright.sync_api import Page, expect

from viz.text import LANGUAGES, words

SMALL = "width=64&layers=4&seeds=2"
LARGE = "width=512&layers=24&seeds=8&blocks=attention_mlp"


def ready(page: Page) -> Page:
    """Both questions answered: the controls are there."""
    for key in ("deeper", "scale_free"):
        page.locator(f".st-key-placement-{key}-show button").click()
    expect(page.locator(".st-key-placement-lab-run button")).to_be_visible()
    return at_rest(page)


def plot(page: Page):
    return page.locator(".st-key-placement-lab .js-plotly-plot")


@pytest.mark.parametrize(("lang", "scheme"), list(zip(LANGUAGES, ("light", "dark"), strict=True)))
def test_a_run_by_keyboard_draws_a_whole_accessible_chart(
    app: Server, open_address: Open, lang: str, scheme: str
) -> None:
    page = ready(open_address(f"{app.url}/placement?lang={lang}&{SMALL}", color_scheme=scheme))
    page.locator(".st-key-placement-lab-run button").focus()
    page.keyboard.press("Enter")
    expect(plot(page).first).to_be_visible(timeout=60_000)
    expect(page.locator("[data-testid=stProgress]")).to_have_count(0)
    names = plot(page).locator(".annotation-text")
    for placement in ("pre_norm", "post_norm", "sandwich_norm", "no_norm"):
        expect(names.filter(has_text=words(lang).t(f"placement.lab.placement.{placement}"))).to_have_count(1)
    for width in (390, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        main = page.get_by_test_id("stMain")
        expect(plot(page).first).to_be_visible()
        assert main.evaluate("e => e.scrollWidth <= e.clientWidth"), width
    result = Axe().run(page)
    grave = [v["id"] for v in result.response["violations"] if v["impact"] in ("serious", "critical")]
    assert grave == []


def test_a_stop_ends_the_work_and_the_page_says_so(app: Server, open_address: Open) -> None:
    page = ready(open_address(f"{app.url}/placement?lang=en&{LARGE}"))
    page.locator(".st-key-placement-lab-run button").click()
    page.locator(".st-key-placement-lab-stop button").click()
    expect(page.locator(".st-key-placement-lab-run button")).to_be_visible(timeout=60_000)
    expect(page.get_by_text(words("en").t("common.stopped"))).to_be_visible()
    expect(plot(page)).to_have_count(0)

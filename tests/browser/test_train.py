"""Training in a real browser: curves that grow, a second visitor in the queue, stop and go on, by keyboard too."""

from __future__ import annotations

import re

from axe_playwright_python.sync_playwright import Axe
from browser.conftest import Open
from browser.ready import faded_in, settled
from browser.server import Server
from playwright.sync_api import Page, expect

from model_probe.runs import RunSettings
from viz.outcomes import encode
from viz.text import words
from viz.training_controls import CHART, OFF

EN, ZH = words("en"), words("zh")
LONG = encode(RunSettings(layers=16, width=128, steps=1000))  # far longer than the test
PATIENCE = 90_000  # ms, to load torch on two busy cores

POINTS = f"""
least => (document.querySelector('.st-key-{CHART} .js-plotly-plot')?.data?.[0]?.x?.length ?? 0) > least
"""


def drawn(page: Page) -> Page:
    expect(page.locator(".st-key-train-norms .main-svg").first).to_be_visible()
    return settled(page)


def press_run(page: Page) -> None:
    """Press Run, once more where the server, busy with the other visitor's training, ran the page meanwhile."""
    for _ in range(3):
        page.locator(".st-key-train-run button").click()
        try:
            expect(page.locator(".st-key-train-stop")).to_be_visible()
        except AssertionError:
            continue
        return
    raise AssertionError("Run has no effect")


def points(page: Page) -> int:
    return page.evaluate(
        f"document.querySelector('.st-key-{CHART} .js-plotly-plot')?.data?.[0]?.x?.length ?? 0"
    )


def faults(page: Page) -> list[object]:
    found = Axe().run(page).response["violations"]
    return [(fault["id"], [node["target"] for node in fault["nodes"]]) for fault in found
            if fault["impact"] in ("serious", "critical")]  # fmt: skip


def test_curves_grow_others_wait_and_a_stopped_run_goes_on(app: Server, open_address: Open) -> None:
    query = f"run1={LONG}&run2={OFF}"
    page = drawn(open_address(f"{app.url}/train?lang=en&{query}"))
    run, stop = (page.locator(f".st-key-train-{what} button") for what in ("run", "stop"))
    run.click()
    expect(stop).to_be_visible()
    page.wait_for_function(POINTS, arg=0, timeout=PATIENCE)
    before = points(page)
    page.wait_for_function(POINTS, arg=before)  # by itself

    other = drawn(open_address(f"{app.url}/train?lang=zh&{query}"))
    press_run(other)
    expect(other.get_by_text(ZH.t("train.queue", n=1))).to_be_visible(timeout=PATIENCE)
    other.locator(".st-key-train-stop button").click()
    expect(other.locator(".st-key-train-resume")).to_be_visible()

    stop.click()
    resume = page.locator(".st-key-train-resume button")
    expect(resume).to_be_visible()
    expect(page.get_by_text(re.compile("Stopped after"))).to_be_visible()
    stopped = points(page)
    drawn(page)
    expect(page.locator("[data-stale=true]")).to_have_count(0)
    assert faults(faded_in(page)) == []
    resume.click()
    page.wait_for_function(POINTS, arg=stopped, timeout=PATIENCE)
    stop.click()
    expect(resume).to_be_visible()


def test_by_keyboard_from_the_question_to_a_trained_run(app: Server, open_address: Open) -> None:
    quick = encode(RunSettings(layers=1, steps=10))
    page = drawn(open_address(f"{app.url}/train?lang=en&run1={quick}&run2={OFF}"))
    page.locator(".st-key-train-norms-show button").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text(EN.t("train.norms.guess.same")).first).to_be_visible()
    layers = drawn(page).locator(".st-key-train-field-layers input")
    layers.focus()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile(encode(RunSettings(layers=2, steps=10))))
    page.locator(".st-key-train-run button").focus()
    page.keyboard.press("Enter")
    expect(page.locator(f".st-key-{CHART} .main-svg").first).to_be_visible()
    expect(page.get_by_text(EN.t("train.run", n=1))).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".st-key-train-stop")).to_have_count(0)

"""The page `release` in a real browser: six recorded experiments, one of them live, another stopped in the middle."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import Open
from browser.ready import settled
from browser.server import Server
from playwright.sync_api import Page, expect

from model_probe.experiments import EXPERIMENTS, load_recorded
from viz.effects import truth
from viz.text import LANGUAGES, number, words

EN = words("en")
LIVE = 240_000  # ms, to open the checkpoint and run a few passes on two busy cores
RECORDED = load_recorded()


def shown(page: Page, experiment: str) -> Page:
    """The experiment with its question answered by "just show me", its picture drawn."""
    page.locator(f'[class*="st-key-release-{experiment}-show"] button').click()
    expect(page.locator(f".st-key-release-{experiment} .main-svg").first).to_be_visible()
    return settled(page)


def faults(page: Page) -> list[object]:
    found = Axe().run(page).response["violations"]
    return [(fault["id"], [node["target"] for node in fault["nodes"]]) for fault in found
            if fault["impact"] in ("serious", "critical")]  # fmt: skip


def torch_is_loaded(server: Server) -> bool:
    return "libtorch" in Path(f"/proc/{server.pid}/maps").read_text(encoding="utf-8")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_six_recorded_experiments_one_after_another(app: Server, open_address: Open, lang: str) -> None:
    dark = lang == "zh"
    page = open_address(
        f"{app.url}/release?lang={lang}",
        width=390 if dark else 1280,
        color_scheme="dark" if dark else "light",
    )
    for place, experiment in enumerate(EXPERIMENTS):
        expect(page.get_by_text(words(lang).t(f"release.{experiment}.question"))).to_be_visible()
        shown(page, experiment)
        right = words(lang).t(f"release.{experiment}.guess.{truth(experiment, RECORDED)}")
        expect(page.get_by_text(words(lang).t("release.verdict.shown", truth=right))).to_be_visible()
        expect(
            page.get_by_text(words(lang).t("common.provenance.prompt", prompt="The river")[:-1]).first
        ).to_be_visible()
        overflow = "(() => { const m = document.querySelector('[data-testid=stMain]'); return m.scrollWidth - m.clientWidth })()"
        assert page.evaluate(overflow) <= 0
        if experiment in ("sharpness", "one_brake"):
            assert faults(page) == []
        if place + 1 < len(EXPERIMENTS):
            page.locator(".st-key-release-next button").click()


def test_the_control_moves_the_numbers_by_keyboard_and_the_address_with_them(
    app: Server, open_address: Open
) -> None:
    page = shown(open_address(f"{app.url}/release?lang=en&experiment=sharpness"), "sharpness")
    cell = page.locator('[data-figure="perplexity"]').nth(1)
    expect(cell).to_have_text(number(RECORDED.by_case["sharpness"]["x4"].perplexity))
    page.get_by_role("slider", name=EN.t("release.control.sharpness")).press("ArrowRight")
    expect(cell).to_have_text(number(RECORDED.by_case["sharpness"]["x8"].perplexity))
    expect(page).to_have_url(re.compile("k=x8"))
    page.go_back()
    expect(cell).to_have_text(number(RECORDED.by_case["sharpness"]["x4"].perplexity))


def test_saturation_leads_to_the_measured_experiment(app: Server, open_address: Open) -> None:
    page = open_address(f"{app.url}/saturation?lang=en")
    page.get_by_role("button", name=EN.t("common.show_me")).click()
    expect(page.locator(".st-key-saturation-measured .main-svg").first).to_be_visible()
    page.get_by_role("link", name=EN.t("saturation.link.release")).click()
    expect(page.get_by_text(EN.t("release.sharpness.question"))).to_be_visible()


def test_an_experiment_stopped_in_the_middle_keeps_what_it_has(
    fresh_app: Callable[..., Server], open_address: Open
) -> None:
    server = fresh_app(RMSNORM_LAB_CHECKPOINT="qwen2.5-coder-0.5b")
    page = shown(open_address(f"{server.url}/release?lang=en&experiment=one_brake&layer=0"), "one_brake")
    assert not torch_is_loaded(server)
    run = page.get_by_role("button", name=EN.t("release.live.run"))
    stop = page.get_by_role("button", name=EN.t("common.stop"), exact=True)
    points = "least => document.querySelector('.st-key-release-one_brake .js-plotly-plot').data[0].x.length >= least && document.querySelector('.st-key-release-one_brake .js-plotly-plot').data[0].x.length < 24"
    run.click()
    page.wait_for_function(points, arg=1, timeout=LIVE)  # results come in while it runs
    stop.click()
    expect(page.get_by_text(EN.t("common.stopped"))).to_be_visible(timeout=LIVE)
    expect(run).to_be_visible()
    expect(page.get_by_text("Measured here on").first).to_be_visible()  # what had come stays
    assert page.evaluate(f"({points})(1)")

    assert "Traceback" not in server.log()


def test_an_experiment_and_the_bench_live(
    fresh_app: Callable[..., Server], open_address: Open, tiny_folder: Callable[[str], Path]
) -> None:
    server = fresh_app(RMSNORM_LAB_CHECKPOINT=str(tiny_folder("qwen2")))
    page = shown(open_address(f"{server.url}/release?lang=en&experiment=invariance"), "invariance")
    perplexity = page.locator('[data-figure="perplexity"]').nth(0)
    recorded = number(RECORDED.untouched.perplexity)
    expect(perplexity).to_have_text(recorded)
    run = page.get_by_role("button", name=EN.t("release.live.run"))
    run.click()
    expect(page.get_by_text("Measured here on").first).to_be_visible(timeout=LIVE)
    expect(perplexity).not_to_have_text(recorded)
    expect(run).to_be_visible(timeout=LIVE)  # again: all of it is measured
    expect(page.locator(".st-key-choice-source")).to_be_visible()  # recorded and measured, to choose from
    settled(page)

    page.get_by_role(
        "radio", name=EN.t("release.bench.all_layers")
    ).click()  # it has two, the default is the seventh
    prompt = page.get_by_label(EN.t("release.bench.prompt"), exact=True)
    prompt.fill("<b>bold</b> $x$ | `code`")
    prompt.press("Control+Enter")
    page.get_by_role("button", name=EN.t("release.bench.run"), exact=True).click()
    expect(page.locator(".st-key-release-bench .main-svg").first).to_be_visible(timeout=LIVE)
    page.get_by_role("radio", name=EN.t("release.bench.view.map")).click()
    expect(page.locator(".st-key-release-bench-after .main-svg").first).to_be_visible()
    expect(page.get_by_text("<b>bold</b> $x$ | `code`").first).to_be_visible()
    assert faults(settled(page)) == []
    assert "Traceback" not in server.log()

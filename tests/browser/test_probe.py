"""The probe in a real browser: a prompt typed and measured live, the map's click, every download, no network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from browser.conftest import Open
from browser.ready import drawn, not_running
from browser.server import ROOT, Server
from playwright.sync_api import Locator, Page, Route, expect

from model_probe import NormTrace
from model_probe.recording import load_recording
from viz.figures.depth import depth_title
from viz.probe_controls import HEATMAP
from viz.text import number, words

EN = words("en")
AT_ONCE_SECONDS = 5
AT_ONCE_PAGES = 2.5  # where a page of text alone takes over two seconds, so many times as long
LIVE_SECONDS = 120  # to open the checkpoint on two busy cores


def number_cell(page: Page, figure: str, site: int = 0) -> Locator:
    return page.locator(f'[data-figure="{figure}"]').nth(site)


def type_prompt(page: Page, text: str) -> None:
    page.locator(".st-key-probe-text textarea").fill(text)


def torch_is_loaded(server: Server) -> bool:
    return "libtorch" in Path(f"/proc/{server.pid}/maps").read_text(encoding="utf-8")


def click_cell(page: Page, token: int, row: int, tokens: int, rows: int) -> None:
    """A click in the middle of a cell of the heat map."""
    area = page.locator(f".st-key-{HEATMAP} .nsewdrag").first
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    assert box is not None
    area.click(
        position={"x": box["width"] * (token + 0.5) / tokens, "y": box["height"] * (1 - (row + 0.5) / rows)}
    )


def test_a_typed_prompt_is_measured_and_equals_the_command_line(
    fresh_app: Callable[..., Server], open_address: Open, real_checkpoint_dir: Path
) -> None:
    assert real_checkpoint_dir.is_dir()
    server = fresh_app(RMSNORM_LAB_CHECKPOINT="qwen2.5-coder-0.5b")
    page = drawn(open_address(f"{server.url}/probe?lang=en"))
    assert not torch_is_loaded(server)
    prompt = "我爱苗寨🙂 <b>x</b> $\\frac12$ a<|im_end|>b `|`"
    type_prompt(page, prompt)
    expect(page.get_by_text(EN.t("probe.not_measured", run=EN.t("probe.run")))).to_be_visible()
    run = page.locator(".st-key-probe-run button")
    run.click()  # one click: what was typed has arrived by itself
    expect(page.get_by_text(EN.t("probe.until_measured"))).to_be_visible()
    live = page.get_by_text("Measured here on").first
    expect(live).to_be_visible(timeout=LIVE_SECONDS * 1000)
    expect(live).to_contain_text("<b>x</b> $\\frac12$ a<|im_end|>b `|`")
    expect(page.get_by_text(EN.t("probe.control_tokens"))).to_be_visible()
    expect(run).to_be_disabled()
    assert torch_is_loaded(server)

    told = subprocess.run(
        [sys.executable, "-m", "model_probe", "capture", "--checkpoint", "qwen2.5-coder-0.5b", "--prompt", prompt],
        check=True, cwd=ROOT, capture_output=True, timeout=300,
    )  # fmt: skip
    document = json.loads(told.stdout)
    sites = [site for site in document["sites"] if site["layer"] == 4]
    for i, site in enumerate(sites):
        for side in ("input", "output"):
            for name in ("l2", "mean", "std", "abs_max"):
                median = float(np.median(np.array(site[side][name], np.float32)))
                expect(number_cell(page, f"{side}.{name}", i)).to_have_text(number(median, 4))
        normalized = float(np.median(np.array(site["normalized"]["l2"], np.float32)))
        expect(number_cell(page, "normalized.l2", i)).to_have_text(number(normalized, 4))
    ticks = page.locator(".st-key-probe-tokens .ytick text").all_text_contents()
    assert "⟦<|im_end|>⟧" in ticks
    assert page.locator("#MathJax_Message, .MathJax, img[src=x]").count() == 0


def test_a_click_in_the_map_chooses_layer_and_token(app: Server, open_address: Open) -> None:
    trace = load_recording().traces["fox"]
    rows = [site.name for site in trace.depth()]
    page = drawn(open_address(f"{app.url}/probe?lang=en"))
    row = rows.index("model.layers.10.post_attention_layernorm")
    click_cell(page, token=7, row=row, tokens=len(trace.tokens), rows=len(rows))
    l2 = number(float(np.median(trace.site(rows[row]).input.l2)), 4)
    expect(number_cell(page, "input.l2", site=1)).to_have_text(l2)
    token = page.get_by_role("combobox", name=EN.t("probe.token"))
    expect(token).to_have_attribute("value", "7 · ␣lazy")
    assert "norm=10.post_attention_layernorm" in page.url
    assert "token=7" in page.url
    page.go_back()
    expect(token).to_have_attribute("value", "0 · The")


@pytest.mark.parametrize("kind", ["json", "csv", "png", "svg"])
def test_every_download_holds_what_it_says(
    app: Server, open_address: Open, tmp_path: Path, kind: str
) -> None:
    page = drawn(open_address(f"{app.url}/probe?lang=en&prompt=river"))
    button = page.get_by_role("button", name=EN.t(f"downloads.{kind}"), exact=True)
    with page.expect_download() as waiting:
        button.click()
    file = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(file)
    assert file.suffix == f".{kind}"
    data = file.read_bytes()
    if kind in {"json", "csv"}:
        got, want = NormTrace.load(file), load_recording().traces["river"]
        assert got.prompt == want.prompt
        np.testing.assert_array_equal(got.sites[-1].output.l2, want.sites[-1].output.l2)
    elif kind == "png":
        assert data.startswith(b"\x89PNG\r\n")
        assert len(data) > 20_000  # a picture, not a blank
    else:
        drawing = data.decode()
        assert drawing.lstrip().startswith("<svg")
        assert EN.t("figures.depth.x") in drawing
        assert depth_title(load_recording().traces["river"], EN) in drawing
        assert load_recording().checkpoint.name in drawing  # the source stands under it


def test_with_an_empty_cache_and_no_network_the_recording_is_there_at_once(
    fresh_app: Callable[..., Server], open_address: Open, tmp_path: Path
) -> None:
    dead = "http://127.0.0.1:9"
    server = fresh_app(
        RMSNORM_LAB_CACHE=str(tmp_path / "cache"), HF_HUB_CACHE=str(tmp_path / "hub"), RMSNORM_LAB_CHECKPOINT="",
        HF_ENDPOINT=dead, MODELSCOPE_DOMAIN="127.0.0.1:9", MODELSCOPE_URL_SCHEME="http://", PIP_INDEX_URL=dead,
    )  # fmt: skip

    def seconds(address: str, shown: str) -> float:
        began = time.monotonic()
        expect(open_address(f"{server.url}/{address}?lang=zh").locator(shown).first).to_be_visible()
        return time.monotonic() - began

    chart = ".st-key-probe-depth .main-svg"
    text = seconds("glossary", "h1")
    waits = [seconds("probe", chart) for _ in range(2)]
    print(f"recording shown after {waits}, a page of text after {text:.1f} s")
    page = open_address(f"{server.url}/probe?lang=zh")
    chinese = words("zh")
    expect(page.locator(".st-key-probe-controls")).to_contain_text("这台机器上还没有模型")
    expect(page.get_by_text("录制于").first).to_be_visible()
    page.locator(".st-key-probe-run button").click()
    expect(page.get_by_text(chinese.t("errors.no_checkpoint"))).to_be_visible()
    page.locator(".st-key-fetch-qwen2-5-coder-0-5b button").click()
    expect(page.get_by_test_id("stAlertContainer").first).to_contain_text("没能取到", timeout=60_000)
    expect(page.locator(".st-key-probe-depth .main-svg").first).to_be_visible()
    assert min(waits) < max(AT_ONCE_SECONDS, AT_ONCE_PAGES * text)
    assert "Traceback" not in server.log()


def test_charts_stay_and_do_not_move(app: Server, open_address: Open) -> None:
    """Fault 26."""
    page = drawn(open_address(f"{app.url}/probe?lang=en"))
    page.evaluate(
        """() => {
          window.seen = new Set()
          const main = document.querySelector('[data-testid=stMain]')
          const look = () => {
            for (const key of ['depth', 'tokens', 'heatmap']) {
              const place = document.querySelector(`.st-key-probe-${key}`)
              const { y, height } = place?.getBoundingClientRect() ?? {}
              const chart = document.querySelector(`.st-key-probe-${key} .main-svg`) ? 'drawn' : 'gone'
              window.seen.add(`${key} ${chart} ${Math.round(y + main.scrollTop)} ${Math.round(height)}`)
            }
            requestAnimationFrame(look)
          }
          look()
        }"""
    )
    page.locator(".st-key-choice-statistic").get_by_role("radio").nth(1).click()
    expect(page).to_have_url(re.compile("[?&]statistic=mean"))
    expect(page.locator(".st-key-probe-depth").last).to_contain_text("L2 per token (mean)")
    drawn(page)
    seen = {tuple(state.split(" ", 1)) for state in page.evaluate("[...window.seen]")}
    for key in ("tokens", "heatmap"):  # which show every token for itself
        assert len({state for chart, state in seen if chart == key}) == 1
    places = {state.split(" ", 1)[1] for chart, state in seen if chart == "depth"}
    assert len(places) == 1  # redrawn where it was


def test_charts_do_not_move_when_the_code_of_the_controls_arrives(app: Server, open_address: Open) -> None:
    """Fault 26, on a first visit."""
    held: list[Route] = []
    free = False

    def hold(route: Route) -> None:
        if free:
            route.continue_()
        else:
            held.append(route)

    page = open_address(f"{app.url}/probe?lang=en")
    page.route(re.compile(r"/static/js/(Button|ButtonGroup|Checkbox|Selectbox|TextArea)\."), hold)
    page.reload()
    expect(page.locator(f".st-key-{HEATMAP} .main-svg").first).to_be_visible()
    assert not_running(page).get_by_test_id("stSkeleton").count() > 0
    charts = [page.locator(f".st-key-{key}") for key in ("probe-depth", "probe-tokens", HEATMAP)]
    before = [chart.bounding_box() for chart in charts]
    free = True
    for route in held:
        route.continue_()
    drawn(page)
    assert [chart.bounding_box() for chart in charts] == before


def test_on_a_phone_the_controls_fold_away_and_nothing_is_wider_than_it(
    app: Server, open_address: Open
) -> None:
    page = drawn(open_address(f"{app.url}/probe?lang=zh", width=390, height=844, color_scheme="dark"))
    text = page.locator(".st-key-probe-text textarea")
    expect(text).to_be_hidden()
    page.locator(".st-key-probe-fold").get_by_text(words("zh").t("probe.controls")).click()
    expect(text).to_be_visible()
    main = page.get_by_test_id("stMain")
    assert main.evaluate("e => e.scrollWidth - e.clientWidth") == 0

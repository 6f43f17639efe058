"""Compare in a real browser: a saved trace opened over the recording, in chart, map and table; what is no trace is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser.conftest import Open
from browser.ready import choose, drawn
from browser.server import Server
from playwright.sync_api import Page, expect

from model_probe.recording import load_recording
from viz.text import LANGUAGES, Words, words

COMPARE = "choice-compare"
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)


def opener(page: Page, text: Words) -> None:
    choose(page, COMPARE, text.t("compare.file"))
    expect(page.get_by_test_id("stFileUploader")).to_be_visible()


def choose_file(page: Page, path: Path) -> None:
    page.get_by_test_id("stFileUploader").locator("input[type=file]").set_input_files(path)


@LANGUAGE
def test_a_saved_trace_is_laid_over_the_recording(
    app: Server, open_address: Open, tmp_path: Path, lang: str
) -> None:
    text = words(lang)
    ending = ".json" if lang == "zh" else ".npz"
    saved = tmp_path / f"river{ending}"
    load_recording().traces["river"].save(saved)
    page = drawn(open_address(f"{app.url}/probe?lang={lang}"))
    opener(page, text)
    choose_file(page, saved)
    expect(page.get_by_text(text.t("compare.is_open", name=f"river{ending}"))).to_be_visible()
    expect(page.locator(".st-key-probe-compared")).to_contain_text("The river flows softly")
    expect(page.locator(".st-key-probe-depth .scatterlayer .trace.scatter")).to_have_count(
        6
    )  # three lines of each
    ratio = page.get_by_role("radio", name=text.t("compare.map.ratio"))
    expect(page.locator(".lab-table").filter(has_text=text.t("compare.map.ratio")).first).to_be_visible()
    ratio.click()
    expect(
        page.get_by_text(text.t("compare.unlike.tokens"))
    ).to_be_visible()  # fox and river differ in theirs


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.json", b'{"format": "rmsnorm-trace/1", "checkpoint": {'),
        ("other.json", b"[1, 2, 3]"),
        ("deep.json", b"[" * 100_000),
        ("noise.npz", b"PK\x03\x04" + bytes(200)),
        ("table.csv", b"a,b\n1,2\n"),
    ],
)
def test_what_is_no_trace_gets_a_sentence(
    app: Server, open_address: Open, tmp_path: Path, name: str, content: bytes
) -> None:
    text = words("zh")
    (tmp_path / name).write_bytes(content)
    page = drawn(open_address(f"{app.url}/probe?lang=zh"))
    opener(page, text)
    choose_file(page, tmp_path / name)
    refusal = page.get_by_test_id("stAlertContainer")
    expect(refusal).to_contain_text(name)
    expect(page.locator(".st-key-probe-compared")).to_have_count(0)
    choose(page, COMPARE, text.t("common.preset.river"))  # the page goes on
    expect(page.locator(".st-key-probe-compared")).to_be_visible()
    assert "Traceback" not in app.log()

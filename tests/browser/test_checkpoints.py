"""Checkpoints in a real browser: one fetched, stopped and taken up again, run, and a second one beside it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiny
from browser.conftest import Open
from browser.ready import at_rest, choose, drawn
from browser.server import Server
from hub import Hub
from playwright.sync_api import Page, expect

from viz.text import words

EN = words("en")
FIRST, SECOND = "qwen3-0.6b", "qwen2.5-0.5b"
ARRIVES = 60_000  # milliseconds, for a small file from this machine, on two busy cores
LOADS = 120_000


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """The two of the table that are safetensors of 24 to 28 layers, small ones in their place."""
    wide = {"vocab_size": 320, "hidden_size": 256, "intermediate_size": 2048}
    served = {
        "Qwen/Qwen3-0.6B": tiny.build("qwen3", tmp_path / "qwen3", num_hidden_layers=6, **wide),
        "Qwen/Qwen2.5-0.5B": tiny.build("qwen2", tmp_path / "qwen2", num_hidden_layers=4),
    }
    with Hub(served) as hub:
        yield hub


@pytest.fixture
def server(hub: Hub, fresh_app: Callable[..., Server], tmp_path: Path) -> Server:
    """A server with empty caches whose hub is the one above, and whose other sources are dead."""
    return fresh_app(
        HF_ENDPOINT=hub.address,
        HF_HUB_CACHE=str(tmp_path / "hub-cache"),
        RMSNORM_LAB_CACHE=str(tmp_path / "cache"),
        RMSNORM_LAB_CHECKPOINT="",
        MODELSCOPE_URL_SCHEME="http://",
        MODELSCOPE_DOMAIN="127.0.0.1:9",
    )


def fetch(page: Page, name: str) -> None:
    at_rest(page).get_by_role("button", name=EN.t("checkpoints.more")).click()
    page.locator(f".st-key-fetch-{name.replace('.', '-')} button").click()


def run(page: Page, name: str) -> None:
    at_rest(page).locator(".st-key-probe-run button").click()
    expect(page.get_by_text("Measured here on").first).to_contain_text(name, timeout=LOADS)


def test_fetched_stopped_taken_up_again_and_run(
    server: Server, hub: Hub, open_address: Open, tmp_path: Path
) -> None:
    hub.fault, hub.drip_seconds = "drip", 40.0
    page = drawn(open_address(f"{server.url}/probe?lang=en"))
    fetch(page, FIRST)
    progress = page.get_by_test_id("stProgress").filter(has_text="model.safetensors")
    expect(progress).to_be_visible(timeout=ARRIVES)
    page.locator(".st-key-measure-stop button").click()
    expect(page.get_by_text(EN.t("checkpoints.stopped.download"))).to_be_visible()
    here = EN.t("checkpoints.here", name=FIRST)
    expect(page.get_by_text(here)).to_have_count(0)
    assert not hub.ranges()

    hub.fault = ""
    fetch(page, FIRST)
    expect(page.get_by_text(here)).to_be_visible(timeout=ARRIVES)
    assert hub.ranges()  # it went on where it had stopped
    run(page, FIRST)

    fetch(page, SECOND)
    expect(page.get_by_text(EN.t("checkpoints.here", name=SECOND))).to_be_visible(timeout=ARRIVES)
    expect(page).to_have_url(f"{server.url}/probe?lang=en&checkpoint={SECOND}")
    run(page, SECOND)

    choose(page, "choice-compare", FIRST)
    over = page.locator(".st-key-probe-compared")
    expect(over).to_contain_text(SECOND)
    expect(over).to_contain_text(FIRST)
    expect(page.get_by_text(re.compile("in A.* in B")).first).to_be_visible()
    assert not list((tmp_path / "hub-cache").rglob("*.incomplete"))
    shutil.rmtree(tmp_path / "hub-cache")  # both are open or were: what is on the page stays
    page.locator(".st-key-probe-run").scroll_into_view_if_needed()
    expect(page.get_by_text("Measured here on").first).to_contain_text(SECOND)
    assert "Traceback" not in server.log()

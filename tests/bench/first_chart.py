"""From the address to the first chart painted: lesson pages against a bare page with one plotly chart.

Each visit is a new session in a fresh browser context on a server that has been visited before, so that both
sides load Streamlit's client from scratch and neither pays for Python's imports. The browser itself notes when the
chart's first frame is up: a test tool that waits for an element looks for it every half second only.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Browser

from bench.chromium import chromium
from bench.ratios import Ratio, compare_seconds
from tests.browser.server import running_app

BOUND = 1.25
PAGES = ("/", "/gain", "/probe")  # the lesson pages that show a plotly chart
TIMEOUT = 120_000  # ms
PAINTED = """
new MutationObserver((_, drawing) => {
  if (!document.querySelector(".js-plotly-plot .main-svg .trace")) return
  drawing.disconnect()
  requestAnimationFrame(() => setTimeout(() => { window.painted = performance.now() }))
}).observe(document, { childList: true, subtree: true })
"""


def rows() -> Iterator[Ratio]:
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        app = stack.enter_context(running_app(logs / "app.txt"))
        bare = stack.enter_context(running_app(logs / "bare.txt", script="tests/bench/bare_page.py"))
        browser = stack.enter_context(chromium())
        base = _visit(browser, bare.url)
        for page in PAGES:
            what = f"first chart, {page} / bare page"
            yield compare_seconds(what, BOUND, _visit(browser, f"{app.url}{page}?lang=en"), base)


def _visit(browser: Browser, url: str) -> Callable[[], float]:
    """Seconds from the navigation to the chart's first frame, in a browser context of their own."""

    def visit() -> float:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        try:
            page = context.new_page()
            page.add_init_script(PAINTED)
            page.goto(url, wait_until="commit")
            painted = page.wait_for_function("window.painted", timeout=TIMEOUT)
            return float(painted.json_value()) / 1000
        finally:
            context.close()

    return visit

"""Fixtures of the browser tests: the app, Chromium, and what the browser's console said.

`chromium` is found on the PATH; RMSNORM_LAB_CHROMIUM names another one. Without any, Playwright's own is
used. When a test fails, the log of the server it used is printed with it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.browser.server import Server, running_app

CHROMIUM_FLAGS: Final = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
EXECUTABLES: Final = ("chromium", "chromium-browser", "google-chrome")

# Streamlit's client asks for these below a deep link before it knows where the app's root is.
STREAMLIT_404: Final = re.compile(r"/[a-z]+/_stcore/(health|host-config)$")

Open = Callable[..., Page]

expect.set_options(timeout=20_000)  # two cores, shared with the server


class Console:
    """The errors of a page: console errors and uncaught exceptions, but for Streamlit's own two 404s."""

    def __init__(self, page: Page) -> None:
        self.errors: list[str] = []
        page.on("console", self._on_message)
        page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))

    def _on_message(self, message: ConsoleMessage) -> None:
        if message.type != "error":
            return
        where = message.location.get("url", "")
        if "404" in message.text and STREAMLIT_404.search(where):
            return
        self.errors.append(f"{message.text} ({where})")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    found = os.environ.get("RMSNORM_LAB_CHROMIUM") or next(filter(None, map(shutil.which, EXECUTABLES)), None)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests that need no fresh one."""
    with running_app(tmp_path_factory.mktemp("server") / "log.txt") as server:
        yield server


@pytest.fixture
def fresh_app(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Server]]:
    """Starts a server that nobody has visited yet: `fresh_app(RMSNORM_LAB_CACHE=…)`."""
    with ExitStack() as stack:
        servers: list[Server] = []
        request.node.stash[SERVERS] = servers

        def start(**environment: str) -> Server:
            log = tmp_path / f"server-{len(servers)}.txt"
            server = stack.enter_context(running_app(log, environment))
            servers.append(server)
            return server

        yield start


@pytest.fixture
def open_address(browser: Browser) -> Iterator[Open]:
    """Opens an address in a browser session of its own and waits until its page is drawn.

    `page = open_address(f"{app.url}/probe?lang=zh", width=390, color_scheme="dark")`; on leaving, the
    console must have been without an error.
    """
    contexts: list[BrowserContext] = []
    consoles: list[Console] = []

    def open_(url: str, *, width: int = 1280, height: int = 900, **options: object) -> Page:
        settings: Mapping[str, object] = {"locale": "en-GB", "color_scheme": "light", **options}
        context = browser.new_context(viewport={"width": width, "height": height}, **settings)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        consoles.append(Console(page))
        page.goto(url)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        return page

    yield open_
    for context in contexts:
        context.close()
    assert [error for console in consoles for error in console.errors] == []


SERVERS: Final = pytest.StashKey[list[Server]]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Adds the log of the servers that a failed test used to its report."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if not report.failed:
        return
    servers = list(item.stash.get(SERVERS, []))
    shared = getattr(item, "funcargs", {}).get("app")
    if isinstance(shared, Server):
        servers.append(shared)
    for server in servers:
        report.sections.append((f"log of the server at {server.url}", server.log()))

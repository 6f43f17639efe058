"""The browser that benches drive: the same one as the browser tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.browser.conftest import CHROMIUM_FLAGS, EXECUTABLES


@contextmanager
def chromium() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, EXECUTABLES)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=CHROMIUM_FLAGS)
        try:
            yield browser
        finally:
            browser.close()

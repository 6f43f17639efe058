"""When a page can be used: its last chart is there and its script has ended."""

from __future__ import annotations

from playwright.sync_api import Page, TimeoutError, expect

from viz.probe_controls import HEATMAP

# What has just been drawn fades in, and half faded text has half its contrast; what turns for ever is not waited for.
FADED = """
() => document.getAnimations().every(
  a => a.playState !== 'running' || a.effect?.getComputedTiming().iterations === Infinity)
"""


def faded_in(page: Page) -> Page:
    """The page, in front (animations of one behind another stand still), once nothing fades in any more."""
    page.bring_to_front()
    page.wait_for_function(FADED)
    return page


def at_rest(page: Page) -> Page:
    """The page once nothing runs and every control has its code.

    A menu that was opened before would be closed by what is still to come, and a place would still move.
    """
    expect(not_running(page).get_by_test_id("stSkeleton")).to_have_count(0)
    return page


def not_running(page: Page) -> Page:
    """The page once its script has ended."""
    expect(page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_be_attached()
    return page


def settled(page: Page) -> Page:
    """The page when it is there to its end and nothing runs."""
    expect(page.locator(".st-key-shell-footer")).to_be_visible()
    return at_rest(page)


def drawn(page: Page) -> Page:
    """The probe when its map is there and nothing runs."""
    expect(page.locator(f".st-key-{HEATMAP} .main-svg").first).to_be_visible()
    return at_rest(page)


def choose(page: Page, key: str, option: str) -> None:
    """Take the option that holds this text from the menu whose key begins so.

    By keyboard, as scrolling closes a menu; again where a run of the page has closed it.
    """
    menu = at_rest(page).locator(f"[class*=st-key-{key}] [role=combobox]").last
    wanted = page.get_by_role("option").filter(has_text=option)
    for _ in range(5):
        menu.press("ArrowDown")
        try:
            wanted.click(timeout=4000)
        except TimeoutError:
            at_rest(page)
        else:
            return
    raise AssertionError(f"the menu {key} does not open")

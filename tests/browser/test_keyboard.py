"""The whole lesson without a pointer: every page is reached, moved and left by keyboard alone."""

from __future__ import annotations

import re

import pytest
from browser.conftest import Open
from browser.drag import slider
from browser.ready import at_rest
from browser.server import Server
from playwright.sync_api import Page, expect

from viz.book import open_pages
from viz.questions import QUESTIONS, rights
from viz.text import LANGUAGES, words

SLIDERS = {
    "saturation": "saturation",
    "scale": "scale",
    "gain": "gain",
    "placement": "depth",
    "probe": "layer",
}
MOST_TABS = 250
FOCUSED = """
selector => {
  let focused = document.activeElement
  while (focused?.shadowRoot?.activeElement) focused = focused.shadowRoot.activeElement
  return Boolean(focused?.matches(selector))
}
"""


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until what has the focus matches."""
    expect(page.locator(selector).first).to_be_attached()
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUSED, selector):
            return
    pytest.fail(f"{selector} is not reached by Tab on {page.url}")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_whole_lesson_by_keyboard(app: Server, open_address: Open, lang: str) -> None:
    page = open_address(f"{app.url}/?lang={lang}")
    reader = words(lang)
    pages = open_pages()
    for entry, following in zip(pages, (*pages[1:], None), strict=True):
        expect(page.get_by_role("heading", level=1)).to_have_text(reader.t(f"{entry.stem}.title"))
        at_rest(page)
        if entry.stem in ("start", "scale", "gain", "placement"):  # predict, then see the answer
            tab_to(page, "[class*=st-key-predict-] button")
            page.keyboard.press("Enter")
            expect(page.locator("[class*=st-key-predict-] button").first).to_be_disabled()
            at_rest(page)
        if entry.stem in SLIDERS:
            name = SLIDERS[entry.stem]
            readout = page.locator(f'[data-readout="{name}.value"]').first
            slider(page, name).scroll_into_view_if_needed()
            tab_to(page, f'[data-live="{name}"]')
            page.keyboard.press("Home")
            before, url = readout.text_content(), page.url
            page.keyboard.press("ArrowRight")
            expect(readout).not_to_have_text(before or "")
            expect(page).not_to_have_url(url)  # let go, it is in the address
            at_rest(page)
        if entry.stem == "quiz":
            question = QUESTIONS[0]
            tab_to(page, f".st-key-quiz-{question.key} button")
            page.keyboard.press("Enter")
            chosen = "right" if question.options[0].code == rights()[question.key] else "wrong"
            marked = page.locator(f".st-key-quiz-{question.key}").get_by_text(reader.t(f"quiz.{chosen}"))
            expect(marked.first).to_be_visible()
            at_rest(page)
        if following is not None:
            tab_to(page, ".st-key-shell-next a")
            page.keyboard.press("Enter")
            expect(page).to_have_url(re.compile(rf"/{following.stem}\?.*lang={lang}"))

"""Terms in the prose open their note by keyboard and by touch; links in the prose stay in the session."""

from __future__ import annotations

from browser.conftest import Open
from browser.ready import settled
from browser.server import Server
from playwright.sync_api import Locator, Page, expect

from viz.text import words


def note(page: Page, key: str) -> Locator:
    return page.locator(f"#term-{key}")


def test_a_term_opens_and_closes_by_keyboard(app: Server, open_address: Open) -> None:
    page = open_address(f"{app.url}/formula?lang=en")
    button = page.get_by_role("button", name="LayerNorm", exact=True)
    button.focus()
    expect(note(page, "layer_norm")).to_be_hidden()
    page.keyboard.press("Enter")
    expect(note(page, "layer_norm")).to_be_visible()
    expect(note(page, "layer_norm")).to_contain_text(words("en").t("glossary.name.layer_norm"))
    page.keyboard.press("Tab")  # what is next is in the note
    assert page.evaluate("document.querySelector('#term-layer_norm').contains(document.activeElement)")
    page.keyboard.press("Escape")
    expect(note(page, "layer_norm")).to_be_hidden()
    expect(button).to_be_focused()


def test_a_note_fits_on_a_phone_and_opens_by_touch(app: Server, open_address: Open) -> None:
    page = open_address(f"{app.url}/formula?lang=zh", width=390, has_touch=True, is_mobile=True)
    settled(page)
    expect(page.locator(".lab-term:visible").nth(5)).to_be_visible()
    targets = page.locator(".lab-term:visible").evaluate_all(  # not those in what is folded
        "terms => terms.map(term => term.getAttribute('popovertarget'))"
    )
    for target in targets:
        key = target.removeprefix("term-")
        page.locator(f'[popovertarget="{target}"]').tap()
        expect(note(page, key)).to_be_visible()
        box = note(page, key).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        page.keyboard.press("Escape")
        expect(note(page, key)).to_be_hidden()


def test_a_link_of_a_note_goes_to_its_page_in_this_session(app: Server, open_address: Open) -> None:
    page = open_address(f"{app.url}/?lang=zh")
    page.get_by_role(
        "button", name="1 000", exact=False
    ).click()  # an answer that a new session would not have
    page.get_by_role("button", name="RMSNorm", exact=True).click()
    note(page, "rms_norm").get_by_role("link", name=words("zh").t("common.page.formula")).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(words("zh").t("formula.title"))
    expect(page).to_have_url(f"{app.url}/formula?lang=zh")
    assert len(page.context.pages) == 1
    page.go_back()
    expect(
        page.get_by_text(words("zh").t("start.growth.guess.1000").strip(), exact=False).first
    ).to_be_visible()
    expect(page.get_by_role("button", name="1 000", exact=False)).to_be_disabled()


def test_a_station_without_a_page_leads_to_its_entry_of_the_glossary(app: Server, open_address: Open) -> None:
    page = open_address(f"{app.url}/?lang=en")
    page.locator('a[href="glossary?lang=en#lm_head"]:visible').click()
    expect(page.get_by_role("heading", level=1)).to_have_text(words("en").t("glossary.title"))
    expect(page.locator("#lm_head")).to_be_in_viewport()
    assert len(page.context.pages) == 1

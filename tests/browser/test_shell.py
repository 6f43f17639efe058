"""The frame in a real browser: cold deep links, language, theme, contents, width, accessibility rules."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.conftest import Open
from browser.ready import faded_in, settled
from browser.server import Server
from playwright.sync_api import Page, expect

from viz.book import DEFAULT, open_pages
from viz.text import LANGUAGES, words
from viz.theme import DARK, LIGHT

STEMS = [page.stem for page in open_pages()]
DEEP = [stem for stem in STEMS if stem != DEFAULT]
PALETTES = {"light": LIGHT, "dark": DARK}
QUIET_MS = 1500


def address(stem: str, lang: str) -> str:
    return f"/{'' if stem == DEFAULT else stem}?lang={lang}"


def expect_page(page: Page, stem: str, lang: str) -> None:
    """The page of this stem is drawn in this language."""
    expect(page.get_by_role("heading", level=1)).to_have_text(words(lang).t(f"{stem}.title"))
    expect(page).to_have_title(f"{words(lang).t(f'common.page.{stem}')} · RMSNorm Lab")


@pytest.mark.parametrize("stem", DEEP)
def test_the_first_visit_of_a_fresh_server_may_be_a_deep_link(
    fresh_app: Callable[..., Server], open_address: Open, stem: str
) -> None:
    # Streamlit's own menu, shown for this test, betrays a page that ran without the router, which hides it.
    server = fresh_app(STREAMLIT_CLIENT_SHOW_SIDEBAR_NAVIGATION="true")
    page = open_address(server.url + address(stem, "zh"))
    expect_page(page, stem, "zh")
    expect(settled(page).get_by_test_id("stSidebar")).to_have_count(0)
    expect(page.get_by_text("Page not found")).to_have_count(0)
    assert page.url == server.url + address(stem, "zh")
    page.get_by_role("link", name=words("zh").t("common.brand")).click()
    expect_page(page, DEFAULT, "zh")
    for complaint in ("Traceback", "Error", "WARNING"):
        assert complaint not in server.log()


def test_controls_show_what_the_page_shows_however_late_their_code_arrives(
    app: Server, open_address: Open
) -> None:
    """A fresh browser loads the widgets' code while the page already runs again."""
    said = words("en")
    for _ in range(2):
        page = settled(open_address(f"{app.url}/gain?lang=en&layer=3&site=post_attention_layernorm"))
        expect(page.get_by_role("group", name=said.t("gain.layer"))).to_match_aria_snapshot('- slider: "3"')
        expect(page.get_by_role("radio", name="MLP input")).to_be_checked()
        page = settled(open_address(f"{app.url}/probe?lang=en"))
        for label in ("common.preset.fox", "probe.log", "common.statistic.median"):
            expect(page.get_by_role("radio", name=said.t(label), exact=True)).to_be_checked()


@pytest.mark.parametrize(("locale", "lang"), [("zh-CN", "zh"), ("en-GB", "en"), ("de-DE", "en")])
def test_without_a_language_the_browser_decides(
    app: Server, open_address: Open, locale: str, lang: str
) -> None:
    page = open_address(app.url, locale=locale)
    expect_page(page, DEFAULT, lang)
    expect(page.locator("html")).to_have_attribute("lang", {"zh": "zh-Hans", "en": "en"}[lang])


def test_a_language_link_keeps_the_page_and_the_rest_of_its_address(app: Server, open_address: Open) -> None:
    page = settled(open_address(f"{app.url}/?lang=en&kept=1"))
    page.get_by_role("button", name="中文").click()
    expect_page(page, DEFAULT, "zh")
    expect(page).to_have_url(f"{app.url}/?lang=zh&kept=1")
    page.go_back()
    expect_page(page, DEFAULT, "en")
    page.go_forward()
    expect_page(page, DEFAULT, "zh")
    page.reload()
    expect_page(page, DEFAULT, "zh")


@pytest.mark.parametrize("width", [390, 1280])
def test_contents_lead_to_every_page_in_the_language_and_close(
    app: Server, open_address: Open, width: int
) -> None:
    chinese = words("zh")
    page = settled(open_address(app.url + address(DEFAULT, "zh"), width=width))
    for stem in [*DEEP, DEFAULT]:
        page.get_by_role("button", name=chinese.t("common.contents")).click()
        entries = page.get_by_test_id("stPopoverBody")
        expect(entries.get_by_role("link")).to_have_count(len(STEMS) - 1)  # all but the page itself
        entries.get_by_role("link", name=chinese.t(f"common.page.{stem}")).click()
        expect_page(page, stem, "zh")
        expect(entries).to_have_count(0)
        expect(page).to_have_url(app.url + address(stem, "zh"))


def test_next_and_previous_walk_through_all_pages(app: Server, open_address: Open) -> None:
    english = words("en")
    page = settled(open_address(app.url + address(DEFAULT, "en")))
    for stem in STEMS[1:]:
        settled(page).get_by_role("link", name=f"{english.t(f'common.page.{stem}')} →").click()
        expect_page(page, stem, "en")
    for stem in reversed(STEMS[:-1]):
        settled(page).get_by_role("link", name=f"← {english.t(f'common.page.{stem}')}").click()
        expect_page(page, stem, "en")


def expect_drawn_for(page: Page, scheme: str) -> None:
    """Python knows the theme: the page has that palette's colours."""
    page.wait_for_function(
        "colour => getComputedStyle(document.documentElement).getPropertyValue('--lab-ground') === colour",
        arg=PALETTES[scheme].ground,
    )


def expect_chart_drawn_for(page: Page, scheme: str) -> None:
    """The first chart's ground is that palette's."""
    page.wait_for_function(
        "colour => document.querySelector('.js-plotly-plot')?.layout?.paper_bgcolor === colour",
        arg=PALETTES[scheme].ground,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_is_the_systems_from_the_first_chart_on(
    app: Server, open_address: Open, scheme: str
) -> None:
    page = open_address(app.url, color_scheme=scheme)
    expect_drawn_for(page, scheme)
    expect_chart_drawn_for(page, scheme)


def test_a_switch_of_the_system_redraws_once(app: Server, open_address: Open) -> None:
    page = open_address(app.url, color_scheme="light")
    settled(page)
    expect_chart_drawn_for(page, "light")
    for scheme in ("dark", "light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        expect_drawn_for(page, scheme)
    settled(page)
    assert page.evaluate(COUNT_RUNS, QUIET_MS) == 0  # no loop
    expect_chart_drawn_for(page, "dark")


# How often the app goes from idle to running while one waits.
COUNT_RUNS = """
wait => new Promise(done => {
  let runs = 0
  const app = document.querySelector('[data-testid=stApp]')
  const watch = new MutationObserver(() => {
    if (app.getAttribute('data-test-script-state') === 'running') runs += 1
  })
  watch.observe(app, {attributes: true, attributeFilter: ['data-test-script-state']})
  setTimeout(() => { watch.disconnect(); done(runs) }, wait)
})
"""


def test_the_reading_line_follows_the_page(app: Server, open_address: Open) -> None:
    page = settled(open_address(app.url))
    line = page.locator(".progress")
    expect(line).to_have_css("transform", "matrix(0, 0, 0, 1, 0, 0)")
    page.get_by_test_id("stMain").evaluate("e => e.scrollTo(0, e.scrollHeight)")
    expect(line).to_have_css("transform", "matrix(1, 0, 0, 1, 0, 0)")


BEYOND = """
main => [...main.querySelectorAll('h1, h2, p, li, button, a')]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.textContent)
"""


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("stem", STEMS)
def test_every_view_is_whole(app: Server, open_address: Open, stem: str, lang: str) -> None:
    page = settled(open_address(app.url + address(stem, lang)))
    main = page.get_by_test_id("stMain")
    for width, scheme in itertools.product((390, 1920), PALETTES):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        expect_drawn_for(page, scheme)
        expect(settled(page).get_by_test_id("stException")).to_have_count(0)
        assert main.evaluate("e => e.scrollWidth <= e.clientWidth"), f"{width} {scheme}: scrolls sideways"
        assert main.evaluate(BEYOND) == [], f"{width} {scheme}"


@pytest.mark.parametrize("scheme", list(PALETTES))
@pytest.mark.parametrize("stem", STEMS)
def test_accessibility_rules(app: Server, open_address: Open, stem: str, scheme: str) -> None:
    page = settled(open_address(app.url + address(stem, "en"), color_scheme=scheme))
    expect_drawn_for(page, scheme)
    expect(page.locator("[data-stale=true]")).to_have_count(0)
    for slider in page.locator("[class*=st-key-live-]").all():
        expect(slider.locator(".reset")).not_to_be_empty()
    faded_in(page)
    result = Axe().run(page)
    grave = [
        (violation["id"], [node["target"] for node in violation["nodes"]])
        for violation in result.response["violations"]
        if violation["impact"] in ("serious", "critical")
    ]
    assert grave == []

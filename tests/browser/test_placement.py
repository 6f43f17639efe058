"""The page `placement` and the drawings in a real browser: all three curves, theme, size, and links that lead on."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest
from browser.conftest import Open
from browser.drag import drag, readouts, slider
from browser.ready import at_rest
from browser.server import Server
from playwright.sync_api import Locator, Page, expect

from model_probe.profiles import PLACEMENTS, SHIPPED
from viz.drawings.forward import PAGES
from viz.text import LANGUAGES, number, words

LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
NINE = 9


def figures(series: str, depth: str) -> dict[str, str]:
    """The readouts of a depth, straight from the file."""
    shown: dict[str, str] = {}
    for stack in json.loads(SHIPPED.read_text())["stacks"]:
        if (stack["initialisation"], stack["depth"]) == ("xavier", int(depth)):
            first, last = stack[series][0], stack[series][-1]
            for what, value in (("first", first), ("last", last), ("ratio", np.divide(first, last))):
                shown[f"{stack['placement']}.{what}"] = number(float(value))
    return shown


def revealed(page: Page, lang: str = "en") -> Page:
    page.get_by_role("button", name=words(lang).t("common.show_me")).click()
    expect(page.locator('[data-readout="depth.pre_norm.last"]').first).not_to_be_empty()
    return at_rest(page)


def goes_to(page: Page, index: int) -> None:
    slider(page, "depth").evaluate("(e, i) => { e.value = i; e.dispatchEvent(new Event('input')) }", index)


def drawing(page: Page) -> Locator:
    return page.locator('[data-drawing="depth"]')


@LANGUAGE
def test_all_three_placements_are_what_was_measured(app: Server, open_address: Open, lang: str) -> None:
    page = revealed(open_address(f"{app.url}/placement?lang={lang}"), lang)
    depths = sorted({str(stack["depth"]) for stack in json.loads(SHIPPED.read_text())["stacks"]}, key=int)
    assert int(slider(page, "depth").get_attribute("max") or 0) == len(depths) - 1
    for index in (round(i) for i in np.linspace(0, len(depths) - 1, NINE)):
        goes_to(page, index)
        seen = readouts(page, "depth")
        expected = figures("weight_gradient", depths[index])
        assert {what: seen[what] for what in expected} == expected
        assert seen["layers"] == depths[index]


def test_another_series_is_drawn_and_the_depth_stays(app: Server, open_address: Open) -> None:
    page = revealed(open_address(f"{app.url}/placement?lang=en&depth=24"))
    page.get_by_role("radio", name=words("en").t("placement.series.activation")).click()
    expect(page).to_have_url(re.compile("series=activation"))
    expect(drawing(page)).to_contain_text(words("en").t("placement.axis.activation"))
    expected = figures("activation", "24")
    expect(page.locator('[data-readout="depth.pre_norm.last"]').first).to_have_text(expected["pre_norm.last"])
    assert {what: readouts(page, "depth")[what] for what in expected} == expected
    page.go_back()
    expect(drawing(page)).to_contain_text(words("en").t("placement.axis.weight_gradient"))


def test_a_drag_of_all_three_is_painted_without_a_message(app: Server, open_address: Open) -> None:
    page = revealed(open_address(f"{app.url}/placement?lang=en"))
    result = drag(page, "depth")
    assert result.messages == 0
    assert result.painted >= 0.9 * result.moves > 0
    assert result.pictures >= 4


def test_a_curve_that_leaves_the_picture_says_so(app: Server, open_address: Open) -> None:
    page = revealed(open_address(f"{app.url}/placement?lang=en"))
    name = words("en").t("placement.curve.no_norm")
    label = drawing(page).locator("text.no_norm")
    expect(label).to_have_text(name)
    goes_to(page, int(slider(page, "depth").get_attribute("max") or 0))
    expect(label).to_have_text(f"{name} ↑")
    expect(drawing(page).locator("circle.end.no_norm")).to_be_hidden()
    expect(drawing(page).locator("circle.end.pre_norm")).to_be_visible()
    frame, written = drawing(page).locator("svg").first.bounding_box(), label.bounding_box()
    assert frame is not None
    assert written is not None
    assert written["y"] >= frame["y"]


@pytest.mark.parametrize("width", [390, 1920])
@LANGUAGE
def test_names_at_the_curves_never_overlap_or_leave(
    app: Server, open_address: Open, lang: str, width: int
) -> None:
    page = revealed(open_address(f"{app.url}/placement?lang={lang}", width=width), lang)
    for index in range(int(slider(page, "depth").get_attribute("max") or 0) + 1):
        goes_to(page, index)
        boxes = [drawing(page).locator(f"text.{role}").bounding_box() for role in PLACEMENTS]
        assert all(box is not None and box["x"] + box["width"] <= width for box in boxes)
        tops = sorted(box["y"] for box in boxes if box is not None)
        assert all(second - first >= 14 for first, second in itertools.pairwise(tops)), index


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_drawings_are_whole_and_follow_the_theme(app: Server, open_address: Open, scheme: str) -> None:
    page = open_address(f"{app.url}/placement?lang=en", width=390, color_scheme=scheme)
    for placement in ("post_norm", "pre_norm"):
        name = words("en").t(f"drawings.{placement}.name")
        picture = page.get_by_role("img", name=re.compile(re.escape(name)))
        expect(picture).to_be_visible()
        box = picture.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    light = [
        int(n)
        for n in re.findall(
            r"\d+", page.locator(".drawing text").first.evaluate("e => getComputedStyle(e).fill")
        )
    ]
    assert (sum(light[:3]) > 3 * 128) == (scheme == "dark")


@pytest.mark.parametrize(("width", "shown", "hidden"), [(1280, "wide", "narrow"), (390, "narrow", "wide")])
def test_the_map_has_a_picture_for_the_room_there_is(
    app: Server, open_address: Open, width: int, shown: str, hidden: str
) -> None:
    page = open_address(f"{app.url}/?lang=en", width=width)
    expect(page.locator(f".drawing svg.{shown}")).to_be_visible()
    expect(page.locator(f".drawing svg.{hidden}")).to_be_hidden()
    box = page.locator(f".drawing svg.{shown}").bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


@LANGUAGE
def test_a_station_leads_to_its_page_in_the_same_session(app: Server, open_address: Open, lang: str) -> None:
    page = open_address(f"{app.url}/?lang={lang}")
    page.evaluate("window.same = true")
    station = words(lang).t("drawings.forward.add")
    title = words(lang).t("common.page.placement")
    link = page.get_by_role("link", name=words(lang).t("drawings.forward.leads", station=station, page=title))
    link.first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(words(lang).t("placement.title"))
    expect(page).to_have_url(re.compile(rf"/placement\?lang={lang}$"))
    assert page.evaluate("window.same")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text(words(lang).t("start.title"))


def test_stations_are_reached_and_opened_by_keyboard(app: Server, open_address: Open) -> None:
    page = open_address(f"{app.url}/?lang=en")
    stem, choices = PAGES["final_norm"]
    name = words("en").t(
        "drawings.forward.leads",
        station=words("en").t("drawings.forward.final_norm"),
        page=words("en").t(f"common.page.{stem}"),
    )
    link = page.get_by_role("link", name=name)
    expect(link).to_be_visible()
    for _ in range(60):
        page.keyboard.press("Tab")
        if link.evaluate("e => e.getRootNode().activeElement === e"):
            break
    assert link.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(words("en").t(f"{stem}.title"))
    for parameter, code in choices.items():
        expect(page).to_have_url(re.compile(f"[?&]{parameter}={code}"))

"""The cells of the formula page: what the browser computes is what NumPy computes, at every key."""

from __future__ import annotations

import numpy as np
import pytest
from browser.conftest import Open
from browser.server import Server
from playwright.sync_api import Locator, Page, expect

from model_probe.worked import EXAMPLE, rms_norm_steps
from viz.cells import FEWEST, MOST, decoded, encoded, shown
from viz.text import words

VECTORS = [
    EXAMPLE,
    (3.0, 1.0, -2.0, 4.0),
    (1.0, 1.0),
    (0.5, -0.25, 0.125, 12.0, -7.3),
    (0.0, 0.0, 0.0),
    (0.001, 0.002, -0.003, 0.0),
    (1000.0, -999.0, 1.0),
    (123456.0, 0.0, -1000000.0, 3.14159, 2.0, 0.1, 7.0),
    (1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 7.0, -8.0),
]
ENGLISH = words("en")


def entries(page: Page) -> Locator:
    return page.locator("[data-cell]")


def expect_steps(page: Page, vector: tuple[float, ...]) -> None:
    """Every step of this vector is on the page, to the digits shown."""
    steps = rms_norm_steps(vector)
    expect(entries(page)).to_have_count(len(vector))
    for name, values in (("square", steps.squares), ("y", steps.y)):
        for position, value in enumerate(values):
            expect(page.locator(f'[data-readout="formula.{name}.{position}"]')).to_have_text(shown(value))
    expect(page.locator('[data-readout="formula.mean_square"]')).to_have_text(shown(steps.mean_square))
    expect(page.locator('[data-readout="formula.rms"]')).to_have_text(shown(steps.rms))


def test_every_step_is_what_numpy_computes(app: Server, open_address: Open) -> None:
    page = open_address(f"{app.url}/formula?lang=en")
    expect_steps(page, EXAMPLE)
    for vector in VECTORS:
        page.goto(f"{app.url}/formula?lang=en&x={encoded(vector)}")
        expect_steps(page, vector)


def test_typing_is_seen_at_once_and_then_in_the_address(app: Server, open_address: Open) -> None:
    page = open_address(f"{app.url}/formula?lang=en")
    expect_steps(page, EXAMPLE)
    entries(page).nth(0).fill("−20")
    assert page.locator('[data-readout="formula.square.0"]').inner_text() == "400"
    expect_steps(page, (-20.0, *EXAMPLE[1:]))
    expect(page).to_have_url(f"{app.url}/formula?lang=en&x=-20_-1_3_0")
    page.get_by_role("button", name=ENGLISH.t("formula.cells.add")).click()
    expect(entries(page).nth(4)).to_be_focused()
    page.keyboard.type("0,5")
    expect_steps(page, (-20.0, *EXAMPLE[1:], 0.5))
    expect(page).to_have_url(f"{app.url}/formula?lang=en&x=-20_-1_3_0_0.5")
    page.go_back()
    expect_steps(page, (-20.0, *EXAMPLE[1:]))
    page.get_by_role("button", name=ENGLISH.t("formula.cells.reset")).click()
    expect_steps(page, EXAMPLE)
    expect(page).to_have_url(f"{app.url}/formula?lang=en")


def test_the_arrow_keys_step_and_the_count_has_its_limits(app: Server, open_address: Open) -> None:
    page = open_address(f"{app.url}/formula?lang=en")
    entries(page).nth(3).press("ArrowDown")
    entries(page).nth(3).press("Shift+ArrowUp")
    expect_steps(page, (*EXAMPLE[:3], 9.0))
    add, remove = (
        page.get_by_role("button", name=ENGLISH.t(f"formula.cells.{name}")) for name in ("add", "remove")
    )
    while add.is_enabled():
        add.click()
    expect(entries(page)).to_have_count(MOST)
    while remove.is_enabled():
        remove.click()
    expect(entries(page)).to_have_count(FEWEST)
    expect_steps(page, EXAMPLE[:FEWEST])


@pytest.mark.parametrize(
    ("typed", "label"), [("", "empty"), ("abc", "no_number"), ("0x10", "no_number"), ("1e9", "too_large")]
)
def test_what_is_no_number_is_said_in_a_sentence(
    app: Server, open_address: Open, typed: str, label: str
) -> None:
    page = open_address(f"{app.url}/formula?lang=en")
    entries(page).nth(1).fill(typed)
    expect(page.locator(".says")).to_have_text(
        ENGLISH.t(f"formula.cells.{label}", name="x₂", largest=shown(1e6))
    )
    expect(entries(page).nth(1)).to_have_attribute("aria-invalid", "true")
    for readout in ("rms", "y.0", "y.1", "square.1"):  # a dash, never a 0
        expect(page.locator(f'[data-readout="formula.{readout}"]')).to_have_text("—")
    assert "x=" not in page.url
    entries(page).nth(1).fill("5")
    expect_steps(page, (2.0, 5.0, 3.0, 0.0))


def test_where_epsilon_rules_the_length_is_said_to_be_short(app: Server, open_address: Open) -> None:
    tiny = (0.001, -0.002, 0.0)
    page = open_address(f"{app.url}/formula?lang=en&x={encoded(tiny)}")
    before, after = (shown(float(np.linalg.norm(x))) for x in (tiny, rms_norm_steps(tiny).y))
    expect(page.locator(".says")).to_have_text(
        ENGLISH.t("formula.cells.short", before=before, after=after, n=3)
        + ENGLISH.t("formula.cells.zero", names="x₃")
    )


def test_a_change_of_language_keeps_the_numbers(app: Server, open_address: Open) -> None:
    page = open_address(f"{app.url}/formula?lang=en&x=4_5_6")
    expect_steps(page, (4.0, 5.0, 6.0))
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_role("button", name=words("zh").t("formula.cells.add"))).to_be_visible()
    expect_steps(page, decoded("4_5_6") or ())

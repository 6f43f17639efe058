"""Colours: the roles' own, readable on their ground, and the same for Streamlit as for figures."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from viz.theme import DARK, LIGHT, LINE_STYLES, Palette, contrast, mix, palette

CONFIG = tomllib.loads((Path(__file__).parents[1] / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
BOTH = pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
LETTERS = ("text", "muted", "accent", "good", "careful", *LINE_STYLES)

# What Markdown's colour names stand for in prose: :orange[residual]
MARKDOWN = {
    "orange": "residual", "blue": "normalized", "violet": "output", "red": "sink", "gray": "reference",
    "green": "good", "yellow": "careful",
}  # fmt: skip


@BOTH
def test_colours_are_written_in_full(colours: Palette) -> None:
    for field in fields(colours):
        if field.name != "mode":
            assert re.fullmatch("#[0-9A-F]{6}", getattr(colours, field.name)), field.name


@BOTH
@pytest.mark.parametrize("ground", ["ground", "surface"])
@pytest.mark.parametrize("name", LETTERS)
def test_lines_and_letters_can_be_read(colours: Palette, ground: str, name: str) -> None:
    assert contrast(getattr(colours, name), getattr(colours, ground)) >= 4.5


def test_contrast_and_mix() -> None:
    assert contrast("#FFFFFF", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)
    assert mix("#102030", "#102030", 0.7) == "#102030"
    assert mix("#000000", "#FF0000", 1.0) == "#FF0000"


@BOTH
def test_streamlit_has_the_same_colours(colours: Palette) -> None:
    section = CONFIG["theme"][colours.mode]
    assert section["backgroundColor"] == colours.ground
    assert section["secondaryBackgroundColor"] == colours.surface
    assert section["textColor"] == colours.text
    assert section["primaryColor"] == section["linkColor"] == colours.accent
    assert section["borderColor"] == colours.grid
    for name, role in MARKDOWN.items():
        assert section[f"{name}Color"] == section[f"{name}TextColor"] == getattr(colours, role)


def test_roles_differ_without_colour() -> None:
    assert len({(style.dash, style.symbol) for style in LINE_STYLES.values()}) == len(LINE_STYLES)


@BOTH
def test_colour_scales_run_from_0_to_1_and_get_away_from_the_ground(colours: Palette) -> None:
    for stops in (*map(colours.sequential, LINE_STYLES), colours.diverging()):
        places = [place for place, _ in stops]
        assert places[0] == 0
        assert places[-1] == 1
        assert places == sorted(places)
    for role in LINE_STYLES:
        distances = [contrast(colour, colours.ground) for _, colour in colours.sequential(role)]
        assert distances == sorted(distances)
    middle = len(colours.diverging()) // 2
    assert colours.diverging()[middle][0] == 0.5


@BOTH
def test_style_sheets_get_every_colour(colours: Palette) -> None:
    css = colours.css_variables()
    for name in ("residual", "ground", "grid", *LETTERS):
        assert f"--lab-{name}:{getattr(colours, name)};" in css
    assert "mode" not in css


def test_an_unknown_mode_is_light() -> None:
    assert palette("dark") is DARK
    assert palette("light") is LIGHT
    assert palette(None) is LIGHT


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(KeyError):
        LIGHT.role("ground")

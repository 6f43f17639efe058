"""The vector drawings as text: in both languages, described, whole, and with links to pages that exist."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from viz.book import BOOK
from viz.drawings.blocks import post_norm, pre_norm
from viz.drawings.forward import ENTRIES, PAGES, forward_map
from viz.drawings.svg import Drawing, arrow, box, link, text
from viz.glossary import term
from viz.text import LANGUAGES, Words, words

CSS = (Path(__file__).resolve().parent.parent / "viz/drawings/drawing.css").read_text(encoding="utf-8")


def anywhere(stem: str, choices: Mapping[str, str]) -> str | None:
    return "&".join([f"{stem}?lang=xx", *(f"{name}={code}" for name, code in choices.items())])


def map_of(reader: Words) -> Drawing:
    return forward_map(reader, 24, anywhere)


DRAWINGS: tuple[Callable[[Words], Drawing], ...] = (post_norm, pre_norm, map_of)
DRAWING = pytest.mark.parametrize("make", DRAWINGS, ids=lambda make: make.__name__)
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)


def pictures(drawing: Drawing) -> list[ET.Element]:
    return list(ET.fromstring(f"<div>{drawing.markup()}</div>"))


def said(picture: ET.Element) -> str:
    """All that stands in a picture, its description aside."""
    return " ".join(label.text or "" for label in picture.iter("text"))


@DRAWING
@LANGUAGE
def test_it_has_words_for_those_who_do_not_see_it(make: Callable[[Words], Drawing], lang: str) -> None:
    drawing = make(words(lang))
    for picture in pictures(drawing):
        label = picture.get("aria-label", "")
        assert drawing.name in label
        told = label if picture.get("role") == "img" else "".join(d.text or "" for d in picture.iter("desc"))
        assert drawing.description in told
        assert (picture.get("role") == "img") == (not list(picture.iter("a")))


@DRAWING
@LANGUAGE
def test_everything_lies_within_the_picture(make: Callable[[Words], Drawing], lang: str) -> None:
    for picture in pictures(make(words(lang))):
        width, height = float(picture.get("width", 0)), float(picture.get("height", 0))
        for rect in picture.iter("rect"):
            x, y, w, h = (float(rect.get(name, "nan")) for name in ("x", "y", "width", "height"))
            assert x >= 0 <= y
            assert x + w <= width
            assert y + h <= height
        for path in picture.iter("path"):
            numbers = [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", path.get("d", ""))]
            assert all(0 <= n <= max(width, height) for n in numbers)


@DRAWING
def test_the_languages_differ_in_words_and_in_nothing_else(make: Callable[[Words], Drawing]) -> None:
    def bare(lang: str) -> list[str]:
        return [
            re.sub(r">[^<>]+<", "><", re.sub(r'aria-label="[^"]*"', "", ET.tostring(p, encoding="unicode")))
            for p in pictures(make(words(lang)))
        ]

    assert bare("zh") == bare("en")
    assert said(pictures(make(words("zh")))[0]) != said(pictures(make(words("en")))[0])


@DRAWING
def test_every_class_of_a_part_is_in_the_style_sheet(make: Callable[[Words], Drawing]) -> None:
    used = set(" ".join(re.findall(r'class="([^"]*)"', make(words("en")).markup())).split())
    assert {name for name in used if f".{name}" not in CSS} == set()
    assert "#" not in CSS.split("*/", 1)[1]  # every colour is a variable of the theme


def test_only_post_norm_puts_norms_in_the_gradients_way() -> None:
    """Pieces of the gradient's line: cut once by each norm that stands in it."""
    pieces = {
        make.__name__: len(re.findall(r'class="line gradient', make(words("en")).markup()))
        for make in (post_norm, pre_norm)
    }
    assert pieces == {"post_norm": 3, "pre_norm": 2}  # two blocks' norms; the final norm


@LANGUAGE
def test_the_map_holds_the_stations_in_order_and_says_how_many_layers(lang: str) -> None:
    reader = words(lang)
    order = (
        "tokenize",
        "embed",
        "attention_norm",
        "attention",
        "mlp_norm",
        "mlp",
        "final_norm",
        "lm_head",
        "sample",
    )
    for picture in pictures(map_of(reader)):
        text_of_it = said(picture)
        places = [text_of_it.index(reader.t(f"drawings.forward.{order[0]}"))]
        for name in order[1:]:
            places.append(text_of_it.index(reader.t(f"drawings.forward.{name}"), places[-1]))
        assert places == sorted(places)
        assert reader.t("drawings.forward.times", n=24) in text_of_it


@LANGUAGE
def test_every_station_links_to_its_page(lang: str) -> None:
    stems = {page.stem for page in BOOK}
    for picture in pictures(map_of(words(lang))):
        links = list(picture.iter("a"))
        assert len(links) == len(PAGES) + 1  # a layer adds twice
        assert (
            {a.get("href", "").split("?")[0] for a in links} == {stem for stem, _ in PAGES.values()} <= stems
        )
        for a in links:
            stem = a.get("href", "").split("?")[0]
            assert words(lang).t(f"common.page.{stem}") in a.get("aria-label", "")
    assert "gain?lang=xx&amp;layer=final" in map_of(words(lang)).markup()


def test_a_station_of_the_glossary_leads_to_its_entry() -> None:
    assert set(ENTRIES) == {name for name, (stem, _) in PAGES.items() if stem == "glossary"}
    markup = map_of(words("en")).markup()
    for entry in ENTRIES.values():
        assert term(entry)
        assert f'href="glossary?lang=xx#{entry}"' in markup


def test_a_station_whose_page_is_not_there_is_no_link() -> None:
    drawing = forward_map(words("en"), 2, lambda stem, _: None if stem == "train" else f"{stem}?")
    for picture in pictures(drawing):
        assert {a.get("href") for a in picture.iter("a")} == {
            f"{stem}?" + (f"#{ENTRIES[name]}" if name in ENTRIES else "") for name, (stem, _) in PAGES.items()
        } - {"train?"}
        assert words("en").t("drawings.forward.sample") in said(picture)


def test_text_and_addresses_are_escaped() -> None:
    hostile = "<b>\"&'"
    part = link(hostile, hostile, [text((0, 0), hostile), box((5, 5), hostile, "quiet", width=10)])
    assert "<b>" not in part
    assert ET.fromstring(part).get("href") == hostile


def test_an_arrow_ends_at_its_last_point() -> None:
    shaft, head = ET.fromstring(f"<g>{arrow([(0, 0), (0, 10), (20, 10)], 'quiet', width=2)}</g>")
    assert shaft.get("d") == "M0 0L0 10L13 10"
    assert head.get("d", "").startswith("M20 10L")

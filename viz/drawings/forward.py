"""The way of a token through the model: every station of the forward pass, and the page that each leads to.

The stream is one line from the embedding to the final norm; the branches leave it and are added back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from viz.drawings.svg import PLUS_RADIUS, Drawing, Picture, Point, arrow, box, frame, line, link, plus, text
from viz.text import Words

Href = Callable[[str, Mapping[str, str]], str | None]  # (page's stem, choices) → address, None: nowhere to go

# Each station with the page that is about it, and the state in which the page shows it.
PAGES: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "tokenize": ("glossary", {}),
    "embed": ("scale", {}),
    "attention_norm": ("formula", {}),
    "attention": ("saturation", {}),
    "add": ("placement", {}),
    "mlp_norm": ("probe", {}),
    "mlp": ("placement", {}),
    "final_norm": ("gain", {"layer": "final"}),
    "lm_head": ("glossary", {}),
    "sample": ("train", {}),
}
# The stations that lead to the glossary, with the entry that explains them: the anchor of its heading.
ENTRIES: Final[Mapping[str, str]] = {"tokenize": "token", "lm_head": "lm_head"}
_NORMS: Final = ("attention_norm", "mlp_norm", "final_norm")
_HEIGHT: Final = 46  # of a station's box: its name and its page
_LINE: Final = 10  # from a box's middle to the middles of its two lines
_STREAM_WIDTHS: Final = (2.4, 3.6, 4.8)  # pixels: before, between and after the sums of a layer


def forward_map(words: Words, num_layers: int, href: Href) -> Drawing:
    """The map in one language, with its layers marked `num_layers` ×."""
    return Drawing(
        key="forward",
        name=words.t("drawings.forward.name"),
        description=words.t("drawings.forward.description", n=num_layers),
        pictures=(_wide(words, num_layers, href), _narrow(words, num_layers, href)),
        linked=True,
    )


def _wide(words: Words, num_layers: int, href: Href) -> Picture:
    stream, branch = 138.0, 52.0
    foot = stream - PLUS_RADIUS

    def station(name: str, at: Point, width: float) -> str:
        return _station(words, name, at, width, href)

    first, second, end = 492.0, 726.0, 760.0  # x of the two sums, and where the final norm begins
    parts = [
        frame((240, 10), 504, 166),
        text((252, 158), words.t("drawings.forward.times", n=num_layers), "quiet strong", "start"),
        *_stream((224, stream), (first, stream), (second, stream), (end, stream)),
        text((20, stream), words.t("drawings.forward.text"), "quiet"),
        arrow([(40, stream), (58, stream)], "quiet"),
        arrow([(140, stream), (158, stream)], "quiet"),
        arrow([(856, stream), (872, stream)], "normalized"),
        arrow([(948, stream), (964, stream)], "quiet"),
    ]
    for tap, norm, block, back in ((254, 270, 426, first), (510, 526, 668, second)):
        parts.append(arrow([(tap, stream), (tap, branch), (norm, branch)], "residual"))
        parts.append(line([(norm, branch), (block, branch)], "normalized"))
        parts.append(arrow([(block, branch), (back, branch), (back, foot)], "quiet"))
    parts += [
        station("tokenize", (99, stream), 82),
        station("embed", (191, stream), 66),
        station("attention_norm", (316, branch), 92),
        station("attention", (426, branch), 96),
        _sum(words, (first, stream), href),
        station("mlp_norm", (568, branch), 84),
        station("mlp", (668, branch), 84),
        _sum(words, (second, stream), href),
        station("final_norm", (808, stream), 96),
        station("lm_head", (910, stream), 76),
        station("sample", (1000, stream), 72),
    ]
    return Picture(1036, 184, tuple(parts))


def _narrow(words: Words, num_layers: int, href: Href) -> Picture:
    stream, norm, block = 62.0, 160.0, 270.0  # x of the stream and of the two boxes of a branch
    side = stream + PLUS_RADIUS

    def station(name: str, at: Point, width: float) -> str:
        return _station(words, name, at, width, href)

    first, second, end = 262.0, 366.0, 406.0  # y of the two sums, and where the final norm begins
    parts = [
        frame((0, 168), 334, 222),
        text((12, 186), words.t("drawings.forward.times", n=num_layers), "quiet strong", "start"),
        *_stream((stream, 152), (stream, first), (stream, second), (stream, end)),
        text((stream, 10), words.t("drawings.forward.text"), "quiet"),
        arrow([(stream, 20), (stream, 36)], "quiet"),
        arrow([(stream, 82), (stream, 106)], "quiet"),
        arrow([(stream, 452), (stream, 470)], "normalized"),
        arrow([(stream, 516), (stream, 534)], "quiet"),
    ]
    for row, back in ((210, first), (314, second)):
        parts.append(arrow([(stream, row), (norm - 42, row)], "residual"))
        parts.append(line([(norm, row), (block, row)], "normalized"))
        parts.append(arrow([(block, row), (block, back), (side, back)], "quiet"))
    parts += [
        station("tokenize", (stream, 59), 110),
        station("embed", (stream, 129), 110),
        station("attention_norm", (norm, 210), 84),
        station("attention", (block, 210), 104),
        _sum(words, (stream, first), href),
        station("mlp_norm", (norm, 314), 84),
        station("mlp", (block, 314), 104),
        _sum(words, (stream, second), href),
        station("final_norm", (stream, 429), 110),
        station("lm_head", (stream, 493), 110),
        station("sample", (stream, 557), 110),
    ]
    return Picture(334, 584, tuple(parts))


def _stream(start: Point, first: Point, second: Point, end: Point) -> list[str]:
    """The residual stream through the two sums of a layer, thicker after each."""
    legs = ((start, first), (first, second), (second, end))
    return [line(leg, "residual", width=width) for leg, width in zip(legs, _STREAM_WIDTHS, strict=True)]


def _station(words: Words, name: str, at: Point, width: float, href: Href) -> str:
    x, y = at
    kind = "normalized" if name in _NORMS else "quiet"
    label = words.t(f"drawings.forward.{name}")
    stem, choices = PAGES[name]
    target = href(stem, choices)
    if target is None:
        return box(at, label, kind, width=width, height=_HEIGHT)
    if name in ENTRIES:
        target = f"{target}#{ENTRIES[name]}"
    page = words.t(f"common.page.{stem}")
    inside = (
        box(at, "", kind, width=width, height=_HEIGHT),
        text((x, y - _LINE), label, f"{kind} name"),
        text((x, y + _LINE), page, "page small"),
    )
    return link(target, words.t("drawings.forward.leads", station=label, page=page), inside)


def _sum(words: Words, at: Point, href: Href) -> str:
    stem, choices = PAGES["add"]
    page = words.t(f"common.page.{stem}")
    name = words.t("drawings.forward.leads", station=words.t("drawings.forward.add"), page=page)
    return link(href(stem, choices), name, [plus(at)])

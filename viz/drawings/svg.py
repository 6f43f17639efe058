"""The parts that all drawings are made of, as SVG text: boxes, lines with arrowheads, sums, words, links.

Positions and sizes are CSS pixels; a picture narrower than its place is not stretched, so its letters stay as
large as the page's. A `kind` is a class of drawing.css: a role of look.md, or what the part is. Text is escaped
here. Neither Streamlit nor torch is imported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

Point = tuple[float, float]

BOX_HEIGHT: Final = 34
PLUS_RADIUS: Final = 9
_HEAD: Final = 7  # length of an arrowhead
_HEAD_HALF: Final = 4
_BASELINE: Final = 5  # from a line of text's middle down to its baseline


@dataclass(frozen=True, slots=True)
class Picture:
    """One layout of a drawing."""

    width: int  # pixels
    height: int
    parts: tuple[str, ...]  # SVG elements, those in front last


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing with its words.

    Attributes:
        key: of its Streamlit component.
        name: what it is of, in a few words.
        description: what can be seen in it.
        pictures: one, or a wide one and a narrow one.
        linked: whether its parts lead to pages; then these are what a screen reader finds, else one image.
    """

    key: str
    name: str
    description: str
    pictures: tuple[Picture, ...]
    linked: bool = False

    def markup(self) -> str:
        """The pictures as HTML text."""
        names = ("",) if len(self.pictures) == 1 else ("wide", "narrow")
        return "".join(self._svg(picture, name) for picture, name in zip(self.pictures, names, strict=True))

    def _svg(self, picture: Picture, layout: str) -> str:
        role = "group" if self.linked else "img"
        label = self.name if self.linked else f"{self.name}. {self.description}"
        said = f"<desc>{escape(self.description)}</desc>" if self.linked else ""
        return (
            f'<svg class="{layout}" role="{role}" aria-label="{escape(label)}" width="{picture.width}" '
            f'height="{picture.height}" viewBox="0 0 {picture.width} {picture.height}">'
            f"{said}{''.join(picture.parts)}</svg>"
        )


def text(at: Point, words: str, kind: str = "", anchor: str = "middle") -> str:
    """A line of text with its middle at this height; `anchor` is start, middle or end."""
    x, y = at
    return f'<text class="{kind}" x="{_n(x)}" y="{_n(y + _BASELINE)}" text-anchor="{anchor}">{escape(words)}</text>'


def box(at: Point, words: str, kind: str, *, width: float, height: float = BOX_HEIGHT) -> str:
    """A box around its middle, with its words in it."""
    x, y = at
    return (
        f'<g class="box {kind}"><rect x="{_n(x - width / 2)}" y="{_n(y - height / 2)}" width="{_n(width)}" '
        f'height="{_n(height)}" rx="5"/>{text(at, words)}</g>'
    )


def frame(corner: Point, width: float, height: float) -> str:
    """A quiet ground for what belongs together."""
    x, y = corner
    return f'<rect class="frame" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="8"/>'


def line(points: Sequence[Point], kind: str, *, width: float = 2) -> str:
    """A line through the points, `width` thick."""
    d = "".join(f"{'L' if i else 'M'}{_n(x)} {_n(y)}" for i, (x, y) in enumerate(points))
    return f'<path class="line {kind}" d="{d}" stroke-width="{_n(width)}"/>'


def arrow(points: Sequence[Point], kind: str, *, width: float = 2) -> str:
    """A line with a head at its last point."""
    (x0, y0), (x1, y1) = points[-2:]
    length = math.hypot(x1 - x0, y1 - y0)
    ux, uy = (x1 - x0) / length, (y1 - y0) / length
    foot = (x1 - ux * _HEAD, y1 - uy * _HEAD)
    half = _HEAD_HALF + width / 2
    corners = [
        (x1, y1),
        (foot[0] - uy * half, foot[1] + ux * half),
        (foot[0] + uy * half, foot[1] - ux * half),
    ]
    head = "L".join(f"{_n(x)} {_n(y)}" for x, y in corners)
    return f'{line([*points[:-1], foot], kind, width=width)}<path class="head {kind}" d="M{head}Z"/>'


def plus(at: Point, kind: str = "residual") -> str:
    """A sum: a plus sign in a circle."""
    x, y, arm = *at, PLUS_RADIUS - 4
    return (
        f'<g class="plus {kind}"><circle cx="{_n(x)}" cy="{_n(y)}" r="{PLUS_RADIUS}"/>'
        f'<path d="M{_n(x - arm)} {_n(y)}H{_n(x + arm)}M{_n(x)} {_n(y - arm)}V{_n(y + arm)}"/></g>'
    )


def link(href: str | None, name: str, parts: Iterable[str]) -> str:
    """The parts as a link of this accessible name; without an address, as they are."""
    inside = "".join(parts)
    if href is None:
        return inside
    label = escape(name)
    return f'<a href="{escape(href)}" data-visit="" aria-label="{label}"><title>{label}</title>{inside}</a>'


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")

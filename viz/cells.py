"""The worked example of the formula page: cells to type numbers into, and every step of RMSNorm beside them.

The browser computes the steps while one types (`viz/cells.js`); a browser test compares them with
`model_probe.worked`. What has been entered goes to Python when the reader pauses, and into the address, so that a
link opens the same numbers. What is no number never leaves the browser: it is said in a sentence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from pathlib import Path
from typing import Any, Final

import streamlit as st

from model_probe.worked import EPS, EXAMPLE
from viz.address import Choice, bind
from viz.shell import Page
from viz.text import number

FEWEST: Final = 2
MOST: Final = 8
LARGEST: Final = 1e6  # entries are within ± this
DECIMALS: Final = 6  # of an entry, kept in the address
DIGITS: Final = 4  # significant, of what is computed

_HERE: Final = Path(__file__).resolve().parent
_KEY: Final = "formula.cells"
_SEPARATOR: Final = re.compile("[_,]")  # written as "_", which an address leaves alone
_NUMBER: Final = re.compile(r"-?(\d{1,7}(\.\d*)?|\.\d+)")

_component = st.components.v2.component(
    "rmsnorm_lab_cells",
    html='<div class="cells"></div>\n',
    css=(_HERE / "cells.css").read_text(encoding="utf-8"),
    js=(_HERE / "cells.js").read_text(encoding="utf-8"),
)


@dataclass(frozen=True, slots=True)
class VectorChoice(Choice):
    """A choice of FEWEST to MOST numbers, as one code: "2_-1_3_0"."""

    def valid(self, value: object) -> str:
        """The code in its plain form, the default where it holds no such vector."""
        vector = decoded(value) if isinstance(value, str) else None
        return self.default if vector is None else encoded(vector)


def encoded(vector: Sequence[float]) -> str:
    """The code of a vector.

    >>> encoded((2.0, -1.0, 0.5, 0.0))
    '2_-1_0.5_0'
    """
    return "_".join(_plain(entry) for entry in vector)


def decoded(code: str) -> tuple[float, ...] | None:
    """The vector of a code; None for a wrong count, for what is no number and for what is too large.

    >>> decoded("2_-1_3_0"), decoded("2,x")
    ((2.0, -1.0, 3.0, 0.0), None)
    """
    entries = _SEPARATOR.split(code)
    if not FEWEST <= len(entries) <= MOST or not all(map(_NUMBER.fullmatch, entries)):
        return None
    vector = tuple(map(float, entries))
    return vector if all(abs(entry) <= LARGEST for entry in vector) else None


def _plain(entry: float) -> str:
    """An entry without a power of ten and without idle zeros; −0 is 0."""
    text = f"{entry:.{DECIMALS}f}".rstrip("0").rstrip(".")
    return "0" if math.isclose(entry, 0, abs_tol=0.5 * 10**-DECIMALS) else text


def shown(value: float) -> str:
    """A step's number as the cells show it: DIGITS significant digits, halves rounded up, without idle zeros.

    >>> shown(3.5), shown(-0.53452), shown(4.0), shown(0.125**2)
    ('3.5', '−0.5345', '4', '0.01563')
    """
    exact = Decimal(value)
    if exact and exact.is_finite():
        kept = max(exact.adjusted() + 1, DIGITS) if abs(exact) < 10**7 else DIGITS
        value = float(Context(prec=kept, rounding=ROUND_HALF_UP).create_decimal(exact))
    text = number(value, DIGITS)
    return text.rstrip("0").rstrip(".") if "." in text and "·" not in text else text


VECTOR: Final = VectorChoice("x", codes=(), default=encoded(EXAMPLE))


def cells(page: Page) -> tuple[float, ...]:
    """Draws the cells with their steps; what is in them, as Python last heard it."""
    code = bind(VECTOR)[VECTOR.name]
    _component(
        key=_KEY,
        data={
            "code": code,
            "standard": VECTOR.default,
            "heard": _sent().get("turn"),
            "eps": EPS,
            "limits": {"fewest": FEWEST, "most": MOST, "largest": LARGEST, "decimals": DECIMALS},
            "digits": DIGITS,
            "words": {label: page.t(f"formula.cells.{label}", **_blanks(label)) for label in _LABELS},
        },
        on_entered_change=_take,
    )
    vector = decoded(code)
    assert vector is not None  # noqa: S101 - `VectorChoice.valid` lets nothing else through
    return vector


# What the browser writes into a sentence: {name} stays in it, for `cells.js` to fill in.
_BLANKS: Final[Mapping[str, tuple[str, ...]]] = {
    "entry": ("name",),
    "length": ("before", "after", "n"),
    "short": ("before", "after", "n"),
    "zero": ("names",),
    "zeros": ("names",),
    "empty": ("name",),
    "no_number": ("name",),
    "too_large": ("name", "largest"),
}
_LABELS: Final = (
    "caption", "x", "square", "mean", "root", "divide", "add", "remove", "reset", "comma", *_BLANKS, "all_zero",
)  # fmt: skip


def _blanks(label: str) -> dict[str, str]:
    return {name: f"{{{name}}}" for name in _BLANKS.get(label, ())}


def _take() -> None:
    """What was entered becomes the choice, which `bind` then puts into the address."""
    code = _sent().get("code")
    if isinstance(code, str) and decoded(code) is not None:
        st.session_state[VECTOR.key] = encoded(decoded(code) or ())


def _sent() -> Mapping[str, Any]:
    """What the browser sent last. It may hold anything."""
    entered = st.session_state.get(_KEY, {}).get("entered")
    return entered if isinstance(entered, Mapping) else {}

"""What a live slider is made of, and how it is told to the browser."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from json import dumps
from typing import Any, Final

from viz.address import Choice

VALUE: Final = "value"  # the readout beside the slider
ROLES: Final = ("accent", "residual", "normalized", "output", "sink", "reference", "text")

# Private-use characters stand around the name of a readout in a sentence: no text contains them.
_SLOT, _PHRASE, _END = "\ue000", "\ue001", "\ue002"
_PARTS: Final = re.compile(f"([{_SLOT}{_PHRASE}])(.*?){_END}")


@dataclass(frozen=True, slots=True)
class Stop:
    """One position of the slider and all that it shows.

    Attributes:
        code: in the address, the same in every language.
        shown: beside the slider, and said as its value by a screen reader.
        readouts: text by name, the same names at every stop.
        frame: what the drawing paints here, any JSON.
        value: the number behind the code, where it is one: an address between two stops finds the nearest.
    """

    code: str
    shown: str
    readouts: Mapping[str, str]
    frame: object = None
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """A label under the slider."""

    at: float  # position as a stop's index, may lie between two
    label: str


@dataclass(frozen=True, slots=True)
class Band:
    """A named stretch under the slider, marked while the thumb is in it."""

    start: float  # as a stop's index
    end: float
    label: str


@dataclass(frozen=True, slots=True)
class NumberChoice(Choice):
    """A choice among numbers: an address that names another number gets the nearest of them."""

    values: tuple[float, ...] = ()  # one a code

    def valid(self, value: object) -> str:
        """The code itself, the nearest code of another number, or the default."""
        if not isinstance(value, str) or value in self.codes:
            return Choice.valid(self, value)
        try:
            wanted = float(value)
        except ValueError:
            return self.default
        if not math.isfinite(wanted):
            return self.default
        distances = [abs(each - wanted) for each in self.values]
        return self.codes[distances.index(min(distances))]


@dataclass(frozen=True, slots=True)
class LiveSlider:
    """A slider with its picture and its sentence.

    Attributes:
        name: in data-live, data-readout and data-drawing.
        parameter: in the address.
        stops: at least two; about a hundred or more where the value is continuous.
        default: code of the stop to begin with, and to reset to.
        label: what the slider sets.
        sentence: what is seen now, with `slot` and `phrase` where its readouts go; "" for none.
        alt: what the picture shows, for who cannot see it.
        still: what all frames share, any JSON.
        ticks, bands: labels and named stretches under the slider.
        role: colour of the slider, one of ROLES.
        drawing: the function in drawings/*.js that paints it, when it is not called as the slider is.

    Raises:
        ValueError: stops that do not fit together, an unknown default or an unknown role.
    """

    name: str
    parameter: str
    stops: tuple[Stop, ...]
    default: str
    label: str
    sentence: str
    alt: str
    still: object = None
    ticks: Sequence[Tick] = ()
    bands: Sequence[Band] = ()
    role: str = "accent"
    drawing: str = ""
    choice: Choice = field(init=False)  # how it is in the address

    def __post_init__(self) -> None:
        codes = tuple(stop.code for stop in self.stops)
        names = set(self.stops[0].readouts) if self.stops else set()
        if len(codes) < 2 or len(set(codes)) < len(codes) or self.default not in codes:
            raise ValueError(f"{self.name}: two stops or more, each with a code of its own, one the default")
        if any(set(stop.readouts) != names for stop in self.stops) or VALUE in names:
            raise ValueError(f"{self.name}: every stop has the same readouts, none called {VALUE!r}")
        if missing := self._asked() - names - {VALUE}:
            raise ValueError(f"{self.name}: the sentence asks for {sorted(missing)}")
        if self.role not in ROLES:
            raise ValueError(f"{self.name}: no role {self.role!r}")
        values = tuple(stop.value for stop in self.stops if stop.value is not None)
        numbers = len(values) == len(codes)
        object.__setattr__(
            self,
            "choice",
            NumberChoice(self.parameter, codes, self.default, values)
            if numbers
            else Choice(self.parameter, codes, self.default),
        )

    def at(self, code: str) -> Stop:
        """The stop of this code. Raises KeyError when there is none."""
        for stop in self.stops:
            if stop.code == code:
                return stop
        raise KeyError(code)

    def told(self) -> dict[str, Any]:
        """All of it as JSON, by columns, with a `version` that changes when anything else in it does."""
        told: dict[str, Any] = {
            "name": self.name,
            "drawing": self.drawing or self.name,
            "label": self.label,
            "alt": self.alt,
            "role": self.role,
            "standard": self.default,
            "sentence": list(parts(self.sentence)),
            "still": self.still,
            "ticks": [[tick.at, tick.label] for tick in self.ticks],
            "bands": [[band.start, band.end, band.label] for band in self.bands],
            "codes": [stop.code for stop in self.stops],
            "readouts": {VALUE: [stop.shown for stop in self.stops]}
            | {what: [stop.readouts[what] for stop in self.stops] for what in self.stops[0].readouts},
            "frames": [stop.frame for stop in self.stops],
        }
        return told | {"version": zlib.crc32(dumps(told).encode())}

    def _asked(self) -> set[str]:
        return {text for kind, text in parts(self.sentence) if kind != "text"}


def slot(what: str) -> str:
    """Stands for a readout that is a number, as a value of a label: `words.t("…", top=slot("top"))`."""
    return f"{_SLOT}{what}{_END}"


def phrase(what: str) -> str:
    """Stands for a readout that is words."""
    return f"{_PHRASE}{what}{_END}"


def parts(sentence: str) -> Iterator[tuple[str, str]]:
    """A sentence as pieces: ("text", as it stands), ("number", readout) or ("phrase", readout).

    >>> list(parts("About " + slot("top") + "."))
    [('text', 'About '), ('number', 'top'), ('text', '.')]
    """
    end = 0
    for found in _PARTS.finditer(sentence):
        if found.start() > end:
            yield "text", sentence[end : found.start()]
        yield ("number" if found[1] == _SLOT else "phrase"), found[2]
        end = found.end()
    if end < len(sentence):
        yield "text", sentence[end:]

"""Two things timed in turn in one run, and their ratio with its spread.

A machine that others use has no seconds to speak of; what holds is how much longer one thing takes
than another that ran right before or after it. Which of the two goes first changes from pair to pair.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

PAIRS = 21
PAIRS_WHEN_SLOW = 9  # where one of the two takes over SLOW seconds
SLOW = 5.0


@dataclass(frozen=True, slots=True)
class Ratio:
    """What was compared with what, and how it came out."""

    what: str
    bound: float | None  # of the median; None where there is none
    ratios: tuple[float, ...]  # one a pair
    base: float  # median of the thing that is compared against, for a sense of scale
    sense: Literal["at most", "at least"] = "at most"
    unit: str = "s"  # of the base

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def passes(self) -> bool:
        """Whether the median is within its bound."""
        if self.bound is None:
            return True
        return self.median <= self.bound if self.sense == "at most" else self.median >= self.bound

    def line(self) -> str:
        """One row of the table: the median is judged, the quartiles are the spread."""
        low, _, high = statistics.quantiles(self.ratios, n=4)
        verdict = "pass" if self.passes else "FAIL"
        judged = "" if self.bound is None else f"  {self.sense} {self.bound:5.2f}  {verdict}"
        return (
            f"{self.what:66} {self.median:6.3f}  [{low:.3f}, {high:.3f}]  n={len(self.ratios):2d}"
            f"  base {self.base:8.3g} {self.unit}{judged}"
        )


def compare(
    what: str,
    bound: float | None,
    thing: Callable[[], object],
    base: Callable[[], object],
    *,
    pairs: int | None = None,
) -> Ratio:
    """Time `thing` against `base` in interleaved pairs, after one of each to warm up."""
    return compare_seconds(what, bound, lambda: _seconds(thing), lambda: _seconds(base), pairs=pairs)


def compare_seconds(
    what: str,
    bound: float | None,
    thing: Callable[[], float],
    base: Callable[[], float],
    *,
    pairs: int | None = None,
) -> Ratio:
    """The same for two things that tell their own seconds."""
    slower = max(_seconds(base), _seconds(thing))
    pairs = pairs or (PAIRS_WHEN_SLOW if slower > SLOW else PAIRS)
    ratios, bases = [], []
    for pair in range(pairs):
        if pair % 2:
            measured, against = thing(), base()
        else:
            against, measured = base(), thing()
        ratios.append(measured / against)
        bases.append(against)
    return Ratio(what, bound, tuple(ratios), statistics.median(bases))


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start

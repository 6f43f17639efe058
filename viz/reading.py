"""`Reading`: how a trace is read out, as one number a site — which statistic, which token, with sinks or without.

Figures, tables and the exercise of one page share a reading, so that they never disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from model_probe.summaries import STATISTICS, sinks, summarize
from model_probe.trace import RESIDUAL_ROLES, NormTrace, Placed, PlacedSite, SiteTrace, Token
from viz.kept import kept

Of_co = TypeVar("Of_co", bound=PlacedSite, covariant=True)

# The lines of the lesson and the trace's series that each of them draws.
LINES: Final[Mapping[str, str]] = MappingProxyType(
    {"residual": "input_l2", "normalized": "normalized_l2", "output": "output_l2"}
)
STATISTIC_CODES: Final = (*STATISTICS, "token")
SINK_CODES: Final = ("counted", "left_out")
FINAL: Final = "final"  # what a norm outside the layers has where others have a layer


@dataclass(frozen=True, slots=True)
class Reading:
    """Which one number stands for all tokens of a site."""

    statistic: str = "median"  # one of STATISTIC_CODES
    token: int = 0  # position; read when the statistic is "token"
    sinks: str = "counted"  # one of SINK_CODES; a single token is read whatever it is

    def tokens(self, site: SiteTrace) -> NDArray[np.bool_]:
        """Which tokens go into the number: [tokens] bool. Never none: a median has no sinks above it."""
        if self.statistic == "token":
            return np.arange(len(site.input.l2)) == self.token
        if self.sinks == "left_out":
            return ~sinks(site.input.l2)
        return np.ones(len(site.input.l2), dtype=bool)

    def value(self, site: SiteTrace, series: str) -> float:
        """The number for one of `model_probe.trace.SERIES`; NaN when a token in it is not finite.

        Raises:
            KeyError: no such series.
        """
        statistic = "median" if self.statistic == "token" else self.statistic
        return summarize(site.series(series)[self.tokens(site)], statistic)

    @kept
    def line(self, trace: NormTrace, line: str) -> NDArray[np.float64]:
        """One of LINES over the depth: [sites of trace.depth()], read-only.

        Raises:
            KeyError: no such line.
        """
        values = np.array([self.value(site, LINES[line]) for site in trace.depth()])
        values.flags.writeable = False
        return values


MEDIAN: Final = Reading()  # how a trace is read unless somebody says otherwise


def sink_line(trace: NormTrace) -> NDArray[np.float64]:
    """The median L2 of the sinks at each site of the depth, NaN where there is none: [sites]."""
    return np.array(
        [summarize(site.input.l2[sinks(site.input.l2)], "median") for site in trace.depth()],
        dtype=np.float64,
    )


def sink_tokens(trace: NormTrace) -> tuple[Token, ...]:
    """The tokens that are a sink at one site of the depth or more, those at the most sites first."""
    counts = np.sum([sinks(site.input.l2) for site in trace.depth()], axis=0)
    return tuple(trace.tokens[i] for i in np.argsort(-counts, kind="stable") if counts[i])


class Sited(Protocol[Of_co]):
    """What has norm sites in order: a trace, or a checkpoint's gains."""

    @property
    def sites(self) -> tuple[Of_co, ...]: ...
    def depth(self) -> tuple[Of_co, ...]: ...


def layers(trace: Sited[PlacedSite]) -> tuple[str, ...]:
    """What the layer selector offers, as codes: "0", "1", …, and "final" where there are norms outside the layers."""
    codes = dict.fromkeys(layer_code(site) for site in trace.sites)
    return tuple(sorted((c for c in codes if c != FINAL), key=int)) + ((FINAL,) if FINAL in codes else ())


def layer_code(site: PlacedSite) -> str:
    """The layer of a site as a code."""
    return FINAL if site.layer is None else str(site.layer)


def sites_of(trace: Sited[Placed], layer: str) -> tuple[Placed, ...]:
    """The sites of one layer, in the order in which they run."""
    return tuple(site for site in trace.sites if layer_code(site) == layer)


def site_codes(sites: Sequence[Placed]) -> dict[str, Placed]:
    """The sites of one layer by code: the last part of the name, or all of it where two would be called the same."""
    last = [site.name.rsplit(".", 1)[-1] for site in sites]
    return {
        code if last.count(code) == 1 else site.name: site for code, site in zip(last, sites, strict=True)
    }


def reads_residual(trace: NormTrace) -> bool:
    """Whether the depth's sites take the residual stream itself (all but OLMo 2's)."""
    return all(site.role in RESIDUAL_ROLES for site in trace.depth())


def layer_ticks(trace: Sited[PlacedSite], at_most: int) -> Iterator[tuple[int, str]]:
    """Where an axis over the depth has its labels: (position, layer code), evenly thinned, the final norm kept."""
    first: dict[str, int] = {}
    for position, site in enumerate(trace.depth()):
        first.setdefault(layer_code(site), position)
    numbered = [(position, code) for code, position in first.items() if code != FINAL]
    step = next(
        s for s in (1, 2, 4, 5, 8, 10, 16, 20, 40, 80, 160) if len(numbered) <= s * at_most or s == 160
    )
    yield from numbered[::step]
    if FINAL in first:
        yield first[FINAL], FINAL

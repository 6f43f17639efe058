"""Two traces as one map: by what factor the second's tokens are longer than the first's, at every norm.

A colour is a doubling or a halving around 1, on a scale that is as long on both sides.
"""

from __future__ import annotations

import bisect
import math
from typing import Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.compare import Pair
from viz.figures.base import colour_bar
from viz.figures.heatmap import (
    MAX_TOOLTIPS,
    HeatmapView,
    add_cells,
    add_crosses,
    cells_of,
    gap,
    map_axes,
    map_frame,
    outline,
)
from viz.text import Words, number
from viz.theme import Palette

ALIKE: Final = 1e-4  # two traces that agree so closely everywhere are called alike
# Where the scale may end, as factors. The least keeps what is nearly equal looking equal.
_ENDS: Final = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 2**16, 2**24)

Floats = NDArray[np.float64]


def difference_figure(pair: Pair, words: Words, palette: Palette, view: HeatmapView) -> go.Figure:
    """log₂ of the second's L2 ÷ the first's, for every token at every site of the depth, the first layer at the foot.

    A cell without such a number stays empty; it has a cross where one of the two is not finite.

    Raises:
        ValueError: the two are `unlike`.
    """
    ratios = pair.ratios(view.line)
    doublings = np.log2(ratios)
    end = scale_end(ratios)
    figure = map_frame(difference_title(pair, words, view.line), palette)
    figure.add_heatmap(
        z=doublings,
        zmin=-math.log2(end),
        zmax=math.log2(end),
        colorscale=[list(stop) for stop in palette.diverging()],
        hoverinfo="skip",
        xgap=gap(pair.first),
        colorbar=colour_bar(words.t("compare.map.bar"), _ticks(end, words), palette),
    )
    a, b = (cells_of(trace, view.line) for trace in (pair.first, pair.second))
    tooltips = None
    if ratios.size <= MAX_TOOLTIPS:
        tooltips = [
            words.t("compare.map.tooltip", a=number(x, 4), b=number(y, 4), ratio=number(ratio, 4))
            for x, y, ratio in zip(
                a.ravel().tolist(), b.ravel().tolist(), ratios.ravel().tolist(), strict=True
            )
        ]
    add_cells(figure, pair.first, words, values=ratios, numbers=tooltips, short="compare.map.short_tooltip")
    add_crosses(figure, ~(np.isfinite(a) & np.isfinite(b)), words, palette)
    map_axes(figure, pair.first, words, palette)
    outline(figure, pair.first, view, palette)
    return figure


def difference_title(pair: Pair, words: Words, line: str) -> str:
    """The map's finding as a sentence, computed; escaped for plotly."""
    ratios = pair.ratios(line)
    known = ratios[np.isfinite(ratios)]
    missing = int(ratios.size - known.size)
    name = words.t(f"common.series.{line}")
    name = name[:1].upper() + name[1:]
    if missing:
        return words.t("compare.map.missing", n=missing)
    if np.abs(known - 1).max() < ALIKE:
        return words.t("compare.map.alike", line=name)
    return words.t(
        "compare.map.title",
        line=name,
        least=number(float(known.min())),
        most=number(float(known.max())),
        median=number(float(np.median(known))),
    )


def difference_alt(pair: Pair, words: Words, line: str) -> str:
    """The map for those who do not see it."""
    a, b = pair.names(words)
    return words.t(
        "compare.map.alt",
        line=words.t(f"common.series.{line}"),
        a=a,
        b=b,
        sites=len(pair.first.depth()),
        n=len(pair.first.tokens),
        finding=difference_title(pair, words, line),
    )


def scale_end(ratios: Floats) -> float:
    """The factor at which the colour scale ends on both sides of 1: the least of a fixed few that holds all.

    >>> scale_end(np.array([0.4, 1.7, np.nan]))
    4
    """
    known = ratios[np.isfinite(ratios)]
    most = float(np.exp2(np.abs(np.log2(known)).max(initial=0.0)))
    return _ENDS[min(bisect.bisect_left(_ENDS, most), len(_ENDS) - 1)]


def _ticks(end: float, words: Words) -> dict[float, str]:
    """The ends, halfway to them, and the middle."""
    half = math.sqrt(end)
    ticks = {0.0: words.t("compare.map.equal")}
    for factor in (half, end) if half > 1.1 else (end,):
        told = number(factor, 3).rstrip("0").rstrip(".") if factor < 10 else number(factor, 2)
        ticks |= {-math.log2(factor): f"÷ {told}", math.log2(factor): f"× {told}"}
    return ticks

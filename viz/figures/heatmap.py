"""Layers × tokens at a glance: a colour a norm site and token, logarithmic. A click chooses a cell.

A plotly heat map reports no clicks to Streamlit; an invisible square marker on every cell does, and carries the
tooltip too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from model_probe.summaries import sinks
from model_probe.trace import NormTrace
from viz.figures.base import (
    colour_bar,
    corner_label,
    frame,
    literal,
    site_title,
    token_label,
)
from viz.kept import kept
from viz.reading import FINAL, LINES, layer_code, layer_ticks, sink_tokens
from viz.text import Words, number
from viz.theme import Palette

HEIGHT: Final = 510
MAX_TOOLTIPS: Final = 20_000  # cells; a larger map tells position and value only
_MAX_NAMES: Final = 5_000  # cells; a larger map leaves the modules' names out of the tooltips
_TOKEN_LABELS: Final = 20
_GAPS: Final = 24  # tokens; with more a gap would be as wide as a cell on a phone
_NAMED: Final = 3  # sinks named in the title
_LEAST_DECADES: Final = 1.0  # a flat map shall look flat

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HeatmapView:
    """What of a trace is drawn, and which cell is chosen."""

    line: str = "residual"  # one of viz.reading.LINES
    layer: str | None = None  # a layer code of viz.reading
    token: int | None = None  # position


@kept
def heatmap_figure(
    trace: NormTrace, words: Words, palette: Palette, view: HeatmapView, beside: NormTrace | None = None
) -> go.Figure:
    """L2 of every token at every site of `trace.depth()`, the first layer at the foot.

    The colour scale is one for the three lines, and for a trace `beside` that the reader can switch to. A cell that
    is not finite stays empty and has a cross.
    """
    values = cells_of(trace, view.line)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(np.isfinite(values) & (values > 0), np.log10(values), np.nan)
    low, high = _colour_range([trace] if beside is None else [trace, beside])
    figure = map_frame(heatmap_title(trace, words, view.line), palette)
    figure.add_heatmap(
        z=logs,
        zmin=low,
        zmax=high,
        colorscale=[list(stop) for stop in palette.sequential(view.line)],
        hoverinfo="skip",
        xgap=gap(trace),
        colorbar=colour_bar(words.t("figures.heatmap.bar"), _decades(low, high), palette),
    )
    tooltips = None
    if values.size <= MAX_TOOLTIPS:
        tooltips = [f"L2 {number(float(value), 4)}" for value in values.ravel()]
    add_cells(figure, trace, words, values=values, numbers=tooltips, short="figures.heatmap.short_tooltip")
    add_crosses(figure, ~np.isfinite(values), words, palette)
    map_axes(figure, trace, words, palette)
    outline(figure, trace, view, palette)
    return figure


def cells_of(trace: NormTrace, line: str) -> Floats:
    """L2 of one of `viz.reading.LINES`: [sites of the depth, tokens]."""
    return np.stack([site.series(LINES[line]) for site in trace.depth()]).astype(np.float64)


def map_frame(title: str, palette: Palette) -> go.Figure:
    """The empty map under its title, escaped."""
    return frame(title, palette, height=HEIGHT, left=56, bottom=92, above=50)


def map_axes(figure: go.Figure, trace: NormTrace, words: Words, palette: Palette) -> None:
    """Layers upwards, tokens to the right."""
    sites, tokens = trace.depth(), trace.tokens
    ticks = list(layer_ticks(trace, 8))
    figure.update_yaxes(
        range=[-0.5, len(sites) - 0.5],
        tickvals=[position for position, _ in ticks],
        ticktext=[words.t("figures.final_tick") if code == FINAL else code for _, code in ticks],
        showgrid=False,
    )
    corner_label(figure, words.t("figures.heatmap.y"), palette)
    step = math.ceil(len(tokens) / _TOKEN_LABELS)
    figure.update_xaxes(
        range=[-0.5, len(tokens) - 0.5],
        tickvals=list(range(0, len(tokens), step)),
        ticktext=[literal(token_label(token, 10)) for token in tokens[::step]],
        tickangle=-90,
        showline=False,
    )


def gap(trace: NormTrace) -> int:
    """Pixels between two columns."""
    return 1 if len(trace.tokens) <= _GAPS else 0


def heatmap_title(trace: NormTrace, words: Words, line: str) -> str:
    """The map's finding as a sentence, computed; escaped for plotly."""
    values = np.stack([site.series(LINES[line]) for site in trace.depth()])
    finite = values[np.isfinite(values)]
    if finite.size < values.size:
        return words.t("figures.heatmap.not_finite", n=int(values.size - finite.size))
    if line == "residual":
        return _sinks_title(trace, words)
    return words.t(
        f"figures.heatmap.{line}",
        least=number(float(finite.min()), 4 if line == "normalized" else 3),
        most=number(float(finite.max()), 4 if line == "normalized" else 3),
    )


def heatmap_alt(trace: NormTrace, words: Words, line: str) -> str:
    """The map for those who do not see it."""
    return words.t(
        "figures.heatmap.alt",
        line=words.t(f"common.series.{line}"),
        sites=len(trace.depth()),
        n=len(trace.tokens),
    )


def cell_of(trace: NormTrace, point: dict[str, float]) -> tuple[str, str, int] | None:
    """The site name, layer code and token position of a clicked point of the map; None where there is none."""
    try:
        row, column = round(float(point["y"])), round(float(point["x"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    sites = trace.depth()
    if not (0 <= row < len(sites) and 0 <= column < len(trace.tokens)):
        return None
    return sites[row].name, layer_code(sites[row]), column


def _sinks_title(trace: NormTrace, words: Words) -> str:
    found = sink_tokens(trace)
    if not found:
        return words.t("figures.heatmap.no_sink")
    factor = 0.0
    for site in trace.depth():
        if sinks(site.input.l2).any():
            factor = max(factor, float(site.input.l2.max()) / float(np.median(site.input.l2)))
    names = words.t("figures.list_separator").join(
        words.t("figures.quoted", text=literal(token_label(token))) for token in found[:_NAMED]
    )
    return words.t("figures.heatmap.sinks", n=len(found), tokens=names, factor=number(factor))


def _colour_range(traces: Sequence[NormTrace]) -> tuple[float, float]:
    """log10 of the least and the most of the three lines, so that switching lines keeps the scale."""
    everything = np.concatenate(
        [site.series(series) for trace in traces for site in trace.depth() for series in LINES.values()]
    )
    positive = everything[np.isfinite(everything) & (everything > 0)].astype(np.float64)
    if not positive.size:
        return 0.0, _LEAST_DECADES
    low, high = math.log10(positive.min()), math.log10(positive.max())
    widen = max(0.0, _LEAST_DECADES - (high - low)) / 2
    return low - widen, high + widen


def _decades(low: float, high: float) -> dict[float, str]:
    return {d: number(10.0**d, 1) for d in range(math.ceil(low), math.floor(high) + 1)}


def add_cells(
    figure: go.Figure,
    trace: NormTrace,
    words: Words,
    *,
    values: Floats,
    numbers: Sequence[str] | None,
    short: str,
) -> None:
    """An invisible marker on every cell of `values` [sites, tokens], which takes clicks and tells the cell's place
    and `numbers`, one text a cell; without these, the label `short` tells the value as customdata."""
    rows, columns = values.shape
    y, x = np.divmod(np.arange(values.size, dtype=np.int32), columns)
    told: dict[str, object]
    if numbers is not None:
        tokens = [literal(token_label(token, 48)) for token in trace.tokens]
        places = [words.t("figures.token_place", position=i) for i in range(columns)]
        sites = [site_title(words, site.layer, site.role) for site in trace.depth()]
        if values.size <= _MAX_NAMES:
            sites = [f"{title}<br>{literal(s.name)}" for title, s in zip(sites, trace.depth(), strict=True)]
        tooltips = [
            f"<b>{tokens[c]}</b><br>{places[c]}<br>{sites[r]}<br>{numbers[r * columns + c]}"
            for r in range(rows)
            for c in range(columns)
        ]
        told = {"text": tooltips, "hovertemplate": "%{text}<extra></extra>"}
    else:
        told = {
            "customdata": values.ravel().astype(np.float32),
            "hovertemplate": words.t(short) + "<extra></extra>",
        }
    invisible = {"marker": {"opacity": 0}}
    figure.add_scattergl(
        x=x,
        y=y,
        mode="markers",
        name="cells",
        marker={"symbol": "square", "size": 10, "opacity": 0},
        selected=invisible,
        unselected=invisible,
        **told,
    )


def add_crosses(figure: go.Figure, at: NDArray[np.bool_], words: Words, palette: Palette) -> None:
    """A cross in every cell of the mask [sites, tokens]."""
    rows, columns = np.nonzero(at)
    if rows.size:
        figure.add_scattergl(
            x=columns, y=rows, mode="markers", name=words.t("figures.non_finite"), hoverinfo="skip",
            marker={"symbol": "x", "size": 6, "color": palette.careful},
        )  # fmt: skip


def outline(figure: go.Figure, trace: NormTrace, view: HeatmapView, palette: Palette) -> None:
    """Frames round the chosen layer's rows and the chosen token's column."""
    rows = [i for i, site in enumerate(trace.depth()) if layer_code(site) == view.layer]
    line = {"color": palette.accent, "width": 2}
    if rows:
        figure.add_shape(
            type="rect",
            x0=-0.5,
            x1=len(trace.tokens) - 0.5,
            y0=rows[0] - 0.5,
            y1=rows[-1] + 0.5,
            line=line,
        )
    if view.token is not None and 0 <= view.token < len(trace.tokens):
        figure.add_shape(
            type="rect",
            x0=view.token - 0.5,
            x1=view.token + 0.5,
            y0=-0.5,
            y1=len(trace.depth()) - 0.5,
            line=line,
        )

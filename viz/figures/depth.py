"""The headline chart: how large a token is at every norm, from the first layer to the final norm.

Three lines (into the norm, after the division, after the gain), √d as the reference, and the sinks on demand; over
them, thinner and dashed, those of a second trace.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from model_probe.summaries import sinks
from model_probe.trace import NormTrace, PlacedSite, SiteTrace
from viz.compare import Pair
from viz.figures.base import (
    LABEL_SIZE,
    TICK_SIZE,
    frame,
    literal,
    shortened,
    site_title,
    token_label,
)
from viz.kept import kept
from viz.reading import (
    FINAL,
    LINES,
    MEDIAN,
    Reading,
    layer_code,
    layer_ticks,
    reads_residual,
    sink_line,
)
from viz.text import Words, number
from viz.theme import LINE_STYLES, SECOND_STYLES, LineStyle, Palette

HEIGHT: Final = 430
ROLES: Final = (*LINES, "sink")  # what can be drawn
STEADY: Final = 1.05  # a line whose ends differ by less than this factor "does not" change
_LABEL_GAP: Final = 17  # pixels between two labels at the curves' ends
_TOKEN_NAMES: Final = 3  # sinks named in a tooltip
_KEY_PIXELS: Final = 44  # over the plot, for the names of two traces
_PAIR_RIGHT: Final = 110  # beside it, for the longer names at the lines' ends
_KEY_CHARS: Final = 40  # half-widths of such a name: as many as fit on a phone

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DepthView:
    """What of a trace is drawn, and how."""

    lines: tuple[str, ...] = tuple(LINES)  # of ROLES
    reading: Reading = MEDIAN
    axis: str = "log"  # or "linear"
    layer: str | None = None  # marked with a band: a layer code of viz.reading


HEADLINE: Final = DepthView()  # the three lines, medians, logarithmic


@dataclass(frozen=True, slots=True)
class _Drawn:
    """One trace of the figure."""

    trace: NormTrace
    x: Floats  # [sites of the depth], on the first trace's axis
    values: Mapping[str, Floats]  # by role: [sites of the depth]
    styles: Mapping[str, LineStyle]
    mark: str  # which of two: "", " A" or " B"

    @property
    def root(self) -> float:
        return math.sqrt(self.trace.checkpoint.hidden_size)


@kept
def depth_figure(
    trace: NormTrace, words: Words, palette: Palette, view: DepthView = HEADLINE, pair: Pair | None = None
) -> go.Figure:
    """L2 per token against depth, one point a norm site of `trace.depth()`, the final norm last.

    Where a site's number is not finite the line has a gap and a cross at the foot, never a 0. With a `pair`, whose
    first is the trace, the second's lines lie over the trace's.
    """
    sites = trace.depth()
    drawn = _drawn(trace, view.reading, pair)
    low, high = _range(drawn, view)
    figure = frame(
        depth_title(trace, words, view.reading, view.lines, pair),
        palette,
        height=HEIGHT,
        right=_PAIR_RIGHT if pair else 98,
        above=_KEY_PIXELS if pair else 0,
    )
    figure.update_yaxes(
        type=view.axis,
        range=[low, high],
        title_text=_y_title(words, view.reading),
        **({"dtick": 1} if view.axis == "log" else {"nticks": 7}),
    )
    ticks = list(layer_ticks(trace, 6))
    stretched = pair is not None and pair.is_stretched
    figure.update_xaxes(
        range=[-0.8, len(sites) - 0.2],
        title_text=words.t("compare.depth.x_stretched" if stretched else "figures.depth.x"),
        tickvals=[position for position, _ in ticks],
        ticktext=[words.t("figures.final_tick") if code == FINAL else code for _, code in ticks],
    )
    mark_layer(figure, sites, view.layer, palette)
    ends: dict[str, tuple[str, float]] = {}
    colours: dict[str, str] = {}
    foot = 10 ** (low + 0.05) if view.axis == "log" else 0.0
    for one in drawn:
        if one is drawn[0] or one.root != drawn[0].root:
            reference_line(figure, one.root, palette, one.styles["reference"])
            size = one.trace.checkpoint.hidden_size
            ends[f"reference{one.mark}"] = (
                words.t("figures.root", size=size, root=number(one.root, 4)),
                one.root,
            )
        for role in view.lines:
            _line(figure, role, one, words=words, palette=palette)
            ends[role + one.mark] = (
                _role_name(one.trace, words, role) + one.mark,
                _last(one.values[role]),
            )
            colours[role + one.mark] = palette.role(role)
        _crosses(figure, one, foot, words=words, palette=palette)
    end_labels(figure, ends, palette, axis=view.axis, span=(low, high), colours=colours)
    if pair is not None:
        _key(figure, pair.names(words), palette)
    return figure


def growth(trace: NormTrace, line: str, reading: Reading = MEDIAN) -> float:
    """By what factor a line changes from the first site of the depth to the last; NaN when either is not finite."""
    values = reading.line(trace, line)
    if not len(values) or not values[0] > 0:
        return math.nan
    return float(values[-1] / values[0])


def depth_facts(trace: NormTrace, reading: Reading) -> dict[str, object]:
    """What the prose under the chart says of a trace: how far the residual goes, and where the output lies beside √d."""
    ends = {line: reading.line(trace, line) for line in ("residual", "output")}
    size = trace.checkpoint.hidden_size
    root = math.sqrt(size)
    return {
        "factor": number(growth(trace, "residual", reading)),
        "first": number(ends["residual"][0]),
        "last": number(ends["residual"][-1]),
        "least": number(ends["output"].min() / root, 2),
        "most": number(ends["output"].max() / root, 2),
        "size": size,
        "root": number(root, 4),
    }


def depth_title(
    trace: NormTrace,
    words: Words,
    reading: Reading = MEDIAN,
    lines: tuple[str, ...] = tuple(LINES),
    pair: Pair | None = None,
) -> str:
    """The chart's finding as a sentence, computed; escaped for plotly. It speaks of drawn lines only."""
    broken = trace.non_finite_sites()
    if broken:
        return words.t("figures.depth.not_finite", n=len(broken), name=literal(broken[0].name))
    if pair is not None and not pair.is_same:
        return _pair_title(pair, words, reading, lines)
    residual, normalized = (
        growth(trace, "residual", reading),
        growth(trace, "normalized", reading),
    )
    steady = "steady" if 1 / STEADY < normalized < STEADY else "moving"
    if "residual" not in lines and "normalized" in lines:
        return words.t(f"figures.depth.normalized_{steady}")
    if "residual" not in lines or not math.isfinite(residual):
        return words.t("figures.depth.no_growth")
    moves = "grows" if residual >= STEADY else "shrinks" if residual <= 1 / STEADY else "stays"
    factor = residual if residual >= 1 else 1 / residual
    sentence = words.t(f"figures.depth.{moves}_{steady}", factor=number(factor), n=factor)
    if reading.statistic == "token":
        name = literal(token_label(trace.tokens[reading.token]))
        return words.t(
            "figures.depth.of_token",
            token=name,
            position=reading.token,
            finding=sentence,
        )
    return sentence


def depth_alt(trace: NormTrace, words: Words, view: DepthView = HEADLINE, pair: Pair | None = None) -> str:
    """The chart for those who do not see it: where each line starts and ends."""
    if pair is not None:
        a, b = pair.names(words)
        return words.t(
            "compare.depth.alt",
            a=a,
            b=b,
            first=depth_alt(pair.first, words, view),
            second=depth_alt(pair.second, words, view),
        )
    ends = []
    for line in (line for line in view.lines if line in LINES):
        values = view.reading.line(trace, line)
        name = words.t(f"common.series.{line}")
        ends.append(
            words.t(
                "figures.depth.alt_line",
                line=name,
                first=number(values[0], 4),
                last=number(values[-1], 4),
            )
        )
    return words.t(
        "figures.depth.alt",
        statistic=words.t(f"common.statistic.{view.reading.statistic}"),
        n=len(trace.depth()),
        lines=words.t("figures.list_separator").join(ends),
        root=number(math.sqrt(trace.checkpoint.hidden_size), 4),
    )


def _drawn(trace: NormTrace, reading: Reading, pair: Pair | None) -> list[_Drawn]:
    def values(one: NormTrace) -> dict[str, Floats]:
        return {line: reading.line(one, line) for line in LINES} | {"sink": sink_line(one)}

    x = np.arange(len(trace.depth()), dtype=np.float64)
    first = _Drawn(trace, x, values(trace), LINE_STYLES, " A" if pair else "")
    if pair is None:
        return [first]
    return [first, _Drawn(pair.second, pair.along(), values(pair.second), SECOND_STYLES, " B")]


def _pair_title(pair: Pair, words: Words, reading: Reading, lines: tuple[str, ...]) -> str:
    broken = pair.second.non_finite_sites()
    if broken:
        return words.t("compare.depth.not_finite", n=len(broken), name=literal(broken[0].name))
    a, b = (growth(trace, "residual", reading) for trace in (pair.first, pair.second))
    if "residual" not in lines or not (math.isfinite(a) and math.isfinite(b)):
        return words.t("compare.depth.no_growth")
    finding = "grow" if min(a, b) >= STEADY else "ratio"
    return words.t(f"compare.depth.{finding}", a=number(a), b=number(b))


def _y_title(words: Words, reading: Reading) -> str:
    return words.t("figures.depth.y", statistic=words.t(f"common.statistic.{reading.statistic}"))


def _range(drawn: Sequence[_Drawn], view: DepthView) -> tuple[float, float]:
    """The y axis, the same whichever lines are shown: logarithmic over every token, linear over what is read."""
    roots = [one.root for one in drawn]
    if view.axis == "log":
        everything = np.concatenate(
            [site.series(series) for one in drawn for site in one.trace.depth() for series in LINES.values()]
        )
        positive = everything[np.isfinite(everything) & (everything > 0)]
        low = min([float(positive.min()), *roots]) if positive.size else min(roots) / 10
        high = max([float(positive.max()), *roots]) if positive.size else max(roots) * 10
        return math.log10(low) - 0.12, math.log10(high) + 0.12
    roles = (*LINES, "sink") if "sink" in view.lines else tuple(LINES)
    shown = [one.values[role] for one in drawn for role in roles]
    finite = np.concatenate([v[np.isfinite(v)] for v in shown])
    return 0.0, 1.07 * max([*roots, *finite.tolist()])


def mark_layer(figure: go.Figure, sites: Sequence[PlacedSite], layer: str | None, palette: Palette) -> None:
    """A band behind the sites of a layer code, on an axis with one step a site."""
    positions = [i for i, site in enumerate(sites) if layer_code(site) == layer]
    if positions:
        figure.add_vrect(
            x0=positions[0] - 0.5,
            x1=positions[-1] + 0.5,
            fillcolor=palette.accent,
            opacity=0.12,
            line_width=0,
            layer="below",
        )


def reference_line(
    figure: go.Figure, root: float, palette: Palette, style: LineStyle = LINE_STYLES["reference"]
) -> None:
    """√d, long-dashed across the figure."""
    figure.add_hline(
        y=root,
        line={"color": palette.reference, "width": style.width, "dash": style.dash},
        layer="below",
    )


def _line(figure: go.Figure, role: str, drawn: _Drawn, *, words: Words, palette: Palette) -> None:
    style, values = drawn.styles[role], drawn.values[role]
    second = style is not LINE_STYLES[role]
    sink_size, size = (8, 5) if second else (10, 6)
    figure.add_scatter(
        x=drawn.x,
        y=values,
        name=_role_name(drawn.trace, words, role) + drawn.mark,
        mode="lines" if style.symbol is None else "lines+markers",
        line={"color": palette.role(role), "width": style.width, "dash": style.dash},
        marker={
            "symbol": style.symbol or "circle",
            "size": sink_size if role == "sink" else size,
            "color": palette.role(role),
        },
        text=[
            _tooltip(drawn, site, role, value, words)
            for site, value in zip(drawn.trace.depth(), values, strict=True)
        ],
        hovertemplate="%{text}<extra></extra>",
        connectgaps=False,
    )


def _tooltip(drawn: _Drawn, site: SiteTrace, role: str, value: float, words: Words) -> str:
    trace = drawn.trace
    lines = [
        f"<b>{_role_name(trace, words, role)}{drawn.mark} {number(value, 4)}</b>",
        site_title(words, site.layer, site.role),
        literal(site.name),
    ]
    if role == "sink":
        at = np.flatnonzero(sinks(site.input.l2))
        names = [literal(token_label(trace.tokens[i])) for i in at[:_TOKEN_NAMES]]
        lines.insert(1, " · ".join(names) + (" …" if len(at) > _TOKEN_NAMES else ""))
    return "<br>".join(lines)


def _role_name(trace: NormTrace, words: Words, role: str) -> str:
    if role == "residual" and not reads_residual(trace):
        return words.t("figures.norm_input")
    return words.t(f"common.series.{role}")


def _crosses(figure: go.Figure, drawn: _Drawn, foot: float, *, words: Words, palette: Palette) -> None:
    """A cross at the foot of the chart for every site at which a number is not finite."""
    broken = [(x, site) for x, site in zip(drawn.x, drawn.trace.depth(), strict=True) if site.non_finite]
    if not broken:
        return
    figure.add_scatter(
        x=[x for x, _ in broken],
        y=[foot] * len(broken),
        name=words.t("figures.non_finite") + drawn.mark,
        mode="markers",
        marker={"symbol": "x", "size": 10, "color": palette.careful},
        text=[
            words.t("figures.non_finite_at", n=site.non_finite, name=literal(site.name)) + drawn.mark
            for _, site in broken
        ],
        hovertemplate="%{text}<extra></extra>",
        cliponaxis=False,
    )


def _key(figure: go.Figure, names: tuple[str, str], palette: Palette) -> None:
    """Over the plot, which trace the strong lines are and which the thin ones."""
    plot_pixels = figure.layout.height - figure.layout.margin.t - figure.layout.margin.b
    for row, (mark, name, styles) in enumerate(zip("AB", names, (LINE_STYLES, SECOND_STYLES), strict=True)):
        y = 1 + (_KEY_PIXELS - 10 - 20 * row) / plot_pixels
        style = styles["residual"]
        figure.add_shape(
            type="line", xref="paper", xsizemode="pixel", xanchor=0, x0=0, x1=26, yref="paper", y0=y, y1=y,
            line={"color": palette.text, "width": style.width, "dash": style.dash},
        )  # fmt: skip
        figure.add_annotation(
            text=f"<b>{mark}</b> {literal(shortened(name, _KEY_CHARS))}", x=0, xref="paper", xanchor="left", xshift=32, y=y,
            yref="paper", yanchor="middle", showarrow=False, align="left", font={"size": TICK_SIZE, "color": palette.text},
        )  # fmt: skip


def _last(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if finite.size else math.nan


def end_labels(
    figure: go.Figure,
    ends: dict[str, tuple[str, float]],
    palette: Palette,
    *,
    axis: str,
    span: tuple[float, float],
    colours: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Each line's name at its right end, by role (name, last value), moved apart where two would overlap.

    A line without a role of its own has one of `colours`, else it is muted.
    """
    low, high = span
    plot_pixels = figure.layout.height - figure.layout.margin.t - figure.layout.margin.b
    places = []
    for role, (name, end) in ends.items():
        if end > 0 or (axis == "linear" and math.isfinite(end)):
            place = ((math.log10(end) if axis == "log" else end) - low) / (high - low) * plot_pixels
            places.append(
                (place - (1 if role.startswith("reference") else 0), role, name)
            )  # √d under the line that is on it
    floor = -math.inf
    for place, role, name in sorted(places):
        floor = max(place, floor + _LABEL_GAP)
        figure.add_annotation(
            x=1, xref="paper", xanchor="left", xshift=4, y=floor / plot_pixels, yref="paper", yanchor="middle",
            text=name if role.startswith("reference") else f"<b>{name}</b>", showarrow=False, align="left",
            font={"size": TICK_SIZE if role.startswith("reference") else LABEL_SIZE, "color": palette.role(role) if role in LINE_STYLES else colours.get(role, palette.muted)},
        )  # fmt: skip

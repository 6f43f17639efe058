"""One bar a token at one norm site: who carries the size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from model_probe.summaries import sinks
from model_probe.trace import NormTrace, SiteTrace, Token
from viz.figures.base import frame, literal, site_title, token_label
from viz.kept import kept
from viz.reading import LINES
from viz.text import Words, number
from viz.theme import LINE_STYLES, Palette

MAX_ROWS: Final = 40  # tokens with a row and a label each; more stand as columns, their labels thinned
ROW_HEIGHT: Final = 23
COLUMNS_HEIGHT: Final = 370
_MARK_INSET: Final = 0.035  # of the axis: a mark's place, whole beside the labels
_COLUMN_LABELS: Final = 18


@dataclass(frozen=True, slots=True)
class TokensView:
    """What of a site is drawn, and how."""

    line: str = "residual"  # one of viz.reading.LINES
    axis: str = "log"  # or "linear"
    token: int | None = None  # the position outlined


@kept
def tokens_figure(
    trace: NormTrace,
    site: SiteTrace,
    words: Words,
    palette: Palette,
    view: TokensView,
) -> go.Figure:
    """L2 of every token of the prompt at one site, sinks and control tokens marked.

    Up to MAX_ROWS tokens lie as rows with a label each, more stand as columns. The axis is the same for the
    three lines, so that switching between them compares them. A token whose number is not finite has no bar
    but a cross.
    """
    values = site.series(LINES[view.line]).astype(np.float64)
    rows = len(values) <= MAX_ROWS
    low, high = _range(site, view.axis)
    labels = [literal(token_label(token)) for token in trace.tokens]
    is_sink = sinks(site.input.l2)
    figure = frame(
        tokens_title(trace, site, words, view.line),
        palette,
        height=50 + ROW_HEIGHT * len(values) if rows else COLUMNS_HEIGHT,
        left=124 if rows else 60,
        bottom=52 if rows else 104,
    )
    inset = low + _MARK_INSET * (high - low)
    inset = 10**inset if view.axis == "log" else inset
    positions = np.arange(len(values))
    colours = [palette.sink if sink else palette.role(view.line) for sink in is_sink]
    figure.add_bar(
        **({"x": values, "y": positions, "orientation": "h"} if rows else {"x": positions, "y": values}),
        marker={
            "color": colours,
            "pattern": {
                "shape": ["/" if sink else "" for sink in is_sink],
                "fgcolor": palette.ground,
                "size": 6,
            },
            "line": {
                "width": [2 if i == view.token else 0 for i in range(len(values))],
                "color": palette.text,
            },
        },
        customdata=[
            _tooltip(token, site, float(value), bool(sink), words)
            for token, value, sink in zip(trace.tokens, values, is_sink, strict=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
        **(_numbers_at_ends(values, is_sink, palette) if rows else {}),
    )
    _axes(figure, labels, span=(low, high), words=words, axis=view.axis, rows=rows)
    _marks(figure, values, is_sink, inset=inset, words=words, palette=palette, rows=rows)
    return figure


def tokens_title(trace: NormTrace, site: SiteTrace, words: Words, line: str) -> str:
    """The chart's finding as a sentence, computed; escaped for plotly."""
    where = site_title(words, site.layer, site.role)
    values = site.series(LINES[line])
    if not np.isfinite(values).all():
        return words.t("figures.tokens.not_finite", site=where, n=int((~np.isfinite(values)).sum()))
    at = np.flatnonzero(sinks(site.input.l2))
    if line == "residual" and len(at):
        top = at[np.argmax(values[at])]
        factor = float(values[top]) / float(np.median(values))
        return words.t(
            "figures.tokens.sink",
            site=where,
            token=literal(token_label(trace.tokens[top])),
            factor=number(factor),
            n=len(at),
        )
    digits = 4 if line == "normalized" else 3
    least, most = (
        number(float(values.min()), digits),
        number(float(values.max()), digits),
    )
    finding = f"{line}_alike" if least == most else line
    return words.t(f"figures.tokens.{finding}", site=where, least=least, most=most)


def tokens_alt(trace: NormTrace, site: SiteTrace, words: Words, line: str) -> str:
    """The chart for those who do not see it."""
    return words.t(
        "figures.tokens.alt",
        line=words.t(f"common.series.{line}"),
        name=site.name,
        n=len(trace.tokens),
        most=number(float(np.nanmax(site.series(LINES[line]), initial=0.0))),
    )


def _range(site: SiteTrace, axis: str) -> tuple[float, float]:
    """The value axis, the same for the three lines; the logarithmic one starts at a whole power of ten."""
    everything = np.concatenate([site.series(series) for series in LINES.values()])
    positive = everything[np.isfinite(everything) & (everything > 0)].astype(np.float64)
    if not positive.size:
        return (0.0, 1.0)
    if axis == "linear":
        return 0.0, 1.16 * float(positive.max())
    low, high = math.floor(math.log10(positive.min())), math.log10(positive.max())
    if math.log10(positive.min()) - low < 0.15:  # the smallest bar must still be seen
        low -= 1
    return float(low), high + 0.16 * (high - low)


def _tooltip(token: Token, site: SiteTrace, value: float, sink: bool, words: Words) -> str:
    lines = [
        f"<b>{literal(token_label(token, 48))}</b>",
        words.t("figures.token_id", position=token.position, id=token.id),
        f"L2 {number(value, 4)}",
        site_title(words, site.layer, site.role),
    ]
    if token.special:
        lines.append(words.t("figures.control"))
    if sink:
        lines.append(words.t("figures.sink"))
    return "<br>".join(lines)


def _numbers_at_ends(
    values: NDArray[np.float64], is_sink: NDArray[np.bool_], palette: Palette
) -> dict[str, Any]:
    return {
        "text": [number(v, 4) if 10 <= v < 100 else number(v) for v in values],
        "textposition": "outside",
        "cliponaxis": False,
        "textfont": {
            "color": [palette.sink if s else palette.muted for s in is_sink],
            "size": 12,
        },
    }


def _axes(
    figure: go.Figure, labels: list[str], *, span: tuple[float, float], words: Words, axis: str, rows: bool
) -> None:
    numbers: dict[str, Any] = {
        "type": axis,
        "range": list(span),
        "title_text": words.t("figures.tokens.value"),
        "showgrid": True,
        **({"dtick": 1} if axis == "log" else {"nticks": 6}),
    }
    step = 1 if rows else math.ceil(len(labels) / _COLUMN_LABELS)
    tokens: dict[str, Any] = {
        "tickvals": list(range(0, len(labels), step)),
        "ticktext": labels[::step],
        "showgrid": False,
        "range": [len(labels) - 0.4, -0.6] if rows else [-0.8, len(labels) - 0.2],
    }
    if rows:
        figure.update_xaxes(**numbers)
        figure.update_yaxes(**tokens)
    else:
        figure.update_yaxes(**numbers)
        figure.update_xaxes(**tokens, tickangle=-60)


def _marks(
    figure: go.Figure,
    values: NDArray[np.float64],
    is_sink: NDArray[np.bool_],
    *,
    inset: float,
    words: Words,
    palette: Palette,
    rows: bool,
) -> None:
    """A star in the foot of every sink's bar, a cross where a number is not finite."""
    for chosen, symbol, colour, size, name in (
        (
            is_sink,
            LINE_STYLES["sink"].symbol,
            palette.sink,
            10,
            words.t("figures.sink"),
        ),
        (~np.isfinite(values), "x", palette.careful, 10, words.t("figures.non_finite")),
    ):
        at = np.flatnonzero(chosen)
        if at.size:
            foot = np.full(at.size, inset)
            x, y = (foot, at) if rows else (at, foot)
            figure.add_scatter(
                x=x, y=y, mode="markers", name=name, hoverinfo="skip", cliponaxis=False,
                marker={"symbol": symbol, "size": size, "color": palette.ground, "line": {"width": 1.6, "color": colour}},
            )  # fmt: skip

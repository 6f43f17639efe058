"""How much the residual grows in other checkpoints, as published, beside the one that is open, by the same measure."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import plotly.graph_objects as go

from model_probe.summaries import summarize
from model_probe.trace import NormTrace
from viz.figures.base import frame, literal
from viz.kept import kept
from viz.sources import published_growth
from viz.text import Words, number
from viz.theme import Palette

_ROW: Final = 30  # pixels
_FRAME: Final = 80


def own_growth(trace: NormTrace) -> float:
    """RMS of the residual over all tokens at the last layer's input, divided by that of the embeddings.

    The published statistic: the root mean square over tokens, sinks and all, from the first layer's input to the
    last layer's. NaN where either is not finite or the embeddings are zero.
    """
    layered = [site for site in trace.depth() if site.layer is not None]
    if not layered:
        return math.nan
    last = next(site for site in layered if site.layer == layered[-1].layer)
    first, later = (summarize(site.input.l2, "root_mean_square") for site in (layered[0], last))
    return later / first if first > 0 else math.nan


@kept
def published_figure(trace: NormTrace, words: Words, palette: Palette) -> go.Figure:
    """One row a checkpoint on a logarithmic axis: published factors as open diamonds, the open one's as a dot."""
    own = own_growth(trace)
    rows = [
        (cited.about, cited.value, "reported", number(cited.value, cited.digits))
        for cited in published_growth()
    ]
    if math.isfinite(own):
        rows.append((trace.checkpoint.name, own, "own", number(own)))
    rows.sort(key=lambda row: row[1])
    figure = frame(
        published_title(trace, words), palette, height=_FRAME + _ROW * len(rows), left=140, right=24
    )
    for kind, symbol, colour in (
        ("reported", "diamond-open", palette.reference),
        ("own", "circle", palette.residual),
    ):
        at = [i for i, row in enumerate(rows) if row[2] == kind]
        figure.add_scatter(
            x=[rows[i][1] for i in at],
            y=at,
            name=words.t(f"published.{kind}"),
            mode="markers+text",
            marker={"symbol": symbol, "size": 10, "color": colour},
            text=[f" {rows[i][3]} ×" for i in at],
            textposition="middle right",
            textfont={"color": colour},
            hovertemplate=f"%{{customdata}}<br>%{{text}}<br>{words.t(f'published.{kind}')}<extra></extra>",
            customdata=[literal(rows[i][0]) for i in at],
            cliponaxis=False,
        )
    values = [row[1] for row in rows]
    low, high = math.log10(min(values)), math.log10(max(values))
    figure.update_xaxes(
        type="log",
        range=[low - 0.25, high + 0.3 * max(high - low, 1.0)],
        dtick=1,
        showgrid=True,
        title_text=words.t("published.x"),
    )
    names = [literal(name) if kind == "reported" else f"<b>{literal(name)}</b>" for name, _, kind, _ in rows]
    figure.update_yaxes(
        tickvals=np.arange(len(rows)), ticktext=names, showgrid=False, range=[-0.6, len(rows) - 0.4]
    )
    return figure


def published_title(trace: NormTrace, words: Words) -> str:
    """What the comparison comes to, as a sentence."""
    growth = published_growth()
    least, most = (number(cited.value, cited.digits) for cited in (growth[0], growth[-1]))
    own = own_growth(trace)
    if not math.isfinite(own):
        return words.t("published.title_without", least=least, most=most)
    return words.t("published.title", least=least, most=most, own=number(own))

"""How much of a real vector is one shift of all its features: |mean| / RMS of every token at every norm."""

from __future__ import annotations

from typing import Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from viz.figures.base import LABEL_SIZE, frame
from viz.text import Words, number
from viz.theme import Palette

HEIGHT: Final = 290
BINS: Final = 50  # from 0, no shift, to 1, nothing but one

Floats = NDArray[np.float64]


def shift_figure(ratios: Floats, words: Words, palette: Palette) -> go.Figure:
    """How many vectors have which |mean| / RMS; the axis is the whole of what is possible, 0 to 1.

    ratios [any shape], from `model_probe.scaling.common_shift`; what is not finite is left out of the bars.
    """
    finite = ratios[np.isfinite(ratios)]
    counts, edges = np.histogram(finite, bins=BINS, range=(0.0, 1.0))
    width = 1 / BINS
    figure = frame(shift_title(ratios, words), palette, height=HEIGHT, left=64)
    figure.add_bar(
        x=edges[:-1] + width / 2,
        y=counts,
        width=width * 0.9,
        marker={"color": palette.residual},
        text=[
            words.t(
                "scale.shift.tooltip", n=int(n), low=number(float(a), 2), high=number(float(a + width), 2)
            )
            for n, a in zip(counts, edges[:-1], strict=True)
        ],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )
    largest = float(finite.max(initial=0.0))
    figure.add_annotation(
        x=largest, y=0, ax=0, ay=-46, showarrow=True, arrowhead=0, arrowwidth=1, arrowcolor=palette.muted,
        text=words.t("scale.shift.most", value=number(largest, 2)), standoff=3,
        xanchor="left", font={"size": LABEL_SIZE, "color": palette.residual},
    )  # fmt: skip
    figure.add_annotation(
        x=1, y=0, ax=0, ay=-46, showarrow=True, arrowhead=0, arrowwidth=1, arrowcolor=palette.muted,
        text=words.t("scale.shift.all"), standoff=3,
        xanchor="right", font={"size": LABEL_SIZE, "color": palette.muted},
    )  # fmt: skip
    figure.update_xaxes(range=[0, 1.002], title_text=words.t("scale.shift.x"), tickformat=".1f", dtick=0.2)
    figure.update_yaxes(
        range=[0, 1.1 * max(1, int(counts.max()))], title_text=words.t("scale.shift.y"), nticks=5
    )
    return figure


def shift_title(ratios: Floats, words: Words) -> str:
    """The chart's finding as a sentence, computed."""
    finite = ratios[np.isfinite(ratios)]
    return words.t(
        "scale.shift.finding",
        typical=number(100 * float(np.median(finite)), 2),
        most=number(100 * float(finite.max()), 2),
    )


def shift_alt(ratios: Floats, words: Words) -> str:
    """The chart for those who do not see it."""
    finite = ratios[np.isfinite(ratios)]
    return words.t(
        "scale.shift.alt",
        n=number(float(finite.size)),
        typical=number(float(np.median(finite)), 2),
        most=number(float(finite.max()), 2),
    )

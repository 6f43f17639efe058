"""The loudest features at every norm: a colour map around γ = 1."""

from __future__ import annotations

from typing import Final

import numpy as np
import plotly.graph_objects as go

from model_probe.blending import LoudFeatures, loudest_features
from model_probe.sites import NormSite
from viz.figures.base import LABEL_SIZE, colour_bar, corner_label, frame, literal, site_title
from viz.kept import kept
from viz.reading import FINAL, Sited, layer_code, layer_ticks
from viz.text import Words, number
from viz.theme import Palette

HEIGHT: Final = 510
FEATURES: Final = 24  # columns: as many numbers as a phone can hold, standing upright
_NARROW_TICK_SIZE: Final = 10  # a column is 12 pixels wide on a phone
_LEAST_DOUBLINGS: Final = 1.0  # either side of γ = 1: a flat map shall look flat
_MOST_DOUBLINGS: Final = 6.0


@kept
def features_figure(
    gains: Sited[NormSite], words: Words, palette: Palette, *, layer: str | None = None
) -> go.Figure:
    """|γ| of the loudest features (columns) at every site of `gains.depth()`, the first layer at the foot.

    Colours are doublings and halvings around 1; a flipped sign is a minus in the cell. `layer` is framed.

    Raises:
        ValueError: a site has no gain.
    """
    sites = gains.depth()
    loud = loudest_features(sites, FEATURES)
    with np.errstate(divide="ignore"):
        doublings = np.log2(np.abs(loud.gains))  # [sites, features]; −inf where a gain is 0
    span = float(np.clip(doublings.max(), _LEAST_DOUBLINGS, _MOST_DOUBLINGS))
    figure = frame(features_title(loud, sites, words), palette, height=HEIGHT, left=52, bottom=66, above=50)
    figure.add_heatmap(
        z=np.clip(doublings, -span, span),
        zmin=-span,
        zmax=span,
        colorscale=[list(stop) for stop in palette.diverging()],
        xgap=1,
        text=_tooltips(loud, sites, words),
        hovertemplate="%{text}<extra></extra>",
        colorbar=colour_bar(words.t("gain.features.bar"), _doublings(span), palette),
    )
    rows, columns = np.nonzero(loud.gains < 0)
    figure.add_scatter(
        x=columns, y=rows, mode="text", text=["−"] * len(rows), hoverinfo="skip", name=words.t("gain.features.flipped"),
        textfont={"size": LABEL_SIZE, "color": palette.text},
    )  # fmt: skip
    ticks = list(layer_ticks(gains, 8))
    figure.update_yaxes(
        range=[-0.5, len(sites) - 0.5],
        tickvals=[position for position, _ in ticks],
        ticktext=[words.t("figures.final_tick") if code == FINAL else code for _, code in ticks],
        showgrid=False,
    )
    corner_label(figure, words.t("figures.heatmap.y"), palette)
    figure.update_xaxes(
        range=[-0.5, len(loud.features) - 0.5],
        tickvals=list(range(len(loud.features))),
        ticktext=[str(feature) for feature in loud.features],
        tickangle=-90,
        tickfont_size=_NARROW_TICK_SIZE,
        showline=False,
    )
    figure.add_annotation(  # plotly would set the axis's own title on the upright numbers
        text=words.t("gain.features.x"), x=0.5, xref="paper", y=0, yref="paper", yanchor="top", yshift=-36,
        showarrow=False, font={"size": LABEL_SIZE, "color": palette.muted},
    )  # fmt: skip
    marked = [i for i, site in enumerate(sites) if layer_code(site) == layer]
    if marked:
        figure.add_shape(
            type="rect", x0=-0.5, x1=len(loud.features) - 0.5, y0=marked[0] - 0.5, y1=marked[-1] + 0.5,
            line={"color": palette.text, "width": 1.6},
        )  # fmt: skip
    return figure


def features_title(loud: LoudFeatures, sites: tuple[NormSite, ...], words: Words) -> str:
    """The chart's finding as a sentence, computed; escaped for plotly."""
    column = int(np.abs(loud.gains).max(axis=0).argmax())
    at = sites[int(loud.peaks[column])]
    return words.t(
        "gain.features.finding",
        feature=int(loud.features[column]),
        gain=number(float(loud.gains[loud.peaks[column], column])),
        site=site_title(words, at.layer, at.role),
    )


def features_alt(gains: Sited[NormSite], words: Words) -> str:
    """The chart for those who do not see it."""
    loud = loudest_features(gains.depth(), FEATURES)
    last = int(np.sum(loud.peaks == len(loud.gains) - 1))
    return words.t("gain.features.alt", n=len(loud.features), sites=len(loud.gains), last=last)


def _tooltips(loud: LoudFeatures, sites: tuple[NormSite, ...], words: Words) -> list[list[str]]:
    names = [f"{site_title(words, s.layer, s.role)}<br>{literal(s.name)}" for s in sites]
    titles = [words.t("gain.features.feature", feature=int(f)) for f in loud.features]
    return [
        [f"<b>{title}</b><br>γ {number(float(g))}<br>{name}" for title, g in zip(titles, row, strict=True)]
        for name, row in zip(names, loud.gains, strict=True)
    ]


def _doublings(span: float) -> dict[float, str]:
    whole = int(span)
    return {
        d: number(2.0**d, 1 if d > -4 else 2) if d >= 0 else f"1/{2**-d}" for d in range(-whole, whole + 1)
    }

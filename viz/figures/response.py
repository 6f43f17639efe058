"""One token's output before and after a change of the batch, under RMSNorm and under LayerNorm."""

from __future__ import annotations

from typing import Final

import numpy as np
import plotly.graph_objects as go

from model_probe.blending import sampled
from model_probe.properties import NORMS, respond
from viz.figures.base import LABEL_SIZE, frame
from viz.kept import kept
from viz.text import Words, number
from viz.theme import Palette

HEIGHT: Final = 380
SHOWN: Final = 40  # features drawn of the vector's 256
_SPAN: Final = 3.4  # of the value axis, either side of 0; the outputs have RMS 1
_GAP: Final = 0.16  # of the height, between the two norms
_NAME_ROOM: Final = 0.06  # of the height, above each norm for its name


@kept
def response_figure(change: str | None, words: Words, palette: Palette) -> go.Figure:
    """Bars are the output after one of `model_probe.properties.CHANGES`, rings the output before it.

    None: only the rings, nothing has been changed yet. Raises KeyError for another change.
    """
    figure = frame(response_title(change, words), palette, height=HEIGHT, bottom=40, above=22)
    figure.add_annotation(
        text=words.t("scale.change.key" if change else "scale.change.key_before"),
        x=0, xref="paper", xanchor="left", y=1.0, yref="paper", yanchor="bottom", yshift=6, showarrow=False,
        font={"size": LABEL_SIZE, "color": palette.muted},
    )  # fmt: skip
    room = (1 - _GAP) / 2 - _NAME_ROOM
    for row, norm in enumerate(NORMS):
        bottom = 0.0 if row else room + _NAME_ROOM + _GAP
        _panel(figure, change, norm, place=(row, bottom, bottom + room), words=words, palette=palette)
    return figure


def response_title(change: str | None, words: Words) -> str:
    """The chart's finding as a sentence, computed."""
    if change is None:
        return words.t("scale.change.before")
    same = {norm: respond(change, norm).same for norm in NORMS}
    finding = (
        "both" if all(same.values()) else "neither" if not any(same.values())
        else next(norm for norm, kept in same.items() if kept)
    )  # fmt: skip
    return words.t(f"scale.change.finding.{finding}", change=words.t(f"scale.change.name.{change}"))


def response_alt(change: str | None, words: Words) -> str:
    """The chart for those who do not see it."""
    if change is None:
        return words.t("scale.change.alt_before", n=SHOWN)
    return words.t(
        "scale.change.alt",
        change=words.t(f"scale.change.name.{change}"),
        n=SHOWN,
        rms_norm=number(respond(change, "rms_norm").largest_change, 2),
        layer_norm=number(respond(change, "layer_norm").largest_change, 2),
    )


def _panel(
    figure: go.Figure,
    change: str | None,
    norm: str,
    *,
    place: tuple[int, float, float],
    words: Words,
    palette: Palette,
) -> None:
    row, bottom, top = place
    axis = "" if row == 0 else "2"
    shown = respond(change or "times_7", norm)  # before the change it is the same for all
    at = sampled(shown.before, SHOWN)
    rings = np.arange(SHOWN)
    name = words.t(f"scale.norm.{norm}")
    if change is not None:
        colour = palette.normalized if shown.same else palette.careful
        figure.add_bar(
            x=rings, y=shown.after[at], xaxis=f"x{axis}", yaxis=f"y{axis}", width=0.72, name=name,
            marker={"color": colour},
            hovertemplate=words.t("scale.change.after_tooltip") + "<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=rings, y=shown.before[at], xaxis=f"x{axis}", yaxis=f"y{axis}", mode="markers", name=name,
        marker={"symbol": "circle-open", "size": 7, "line": {"width": 1.6}, "color": palette.text},
        hovertemplate=words.t("scale.change.before_tooltip") + "<extra></extra>",
    )  # fmt: skip
    verdict = (
        "" if change is None else f" · {words.t('scale.change.kept' if shown.same else 'scale.change.moved')}"
    )
    figure.add_annotation(
        text=f"<b>{name}</b>{verdict}", x=0, xref="paper", xanchor="left", y=top, yref="paper", yanchor="bottom",
        yshift=3, showarrow=False, font={"size": LABEL_SIZE, "color": palette.text},
    )  # fmt: skip
    figure.update_layout(
        {
            f"yaxis{axis}": {
                **figure.layout.yaxis.to_plotly_json(),
                "domain": [bottom, top],
                "range": [-_SPAN, _SPAN],
                "tickvals": [-2, 0, 2],
                "anchor": f"x{axis}",
                "zeroline": True,
                "zerolinecolor": palette.muted,
                "zerolinewidth": 1,
            },
            f"xaxis{axis}": {
                **figure.layout.xaxis.to_plotly_json(),
                "anchor": f"y{axis}",
                "range": [-0.8, SHOWN - 0.2],
                "showticklabels": False,
                "showline": False,
                "title": {
                    **figure.layout.xaxis.title.to_plotly_json(),
                    "text": words.t("scale.change.x", shown=SHOWN, size=shown.before.size) if row else "",
                },
            },
        }
    )

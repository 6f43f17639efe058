"""The histogram of one norm's gain: how many features are turned up, turned down, or flipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike, NDArray

from model_probe.sites import NormSite, count_gain, summarize_gain
from viz.figures.base import LABEL_SIZE, frame, site_title
from viz.kept import kept
from viz.text import Words, number
from viz.theme import LINE_STYLES, Palette

HEIGHT: Final = 380
MOST_BINS: Final = 80
_PER_UNIT: Final = (100, 50, 20, 10, 5, 4, 2, 1)  # bins between 0 and 1, so that −1, 0 and 1 are always edges


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """A gain's values sorted into bins of one width; a value on an edge is in the bin above it."""

    lows: NDArray[np.float64]  # [bins]
    width: float
    counts: NDArray[np.int64]  # [bins]


def gain_bins(gain: ArrayLike) -> Bins:
    """At most MOST_BINS bins over a gain [size] and 0 and 1, the finest of _PER_UNIT that do."""
    g = np.asarray(gain, dtype=np.float64)
    low, high = min(0.0, float(g.min())), max(1.0, float(g.max()))
    for per_unit in _PER_UNIT:
        first, last = int(np.floor(low * per_unit)), int(np.floor(high * per_unit))
        if last - first < MOST_BINS:
            break
    which = np.floor(g * per_unit).astype(np.int64) - first
    counts = np.bincount(which, minlength=last - first + 1)
    return Bins(np.arange(first, last + 1) / per_unit, 1 / per_unit, counts)


@kept
def gain_figure(site: NormSite, words: Words, palette: Palette) -> go.Figure:
    """The histogram of a site's gain, in two colours that meet at γ = 1; flipped features are hatched.

    Raises:
        ValueError: the site has no gain.
    """
    bins = gain_bins(site.known_gain)
    centres = bins.lows + bins.width / 2
    loud = np.abs(centres) > 1
    figure = frame(gain_title(site, words), palette, height=HEIGHT, left=58, above=42)
    figure.add_bar(
        x=centres,
        y=bins.counts,
        width=bins.width * 0.92,
        marker={
            "color": [palette.careful if up else palette.accent for up in loud],
            "pattern": {
                "shape": ["/" if centre < 0 else "" for centre in centres],
                "fgcolor": palette.ground,
                "size": 5,
            },
        },
        text=[
            words.t(
                "gain.histogram.tooltip",
                n=int(n),
                low=number(float(a), 3),
                high=number(float(a + bins.width), 3),
            )
            for n, a in zip(bins.counts, bins.lows, strict=True)
        ],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )
    _axes(figure, bins, words)
    _key(figure, site.known_gain, words, palette)
    _line(figure, 1.0, words.t("gain.histogram.one"), "reference", palette=palette, bins=bins)
    rms = summarize_gain(site.known_gain).rms
    _line(figure, rms, words.t("gain.histogram.rms", rms=number(rms)), "output", palette=palette, bins=bins)
    return figure


@kept
def start_figure(size: int, words: Words, palette: Palette) -> go.Figure:
    """The same before training: every one of `size` features at exactly 1."""
    figure = frame(words.t("gain.histogram.before", n=size), palette, height=HEIGHT, left=58, above=42)
    bins = Bins(np.arange(-5, 26) / 10, 0.1, np.zeros(31, dtype=np.int64))
    figure.add_bar(
        x=[1.0], y=[size], width=[0.02], marker={"color": palette.reference}, hoverinfo="skip",
        text=[str(size)], textposition="outside", textfont={"color": palette.reference}, cliponaxis=False,
    )  # fmt: skip
    _axes(figure, bins, words)
    figure.update_yaxes(range=[0, 1.16 * size])
    return figure


def gain_title(site: NormSite, words: Words) -> str:
    """The chart's finding as a sentence, computed; escaped for plotly."""
    counts = count_gain(site.known_gain)
    finding = (
        "all_up" if counts.amplified == site.size
        else "all_down" if counts.damped == site.size
        else "up" if counts.amplified >= counts.damped
        else "down"
    )  # fmt: skip
    return words.t(
        f"gain.histogram.finding.{finding}",
        site=site_title(words, site.layer, site.role),
        up=counts.amplified,
        down=counts.damped,
        size=site.size,
    )


def gain_alt(site: NormSite, words: Words) -> str:
    """The chart for those who do not see it."""
    counts, told = count_gain(site.known_gain), summarize_gain(site.known_gain)
    return words.t(
        "gain.histogram.alt",
        name=site.name,
        size=site.size,
        up=counts.amplified,
        down=counts.damped,
        flipped=counts.negative,
        least=number(told.min),
        most=number(told.max),
        rms=number(told.rms),
    )


def _axes(figure: go.Figure, bins: Bins, words: Words) -> None:
    figure.update_xaxes(
        range=[float(bins.lows[0]) - bins.width, float(bins.lows[-1]) + 2 * bins.width],
        title_text=words.t("gain.histogram.x"),
        nticks=8,
    )
    figure.update_yaxes(
        range=[0, 1.22 * max(1, int(bins.counts.max()))], title_text=words.t("gain.histogram.y"), nticks=6
    )


def _key(figure: go.Figure, gain: NDArray[np.float32], words: Words, palette: Palette) -> None:
    """What the two colours and the hatching mean, with their counts, over the plot."""
    counts = count_gain(gain)
    parts = [
        f'<span style="color:{palette.accent}">■</span> {words.t("gain.histogram.down", n=counts.damped)}',
        f'<span style="color:{palette.careful}">■</span> {words.t("gain.histogram.up", n=counts.amplified)}',
        f"▨ {words.t('gain.histogram.flipped', n=counts.negative)}",
    ]
    figure.add_annotation(
        text=f"{parts[0]}   {parts[1]}<br>{parts[2]}", align="left", x=0, xref="paper", xanchor="left", y=1, yref="paper", yanchor="bottom", yshift=6,
        showarrow=False, font={"size": LABEL_SIZE, "color": palette.text},
    )  # fmt: skip


def _line(figure: go.Figure, x: float, label: str, role: str, *, palette: Palette, bins: Bins) -> None:
    """An upright line with its name at the side that has more room."""
    style = LINE_STYLES[role]
    figure.add_vline(
        x=x, line={"color": palette.role(role), "width": max(style.width, 1.4), "dash": style.dash}
    )
    right = x < (float(bins.lows[0]) + float(bins.lows[-1])) / 2
    figure.add_annotation(
        x=x, y=1, yref="paper", yanchor="top", yshift=0 if role == "reference" else -19, text=label, showarrow=False,
        xanchor="left" if right else "right", xshift=5 if right else -5,
        font={"size": LABEL_SIZE, "color": palette.role(role)}, bgcolor=palette.ground,
    )  # fmt: skip

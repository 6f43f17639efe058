"""How loud each norm's output is, by depth: measured on a prompt, and as the gain's RMS alone would have it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from model_probe.sites import NormSite
from model_probe.summaries import summarize
from model_probe.trace import NormTrace
from viz.figures.base import frame, literal, site_title
from viz.figures.depth import end_labels, mark_layer, reference_line
from viz.kept import kept
from viz.reading import FINAL, Sited, layer_ticks
from viz.text import Words, number
from viz.theme import LINE_STYLES, Palette

HEIGHT: Final = 380

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Loudness:
    """Both lines over the depth, one number a site, NaN where there is none."""

    even: Floats  # √size · RMS(γ): the output's L2 where no feature of the normalized vector counts more
    measured: Floats  # the output's L2, median over the prompt's tokens

    @property
    def shares(self) -> Floats:
        """measured / even, where both are known."""
        both = self.measured / self.even
        return both[np.isfinite(both)]


def loudness(sites: tuple[NormSite, ...], trace: NormTrace | None) -> Loudness:
    """Both lines for these sites; without a trace nothing is measured."""
    even, measured = [], []
    sites_of_trace = {} if trace is None else {site.name: site for site in trace.sites}
    for site in sites:
        told = site.summary
        even.append(math.nan if told is None else math.sqrt(site.size) * told.rms)
        ran = sites_of_trace.get(site.name)
        measured.append(math.nan if ran is None else summarize(ran.output.l2))
    return Loudness(np.array(even), np.array(measured))


@kept
def loudness_figure(
    gains: Sited[NormSite],
    trace: NormTrace | None,
    words: Words,
    palette: Palette,
    *,
    layer: str | None = None,
) -> go.Figure:
    """Both lines over `gains.depth()`, logarithmic, with √d; `layer` is marked with a band."""
    sites = gains.depth()
    told = loudness(sites, trace)
    root = math.sqrt(sites[0].size)
    everything = np.concatenate([told.even, told.measured, [root]])
    everything = everything[np.isfinite(everything) & (everything > 0)]
    low, high = math.log10(everything.min()) - 0.12, math.log10(everything.max()) + 0.12
    figure = frame(loudness_title(told, root, words), palette, height=HEIGHT, right=104)
    figure.update_yaxes(type="log", range=[low, high], dtick=1, title_text=words.t("gain.loudness.y"))
    ticks = list(layer_ticks(gains, 6))
    figure.update_xaxes(
        range=[-0.8, len(sites) - 0.2],
        title_text=words.t("figures.depth.x"),
        tickvals=[position for position, _ in ticks],
        ticktext=[words.t("figures.final_tick") if code == FINAL else code for _, code in ticks],
    )
    mark_layer(figure, sites, layer, palette)
    reference_line(figure, root, palette)
    ends = {"reference": (words.t("figures.root", size=sites[0].size, root=number(root, 4)), root)}
    for role, name, values in (
        ("text", words.t("gain.loudness.even"), told.even),
        ("output", words.t("gain.loudness.measured"), told.measured),
    ):
        if np.isfinite(values).any():
            _line(figure, role, name, values, sites=sites, words=words, palette=palette)
            ends[role] = (name, float(values[np.isfinite(values)][-1]))
    end_labels(figure, ends, palette, axis="log", span=(low, high))
    return figure


def loudness_title(told: Loudness, root: float, words: Words) -> str:
    """The chart's finding as a sentence, computed."""
    measured = told.measured[np.isfinite(told.measured)]
    shown = measured if measured.size else told.even[np.isfinite(told.even)]
    return words.t(
        "gain.loudness.finding",
        least=number(float(shown.min()) / root, 2),
        most=number(float(shown.max()) / root, 2),
    )


def loudness_alt(told: Loudness, words: Words) -> str:
    """The chart for those who do not see it."""
    parts = [
        words.t(f"gain.loudness.alt_{name}", first=number(float(v[0])), last=number(float(v[-1])))
        for name, v in (("even", told.even), ("measured", told.measured))
        if np.isfinite(v).any()
    ]
    return words.t("gain.loudness.alt", n=len(told.even), lines=words.t("figures.list_separator").join(parts))


def _line(
    figure: go.Figure,
    role: str,
    name: str,
    values: Floats,
    *,
    sites: tuple[NormSite, ...],
    words: Words,
    palette: Palette,
) -> None:
    output = role == "output"
    colour = palette.output if output else palette.muted
    figure.add_scatter(
        x=np.arange(len(values)),
        y=values,
        name=name,
        mode="lines+markers" if output else "lines",
        line={
            "color": colour,
            "width": 2 if output else 1.6,
            "dash": LINE_STYLES["output"].dash if output else "solid",
        },
        marker={"symbol": LINE_STYLES["output"].symbol, "size": 6, "color": colour},
        text=[
            f"<b>{name} {number(float(value))}</b><br>{site_title(words, site.layer, site.role)}<br>{literal(site.name)}"
            for site, value in zip(sites, values, strict=True)
        ],
        hovertemplate="%{text}<extra></extra>",
        connectgaps=False,
    )

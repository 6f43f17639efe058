"""What the laboratory measured: one figure a layer for every placement, with the band that the seeds span."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from model_probe.laboratory import STACK_PLACEMENTS, LabResult, LabStack
from model_probe.profiles import Floats
from viz.figures.base import LABEL_SIZE, frame, literal
from viz.figures.depth import end_labels
from viz.text import Words, number
from viz.theme import Palette

HEIGHT: Final = 440
DASHES: Final = MappingProxyType(  # as on the slider above it; a colour is never the only sign
    {"pre_norm": "solid", "post_norm": "9px,4px", "sandwich_norm": "12px,3px,2px,3px", "no_norm": "2px,4px"}
)
_MARGIN: Final = 1.3  # factor kept free above and below the curves
_BEYOND: Final = 100.0  # times what a norm keeps in bounds: there the picture ends; the table goes on
_LEAST: Final = 1e-300  # where an axis begins at the latest
_TICKS: Final = 8  # layers named under the axis, about
_BAND: Final = 0.16  # opacity


@dataclass(frozen=True, slots=True)
class LabView:
    """What is drawn of a result."""

    series: str = "weight_gradient"  # one of model_probe.laboratory.LAB_SERIES
    initialisation: str = "xavier"  # one of model_probe.profiles.INITIALISATIONS


def stacks_figure(result: LabResult, view: LabView, words: Words, palette: Palette) -> go.Figure:
    """A curve a placement over the layers, logarithmic; what float32 could not hold is not drawn (`not_drawn` counts it)."""
    stacks = _stacks(result, view)
    low, high = _span(stacks, view.series)
    figure = frame(stacks_title(result, view, words), palette, height=HEIGHT, right=104, above=22)
    figure.update_yaxes(
        type="log",
        range=[math.log10(low), math.log10(high)],
        tickvals=[
            10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ],
        ticktext=[
            number(10.0**power)
            for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ],
    )
    layers = result.settings.layers
    step = max(1, round(layers / _TICKS))
    figure.update_xaxes(
        range=[0.6, layers + 0.4],
        title_text=words.t("placement.axis.layer"),
        tickvals=[1, *range(step, layers + 1, step)] if step > 1 else list(range(1, layers + 1)),
    )
    figure.add_annotation(
        text=literal(words.t(f"placement.lab.axis.{view.series}")), x=0, xref="paper", xanchor="left", y=1,
        yref="paper", yanchor="bottom", yshift=6, showarrow=False,
        font={"size": LABEL_SIZE, "color": palette.muted},
    )  # fmt: skip
    colours = placement_colours(palette)
    ends: dict[str, tuple[str, float]] = {}
    for placement, stack in stacks.items():  # bands first: none lies over a curve
        _band(figure, stack, view.series, name=placement, colour=colours[placement])
    for placement, stack in stacks.items():
        name = words.t(f"placement.lab.placement.{placement}")
        _curve(figure, stack, view.series, name=name, colour=colours[placement], words=words)
        shown = stack.mean(view.series)
        shown = shown[_drawable(shown)]
        if shown.size:
            beyond = " ↑" if shown[-1] > high else " ↓" if shown[-1] < low else ""
            ends[placement] = (name + beyond, float(np.clip(shown[-1], low, high)))
    end_labels(figure, ends, palette, axis="log", span=(math.log10(low), math.log10(high)), colours=colours)
    return figure


def placement_colours(palette: Palette) -> dict[str, str]:
    """A colour for each of STACK_PLACEMENTS, the same as on the slider `depth`."""
    return {
        "pre_norm": palette.accent,
        "post_norm": palette.careful,
        "sandwich_norm": palette.good,
        "no_norm": palette.muted,
    }


def stacks_title(result: LabResult, view: LabView, words: Words) -> str:
    """The chart's finding as a sentence, computed: the least and the most of what is finite."""
    activation = view.series == "activation"
    told = {
        placement: float(stack.mean(view.series)[-1]) if activation else stack.first_over_last(view.series)
        for placement, stack in _stacks(result, view).items()
    }
    finite = {placement: value for placement, value in told.items() if math.isfinite(value)}
    start = words.t(f"placement.initialisation.{view.initialisation}")
    if not finite:
        return words.t("placement.lab.finding.none", start=start)
    least, most = min(finite, key=finite.__getitem__), max(finite, key=finite.__getitem__)
    return words.t(
        f"placement.lab.finding.{'activation' if activation else 'gradient'}",
        start=start,
        least=number(finite[least]),
        most=number(finite[most]),
        least_name=words.t(f"placement.lab.placement.{least}"),
        most_name=words.t(f"placement.lab.placement.{most}"),
    )


def stacks_alt(result: LabResult, view: LabView, words: Words) -> str:
    """The chart for those who do not see it: where each curve begins and ends."""
    lines = [
        words.t(
            "placement.lab.alt_line",
            name=words.t(f"placement.lab.placement.{placement}"),
            first=number(stack.mean(view.series)[0]),
            last=number(stack.mean(view.series)[-1]),
        )
        for placement, stack in _stacks(result, view).items()
    ]
    return words.t(
        "placement.lab.alt",
        series=words.t(f"placement.lab.axis.{view.series}"),
        start=words.t(f"placement.initialisation.{view.initialisation}"),
        layers=words.t("placement.layers", n=result.settings.layers),
        lines=words.t("figures.list_separator").join(lines),
    )


def not_drawn(result: LabResult, view: LabView) -> dict[str, int]:
    """In how many layers each placement's figure is zero or not finite, where it is so in any."""
    counts = {
        placement: int((~_drawable(stack.mean(view.series))).sum())
        for placement, stack in _stacks(result, view).items()
    }
    return {placement: n for placement, n in counts.items() if n}


def _drawable(values: Floats) -> NDArray[np.bool_]:
    return np.isfinite(values) & (values > 0)


def _stacks(result: LabResult, view: LabView) -> dict[str, LabStack]:
    return {placement: result.stack(view.initialisation, placement) for placement in STACK_PLACEMENTS}


def _span(stacks: dict[str, LabStack], series: str) -> tuple[float, float]:
    """The axis: all that the norms keep in bounds, and of the stack without one as much as leaves them readable."""
    ends = {placement: np.concatenate(stack.band(series)) for placement, stack in stacks.items()}
    finite = {placement: v[_drawable(v)] for placement, v in ends.items()}
    normed = np.concatenate([v for placement, v in finite.items() if placement != "no_norm"])
    if not normed.size:
        return 0.1, 10.0
    everything = np.concatenate([*finite.values()])
    low = max(float(everything.min()), float(normed.min()) / _BEYOND) / _MARGIN
    high = min(float(everything.max()), float(normed.max()) * _BEYOND) * _MARGIN
    return max(low, _LEAST), max(high, _LEAST * _MARGIN)


def _band(figure: go.Figure, stack: LabStack, series: str, *, name: str, colour: str) -> None:
    mean, (least, most) = stack.mean(series), stack.band(series)
    layers = np.arange(1, len(mean) + 1)
    whole = _drawable(mean) & _drawable(least)
    channels = ", ".join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))
    figure.add_scatter(
        x=[*layers[whole], *layers[whole][::-1]],
        y=[*most[whole], *least[whole][::-1]],
        fill="toself",
        fillcolor=f"rgba({channels}, {_BAND})",
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        name=name,
    )


def _curve(figure: go.Figure, stack: LabStack, series: str, *, name: str, colour: str, words: Words) -> None:
    mean, (least, most) = stack.mean(series), stack.band(series)
    layers = np.arange(1, len(mean) + 1)
    whole = _drawable(mean)
    tooltips = [
        words.t(
            "placement.lab.tooltip",
            name=name,
            layer=layer,
            value=number(value, 4),
            least=number(low),
            most=number(high),
        )
        for layer, value, low, high in zip(layers, mean, least, most, strict=True)
    ]
    figure.add_scatter(
        x=layers,
        y=np.where(whole, mean, np.nan),
        name=name,
        mode="lines" if whole.sum() > 1 else "markers",
        line={"color": colour, "width": 2.4, "dash": DASHES[stack.placement]},
        marker={"color": colour},
        text=tooltips,
        hovertemplate="%{text}<extra></extra>",
        connectgaps=False,
    )

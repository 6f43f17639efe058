"""What RMSNorm and LayerNorm cost, in multiples of the least time that their bytes take to be moved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import plotly.graph_objects as go

from model_probe.costs import NORMS, Costs, Size, Spread
from viz.figures.base import LABEL_SIZE, TICK_SIZE, frame, literal
from viz.text import Words, number
from viz.theme import Palette

HEIGHT: Final = 446
DASHES: Final = MappingProxyType({"eager": "dot", "fused": "solid", "compiled": "dash"})
SYMBOLS: Final = MappingProxyType({"rms_norm": "circle", "layer_norm": "diamond"})
_ASIDE: Final = 0.02  # decades between two ways at the same number of tokens: bars stand side by side
_MARGIN: Final = 1.4  # factor kept free above and below


def costs_figure(costs: Costs, hidden_size: int, words: Words, palette: Palette) -> go.Figure:
    """A curve a norm and variant over the tokens, both axes logarithmic; bars span the middle half of the rounds."""
    sizes = sizes_of(costs, hidden_size)
    told = {
        (norm, variant): [costs.over_floor(norm, variant, size) for size in sizes]
        for norm in NORMS
        for variant in costs.variants
    }
    high = max(spread.high for spreads in told.values() for spread in spreads) * _MARGIN
    figure = frame(costs_title(costs, sizes[-1], words), palette, height=HEIGHT, above=22, bottom=52 + 74)
    powers = range(math.ceil(math.log10(high)) + 1)
    figure.update_yaxes(
        type="log",
        range=[math.log10(1 / _MARGIN), math.log10(high)],
        tickvals=[10.0**power for power in powers],
        ticktext=[f"×{number(10.0**power, 1)}" for power in powers],
    )
    tokens = [size.tokens for size in sizes]
    figure.update_xaxes(
        type="log",
        range=[math.log10(tokens[0]) - 0.15, math.log10(tokens[-1]) + 0.15],
        tickvals=tokens,
        ticktext=[str(n) for n in tokens],
        title_text=words.t("code.costs.axis.tokens"),
    )
    figure.add_annotation(
        text=literal(words.t("code.costs.axis.floor")), x=0, xref="paper", xanchor="left", y=1, yref="paper",
        yanchor="bottom", yshift=6, showarrow=False, font={"size": LABEL_SIZE, "color": palette.muted},
    )  # fmt: skip
    figure.add_hline(y=1, line={"color": palette.reference, "width": 1.2, "dash": "longdash"}, layer="below")
    colours = {"rms_norm": palette.accent, "layer_norm": palette.careful}
    for place, ((norm, variant), spreads) in enumerate(told.items()):
        aside = 10 ** ((place - (len(told) - 1) / 2) * _ASIDE)
        name = way_name(norm, variant, words)
        figure.add_scatter(
            x=[n * aside for n in tokens],
            y=[spread.median for spread in spreads],
            error_y={
                "array": [spread.high - spread.median for spread in spreads],
                "arrayminus": [spread.median - spread.low for spread in spreads],
                "thickness": 1.2,
                "width": 3,
            },
            name=name,
            showlegend=False,
            mode="lines+markers",
            line={"color": colours[norm], "width": 2.2, "dash": DASHES[variant]},
            marker={"symbol": SYMBOLS[norm], "size": 8, "color": colours[norm]},
            text=[
                words.t(
                    "code.costs.tooltip",
                    name=name,
                    tokens=size.tokens,
                    times=number(spread.median),
                    seconds=duration(Spread.of(costs.timing(norm, variant, size).seconds).median, words),
                )
                for size, spread in zip(sizes, spreads, strict=True)
            ],
            hovertemplate="%{text}<extra></extra>",
        )
    _key(figure, costs, colours, words, palette)
    figure.update_layout(
        showlegend=True,
        legend={
            "orientation": "h", "x": 0, "xanchor": "left", "y": -0.21, "yanchor": "top",
            "font": {"size": TICK_SIZE, "color": palette.text}, "itemclick": False, "itemdoubleclick": False,
            "bgcolor": "rgba(0,0,0,0)",
        },
    )  # fmt: skip
    return figure


def _key(figure: go.Figure, costs: Costs, colours: Mapping[str, str], words: Words, palette: Palette) -> None:
    """What colour and marker mean, and what the dashes: a few short entries that fit a phone."""
    for norm, colour in colours.items():
        figure.add_scatter(
            x=[None], y=[None], mode="markers", name=words.t(f"code.costs.norm.{norm}"), hoverinfo="skip",
            marker={"symbol": SYMBOLS[norm], "size": 9, "color": colour},
        )  # fmt: skip
    for variant in costs.variants:
        figure.add_scatter(
            x=[None], y=[None], mode="lines", name=words.t(f"code.costs.variant.{variant}"),
            hoverinfo="skip", line={"color": palette.text, "width": 2, "dash": DASHES[variant]},
        )  # fmt: skip


def sizes_of(costs: Costs, hidden_size: int) -> list[Size]:
    """The sizes that were measured at this width, by tokens."""
    sizes = [copy.size for copy in costs.copies if copy.size.hidden_size == hidden_size]
    return sorted(sizes, key=lambda size: size.tokens)


def way_name(norm: str, variant: str, words: Words) -> str:
    """A norm and how it is run: "RMSNorm, fused"."""
    return words.t(
        "code.costs.way",
        norm=words.t(f"code.costs.norm.{norm}"),
        variant=words.t(f"code.costs.variant.{variant}"),
    )


def costs_title(costs: Costs, size: Size, words: Words) -> str:
    """The chart's finding as a sentence, computed: LayerNorm over RMSNorm by variant, at one size."""
    told = [
        words.t(
            "code.costs.ratio_of",
            variant=words.t(f"code.costs.variant.{variant}"),
            ratio=number(costs.ratio(variant, size).median, 2),
        )
        for variant in costs.variants
    ]
    return words.t(
        "code.costs.finding", tokens=size.tokens, ratios=words.t("figures.list_separator").join(told)
    )


def costs_alt(costs: Costs, hidden_size: int, words: Words) -> str:
    """The chart for those who do not see it."""
    sizes = sizes_of(costs, hidden_size)
    times = [
        costs.over_floor(norm, variant, size).median
        for norm in NORMS
        for variant in costs.variants
        for size in sizes
    ]
    return words.t(
        "code.costs.alt",
        size=hidden_size,
        tokens=sizes[-1].tokens,
        least=number(float(np.min(times))),
        most=number(float(np.max(times))),
        title=costs_title(costs, sizes[-1], words),
    )


def duration(seconds: float, words: Words) -> str:
    """A time with the unit that suits it."""
    unit, factor = unit_of(seconds)
    return words.t(f"code.costs.unit.{unit}", n=number(seconds * factor))


def unit_of(seconds: float) -> tuple[str, float]:
    """The unit that suits a time, and how many of it a second has."""
    return ("microseconds", 1e6) if seconds < 1e-3 else ("milliseconds", 1e3)

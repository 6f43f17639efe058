"""The slider `depth`: how many layers a toy stack has, and what autograd finds at each of them.

The stacks were measured beforehand (`model_probe.profiles`); every stop is one depth, with a curve a placement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from model_probe.profiles import PLACEMENTS, Profiles, StackProfile, load_profiles
from viz.live.slider import LiveSlider, Stop, Tick, slot
from viz.text import Words, number

DEFAULT_DEPTH: Final = 6
VEILED: Final = ("no_norm",)  # what is drawn while the page's question is open
_DEPTH_TICKS: Final = (2, 6, 12, 24, 32, 48)  # under the slider
_LAYER_TICKS: Final = (1, 8, 16, 24, 32, 40, 48)  # under the chart
_MARGIN: Final = 1.25  # factor kept free above and below the curves
_BEYOND: Final = 100  # times the largest figure with a norm: there the picture ends; the table goes on
_DIGITS: Final = 4  # significant digits of what is drawn


@dataclass(frozen=True, slots=True)
class DepthView:
    """Which profiles are drawn."""

    series: str = "weight_gradient"  # one of model_probe.profiles.SERIES
    initialisation: str = "xavier"  # one of model_probe.profiles.INITIALISATIONS
    placements: tuple[str, ...] = PLACEMENTS  # those that are shown, PLACEMENTS or VEILED


@lru_cache(maxsize=64)
def depth_slider(words: Words, view: DepthView) -> LiveSlider:
    """The slider in one language: a stop for every depth that was measured."""
    profiles = load_profiles()
    depths = profiles.depths
    span = _span(profiles, view)
    root = math.sqrt(profiles.settings.hidden_size)
    sentence = view.series if view.placements == PLACEMENTS else "veiled"
    return LiveSlider(
        name="depth",
        parameter="depth",
        stops=tuple(_stop(words, profiles, view, depth) for depth in depths),
        default=str(DEFAULT_DEPTH),
        label=words.t("placement.slider"),
        sentence=words.t(
            f"placement.sentence.{sentence}",
            root=number(root, 2),
            layers=slot("layers"),
            times=slot("times"),
            pre=slot("pre_norm.last"),
            post=slot("post_norm.last"),
            none=slot("no_norm.last"),
        ),
        alt=words.t("placement.alt", series=words.t(f"placement.axis.{view.series}")),
        still={
            "layers": [1, depths[-1]],
            "span": span,
            "layerTicks": [[layer, str(layer)] for layer in _LAYER_TICKS],
            "valueTicks": [[value, _tick(value)] for value in _ticks(*span)],
            "curves": [
                {
                    "role": placement,
                    "name": words.t(f"placement.curve.{placement}"),
                    "shown": placement in view.placements,
                    "trail": [
                        [depth, _drawn(_stack(profiles, view, placement, depth).series(view.series)[-1])]
                        for depth in depths
                    ],
                }
                for placement in PLACEMENTS
            ],
            "words": {
                "x": words.t("placement.axis.layer"),
                "y": words.t(f"placement.axis.{view.series}"),
                **{column: words.t(f"placement.column.{column}") for column in ("first", "last", "ratio")},
                "hidden": words.t("placement.hidden"),
                "trail": words.t("placement.trail"),
            },
        },
        ticks=[Tick(depths.index(depth), str(depth)) for depth in _DEPTH_TICKS],
    )


def _stack(profiles: Profiles, view: DepthView, placement: str, depth: int) -> StackProfile:
    return profiles.stack(view.initialisation, placement, depth)


def _stop(words: Words, profiles: Profiles, view: DepthView, depth: int) -> Stop:
    stacks = {placement: _stack(profiles, view, placement, depth) for placement in view.placements}
    values = {placement: stack.series(view.series) for placement, stack in stacks.items()}
    readouts = {"layers": str(depth)}
    for placement, stack in stacks.items():
        first, last = values[placement][0], values[placement][-1]
        readouts |= {
            f"{placement}.first": number(first),
            f"{placement}.last": number(last),
            f"{placement}.ratio": number(stack.first_over_last(view.series)),
        }
    if "pre_norm" in values:
        readouts["times"] = number(values["post_norm"][-1] / values["pre_norm"][-1])
    return Stop(
        code=str(depth),
        value=depth,
        shown=words.t("placement.layers", n=depth),
        readouts=readouts,
        frame=[[_drawn(value) for value in values.get(placement, ())] for placement in PLACEMENTS],
    )


def _drawn(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _span(profiles: Profiles, view: DepthView) -> tuple[float, float]:
    """The chart's height, the same for every stop and whatever is still veiled.

    Without a norm a stack can leave it at the top: else its explosion would press the others flat.
    """
    stacks = [stack for stack in profiles.stacks if stack.initialisation == view.initialisation]
    low = min(float(stack.series(view.series).min()) for stack in stacks)
    high = max(float(stack.series(view.series).max()) for stack in stacks)
    normed = max(float(s.series(view.series).max()) for s in stacks if s.placement != "no_norm")
    return low / _MARGIN, min(high * _MARGIN, normed * _BEYOND)


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten; where fewer than three fit, 2 and 5 times them too."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if sum(low <= 10.0**power <= high for power in powers) >= 3 else (1, 2, 5)
    values = [step * 10.0**power for power in powers for step in steps]
    return [value for value in values if low <= value <= high]


def _tick(value: float) -> str:
    return number(value, 1) if value < 1e4 else f"10{str(round(math.log10(value))).translate(_SUPERSCRIPT)}"


_SUPERSCRIPT: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

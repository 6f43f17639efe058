"""The slider `gain`: a norm's gain blended between γ = 1 and what was learned, and what it does to a vector."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np

from model_probe.blending import Blend, blend, sampled
from model_probe.sites import NormSite
from viz.live.slider import LiveSlider, Stop, Tick, slot
from viz.text import Words, number

PARTS: Final = ("features", "turn")  # each feature's gain as a column, and the whole vector as an arrow
VEILED: Final = PARTS[1:]  # while the page's question is open: the columns would tell the answer
FEATURES: Final = 48  # drawn of a norm's
_ANGLE_DIGITS: Final = 1


@lru_cache(maxsize=64)
def gain_slider(words: Words, site: NormSite, parts: tuple[str, ...] = PARTS) -> LiveSlider:
    """The slider in one language for one site, which has a gain: 101 stops, percent of the way to the learned one.

    `parts` are those of PARTS drawn.

    Raises:
        ValueError: the site has no gain.
    """
    gain = site.known_gain.astype(np.float64)
    blends = [blend(gain, percent / 100) for percent in range(101)]
    root = math.sqrt(site.size)
    shown = gain[sampled(gain, FEATURES)]
    low, high = _span(shown)
    return LiveSlider(
        name="gain",
        parameter="blend",
        stops=tuple(_stop(at, root) for at in blends),
        default="100",
        label=words.t("gain.slider"),
        sentence=words.t(
            "gain.sentence",
            size=site.size,
            root=number(root, 4),
            **{name: slot(name) for name in ("output_l2", "ratio", "cosine", "angle", "min", "max")},
        ),
        alt=words.t("gain.alt" if parts == PARTS else "gain.alt_veiled", n=len(shown), size=site.size),
        still={
            "gains": [round(float(value), 4) for value in shown] if "features" in parts else None,
            "span": [low, high],
            "ticks": [(tick, number(tick, 1) if tick else "0") for tick in _ticks(low, high)],
            "learned": _arrow(blends[-1], root),
            "longest": max(1.0, blends[-1].output_l2 / root),
            "words": {
                "columns": words.t("gain.chart.columns", n=len(shown), size=site.size),
                "one": words.t("gain.chart.one"),
                "dial": words.t("gain.chart.dial"),
                "normalized": words.t("common.series.normalized"),
                "output": words.t("common.series.output"),
            },
        },
        ticks=[Tick(0, words.t("gain.tick.start")), Tick(100, words.t("gain.tick.learned"))],
        role="output",
    )


def _stop(at: Blend, root: float) -> Stop:
    percent = round(100 * at.share)
    ratio, angle = _arrow(at, root)
    return Stop(
        code=str(percent),
        value=percent,
        shown=f"{percent} %",
        readouts={
            "output_l2": number(at.output_l2),
            "ratio": number(ratio),
            "cosine": f"{at.cosine:.3f}",
            "angle": f"{math.degrees(angle):.{_ANGLE_DIGITS}f}°",
            "min": number(at.min),
            "max": number(at.max),
        },
        frame=[at.share, ratio, angle],
    )


def _arrow(at: Blend, root: float) -> tuple[float, float]:
    """The output as an arrow beside the normalized vector: its length in normalized ones, its angle in radians."""
    return round(at.output_l2 / root, 4), round(math.acos(min(max(at.cosine, -1.0), 1.0)), 5)


def _span(gains: np.ndarray) -> tuple[float, float]:
    """The value axis: from below 0 and the smallest to above 1 and the largest gain drawn."""
    low, high = min(0.0, float(gains.min())), max(1.0, float(gains.max()))
    room = 0.08 * (high - low)
    return (low - room if low < 0 else 0.0), high + room


def _ticks(low: float, high: float) -> list[float]:
    """Whole numbers, at most six; 0 always among them."""
    step = next(s for s in (0.5, 1, 2, 5, 10, 20, 50, 100) if (high - low) / s <= 6)
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]

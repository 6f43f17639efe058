"""The slider `scale`: one vector times a factor, and how long RMSNorm gives it back."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np

from model_probe.scaling import EPS, SIZE, Scaled, profile, scaled, share_of_root
from viz.live.slider import Band, LiveSlider, Stop, Tick, phrase, slot
from viz.text import Words, number

SMALLEST: Final = 1e-4
LARGEST: Final = 10.0
USUAL: Final = (0.1, 10.0)  # the range of factors marked as usual
STOPS_PER_DECADE: Final = 50
NOTICED: Final = 99.0  # percent of √d: below, ε has taken more than a trace
_WHOLE: Final = 99.95  # percent: shown as 100.0
_TICKS: Final = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
_DECADES: Final = round(math.log10(LARGEST / SMALLEST))


@lru_cache(maxsize=1)
def factors() -> tuple[float, ...]:
    """The factor at every stop: evenly spaced on a log scale, three digits each, so that the address is exact."""
    grid = np.geomspace(SMALLEST, LARGEST, _DECADES * STOPS_PER_DECADE + 1)
    return tuple(float(f"{factor:.3g}") for factor in grid)


@lru_cache(maxsize=4)
def scale_slider(words: Words, embedding_rms: float) -> LiveSlider:
    """The slider in one language; `embedding_rms` of a real model is marked on its curve."""
    return LiveSlider(
        name="scale",
        parameter="factor",
        stops=tuple(_stop(words, scaled(factor)) for factor in factors()),
        default=_code(1.0),
        label=words.t("scale.slider"),
        sentence=words.t(
            "scale.sentence",
            mean_square=slot("mean_square"),
            eps=number(EPS),
            divisor=slot("divisor"),
            meaning=phrase("meaning"),
        ),
        alt=words.t("scale.alt", size=SIZE),
        still={
            "profile": [round(float(value), 3) for value in profile()],
            "curve": [[factor, round(scaled(factor).percent, 2)] for factor in factors()[::2]],
            "usual": USUAL,
            "embedding": [embedding_rms, round(100 * float(share_of_root(embedding_rms)), 2)],
            "words": {
                "input": words.t("scale.chart.input"),
                "output": words.t("scale.chart.output"),
                "percent": words.t("scale.chart.percent", size=SIZE),
                "beyond": words.t("scale.chart.beyond"),
                "curve": words.t("scale.chart.curve"),
                "whole": words.t("scale.chart.whole", size=SIZE, root=number(math.sqrt(SIZE), 2)),
                "embedding": words.t("scale.chart.embedding"),
            },
        },
        ticks=[Tick(_index(factor), _code(factor)) for factor in _TICKS],
        bands=[
            Band(0, _index(_noticed_below()), words.t("scale.band.eps")),
            Band(_index(USUAL[0]), _index(USUAL[1]), words.t("scale.band.usual")),
        ],
        role="residual",
    )


def _stop(words: Words, at: Scaled) -> Stop:
    return Stop(
        code=_code(at.factor),
        value=at.factor,
        shown=f"×{_code(at.factor)}",
        readouts={
            "input_l2": number(at.input_l2),
            "output_l2": number(at.output_l2, 4),
            "rms": number(at.rms),
            "percent": f"{at.percent:.1f}",
            "mean_square": number(at.rms**2),
            "divisor": number(at.divisor),
            "meaning": words.t(f"scale.meaning.{_meaning(at)}"),
        },
        frame=[at.factor, round(at.percent, 2)],
    )


def _meaning(at: Scaled) -> str:
    if at.percent >= _WHOLE:
        return "whole"
    if at.percent >= NOTICED:
        return "trace"
    return "rules" if at.rms**2 < EPS else "part"


def _noticed_below() -> float:
    """The RMS at which ε has taken so much that NOTICED percent are left."""
    kept = (NOTICED / 100) ** 2
    return math.sqrt(EPS * kept / (1 - kept))


def _code(factor: float) -> str:
    return f"{factor:.3g}"


def _index(factor: float) -> float:
    """Where a factor lies among the stops."""
    return math.log10(factor / SMALLEST) * STOPS_PER_DECADE

"""The slider `saturation`: a token's length, and what the softmax of its six scores becomes."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import Final

import numpy as np

from model_probe.illustrations import (
    LARGEST_L2,
    SMALLEST_L2,
    TOKENS,
    UNIT_L2,
    ZONES,
    Attention,
    attention_at,
    zone_limits,
)
from viz.live.slider import Band, LiveSlider, Stop, Tick, phrase, slot
from viz.text import Words, number

STOPS_PER_OCTAVE: Final = 20
SHOWN_DECIMALS: Final = 3
TALKED_ABOUT: Final = 192.0  # in the prose: the slider stops exactly there
CURVES: Final = ("entropy", "jacobian")  # over the whole range of lengths
VEILED: Final = CURVES[:1]  # while the page's question is open
_TICKS: Final = (1, 8, 32, 128, 512)


@lru_cache(maxsize=1)
def lengths() -> tuple[float, ...]:
    """L2 at every stop: evenly spaced on a log scale, three digits each, so that the address is exact."""
    octaves = round(np.log2(LARGEST_L2 / SMALLEST_L2))
    grid = np.geomspace(SMALLEST_L2, LARGEST_L2, octaves * STOPS_PER_OCTAVE + 1)
    grid[np.argmin(np.abs(grid - TALKED_ABOUT))] = TALKED_ABOUT
    return tuple(float(f"{l2:.3g}") for l2 in grid)


@lru_cache(maxsize=4)
def saturation_slider(words: Words, curves: tuple[str, ...] = CURVES) -> LiveSlider:
    """The slider in one language: 181 stops from L2 1 to 512, ×1 at 32. `curves` are those of CURVES drawn."""
    at = [attention_at(l2) for l2 in lengths()]
    heights = {
        "entropy": [round(each.entropy_share, 4) for each in at],
        "jacobian": [round(each.jacobian, 4) for each in at],
    }
    limits = (SMALLEST_L2, *zone_limits(), LARGEST_L2)
    return LiveSlider(
        name="saturation",
        parameter="l2",
        stops=tuple(_stop(words, each) for each in at),
        default=_code(UNIT_L2),
        label=words.t("saturation.slider"),
        sentence=words.t(
            "saturation.sentence",
            zone=slot("zone"),
            meaning=phrase("meaning"),
            top=slot("top"),
            entropy=slot("entropy"),
            evenness=slot("evenness"),
            jacobian=slot("jacobian"),
        ),
        alt=words.t("saturation.alt" if curves == CURVES else "saturation.alt_veiled"),
        still={
            "tokens": TOKENS,
            "l2": lengths(),
            "curves": {curve: heights[curve] for curve in curves},
            "limits": limits[:-1],
            "labelsAt": lengths()[STOPS_PER_OCTAVE // 5],
            "l2Ticks": [(l2, str(l2)) for l2 in _TICKS],
            "yTicks": [(0.0, "0"), (0.5, "0.5"), (1.0, "1")],
            "words": {label: words.t(f"saturation.chart.{label}") for label in _CHART_LABELS},
        },
        ticks=[Tick(_index(l2), f"{l2} = ×1" if l2 == UNIT_L2 else str(l2)) for l2 in _TICKS],
        bands=[
            Band(_index(start), _index(end), words.t(f"saturation.zone.{zone}"))
            for zone, start, end in zip(ZONES, limits[:-1], limits[1:], strict=True)
        ],
        role="residual",
    )


_CHART_LABELS: Final = ("shares", "curves", "entropy", "jacobian")


def _stop(words: Words, at: Attention) -> Stop:
    def shown(value: float) -> str:
        return f"{value:.{SHOWN_DECIMALS}f}"

    return Stop(
        code=_code(at.l2),
        value=at.l2,
        shown=words.t("saturation.value", l2=number(at.l2), factor=number(at.l2 / UNIT_L2)),
        readouts={
            **{f"share.{token}": shown(share) for token, share in zip(TOKENS, at.shares, strict=True)},
            "top": shown(at.top),
            "entropy": shown(at.entropy),
            "evenness": f"{100 * at.entropy_share:.2f} %",
            "jacobian": shown(at.jacobian),
            "zone": words.t(f"saturation.zone.{at.zone}"),
            "meaning": words.t(f"saturation.meaning.{at.zone}"),
        },
        frame=[round(float(share), 4) for share in at.shares],
    )


def _code(l2: float) -> str:
    return f"{l2:g}"


def _index(l2: float) -> float:
    """Where a length lies among the stops, between two of them on the log scale."""
    stops = lengths()
    above = min(max(bisect_left(stops, l2), 1), len(stops) - 1)
    low, high = np.log(stops[above - 1]), np.log(stops[above])
    return float(above - 1 + (np.log(l2) - low) / (high - low))

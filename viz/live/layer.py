"""The slider `layer`: every norm of a trace in order, what it reads and gives, and each token's bar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from model_probe.summaries import sinks
from model_probe.trace import NormTrace, SiteTrace
from viz.address import Choice
from viz.kept import kept
from viz.live.slider import VALUE, LiveSlider, Stop, Tick, slot
from viz.reading import FINAL, LINES, Reading, layer_code, layer_ticks, site_codes, sites_of
from viz.tables import read_as
from viz.text import Words, number

MOST_BARS: Final = 160  # tokens; the chart below the slider shows them all
_DIGITS: Final = 4
_TICKS: Final = 9  # labels under the slider, at most


@dataclass(frozen=True, slots=True)
class NormChoice(Choice):
    """A norm of a trace, "4.input_layernorm"; a layer alone, "4", means its first norm."""

    def valid(self, value: object) -> str:
        """The code itself, the first norm of a layer, or the default."""
        if isinstance(value, str) and value not in self.codes:
            value = next((code for code in self.codes if code.startswith(f"{value}.")), value)
        return Choice.valid(self, value)


def norm_codes(trace: NormTrace) -> dict[str, SiteTrace]:
    """The sites of a trace by code, in the order in which they run."""
    codes: dict[str, str] = {}
    for layer in dict.fromkeys(layer_code(site) for site in trace.sites):
        codes |= {site.name: f"{layer}.{code}" for code, site in site_codes(sites_of(trace, layer)).items()}
    return {codes[site.name]: site for site in trace.sites}


@kept
def layer_slider(
    trace: NormTrace, series: str, reading: Reading, choice: NormChoice, words: Words
) -> LiveSlider:
    """The slider over a trace's norms, its bars of one of `viz.reading.LINES`.

    Raises:
        ValueError: the trace has fewer than two norms.
    """
    sites = norm_codes(trace)
    named = LINES[series]
    shown = [site.series(named)[:MOST_BARS].astype(np.float64) for site in sites.values()]
    low, high = _span(shown)
    first = {layer_code(site): place for place, site in reversed(list(enumerate(sites.values())))}
    depth = trace.depth()
    return LiveSlider(
        name="layer",
        parameter=choice.name,
        stops=tuple(
            _stop(code, site, values, reading, words)
            for (code, site), values in zip(sites.items(), shown, strict=True)
        ),
        default=choice.default,
        label=words.t("probe.norm.label"),
        sentence=words.t(
            "probe.norm.sentence",
            value=slot(VALUE),
            name=slot("name"),
            input=slot("input"),
            normalized=slot("normalized"),
            output=slot("output"),
            reading=read_as(trace, words, reading),
        ),
        alt=words.t("probe.norm.alt", series=words.t(f"common.series.{series}")),
        still={
            "role": series,
            "tokens": len(shown[0]),
            "span": [low, high],
            "yTicks": [
                [10.0**p, _power(p)] for p in range(round(math.log10(low)), round(math.log10(high)) + 1)
            ],
            "xTicks": [[place + 0.5, str(place)] for place in _positions(len(shown[0]))],
            "level": [math.sqrt(depth[0].size), f"√{depth[0].size}"] if _one_size(trace) else None,
            "words": {
                "y": words.t("probe.norm.y", series=words.t(f"common.series.{series}")),
                "x": words.t(
                    "probe.norm.x" if len(trace.tokens) <= MOST_BARS else "probe.norm.x_cut",
                    shown=MOST_BARS,
                    n=len(trace.tokens),
                ),
                "sink": words.t("common.series.sink"),
            },
        },
        ticks=[
            Tick(first[code], words.t("figures.final_tick") if code == FINAL else code)
            for _, code in layer_ticks(trace, _TICKS)
        ],
        role="accent",
    )


def _stop(code: str, site: SiteTrace, values: np.ndarray, reading: Reading, words: Words) -> Stop:
    layer = layer_code(site)
    role = words.t(f"common.role.{site.role}")
    read = {line: number(reading.value(site, named), _DIGITS) for line, named in LINES.items()}
    return Stop(
        code=code,
        shown=words.t("figures.final_norm")
        if layer == FINAL
        else words.t("probe.norm.value", layer=layer, role=role),
        readouts={
            "name": site.name,
            "input": read["residual"],
            "normalized": read["normalized"],
            "output": read["output"],
        },
        frame=[
            [float(f"{value:.4g}") if np.isfinite(value) else None for value in values],
            np.flatnonzero(sinks(site.input.l2)[:MOST_BARS]).tolist(),
        ],
    )


def _span(shown: Sequence[np.ndarray]) -> tuple[float, float]:
    """Powers of ten around all that is drawn, so that no scale moves with the slider."""
    values = np.concatenate(shown)
    values = values[np.isfinite(values) & (values > 0)]
    if not values.size:
        return 0.1, 10.0
    low, high = math.floor(math.log10(values.min())), math.ceil(math.log10(values.max()))
    return 10.0**low, 10.0 ** max(high, low + 1)


def _power(exponent: int) -> str:
    return number(10.0**exponent, 1)


def _positions(tokens: int) -> range:
    return range(0, tokens, next(step for step in (1, 5, 10, 20, 50) if tokens <= 10 * step or step == 50))


def _one_size(trace: NormTrace) -> bool:
    return len({site.size for site in trace.sites}) == 1

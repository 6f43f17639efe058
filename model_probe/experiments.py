"""The six guided experiments: what each changes, and their recorded results.

    for case in cases("sharpness", num_layers=24):
        outcome = load_recorded().by_case["sharpness"][case.code]

torch is needed by what runs them (`model_probe.sweeping`), not here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from model_probe.interventions import (
    Intervention,
    attention_logit_scale,
    bias_scale,
    input_scale,
    layer_norm,
    no_division,
    output_scale,
    unit_gain,
    value_scale,
)
from model_probe.outcome import Outcome
from model_probe.trace import CheckpointInfo, Token

EXPERIMENTS: Final = ("invariance", "sharpness", "louder", "one_brake", "all_brakes", "mean")
CAPITAL: Final = "The river flows softly through the valley. The capital of France is"
LOGIT_FACTORS: Final = (0.25, 0.5, 2.0, 4.0, 8.0, 16.0)
MAP_LAYER: Final = 12  # whose attention maps are recorded, where the model is that deep
SHIPPED: Final = Path(__file__).parent / "data" / "release.json.gz"

_ATTENTION: Final = ("attention_input",)
_MLP: Final = ("mlp_input",)
_FINAL: Final = ("final",)


@dataclass(frozen=True, slots=True)
class Case:
    """One run of an experiment."""

    code: str  # unique within its experiment
    interventions: tuple[Intervention, ...]  # together


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """What one prompt on one checkpoint came to, untouched and in every case that was run."""

    checkpoint: CheckpointInfo
    prompt: str
    tokens: tuple[Token, ...]
    untouched: Outcome
    by_case: Mapping[str, Mapping[str, Outcome]]  # by experiment and code


def cases(experiment: str, num_layers: int) -> tuple[Case, ...]:
    """The runs of an experiment on a model of so many layers, in order. Raises KeyError for another name."""
    return _CASES[experiment](num_layers)


def _invariance(_: int) -> tuple[Case, ...]:
    return (Case("x16", (input_scale(16),)), Case("x1_16", (input_scale(1 / 16),)))


def _sharpness(_: int) -> tuple[Case, ...]:
    return tuple(Case(f"x{k:g}", (attention_logit_scale(k),)) for k in LOGIT_FACTORS)


def _louder(_: int) -> tuple[Case, ...]:
    return (
        *(Case(f"output_x{k:g}", (output_scale(k, roles=_ATTENTION),)) for k in (1.5, 2.0, 4.0)),
        Case("logits_x2", (attention_logit_scale(2),)),
        Case("values_x2", (value_scale(2),)),
        Case("values_x4", (value_scale(4),)),
        Case("output_and_bias_x2", (output_scale(2, roles=_ATTENTION), bias_scale(2))),
    )


def _one_brake(num_layers: int) -> tuple[Case, ...]:
    return tuple(
        Case(f"{roles[0]}.{layer}", (no_division(layers=(layer,), roles=roles),))
        for roles in (_ATTENTION, _MLP)
        for layer in range(num_layers)
    )


def _all_brakes(_: int) -> tuple[Case, ...]:
    return (Case("everywhere", (no_division(),)), Case("final", (no_division(roles=_FINAL),)))


def _mean(_: int) -> tuple[Case, ...]:
    return (
        Case("layer_norm", (layer_norm(),)),
        Case("unit_gain", (unit_gain(),)),
        Case("unit_gain_final", (unit_gain(roles=_FINAL),)),
    )


_CASES: Final = {
    "invariance": _invariance,
    "sharpness": _sharpness,
    "louder": _louder,
    "one_brake": _one_brake,
    "all_brakes": _all_brakes,
    "mean": _mean,
}


@functools.cache
def load_recorded() -> Outcomes:
    """The outcomes that ship with the app, read once."""
    from model_probe.outcome_files import load_outcomes

    return load_outcomes(SHIPPED)

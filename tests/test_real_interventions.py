"""The real Qwen without its brakes: against a table measured independently, and against what ships.

Without the checkpoint these tests fail; they are never skipped.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from model_probe.applying import applied
from model_probe.experiments import CAPITAL, EXPERIMENTS, cases, load_recorded
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
from model_probe.observing import Experiment

A, MLP, FINAL = ("attention_input",), ("mlp_input",), ("final",)
Row = tuple[tuple[Intervention, ...], float, float | None, float | None]


def no(layer: int, roles: tuple[str, ...] = A) -> tuple[Intervention, ...]:
    return (no_division(layers=(layer,), roles=roles),)


# interventions, perplexity (from 1e3 up the power of ten below it), KL in nats, normalised attention entropy
TABLE: dict[str, Row] = {
    "none": ((), 51.4, None, 0.522),
    "input x16": ((input_scale(16, roles=A),), 51.4, None, 0.522),
    "logits x2": ((attention_logit_scale(2),), 54.9, 0.136, 0.308),
    "logits x4": ((attention_logit_scale(4),), 68.9, 0.392, 0.155),
    "logits x8": ((attention_logit_scale(8),), 66.4, 0.444, 0.073),
    "logits x16": ((attention_logit_scale(16),), 60.7, 0.485, 0.036),
    "logits x0.5": ((attention_logit_scale(0.5),), 56.2, 0.160, 0.745),
    "logits x0.25": ((attention_logit_scale(0.25),), 173, 1.22, 0.909),
    "values x2": ((value_scale(2),), 124, 0.68, 0.515),
    "values x4": ((value_scale(4),), 1e5, 8.8, 0.763),
    "output and biases x2": ((output_scale(2, roles=A), bias_scale(2)), 1e3, 2.4, 0.148),
    "output x1.5": ((output_scale(1.5, roles=A),), 520, 2.7, 0.372),
    "output x2": ((output_scale(2, roles=A),), 1e4, 7.6, 0.204),
    "output x4": ((output_scale(4, roles=A),), 1e9, 16.8, 0.093),
    "output x0.5": ((output_scale(0.5, roles=A),), 843, 2.4, 0.767),
    "output x0.25": ((output_scale(0.25, roles=A),), 1e4, 6.3, 0.884),
    "no division, layer 0": (no(0), 53, 0.060, None),
    "no division, layer 1": (no(1), 44, 0.133, None),
    "no division, layer 3": (no(3), 1e4, 5.9, None),
    "no division, layer 4": (no(4), 1e6, 10.8, None),
    "no division, layer 12": (no(12), 1e5, 9.4, None),
    "no division, layer 23": (no(23), 1e5, 9.6, None),
    "no division, MLP of layer 3": (no(3, MLP), 55, 0.63, None),
    "no division, MLP of layer 12": (no(12, MLP), 135, 1.07, None),
    "no division, final": ((no_division(roles=FINAL),), 1e4, 5.5, None),
    "LayerNorm": ((layer_norm(),), 51.3, 0.020, 0.525),
    "gain 1": ((unit_gain(),), 1e5, 8.0, None),
    "gain 1, final": ((unit_gain(roles=FINAL),), 1e4, 6.1, None),
}
JACOBIAN = {0.25: 0.363, 0.5: 0.339, 1: 0.282, 2: 0.203, 4: 0.125, 8: 0.069, 16: 0.037}


@pytest.fixture(scope="module")
def experiment(real_checkpoint) -> Experiment:
    return Experiment(real_checkpoint, CAPITAL)


@pytest.mark.parametrize("name", TABLE)
def test_the_table_that_was_measured_independently(experiment, name):
    interventions, perplexity, kl, entropy = TABLE[name]
    outcome = experiment.run(*interventions)
    if perplexity >= 1e3:
        assert 10 ** math.floor(math.log10(outcome.perplexity)) == perplexity
    else:
        assert outcome.perplexity == pytest.approx(perplexity, rel=0.15)
    if kl is None:
        assert outcome.mean_kl < 1e-3
    else:
        assert outcome.mean_kl == pytest.approx(kl, rel=0.15)
    if entropy is not None:
        assert outcome.mean_entropy == pytest.approx(entropy, rel=0.15)


def test_what_comes_next_untouched(experiment):
    top = experiment.run(attention=False).top
    assert (top[0].text, top[1].text) == (" located", " in")
    assert top[0].probability == pytest.approx(0.50, rel=0.15)
    assert top[1].probability == pytest.approx(0.136, rel=0.15)


def test_no_division_anywhere(experiment):
    assert experiment.run(no_division(), attention=False).perplexity > 1e30


def test_no_division_at_the_end_keeps_the_order_of_the_logits(experiment):
    untouched = experiment.run(attention=False).top
    without = experiment.run(no_division(roles=FINAL), attention=False).top
    assert [each.id for each in without] == [each.id for each in untouched]


@pytest.mark.parametrize("factor", JACOBIAN)
def test_the_softmax_jacobian_at_real_attention_rows(experiment, factor):
    outcome = experiment.run(attention_logit_scale(factor))
    assert outcome.mean_jacobian == pytest.approx(JACOBIAN[factor], rel=0.15)


def test_the_untouched_run_is_the_same_bit_for_bit_after_all_that(experiment, real_checkpoint):
    ids = torch.tensor([experiment.ids])

    def logits() -> torch.Tensor:
        with torch.inference_mode():
            return real_checkpoint.model(input_ids=ids, use_cache=False).logits.clone()

    before = logits()
    implementation = real_checkpoint.model.config._attn_implementation
    experiment.run(no_division(), attention_logit_scale(2), bias_scale(2), value_scale(2), continued=2)
    with pytest.raises(RuntimeError), applied(real_checkpoint, unit_gain()):
        raise RuntimeError
    assert torch.equal(logits(), before)
    assert real_checkpoint.model.config._attn_implementation == implementation


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_recorded_outcomes_are_measured_again(experiment, real_checkpoint, name):
    recorded = load_recorded()
    assert recorded.prompt == CAPITAL
    assert recorded.checkpoint.digest == real_checkpoint.info.digest
    assert [token.id for token in recorded.tokens] == experiment.ids
    todo = cases(name, real_checkpoint.info.num_layers)
    assert list(recorded.by_case[name]) == [case.code for case in todo]
    for case in todo[:: max(1, len(todo) // 6)]:  # a few of the many
        kept = recorded.by_case[name][case.code]
        again = experiment.run(*case.interventions, attention=kept.attention is not None)
        assert kept.interventions == case.interventions
        assert math.log(again.perplexity) == pytest.approx(math.log(kept.perplexity), rel=0.02)
        np.testing.assert_allclose(again.kl, kept.kl, rtol=0.05, atol=1e-4)
        assert again.top[0].id == kept.top[0].id
        if kept.attention is not None:
            off = np.abs(again.attention.entropy - kept.attention.entropy)  # [layers, heads]
            # processors round differently, and a network made louder amplifies that from layer to layer
            assert off[0].max() < 1e-4
            assert off.mean() < 5e-3
            assert off.max() < 0.1

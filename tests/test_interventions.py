"""Interventions on tiny checkpoints of several architectures: each does what its formula says, and all is undone."""

from __future__ import annotations

import csv
import io
import json
import math
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from model_probe import Checkpoint, ProbeError, capture, open_checkpoint
from model_probe.applying import applied, chosen_sites, softmax_attention
from model_probe.capturing import forward, token_ids
from model_probe.experiments import EXPERIMENTS, Outcomes, cases
from model_probe.interventions import (
    Intervention,
    attention_logit_scale,
    bias_scale,
    fixed_rms,
    input_scale,
    layer_norm,
    no_division,
    output_scale,
    parse,
    residual_scale,
    skip_norm,
    unit_gain,
    value_scale,
)
from model_probe.observing import Experiment, head_figures
from model_probe.outcome_files import load_outcomes, save_outcomes, to_csv
from model_probe.progress import Cancelled
from model_probe.sweeping import layers_of, run_experiment, sweep

PROMPT = "The river flows softly through the valley."
ARCHITECTURES = ("qwen3", "qwen3_5", "gemma3", "olmo2")
EVERYTHING = (
    input_scale(3), output_scale(2), no_division(), fixed_rms(), unit_gain(), layer_norm(), skip_norm(),
    residual_scale(2), residual_scale(2, layers=(1,)), attention_logit_scale(4), value_scale(2),
)  # fmt: skip


@pytest.fixture(scope="module")
def opened(tiny_folder: Callable[[str], Path]) -> Callable[[str], Checkpoint]:
    kept: dict[str, Checkpoint] = {}

    def get(architecture: str) -> Checkpoint:
        if architecture not in kept:
            kept[architecture] = open_checkpoint(tiny_folder(architecture), device="cpu", dtype="float32")
        return kept[architecture]

    return get


def logits(checkpoint: Checkpoint, *interventions: Intervention) -> torch.Tensor:
    """Of every position, by the model itself."""
    ids = torch.tensor([token_ids(checkpoint, PROMPT)])
    with applied(checkpoint, *interventions), torch.inference_mode():
        return checkpoint.model(input_ids=ids, use_cache=False).logits[0].clone()


def hooks(model: torch.nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def observed(checkpoint: Checkpoint, intervention: Intervention) -> dict[str, tuple[torch.Tensor, ...]]:
    """By chosen module: what went in, what the gate was (or nothing), what came out after the change."""
    seen: dict[str, tuple[torch.Tensor, ...]] = {}

    def watch(name: str) -> Callable[..., None]:
        def hook(_module: object, args: tuple, kwargs: dict, output: torch.Tensor) -> None:
            given = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
            seen[name] = (*given[:2], output)

        return hook

    with applied(checkpoint, intervention):
        handles = [
            checkpoint.model.get_submodule(site.module).register_forward_hook(
                watch(site.name), with_kwargs=True
            )
            for site in chosen_sites(checkpoint, intervention)
        ]
        forward(checkpoint, token_ids(checkpoint, PROMPT))
    for handle in handles:
        handle.remove()
    return seen


FORMULAS: dict[str, tuple[Intervention, Callable[[np.ndarray, np.ndarray, float], np.ndarray]]] = {
    "no_division": (no_division(), lambda x, g, eps: x * g),
    "unit_gain": (unit_gain(), lambda x, g, eps: x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)),
    "layer_norm": (
        layer_norm(),
        lambda x, g, eps: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * g,
    ),
    "fixed_rms": (fixed_rms(0.5), lambda x, g, eps: x / 0.5 * g),
    "skip_norm": (skip_norm(), lambda x, g, eps: x),
    "output_scale": (
        output_scale(3),
        lambda x, g, eps: 3 * x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * g,
    ),
}


@pytest.mark.parametrize("kind", FORMULAS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_norm_does_what_the_formula_says(opened, architecture, kind):
    checkpoint = opened(architecture)
    intervention, formula = FORMULAS[kind]
    seen = observed(checkpoint, intervention)
    for site in checkpoint.sites:
        *given, output = seen[site.name]
        expected = formula(given[0].double().numpy(), site.known_gain.astype(np.float64), site.eps)
        if site.gate is not None:
            gate = {"silu": torch.nn.functional.silu, "sigmoid": torch.sigmoid}[site.gate]
            expected = expected * gate(given[1].double()).numpy()
        error = np.abs(output.double().numpy() - expected).max() / max(np.abs(expected).max(), 1e-9)
        assert error < 1e-5, site.name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_unit_gain_is_a_model_whose_gains_are_one(opened, own_tiny, architecture):
    import tiny

    folder = own_tiny(architecture)
    ones = open_checkpoint(folder, device="cpu", dtype="float32")
    plain = {site.module: site.gain_convention for site in ones.sites}
    with torch.no_grad():
        for name, weight in tiny.norm_weights(ones.model):
            convention = plain[name.rpartition(".")[0]]
            weight.fill_(0.0 if convention == "one_plus_weight" else 1.0)
    changed = logits(opened(architecture), unit_gain())
    torch.testing.assert_close(changed, logits(ones), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(changed, logits(opened(architecture)), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_scaling_every_input_leaves_the_logits_where_epsilon_does_not_rule(opened, architecture):
    checkpoint = opened(architecture)
    trace = capture(checkpoint, PROMPT)
    large = tuple(
        site.module
        for site, measured in zip(checkpoint.sites, trace.sites, strict=True)
        if site.gate is None and (measured.input.l2.min() ** 2 / site.size) > 1e4 * site.eps
    )
    assert large  # else the test says nothing
    roles = tuple({site.role for site in checkpoint.sites if site.module in large} - {"gated"})
    before = logits(checkpoint)
    after = logits(checkpoint, input_scale(16, roles=roles))
    torch.testing.assert_close(after, before, rtol=2e-2, atol=2e-2)
    # far below ε the division is by ε alone, and the input's size comes through
    tiny_inputs = logits(checkpoint, input_scale(1e-6))
    assert (tiny_inputs - before).abs().max() > 0.1


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_after_any_intervention_the_logits_are_the_same_bit_for_bit(opened, architecture):
    checkpoint = opened(architecture)
    before, hooked = logits(checkpoint), hooks(checkpoint.model)
    implementation = checkpoint.model.config._attn_implementation
    experiment = Experiment(checkpoint, PROMPT)
    for intervention in EVERYTHING:
        outcome = experiment.run(intervention, maps=(1,), continued=3)
        assert outcome.interventions == (intervention,)
        assert hooks(checkpoint.model) == hooked, intervention.kind
        assert checkpoint.model.config._attn_implementation == implementation
        assert torch.equal(logits(checkpoint), before), intervention.kind


def test_an_error_and_a_stop_leave_nothing_behind(opened):
    checkpoint = opened("qwen3")
    before, hooked = logits(checkpoint), hooks(checkpoint.model)
    implementation = checkpoint.model.config._attn_implementation
    experiment = Experiment(checkpoint, PROMPT)
    changes = (output_scale(2), attention_logit_scale(3), value_scale(2), residual_scale(2))
    with pytest.raises(RuntimeError, match="on purpose"), applied(checkpoint, *changes):
        raise RuntimeError("on purpose")

    def stop(stage: str, done: float | None = None, detail: str = "") -> None:
        if done is not None:  # in the middle of the continuation
            raise Cancelled

    with pytest.raises(Cancelled):
        experiment.run(*changes, continued=5, progress=stop)
    with pytest.raises(ProbeError, match="no query, key or value bias"):  # after others were applied
        experiment.run(*changes, bias_scale(2))
    assert hooks(checkpoint.model) == hooked
    assert checkpoint.model.config._attn_implementation == implementation
    assert torch.equal(logits(checkpoint), before)


def test_another_session_is_untouched_by_a_brake_that_is_off(opened):
    checkpoint = opened("qwen3")
    alone = capture(checkpoint, PROMPT)
    inside, leave = threading.Event(), threading.Event()

    def release() -> None:
        with applied(checkpoint, no_division()):
            inside.set()
            leave.wait(30)

    other = threading.Thread(target=release)
    other.start()
    assert inside.wait(30)
    found = []
    measuring = threading.Thread(target=lambda: found.append(capture(checkpoint, PROMPT)))
    measuring.start()
    measuring.join(0.2)
    assert not found  # it waits
    leave.set()
    measuring.join(30)
    other.join(30)
    for one, two in zip(alone.sites, found[0].sites, strict=True):
        np.testing.assert_array_equal(one.output.l2, two.output.l2)


def test_scales_outside_the_norms(opened):
    checkpoint = opened("qwen3")
    attention = softmax_attention(checkpoint.model)
    scaling = {number: module.scaling for number, module in attention.items()}
    with applied(checkpoint, attention_logit_scale(4, layers=(1,)), attention_logit_scale(2)):
        assert attention[1].scaling == scaling[1] * 8  # they compose
        assert attention[0].scaling == scaling[0] * 2
    assert {number: module.scaling for number, module in attention.items()} == scaling
    assert not torch.allclose(logits(checkpoint, value_scale(2)), logits(checkpoint))
    # the first norm takes an even factor out again, the residual's later additions do not follow it
    assert not torch.allclose(logits(checkpoint, residual_scale(4)), logits(checkpoint), atol=1e-3)


def test_biases_scale_alone(opened):
    checkpoint = opened("qwen2")
    with torch.no_grad():
        for layer in checkpoint.model.model.layers:
            for name in ("q_proj", "k_proj", "v_proj"):
                getattr(layer.self_attn, name).bias.normal_()
    seen = {}
    projection = checkpoint.model.model.layers[0].self_attn.q_proj
    with applied(checkpoint, bias_scale(3)):
        handle = projection.register_forward_hook(lambda _m, args, out: seen.update(x=args[0], y=out))
        forward(checkpoint, token_ids(checkpoint, PROMPT))
    handle.remove()
    with torch.inference_mode():
        torch.testing.assert_close(seen["y"], seen["x"] @ projection.weight.T + 3 * projection.bias)


@pytest.mark.parametrize(
    ("architecture", "intervention", "code"),
    [
        ("qwen3", no_division(layers=(99,)), "no_norm_chosen"),
        ("qwen3", no_division(roles=("gated",)), "no_norm_chosen"),
        ("qwen3", bias_scale(2), "no_bias"),
        ("qwen3", residual_scale(2, layers=(99,)), "no_such_layer"),
        ("qwen3_5", attention_logit_scale(2, layers=(0,)), "no_softmax"),  # a linear-attention layer
        ("gemma2", attention_logit_scale(2), "soft_cap"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(opened, architecture, intervention, code):
    with pytest.raises(ProbeError) as refused, applied(opened(architecture), intervention):
        pass
    assert refused.value.code == code


def test_linear_attention_has_no_weights_and_says_so(opened):
    outcome = Experiment(opened("qwen3_5"), PROMPT).run()
    assert outcome.attention is not None
    assert outcome.attention.layers == (1,)  # layer 0 is linear


@pytest.mark.parametrize("factor", [1e30, 1e38])
def test_what_is_not_finite_is_counted_and_located(opened, factor):
    experiment = Experiment(opened("olmo2"), PROMPT)
    outcome = experiment.run(residual_scale(factor, layers=(0,)), output_scale(factor), continued=4)
    first = outcome.first_non_finite
    assert first is not None
    assert first.non_finite > 0
    assert outcome.non_finite_logits > 0
    assert math.isnan(outcome.perplexity)
    assert math.isnan(outcome.mean_kl)
    assert outcome.top == ()
    assert outcome.continuation == ""


def test_head_figures_are_those_of_numpy():
    generator = np.random.default_rng(5)
    scores = generator.normal(size=(3, 6, 6)) * 2
    scores[:, np.triu(np.ones((6, 6)), 1).astype(bool)] = -np.inf
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    entropy, heaviest, first, jacobian = head_figures(torch.from_numpy(weights))
    for head in range(3):
        rows = [weights[head, t, : t + 1] for t in range(1, 6)]
        expected = [-(a * np.log(a)).sum() / np.log(len(a)) for a in rows]
        assert entropy[head] == pytest.approx(np.mean(expected))
        assert heaviest[head] == pytest.approx(np.mean([a.max() for a in rows]))
        assert first[head] == pytest.approx(np.mean([a[0] for a in rows]))
        norms = [np.linalg.norm(np.diag(a) - np.outer(a, a)) for a in rows]
        assert jacobian[head] == pytest.approx(np.mean(norms))
    assert np.isnan(head_figures(torch.ones(2, 1, 1))).all()  # one token attends to itself alone


def test_perplexity_and_kl_are_those_of_whole_logits(opened):
    checkpoint = opened("gemma2")  # its logits pass a cap after the head
    experiment = Experiment(checkpoint, PROMPT)
    changed = output_scale(1.5, layers=(0,))
    before, after = (torch.log_softmax(logits(checkpoint, *it).double(), -1) for it in ((), (changed,)))
    outcome = experiment.run(changed, attention=False)
    targets = torch.tensor(experiment.ids[1:])
    nll = -after[:-1].gather(1, targets[:, None]).mean()
    assert outcome.perplexity == pytest.approx(float(nll.exp()), rel=1e-4)
    kl = (before.exp() * (before - after)).sum(-1)
    np.testing.assert_allclose(outcome.kl, kl, rtol=1e-3, atol=1e-6)
    assert outcome.top[0].id == int(after[-1].argmax())
    untouched = experiment.run(attention=False)
    assert untouched.kl.max() == 0


def test_chunks_of_logits_change_nothing(opened, monkeypatch):
    from model_probe import observing

    whole = Experiment(opened("qwen3"), PROMPT).run(output_scale(2))
    monkeypatch.setattr(observing, "_CHUNK_NUMBERS", 700)  # two positions at a time
    monkeypatch.setattr(observing, "_KEPT_NUMBERS", 0)  # nothing of the untouched run is kept
    parts = Experiment(opened("qwen3"), PROMPT).run(output_scale(2))
    np.testing.assert_allclose(parts.kl, whole.kl, rtol=1e-5)
    assert parts.perplexity == pytest.approx(whole.perplexity, rel=1e-6)


def test_sweeps_come_point_by_point_and_stop(opened):
    checkpoint = opened("qwen3")
    experiment = Experiment(checkpoint, PROMPT)
    points = sweep(
        experiment, no_division(roles=("attention_input",)), layers=layers_of(checkpoint, no_division())
    )
    first = next(points)  # before the second is run
    assert (first.layer, first.amount) == (0, None)
    assert first.perplexity == pytest.approx(
        experiment.run(no_division(layers=(0,), roles=("attention_input",)), attention=False).perplexity
    )
    assert [point.layer for point in points] == [1]
    amounts = [point.amount for point in sweep(experiment, output_scale(1), amounts=(0.5, 1, 2))]
    assert amounts == [0.5, 1, 2]
    one = next(p for p in sweep(experiment, output_scale(1), amounts=(1,)))
    assert one.mean_kl == pytest.approx(0, abs=1e-6)

    def stop(stage: str, done: float | None = None, detail: str = "") -> None:
        if done:
            raise Cancelled

    kept = []
    with pytest.raises(Cancelled):
        kept.extend(sweep(experiment, output_scale(1), amounts=(2, 4), progress=stop))
    with pytest.raises(ValueError, match="either"):
        next(sweep(experiment, output_scale(1)))
    assert layers_of(opened("qwen3_5"), attention_logit_scale(2)) == (1,)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs_on_a_model_of_two_layers(opened, name):
    checkpoint = opened("qwen2")  # has biases
    found = dict(run_experiment(checkpoint, PROMPT, name))
    assert list(found) == ["untouched", *(case.code for case in cases(name, 2))]


def test_outcomes_are_read_as_they_were_written(opened, tmp_path):
    checkpoint = opened("qwen3")
    experiment = Experiment(checkpoint, PROMPT)
    broken = experiment.run(residual_scale(1e38, layers=(0,)))
    outcomes = Outcomes(
        experiment.recorded_info,
        PROMPT,
        experiment.tokens,
        experiment.run(maps=(1,), continued=4),
        {"free": {"changes": experiment.run(output_scale(2, roles=("attention_input",))), "broken": broken}},
    )
    for ending in ("json", "json.gz"):
        path = tmp_path / f"outcomes.{ending}"
        save_outcomes(outcomes, path)
        again = load_outcomes(path)
        assert again.tokens == outcomes.tokens
        assert again.untouched.perplexity == pytest.approx(outcomes.untouched.perplexity, rel=1e-5)
        assert again.untouched.continuation == outcomes.untouched.continuation
        np.testing.assert_allclose(
            again.untouched.attention.maps[1], outcomes.untouched.attention.maps[1], rtol=1e-5
        )
        one, two = again.by_case["free"]["changes"], outcomes.by_case["free"]["changes"]
        assert one.interventions == two.interventions
        np.testing.assert_allclose(one.kl, two.kl, rtol=1e-5)
        assert again.by_case["free"]["broken"].first_non_finite == broken.first_non_finite or (
            again.by_case["free"]["broken"].first_non_finite.name == broken.first_non_finite.name
        )
    rows = list(csv.DictReader(io.StringIO(to_csv(outcomes))))
    assert [row["case"] for row in rows] == ["untouched", "changes", "broken"]
    assert rows[2]["perplexity"] == ""  # never 0
    assert int(rows[2]["non_finite_logits"]) > 0
    for text in ("{}", "[]", json.dumps({"format": "rmsnorm-trace/1"}), "no JSON"):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(ProbeError) as refused:
            load_outcomes(tmp_path / "bad.json")
        assert refused.value.code == "not_outcomes"
    with pytest.raises(ValueError, match="saved as"):
        save_outcomes(outcomes, tmp_path / "outcomes.txt")


def test_written_interventions():
    assert parse("output_scale=2@attention_input,mlp_input:0-2,5") == output_scale(
        2, roles=("attention_input", "mlp_input"), layers=(0, 1, 2, 5)
    )
    assert parse("no_division") == no_division()
    assert parse("fixed_rms=0.5") == fixed_rms(0.5)
    for wrong in (
        "", "nothing=2", "output_scale", "no_division=2", "output_scale=two", "output_scale=nan",
        "output_scale=2@nose", "output_scale=2:1-", "output_scale=2:0-99999999", "value_scale=2@final",
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"."):
            parse(wrong)

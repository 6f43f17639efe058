"""The laboratory of toy stacks: what an independent run gave, every way to put a stack together, stop."""

from __future__ import annotations

import math
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_probe import laboratory
from model_probe.errors import ProbeError
from model_probe.laboratory import (
    BLOCKS,
    BRANCHES,
    LAB_SERIES,
    LAYERS,
    MOST_SEEDS,
    NORMS,
    STACK_PLACEMENTS,
    WIDTHS,
    LabSettings,
    LabStack,
    measure,
    most_layers,
)
from model_probe.profiles import INITIALISATIONS, SERIES, load_profiles
from model_probe.progress import Cancelled
from model_probe.toy_stacks import Wiring, layer_figures, problem

ROOT = Path(__file__).resolve().parent.parent
SMALL = LabSettings(hidden_size=64, layers=4, seeds=2)


def test_mlp_only_stacks_agree_with_an_independent_run_and_with_what_ships() -> None:
    """d = 256, hidden 4d, ReLU, Xavier, RMSNorm, 8 seeds: the last layer's gradient, 6 layers over 24."""
    placements = ("pre_norm", "post_norm", "no_norm")
    few, many = (
        measure(LabSettings(layers=layers, seeds=8), initialisations=("xavier",), placements=placements)
        for layers in (6, 24)
    )
    ratios = {}
    for placement in placements:
        for run in (few, many):
            ours = run.stack("xavier", placement)
            shipped = load_profiles().stack("xavier", placement, run.settings.layers)
            for series in SERIES:
                np.testing.assert_allclose(ours.mean(series), shipped.series(series), rtol=1e-3)
        ends = [run.stack("xavier", placement).mean("weight_gradient")[-1] for run in (few, many)]
        ratios[placement] = ends[0] / ends[1]
    print({placement: round(float(ratio), 3) for placement, ratio in ratios.items()})
    assert 1.4 < ratios["pre_norm"] < 2.2
    assert 0.7 < ratios["post_norm"] < 1.1
    assert ratios["no_norm"] < 0.1


@settings(max_examples=25, deadline=None)
@given(
    width=st.sampled_from((min(WIDTHS), 128)),
    layers=st.sampled_from((LAYERS[0], 6, 24, LAYERS[-1])),
    blocks=st.sampled_from(BLOCKS),
    norm=st.sampled_from(NORMS),
    branch=st.sampled_from(BRANCHES),
)
def test_every_stack_has_one_number_a_layer_and_its_overflows_are_counted(
    width: int, layers: int, blocks: str, norm: str, branch: str
) -> None:
    result = measure(LabSettings(width, layers, blocks, norm, branch, seeds=1))
    assert len(result.stacks) == len(INITIALISATIONS) * len(STACK_PLACEMENTS)
    for stack in result.stacks:
        for series in LAB_SERIES:
            values = stack.series(series)
            assert values.shape == (1, layers)
            mean, (low, high) = stack.mean(series), stack.band(series)
            assert np.isnan(mean).sum() == stack.not_finite(series)
            finite = np.isfinite(mean)
            assert np.all((low[finite] <= mean[finite]) & (mean[finite] <= high[finite]))
            if stack.placement != "no_norm":
                assert finite.all()
                assert np.all(mean > 0)
        everything = stack.mean("layer_gradient") >= stack.mean("weight_gradient")
        assert np.all(everything | ~np.isfinite(stack.mean("layer_gradient")))


def test_a_norm_on_the_result_takes_the_weights_scale_out() -> None:
    """An MLP without biases is homogeneous: with a norm behind it, how large its weights are cannot show."""
    result = measure(SMALL)
    ratios = {
        placement: [
            result.stack(start, placement).first_over_last("weight_gradient") for start in INITIALISATIONS
        ]
        for placement in STACK_PLACEMENTS
    }
    assert np.ptp(ratios["sandwich_norm"]) < 1e-3
    for placement in ("pre_norm", "post_norm", "no_norm"):
        assert np.ptp(ratios[placement]) > 1e-2


def test_attention_mixes_positions_causally_and_leaves_the_mlp_as_it_is() -> None:
    plain, mixed = (problem(0, 2, SMALL.stack, blocks) for blocks in BLOCKS)
    for without, with_attention in zip(plain.layers, mixed.layers, strict=True):
        assert len(with_attention) == 6
        assert all(a.equal(b) for a, b in zip(without, with_attention, strict=False))
    import torch

    from model_probe.toy_stacks import _attend

    weights = next(iter(mixed.weights("xavier")))[2:]
    before = _attend(mixed.inputs, weights, SMALL.stack.batch)
    changed = mixed.inputs.clone()
    changed[5] += 1  # position 5 of the first sequence
    moved = (_attend(changed, weights, SMALL.stack.batch) - before).abs().amax(dim=-1) > 0
    positions = SMALL.stack.positions
    assert torch.equal(moved.nonzero().flatten(), torch.arange(5, positions))


def test_layer_norm_and_rms_norm_differ_and_a_scaled_branch_adds_less() -> None:
    rms = measure(SMALL).stack("xavier", "pre_norm")
    layer = measure(LabSettings(64, 4, norm="layer_norm", seeds=2)).stack("xavier", "pre_norm")
    scaled = measure(LabSettings(64, 4, branch="scaled", seeds=2)).stack("xavier", "pre_norm")
    assert not np.allclose(rms.mean("activation"), layer.mean("activation"), rtol=1e-5)
    assert scaled.mean("activation")[-1] < rms.mean("activation")[-1]
    assert LabSettings(64, 8, branch="scaled").branch_scale == pytest.approx(1 / 4)


def test_an_overflow_is_nan_in_its_layers_only_and_counted() -> None:
    figures = np.ones((2, len(LAB_SERIES), 3))
    figures[1, 0, 2] = math.inf
    stack = LabStack("xavier", "no_norm", figures)
    assert stack.not_finite("weight_gradient") == 1
    assert stack.not_finite("activation") == 0
    np.testing.assert_array_equal(stack.mean("weight_gradient"), [1, 1, np.nan])
    np.testing.assert_array_equal(stack.band("weight_gradient")[1], [1, 1, np.nan])
    with pytest.raises(KeyError):
        stack.series("loss")


def stopping(after: int):
    """A progress function that asks to end at its nth word."""
    told = []

    def progress(stage: str, done: float | None = None, detail: str = "") -> None:
        told.append((stage, done))
        if len(told) > after:
            raise Cancelled

    return progress, told


def test_a_stop_keeps_the_seeds_that_are_finished_and_gives_the_turn_back() -> None:
    held = []

    @contextmanager
    def turn():
        held.append("taken")
        try:
            yield
        finally:
            held.append("given")

    a_seed = 1 + len(INITIALISATIONS) * len(STACK_PLACEMENTS)
    progress, told = stopping(after=a_seed + 3)
    result = measure(LabSettings(64, 2, seeds=3), progress=progress, turn=turn)
    assert result.seeds == 1
    assert result.stacks[0].figures.shape[0] == 1
    assert held == ["taken", "given"] * 2
    shares = [done for stage, done in told if stage == "stacks"]
    assert shares == sorted(shares)
    progress, _ = stopping(after=3)
    with pytest.raises(Cancelled):
        measure(LabSettings(64, 2, seeds=3), progress=progress)


def test_the_thread_count_is_as_it_was() -> None:
    import torch

    before = torch.get_num_threads()
    measure(LabSettings(64, 2, seeds=1), initialisations=("fixed",), placements=("pre_norm",))
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("width", WIDTHS)
def test_the_bound_leaves_every_width_some_depth(width: int) -> None:
    most = most_layers(width)
    assert most >= 24
    LabSettings(hidden_size=width, layers=most)
    if most < LAYERS[-1]:
        with pytest.raises(ProbeError) as refused:
            LabSettings(hidden_size=width, layers=LAYERS[-1])
        assert refused.value.code == "stack_too_large"


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden_size": 65},
        {"hidden_size": 1024},
        {"layers": 0},
        {"layers": 97},
        {"seeds": 0},
        {"seeds": MOST_SEEDS + 1},
        {"blocks": "conv"},
        {"norm": "batch_norm"},
        {"branch": "doubled"},
    ],
)
def test_what_is_not_to_be_chosen_is_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        LabSettings(**wrong)


def test_an_unknown_placement_or_norm_is_refused() -> None:
    given_now = problem(0, 1, SMALL.stack)
    for wiring in (Wiring("sideways"), Wiring("pre_norm", "batch_norm")):
        with pytest.raises(ValueError, match="is one of"):
            layer_figures(tuple(given_now.weights("xavier")), wiring, given_now)
    with pytest.raises(KeyError):
        measure(LabSettings(64, 2, seeds=1)).stack("xavier", "sideways")


def test_its_settings_need_no_torch() -> None:
    code = "import sys, model_probe.laboratory as lab; lab.LabSettings(); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
    assert laboratory.SIZE_LIMIT

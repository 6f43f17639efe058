"""The worked numbers of the lesson on scale, and what the recording says of real vectors."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from model_probe import scaling
from model_probe.norms import l2_per_token
from model_probe.properties import CHANGES, NORMS, WATCHED, batch, respond
from model_probe.recording import load_recording
from model_probe.scaling import EPS, SIZE, common_shift, profile, scaled, share_of_root


def test_the_vector_has_256_values_and_l2_16() -> None:
    x = profile()
    assert x.shape == (SIZE,) == (256,)
    assert float(l2_per_token(x)) == pytest.approx(16, rel=1e-14)


@pytest.mark.parametrize("factor", [0.1, 0.3, 1.0, 3.0, 10.0])
def test_in_the_usual_range_the_output_does_not_notice(factor: float) -> None:
    result = scaled(factor)
    assert result.input_l2 == pytest.approx(16 * factor, rel=1e-12)
    assert result.output_l2 == pytest.approx(16, rel=6e-5)


@pytest.mark.parametrize(("rms", "percent"), [(0.02, 99.9), (0.001, 70.7), (0.0001, 10.0)])
def test_where_epsilon_shows(rms: float, percent: float) -> None:
    """lesson: 99.9 % of √d at RMS 0.02, 70.7 % at 0.001, 10 % at 0.0001, with ε = 1e-6."""
    assert EPS == 1e-6
    assert scaled(rms).rms == pytest.approx(rms, rel=1e-12)
    assert round(scaled(rms).percent, 1) == pytest.approx(percent, abs=0.051)
    assert 100 * share_of_root(rms) == pytest.approx(scaled(rms).percent, rel=1e-12)


def test_the_shape_never_changes() -> None:
    from model_probe.norms import rms_norm

    for factor in (1e-4, 1.0, 10.0):
        y = rms_norm(factor * profile(), eps=EPS)
        assert y / l2_per_token(y) == pytest.approx(profile() / 16, abs=1e-15)


def test_without_epsilon_nothing_would_be_lost() -> None:
    assert scaled(1e-4, eps=0.0).percent == pytest.approx(100, rel=1e-12)


def test_the_numbers_are_those_of_the_vector_not_of_the_formula() -> None:
    assert {f.name for f in dataclasses.fields(scaling.Scaled)} == {
        "factor", "input_l2", "rms", "divisor", "output_l2", "percent",
    }  # fmt: skip
    result = scaled(0.001)
    assert result.divisor == pytest.approx(np.sqrt(0.001**2 + 1e-6), rel=1e-12)
    assert result.output_l2 == pytest.approx(result.input_l2 / result.divisor, rel=1e-12)


def test_real_layer_0_lies_where_epsilon_just_shows() -> None:
    """lesson: the embedding's RMS is about 0.016, layer 0's normalized L2 29.88 against 29.93."""
    trace = load_recording().traces["fox"]
    first = trace.depth()[0]
    root = np.sqrt(first.size)
    rms = float(np.median(first.input.l2)) / root
    assert rms == pytest.approx(0.016, abs=5e-4)
    assert float(np.median(first.normalized_l2)) == pytest.approx(29.88, abs=5e-3)
    assert root == pytest.approx(29.93, abs=5e-3)
    each = root * share_of_root(first.input.l2 / root, first.eps)
    assert each == pytest.approx(first.normalized_l2.astype(np.float64), rel=1e-6)


def test_a_common_shift_is_rare_in_the_real_residual() -> None:
    """lesson: |mean| / RMS has a median of 0.015 to 0.028, at most 0.11 (fox and river)."""
    shifts = {preset: common_shift(trace) for preset, trace in load_recording().traces.items()}
    assert shifts["fox"].shape == (49, 20)
    assert np.median(shifts["river"]) == pytest.approx(0.015, abs=5e-4)
    assert np.median(shifts["fox"]) == pytest.approx(0.028, abs=5e-4)
    assert max(shifts["fox"].max(), shifts["river"].max()) == pytest.approx(0.11, abs=5e-3)


def test_a_shifted_vector_counts_as_shifted() -> None:
    trace = load_recording().traces["river"]
    site = trace.depth()[0]
    ones = dataclasses.replace(
        site.input,
        mean=np.full_like(site.input.l2, -2),
        l2=np.full_like(site.input.l2, 2 * np.sqrt(site.size)),
    )
    shifted = dataclasses.replace(trace, sites=(dataclasses.replace(site, input=ones),))
    assert common_shift(shifted) == pytest.approx(1.0)


def test_the_batch_is_the_lessons() -> None:
    x = batch()
    assert x.shape == (2, 16, 256)
    assert x.mean() == pytest.approx(1, abs=0.1)
    assert x.std() == pytest.approx(3, abs=0.1)


@pytest.mark.parametrize(
    ("change", "norm", "same"),
    [
        ("times_7", "rms_norm", True),
        ("times_7", "layer_norm", True),
        ("plus_5", "rms_norm", False),
        ("plus_5", "layer_norm", True),
        ("replace_others", "rms_norm", True),
        ("replace_others", "layer_norm", True),
        ("permute_others", "rms_norm", True),
        ("permute_others", "layer_norm", True),
    ],
)
def test_what_each_norm_leaves_alone(change: str, norm: str, same: bool) -> None:
    assert respond(change, norm).same is same


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("change", CHANGES)
def test_the_output_has_rms_1_whatever_comes_in(norm: str, change: str) -> None:
    assert respond(change, norm).rms == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize("change", ["replace_others", "permute_others"])
def test_the_other_tokens_do_change_and_the_watched_one_does_not(change: str) -> None:
    before, after = batch(), CHANGES[change](batch())
    assert (before[WATCHED] == after[WATCHED]).all()
    others = np.delete(after[WATCHED[0]], WATCHED[1], axis=0)
    assert (np.delete(before[WATCHED[0]], WATCHED[1], axis=0) != others).any(axis=1).sum() >= 14
    assert respond(change, "rms_norm").largest_change == 0  # not one bit

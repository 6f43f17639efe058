"""The worked numbers of the lesson, step by step, are those of the norm maths."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_probe.norms import layer_norm, rms_norm
from model_probe.recording import load_recording
from model_probe.worked import COMPARED, EPS, EXAMPLE, layer_norm_steps, norm_parameters, rms_norm_steps

VECTORS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8)


def test_rms_norm_by_hand() -> None:
    steps = rms_norm_steps(EXAMPLE)
    assert steps.x.tolist() == [2, -1, 3, 0]
    assert steps.squares.tolist() == [4, 1, 9, 0]
    assert steps.mean_square == 3.5
    assert round(steps.rms, 3) == 1.871
    assert steps.y.round(2).tolist() == [1.07, -0.53, 1.60, 0]
    assert steps.y[3] == 0  # a zero stays a zero
    assert math.isclose(np.linalg.norm(steps.y), math.sqrt(4), rel_tol=1e-6)  # √d


def test_beside_layer_norm() -> None:
    layer, root = layer_norm_steps(COMPARED), rms_norm_steps(COMPARED)
    assert layer.mean == 1.5
    assert round(layer.std, 2) == 2.29
    assert layer.y.round(2).tolist() == [0.65, -0.22, -1.53, 1.09]
    assert abs(layer.y.sum()) < 1e-12
    assert round(root.rms, 2) == 2.74
    assert root.y.round(2).tolist() == [1.10, 0.37, -0.73, 1.46]
    assert round(root.y.sum(), 1) == 2.2  # RMSNorm leaves the mean where it is


def test_the_std_is_the_populations() -> None:
    assert math.isclose(layer_norm_steps(COMPARED, eps=0).std, np.std(COMPARED))
    assert not math.isclose(layer_norm_steps(COMPARED, eps=0).std, np.std(COMPARED, ddof=1), rel_tol=0.1)


@given(VECTORS)
def test_the_steps_lead_to_the_norms(x: list[float]) -> None:
    root, layer = rms_norm_steps(x), layer_norm_steps(x)
    np.testing.assert_array_equal(root.y, rms_norm(x, eps=EPS))
    np.testing.assert_array_equal(layer.y, layer_norm(x, eps=EPS))
    np.testing.assert_allclose(root.rms**2, np.mean(root.squares) + EPS, rtol=1e-12)
    np.testing.assert_allclose(root.x / root.rms, root.y, rtol=1e-12)
    np.testing.assert_allclose(layer.centred / layer.std, layer.y, rtol=1e-12)


def test_nothing_but_zeros_stays_so() -> None:
    steps = rms_norm_steps([0.0, 0.0, 0.0])
    assert steps.rms == math.sqrt(EPS)
    assert steps.y.tolist() == [0, 0, 0]


@pytest.mark.parametrize("x", [[], [1.0, math.nan], [math.inf, 0.0], [[1.0, 2.0]]])
def test_what_is_no_vector_is_refused(x: list[float]) -> None:
    for steps in (rms_norm_steps, layer_norm_steps):
        with pytest.raises(ValueError, match="finite"):
            steps(x)


def test_parameters_of_the_recorded_checkpoint() -> None:
    recording = load_recording()
    with_bias, without = norm_parameters(site.size for site in recording.sites)
    assert without == sum(len(site.gain) for site in recording.sites if site.gain is not None)
    assert without == recording.checkpoint.hidden_size * (2 * recording.checkpoint.num_layers + 1)
    assert with_bias == 2 * without

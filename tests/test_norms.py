"""Norm maths against torch's own, on gains that are not one, on zeros, and in half precision."""

import doctest

import numpy as np
import pytest
import torch
from torch.nn import functional

from model_probe import measure_norm, norms, sites, summaries

RANDOM = np.random.default_rng(7)
SHAPES = [(8,), (5, 32), (2, 9, 32)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rms_norm_is_torchs(shape, dtype):
    x = (RANDOM.normal(1, 3, shape)).astype(dtype)
    gain = RANDOM.normal(0.5, 1.5, shape[-1]).astype(dtype)
    expected = functional.rms_norm(torch.from_numpy(x), shape[-1:], torch.from_numpy(gain), 1e-5).numpy()
    measured = norms.rms_norm(x, gain, 1e-5)
    assert measured.dtype == dtype
    np.testing.assert_allclose(measured, expected, rtol=2e-6, atol=1e-6)
    assert not np.allclose(norms.rms_norm(x, gain + 0.01, 1e-5), expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_layer_norm_is_torchs(shape):
    x = RANDOM.normal(2, 3, shape)
    gain, bias = RANDOM.normal(size=(2, shape[-1]))
    expected = functional.layer_norm(
        torch.from_numpy(x), shape[-1:], torch.from_numpy(gain), torch.from_numpy(bias), 1e-6
    )
    np.testing.assert_allclose(
        norms.layer_norm(x, gain, bias, 1e-6), expected.numpy(), rtol=1e-12, atol=1e-12
    )


def test_a_zero_vector_stays_zero_and_needs_eps():
    assert np.array_equal(norms.rms_norm(np.zeros(4), np.full(4, 3.0), 1e-6), np.zeros(4))
    with np.errstate(invalid="ignore"):
        assert np.isnan(norms.rms_norm(np.zeros(4), eps=0.0)).all()


def test_half_precision_is_raised_before_it_is_squared():
    x = np.full(1024, 300, np.float16)  # 300² is beyond float16
    assert norms.l2_per_token(x) == pytest.approx(9600)
    assert np.allclose(norms.rms_norm(x), 1.0)


def test_softmax_survives_large_scores_and_names_what_has_no_answer():
    np.testing.assert_array_equal(norms.softmax([1e30, 0.0, -1e30]), [1, 0, 0])
    np.testing.assert_array_equal(norms.softmax([0.0, -np.inf]), [1, 0])
    assert np.isnan(norms.softmax([-np.inf, -np.inf])).all()


def test_softmax_jacobian_norm_is_that_of_the_matrix():
    shares = norms.softmax(RANDOM.normal(0, 2, (3, 7)))
    matrices = [np.diag(p) - np.outer(p, p) for p in shares]
    np.testing.assert_allclose(norms.softmax_jacobian_norm(shares), [np.linalg.norm(m) for m in matrices])
    assert norms.softmax_jacobian_norm([1.0, 0.0]) == 0


def test_entropy_of_certainty_is_zero_and_of_even_shares_is_the_logarithm():
    assert norms.entropy([1.0, 0.0]) == 0
    assert norms.entropy(np.full(6, 1 / 6)) == pytest.approx(np.log(6))


def test_a_number_that_is_not_finite_is_never_left_out_of_a_summary():
    assert np.isnan(summaries.summarize([1.0, np.nan]))
    assert np.isnan(summaries.summarize([]))
    assert summaries.summarize([3.0, 4.0], "root_mean_square") == pytest.approx(np.sqrt(12.5))
    with pytest.raises(ValueError, match="statistic"):
        summaries.summarize([1.0], "average")


@pytest.mark.parametrize("module", [norms, summaries, sites, measure_norm])
def test_the_examples_in_the_docstrings(module):
    assert doctest.testmod(module).failed == 0

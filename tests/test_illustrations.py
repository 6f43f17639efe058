"""The worked numbers of the lesson's softmax, from plain NumPy and from lesson notes."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_probe import illustrations
from model_probe.illustrations import (
    LARGEST_L2,
    SCORES,
    SMALLEST_L2,
    TOKENS,
    ZONES,
    attention_at,
    most_responsive_l2,
    shares_at,
    zone_limits,
)


def test_examples_in_the_docstrings() -> None:
    assert doctest.testmod(illustrations).failed == 0


def test_shares_at_times_one() -> None:
    at = attention_at(32.0)
    assert at.shares.round(3).tolist() == [0.325, 0.218, 0.161, 0.132, 0.098, 0.066]
    assert len(TOKENS) == len(SCORES) == len(at.shares)


@pytest.mark.parametrize(
    ("l2", "field", "digits", "value"),
    [
        (32, "entropy", 3, 1.665),
        (192, "entropy", 3, 0.385),
        (192, "top", 2, 0.90),
        (1, "entropy_share", 4, 0.9999),
        (32, "jacobian", 3, 0.387),
        (192, "jacobian", 3, 0.158),
        (512, "jacobian", 3, 0.003),
    ],
)
def test_worked_numbers(l2: float, field: str, digits: int, value: float) -> None:
    assert round(getattr(attention_at(l2), field), digits) == value


def test_the_response_rises_to_a_maximum_near_53_and_then_falls() -> None:
    peak = most_responsive_l2()
    assert round(peak) == 53
    assert round(attention_at(peak).jacobian, 3) == 0.395
    rising = [attention_at(l2).jacobian for l2 in np.geomspace(SMALLEST_L2, peak, 60)]
    falling = [attention_at(l2).jacobian for l2 in np.geomspace(peak, LARGEST_L2, 60)]
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)


@given(st.floats(SMALLEST_L2, LARGEST_L2))
def test_the_jacobian_norm_is_that_of_the_whole_matrix(l2: float) -> None:
    p = shares_at(l2)
    whole = np.linalg.norm(np.diag(p) - np.outer(p, p))
    assert attention_at(l2).jacobian == pytest.approx(whole, abs=1e-9)


def test_many_lengths_at_once_are_what_each_is_alone() -> None:
    lengths = np.array([[1.0, 8.0], [32.0, 512.0]])
    together = shares_at(lengths)
    assert together.shape == (2, 2, 6)
    assert together[1, 0] == pytest.approx(attention_at(32.0).shares)


def test_zones_follow_each_other_and_end_where_they_say() -> None:
    limits = zone_limits()
    assert list(limits) == sorted(limits)
    for i, limit in enumerate(limits):
        assert attention_at(limit * 0.999).zone == ZONES[i]
        assert attention_at(limit * 1.001).zone == ZONES[i + 1]
    assert attention_at(SMALLEST_L2).zone == ZONES[0]
    assert attention_at(192.0).zone == "saturated"

"""Blending a gain in: checked on the even vector itself, with gains that are not 1."""

from __future__ import annotations

import numpy as np
import pytest

from model_probe.blending import blend, loudest_features, sampled, share_near_one
from model_probe.norms import l2_per_token, rms_norm
from model_probe.recording import load_recording

SITE = "model.layers.11.input_layernorm"


@pytest.mark.parametrize("share", np.linspace(0, 1, 9))
@pytest.mark.parametrize("name", ["model.layers.0.input_layernorm", SITE, "model.norm"])
def test_a_blend_is_what_the_norm_does_to_an_even_vector(name: str, share: float) -> None:
    gain = load_recording().site(name).gain
    assert gain is not None
    signs = np.random.default_rng(3).choice([-1.0, 1.0], gain.size)
    mixed = (1 - share) + share * gain.astype(np.float64)
    output = rms_norm(5 * signs, mixed, eps=0.0)
    told = blend(gain, share)
    assert told.output_l2 == pytest.approx(float(l2_per_token(output)), rel=1e-12)
    cosine = float(output @ signs / (l2_per_token(output) * np.sqrt(gain.size)))
    assert told.cosine == pytest.approx(cosine, rel=1e-12)
    assert (told.min, told.max) == pytest.approx((mixed.min(), mixed.max()))


def test_directions_at_random_agree_with_the_even_vector() -> None:
    """What the page says of other normalized vectors."""
    gain = load_recording().site(SITE).gain
    assert gain is not None
    x = rms_norm(np.random.default_rng(5).standard_normal((4000, gain.size)), eps=0.0)
    y = x * gain
    even = blend(gain, 1.0)
    assert np.sqrt(np.mean(l2_per_token(y) ** 2)) == pytest.approx(even.output_l2, rel=0.01)
    cosines = np.sum(x * y, axis=1) / (l2_per_token(x) * l2_per_token(y))
    assert np.median(cosines) == pytest.approx(even.cosine, abs=0.01)


def test_a_gain_of_nothing_has_no_direction() -> None:
    assert np.isnan(blend([0.0, 0.0], 1.0).cosine)
    assert blend([0.0, 0.0], 1.0).output_l2 == 0


def test_sampled_positions_are_even() -> None:
    positions = sampled(np.ones(896), 48)
    assert len(positions) == 48
    assert set(np.diff(positions)) <= {18, 19}
    assert 0 <= positions[0] < 19
    assert 896 - 19 <= positions[-1] < 896
    assert sampled(np.ones(5), 48).tolist() == [0, 1, 2, 3, 4]


def test_most_gains_of_the_recording_are_far_from_1() -> None:
    gains = [site.gain for site in load_recording().sites if site.gain is not None]
    every = np.concatenate(gains)
    near = sum(abs(float(g) - 1) <= 0.1 for g in every) / len(every)
    assert share_near_one(gains) == pytest.approx(near)
    assert near < 0.06


def test_loudest_features_of_the_recording() -> None:
    sites = load_recording().sites
    loud = loudest_features(sites, 24)
    every = np.abs(np.stack([site.gain for site in sites if site.gain is not None]))
    assert loud.gains.shape == (49, 24)
    assert np.abs(loud.gains).max(axis=0).min() >= np.sort(every.max(axis=0))[-24]
    assert (np.diff(loud.peaks) >= 0).all()
    assert (loud.gains == np.stack([site.gain for site in sites])[:, loud.features]).all()
    assert float(np.abs(loud.gains).max()) == pytest.approx(17.1, abs=0.05)  # lesson: final norm, max 17.1


def test_features_of_different_spaces_are_not_compared() -> None:
    with pytest.raises(ValueError, match="features"):
        loudest_features((), 3)

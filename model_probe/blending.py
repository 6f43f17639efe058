"""What a learned gain does to a vector, while it is blended in from γ = 1; and which features it makes loud.

The vector is the *even* one: every feature +1 or −1, so that it is exactly normalized (RMS 1, L2 √d) and no
feature counts more than another. For it everything is exact and needs no sample: the output's L2 is
√d · RMS(γ), and the cosine between normalized and output is mean(γ) / RMS(γ). Over normalized vectors of
random direction these are the root-mean-square L2 and very nearly every cosine. NumPy alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from model_probe.sites import NormSite


@dataclass(frozen=True, slots=True)
class Blend:
    """The even vector after a gain that is `share` of the way from γ = 1 to the learned one."""

    share: float  # 0 is γ = 1, 1 the learned gain
    output_l2: float
    cosine: float  # between normalized and output; NaN where the gain is 0 everywhere
    min: float  # of the blended gain
    max: float


@dataclass(frozen=True, slots=True, eq=False)
class LoudFeatures:
    """The features with the largest |γ| anywhere, and their gain at every site."""

    features: NDArray[
        np.int64
    ]  # [n] positions in the residual, by the site of their peak, then by its height
    gains: NDArray[np.float64]  # [sites, n]
    peaks: NDArray[np.int64]  # [n] the site of each feature's largest |γ|


def blend(gain: ArrayLike, share: float) -> Blend:
    """The even vector after (1 − share) + share · gain; gain [d].

    >>> blend([3.0, -1.0], 0.0).cosine, blend([3.0, -1.0], 1.0).min
    (1.0, -1.0)
    """
    g = 1 - share + share * np.asarray(gain, dtype=np.float64)
    root_mean_square = math.sqrt(float(np.mean(g**2)))
    return Blend(
        share=share,
        output_l2=math.sqrt(g.size) * root_mean_square,
        cosine=float(g.mean()) / root_mean_square if root_mean_square else math.nan,
        min=float(g.min()),
        max=float(g.max()),
    )


def sampled(gain: ArrayLike, n: int) -> NDArray[np.int64]:
    """`n` evenly spaced positions in a gain [d], the middle of each of `n` equal stretches; all where d ≤ n.

    >>> sampled(np.ones(8), 4).tolist()
    [1, 3, 5, 7]
    """
    size = np.asarray(gain).size
    n = min(n, size)
    return ((np.arange(n) + 0.5) * size / n).astype(np.int64)


def share_near_one(gains: Sequence[ArrayLike], within: float = 0.1) -> float:
    """The share of all gains, every feature of every norm counted once, with |γ − 1| ≤ `within`.

    >>> share_near_one([[1.0, 1.05], [3.0, 0.2]])
    0.5
    """
    every = np.concatenate([np.asarray(gain, dtype=np.float64).ravel() for gain in gains])
    return float(np.mean(np.abs(every - 1) <= within))


def loudest_features(sites: Sequence[NormSite], n: int) -> LoudFeatures:
    """The `n` features whose |γ| is largest at some site. All sites have a gain and the same size.

    Raises:
        ValueError: sites of unequal size, none at all, or one without a gain.
    """
    gains = [site.known_gain for site in sites]
    if not gains or len({gain.size for gain in gains}) > 1:
        raise ValueError("the sites do not share one set of features")
    every = np.stack(gains).astype(np.float64)  # [sites, size]
    heights = np.abs(every).max(axis=0)
    loud = np.argsort(-heights, kind="stable")[:n]
    peaks = np.abs(every[:, loud]).argmax(axis=0)
    order = np.lexsort((-heights[loud], peaks))
    return LoudFeatures(loud[order], every[:, loud[order]], peaks[order])

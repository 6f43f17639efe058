"""The lesson's worked illustration of softmax: six made-up scores, and what they become as a token grows.

Nothing here is measured on a model. A query token's scores are its dot products with the keys, so they
grow in proportion to its length as long as nothing normalizes it: at `UNIT_L2` they are `SCORES`, at twice
that length twice as much. What follows from the scores is exact: shares, entropy, and the Jacobian's norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from model_probe.norms import Floats, entropy, softmax, softmax_jacobian_norm

TOKENS: Final = ("A", "B", "C", "D", "E", "F")
SCORES: Final = (1.6, 1.2, 0.9, 0.7, 0.4, 0.0)  # of the six tokens, at UNIT_L2
UNIT_L2: Final = 32.0  # the length called ×1
SMALLEST_L2: Final = 1.0
LARGEST_L2: Final = 512.0

# Where the zones end is a choice, made in terms of what can be computed.
FLAT_ENTROPY_SHARE: Final = 0.99  # flat: the entropy is at least this share of its maximum ln n
SATURATED_TOP_SHARE: Final = 0.90  # saturated: one token has at least this share
ZONES: Final = ("flat", "informative", "drifting", "saturated")


@dataclass(frozen=True, slots=True)
class Attention:
    """What the six scores become at one length of the token."""

    l2: float
    shares: Floats  # [6], sum 1, in the order of TOKENS
    top: float  # the largest share
    entropy: float  # nats
    entropy_share: float  # of the maximum ln 6: 1 when all shares are equal
    jacobian: float  # Frobenius norm of the softmax Jacobian
    zone: str  # one of ZONES


def shares_at(l2: ArrayLike) -> Floats:
    """The six shares at each length: [...] → [..., 6].

    >>> shares_at(32.0).round(3)
    array([0.325, 0.218, 0.161, 0.132, 0.098, 0.066])
    """
    return softmax(np.multiply.outer(np.asarray(l2, dtype=np.float64) / UNIT_L2, np.array(SCORES)))


def attention_at(l2: float) -> Attention:
    """Shares, entropy, Jacobian norm and zone at one length.

    >>> at = attention_at(192.0)
    >>> round(at.top, 2), round(at.entropy, 3), round(at.jacobian, 3)
    (0.9, 0.385, 0.158)
    """
    shares = shares_at(l2)
    nats = float(entropy(shares))
    at = {
        "top": float(shares.max()),
        "entropy": nats,
        "entropy_share": nats / float(np.log(len(SCORES))),
        "jacobian": float(softmax_jacobian_norm(shares)),
    }
    return Attention(l2=l2, shares=shares, zone=_zone(l2, at["top"], at["entropy_share"]), **at)


@lru_cache(maxsize=1)
def most_responsive_l2() -> float:
    """The length at which the Jacobian's Frobenius norm is largest, to about 0.02 %.

    >>> round(most_responsive_l2())
    53
    """
    grid = _grid()
    return float(grid[np.argmax(softmax_jacobian_norm(shares_at(grid)))])


@lru_cache(maxsize=1)
def zone_limits() -> tuple[float, float, float]:
    """The lengths at which flat, informative and drifting end, to about 0.02 %."""
    grid = _grid()
    shares = shares_at(grid)
    flat = entropy(shares) / np.log(len(SCORES)) >= FLAT_ENTROPY_SHARE
    saturated = shares.max(axis=-1) >= SATURATED_TOP_SHARE
    return float(grid[np.argmin(flat)]), most_responsive_l2(), float(grid[np.argmax(saturated)])


def _zone(l2: float, top: float, entropy_share: float) -> str:
    if entropy_share >= FLAT_ENTROPY_SHARE:
        return "flat"
    if top >= SATURATED_TOP_SHARE:
        return "saturated"
    return "informative" if l2 <= most_responsive_l2() else "drifting"


def _grid() -> Floats:
    return np.geomspace(SMALLEST_L2, LARGEST_L2, 40_001)

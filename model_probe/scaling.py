"""The worked numbers of the lesson on scale: one vector made larger and smaller, and what ε keeps back.

A vector of 256 values stands for a token. Its RMS is 1, so its L2 is √256 = 16; times any factor its shape
stays, and RMSNorm gives back L2 16 again, until the factor is so small that ε counts beside the mean square.
Illustration, not measured; NumPy alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from model_probe.norms import l2_per_token, rms, rms_norm
from model_probe.trace import NormTrace

SIZE: Final = 256  # values of the vector; √256 = 16
EPS: Final = 1e-6  # of the recorded checkpoint's norms, and of most
_WAVES: Final = ((3, 1.0, 0.4), (8, 0.7, 1.9), (21, 0.55, 4.1), (47, 0.4, 2.2))  # (periods, height, phase)


@dataclass(frozen=True, slots=True)
class Scaled:
    """The vector times a factor, before and after RMSNorm with γ = 1."""

    factor: float
    input_l2: float
    rms: float  # root of the plain mean square of the input, ε not counted
    divisor: float  # sqrt(mean square + ε): what the input is divided by
    output_l2: float
    percent: float  # the output's L2 in percent of √SIZE


def profile() -> NDArray[np.float64]:
    """The vector at × 1: [SIZE] with L2 √SIZE. A few waves, so that the eye knows it again.

    >>> float(np.linalg.norm(profile()).round(12))
    16.0
    """
    t = np.arange(SIZE) / SIZE
    x = sum(height * np.sin(2 * np.pi * periods * t + phase) for periods, height, phase in _WAVES)
    return np.asarray(x / rms(x))


def scaled(factor: float, eps: float = EPS) -> Scaled:
    """What RMSNorm makes of the vector times `factor`.

    >>> scaled(0.001).percent.__round__(1)
    70.7
    """
    x = factor * profile()
    output_l2 = float(l2_per_token(rms_norm(x, eps=eps)))
    return Scaled(
        factor=factor,
        input_l2=float(l2_per_token(x)),
        rms=float(rms(x)[0]),
        divisor=float(rms(x, eps)[0]),
        output_l2=output_l2,
        percent=100 * output_l2 / math.sqrt(SIZE),
    )


def share_of_root(input_rms: ArrayLike, eps: float = EPS) -> NDArray[np.float64]:
    """What share of √d the L2 after the division is, from the input's RMS: sqrt(ms / (ms + ε)), same shape.

    >>> share_of_root([0.02, 0.001, 0.0001]).round(4)
    array([0.9988, 0.7071, 0.0995])
    """
    mean_square = np.square(np.asarray(input_rms, dtype=np.float64))
    return np.sqrt(mean_square / (mean_square + eps))


def common_shift(trace: NormTrace) -> NDArray[np.float64]:
    """|mean| / RMS of every token at every norm of the depth: how much of a vector is one shift of all
    features. [sites, tokens], from 0 to 1; what is not finite stays NaN."""
    sites = trace.depth()
    mean = np.stack([site.input.mean for site in sites]).astype(np.float64)
    l2 = np.stack([site.input.l2 for site in sites]).astype(np.float64)
    size = np.array([[math.sqrt(site.size)] for site in sites])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.abs(mean) * size / l2

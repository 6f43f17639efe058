"""The examples that the lesson works by hand: every step of a norm as a number of its own.

A few numbers stand for a token's whole vector. The steps are those of `model_probe.norms`, which the tests hold
them to. Sources: RMSNorm, Zhang & Sennrich 2019, arXiv 1910.07467; LayerNorm, Ba et al. 2016, arXiv 1607.06450.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from model_probe.norms import Floats, layer_norm, mean_square, rms, rms_norm

EXAMPLE: Final = (2.0, -1.0, 3.0, 0.0)  # RMSNorm by hand
COMPARED: Final = (3.0, 1.0, -2.0, 4.0)  # RMSNorm beside LayerNorm
EPS: Final = 1e-6  # as in Qwen; far below what the examples' digits show

Vector = Floats  # float64


@dataclass(frozen=True, slots=True)
class RMSNormSteps:
    """RMSNorm of one vector, step by step, with γ = 1."""

    x: Vector  # [d]
    squares: Vector  # [d], x²
    mean_square: float
    rms: float  # sqrt(mean_square + eps)
    y: Vector  # [d], x / rms
    eps: float


@dataclass(frozen=True, slots=True)
class LayerNormSteps:
    """LayerNorm of one vector, step by step, with γ = 1 and β = 0."""

    x: Vector  # [d]
    mean: float
    centred: Vector  # [d], x − mean
    std: float  # the population's: divided by d; eps inside the root
    y: Vector  # [d], centred / std
    eps: float


def rms_norm_steps(x: Sequence[float], eps: float = EPS) -> RMSNormSteps:
    """RMSNorm of x [d], every step kept.

    Raises:
        ValueError: x is empty or holds something that is not finite.

    >>> steps = rms_norm_steps(EXAMPLE)
    >>> steps.mean_square, round(steps.rms, 3), steps.y.round(2)
    (3.5, 1.871, array([ 1.07, -0.53,  1.6 ,  0.  ]))
    """
    vector = _vector(x)
    return RMSNormSteps(
        x=vector,
        squares=np.square(vector),
        mean_square=float(mean_square(vector)[0]),
        rms=float(rms(vector, eps)[0]),
        y=rms_norm(vector, eps=eps),
        eps=eps,
    )


def layer_norm_steps(x: Sequence[float], eps: float = EPS) -> LayerNormSteps:
    """LayerNorm of x [d], every step kept.

    Raises:
        ValueError: x is empty or holds something that is not finite.

    >>> steps = layer_norm_steps(COMPARED)
    >>> steps.mean, round(steps.std, 2), steps.y.round(2)
    (1.5, 2.29, array([ 0.65, -0.22, -1.53,  1.09]))
    """
    vector = _vector(x)
    mean = float(np.mean(vector))
    centred = vector - mean
    return LayerNormSteps(
        x=vector,
        mean=mean,
        centred=centred,
        std=float(rms(centred, eps)[0]),
        y=layer_norm(vector, eps=eps),
        eps=eps,
    )


def norm_parameters(sizes: Iterable[int]) -> tuple[int, int]:
    """Learned numbers of norms of these sizes: as LayerNorms (γ and β, 2d each) and as RMSNorms (γ, d each).

    >>> norm_parameters([896] * 49)
    (87808, 43904)
    """
    gains = sum(sizes)
    return 2 * gains, gains


def _vector(x: Sequence[float]) -> Vector:
    vector = np.asarray(x, dtype=np.float64)
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise ValueError("one vector of finite numbers, not empty")
    return vector

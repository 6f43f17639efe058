"""Norm maths in NumPy: what the lesson shows and what the probe is tested against.

Every function works over the last dimension and leaves the others alone, so a vector [d],
a prompt [tokens, d] and a batch [batch, tokens, d] are all fine. Half precision is raised to
float32 before anything is squared; float32 and float64 keep their precision.

Sources: RMSNorm, Zhang & Sennrich 2019, arXiv 1910.07467, equation 4; LayerNorm, Ba et al. 2016,
arXiv 1607.06450, equations 3 and 4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.floating]


def _floating(x: ArrayLike) -> Floats:
    """The array in float32 or better: integers become float64, float16 becomes float32."""
    array = np.asarray(x)
    if array.dtype == np.float16:
        return array.astype(np.float32)
    if not np.issubdtype(array.dtype, np.floating):
        return array.astype(np.float64)
    return array


def mean_square(x: ArrayLike) -> Floats:
    """Mean of x² over the last dimension, that dimension kept: [..., d] → [..., 1].

    >>> mean_square([2.0, -1.0, 3.0, 0.0])
    array([3.5])
    """
    x = _floating(x)
    return np.mean(np.square(x), axis=-1, keepdims=True)


def rms(x: ArrayLike, eps: float = 0.0) -> Floats:
    """Root mean square, sqrt(mean(x²) + eps), last dimension kept: [..., d] → [..., 1].

    >>> rms([2.0, -1.0, 3.0, 0.0]).round(3)
    array([1.871])
    """
    return np.sqrt(mean_square(x) + eps)


def l2_per_token(x: ArrayLike) -> Floats:
    """L2 norm over the last dimension: [..., d] → [...].

    >>> l2_per_token([[3.0, 4.0], [0.0, 0.0]])
    array([5., 0.])
    """
    return np.linalg.norm(_floating(x), axis=-1)


def rms_norm(x: ArrayLike, gain: ArrayLike | None = None, eps: float = 1e-6) -> Floats:
    """RMSNorm: x / sqrt(mean(x²) + eps) · gain.

    x [..., d] → [..., d]; `gain` [d] or None (all ones). Source: arXiv 1910.07467, equation 4,
    with eps inside the root as every open implementation has it.

    >>> rms_norm([2.0, -1.0, 3.0, 0.0]).round(2)
    array([ 1.07, -0.53,  1.6 ,  0.  ])
    """
    x = _floating(x)
    normalized = x / rms(x, eps)
    return normalized if gain is None else normalized * _floating(gain)


def layer_norm(
    x: ArrayLike, gain: ArrayLike | None = None, bias: ArrayLike | None = None, eps: float = 1e-6
) -> Floats:
    """LayerNorm: (x − mean) / sqrt(variance + eps) · gain + bias, population variance.

    x [..., d] → [..., d]; `gain` and `bias` [d] or None. Source: arXiv 1607.06450, equation 4.

    >>> layer_norm([3.0, 1.0, -2.0, 4.0]).round(2)
    array([ 0.65, -0.22, -1.53,  1.09])
    """
    x = _floating(x)
    centred = x - np.mean(x, axis=-1, keepdims=True)
    output = centred / rms(centred, eps)
    if gain is not None:
        output = output * _floating(gain)
    if bias is not None:
        output = output + _floating(bias)
    return output


def softmax(scores: ArrayLike) -> Floats:
    """Softmax over the last dimension, shifted by the largest score: [..., n] → [..., n].

    A score of −inf gets share 0; a row of nothing but −inf is NaN, as it has no answer.

    >>> softmax([0.0, np.log(3.0)])
    array([0.25, 0.75])
    """
    scores = _floating(scores)
    with np.errstate(invalid="ignore"):
        exponentials = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
        return exponentials / np.sum(exponentials, axis=-1, keepdims=True)


def entropy(shares: ArrayLike) -> Floats:
    """Shannon entropy −Σ p ln p in nats over the last dimension: [..., n] → [...].

    A share of 0 contributes 0.

    >>> entropy([0.5, 0.5, 0.0]).round(4)
    np.float64(0.6931)
    """
    shares = _floating(shares)
    logs = np.log(shares, out=np.zeros_like(shares), where=shares != 0)
    return 0.0 - np.sum(shares * logs, axis=-1)  # 0 − 0 is +0, where −(0) would print as −0


def softmax_jacobian_norm(shares: ArrayLike) -> Floats:
    """Frobenius norm of the softmax Jacobian diag(p) − p pᵀ, from the shares: [..., n] → [...].

    How much the shares still answer to a change of the scores: 0 when one share has it all.
    In closed form, ‖J‖² = Σ p² − 2 Σ p³ + (Σ p²)², so no n × n matrix is built.

    >>> softmax_jacobian_norm([0.5, 0.5])
    np.float64(0.5)
    """
    p = _floating(shares)
    squares = np.sum(p**2, axis=-1)
    cubes = np.sum(p**3, axis=-1)
    return np.sqrt(np.maximum(squares - 2 * cubes + squares**2, 0.0))

"""What RMSNorm and LayerNorm leave alone, tried on numbers: scale, a common shift, the other tokens.

One batch randn(2, 16, 256) · 3 + 1 with a fixed seed; one token of it is watched while the batch is
changed. Illustration, not measured; NumPy alone.

    answer = respond("plus_5", "rms_norm")
    answer.largest_change, answer.same
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from model_probe.norms import layer_norm, rms, rms_norm

SHAPE: Final = (2, 16, 256)  # batch, tokens, features
WATCHED: Final = (0, 5)  # batch and position of the token whose output is looked at
EPS: Final = 1e-6
TOLERANCE: Final = 1e-5  # outputs closer than this are the same: ε leaves a trace of about 1e-7
_SEED: Final = 1910  # of the batch; any would do
_OTHERS_SEED: Final = 7467

Floats = NDArray[np.floating]


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """The watched token's output before and after a change of the batch."""

    before: Floats  # [features]
    after: Floats  # [features]

    @property
    def largest_change(self) -> float:
        """max |after − before| over the features."""
        return float(np.abs(self.after - self.before).max())

    @property
    def same(self) -> bool:
        """Whether the output is the same to within TOLERANCE."""
        return self.largest_change < TOLERANCE

    @property
    def rms(self) -> float:
        """Root mean square of the output after the change."""
        return float(rms(self.after)[0])


def batch() -> Floats:
    """randn(2, 16, 256) · 3 + 1: [batch, tokens, features]."""
    return np.random.default_rng(_SEED).standard_normal(SHAPE) * 3 + 1


def _times_7(x: Floats) -> Floats:
    return x * 7


def _plus_5(x: Floats) -> Floats:
    return x + 5


def _replace_others(x: Floats) -> Floats:
    changed = np.random.default_rng(_OTHERS_SEED).standard_normal(SHAPE) * 40
    changed[WATCHED] = x[WATCHED]
    return changed


def _permute_others(x: Floats) -> Floats:
    """The other tokens of the watched one's text in another order."""
    row, position = WATCHED
    others = np.delete(np.arange(SHAPE[1]), position)
    changed = x.copy()
    changed[row, others] = x[row, others[::-1]]
    return changed


CHANGES: Final[Mapping[str, Callable[[Floats], Floats]]] = MappingProxyType(
    {
        "times_7": _times_7,
        "plus_5": _plus_5,
        "replace_others": _replace_others,
        "permute_others": _permute_others,
    }
)
NORMS: Final[Mapping[str, Callable[[Floats], Floats]]] = MappingProxyType(
    {"rms_norm": lambda x: rms_norm(x, eps=EPS), "layer_norm": lambda x: layer_norm(x, eps=EPS)}
)


def respond(change: str, norm: str) -> Response:
    """How the watched token's output answers to one of CHANGES under one of NORMS, γ = 1 and β = 0.

    Raises:
        KeyError: no such change or norm.

    >>> respond("times_7", "rms_norm").same, respond("plus_5", "rms_norm").same
    (True, False)
    """
    x = batch()
    normed = NORMS[norm]
    return Response(before=normed(x)[WATCHED], after=normed(CHANGES[change](x))[WATCHED])

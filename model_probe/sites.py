"""`NormSite`: what is known of one norm of a checkpoint before any prompt is measured.

A site is one call of an RMSNorm module in a forward pass. Its gain and eps are measured on the
module itself (`model_probe.discovery`), never read from an attribute. No torch is needed here, so
that recordings open without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from model_probe.norms import rms_norm
from model_probe.trace import GainSummary

# How a site's input lies in memory, batch of one: where the tokens are and where the heads.
LAYOUTS: Final = (
    "token",  # [1, tokens, size]
    "token_head",  # [1, tokens, heads, size]
    "head_token",  # [1, heads, tokens, size]
    "rows",  # [tokens · heads, size]
)
GATES: Final = ("silu", "sigmoid")


@dataclass(frozen=True, slots=True, eq=False)
class NormSite:
    """One norm of a checkpoint, measured."""

    name: str  # of the module; "name#2" for its second call in a pass
    layer: int | None  # None outside the layers
    role: str  # one of model_probe.trace.ROLES
    class_name: str
    size: int  # features normed together
    eps: float  # inside the root; NaN where it could not be measured
    gain_convention: str  # one of model_probe.trace.CONVENTIONS
    gain: NDArray[np.float32] | None  # [size]; before the gate, where there is one
    gate: str | None = None  # one of GATES: output = normalized · gain · gate(z)
    layout: str = "token"  # one of LAYOUTS
    why_no_gain: str | None = None  # set exactly when gain is None
    summary: GainSummary | None = field(init=False, compare=False)  # of the gain, None without one

    def __post_init__(self) -> None:
        object.__setattr__(self, "summary", None if self.gain is None else summarize_gain(self.gain))

    @property
    def module(self) -> str:
        """The module's name in the model, without the number of the call."""
        return self.name.partition("#")[0]

    @property
    def known_gain(self) -> NDArray[np.float32]:
        """The gain [size].

        Raises:
            ValueError: the site has none.
        """
        if self.gain is None:
            raise ValueError(f"the gain of {self.name} is not known")
        return self.gain

    def rebuild(self, x: ArrayLike, z: ArrayLike | None = None) -> NDArray[np.floating]:
        """The output that gain, eps and gate predict for the input x [..., size] and gate z.

        Raises:
            ValueError: the site has no gain, or a gate and no z.
        """
        if self.gain is None or (self.gate is None) != (z is None):
            raise ValueError(f"{self.name} cannot be rebuilt from these arguments")
        output = rms_norm(np.asarray(x, dtype=np.float64), self.gain, self.eps)
        return output if z is None or self.gate is None else output * gate_value(self.gate, z)


@dataclass(frozen=True, slots=True)
class GainCounts:
    """How many features of a gain vector do what: |γ| > 1 amplifies, |γ| < 1 damps."""

    amplified: int
    damped: int
    exactly_one: int  # |γ| = 1
    negative: int  # γ < 0: the feature's sign is flipped


def summarize_gain(gain: ArrayLike) -> GainSummary:
    """Mean, rms, min, max and population std of a gain vector [size], in float64.

    >>> summarize_gain([1.0, -1.0]).rms
    1.0
    """
    g = np.asarray(gain, dtype=np.float64)
    return GainSummary(
        mean=float(g.mean()),
        rms=float(np.sqrt(np.mean(g**2))),
        min=float(g.min()),
        max=float(g.max()),
        std=float(g.std()),
    )


def count_gain(gain: ArrayLike) -> GainCounts:
    """Counts of amplified, damped, unchanged and sign-flipped features of a gain vector [size].

    >>> count_gain([2.0, -0.5, 1.0])
    GainCounts(amplified=1, damped=1, exactly_one=1, negative=1)
    """
    g = np.asarray(gain)
    size = np.abs(g)
    return GainCounts(
        amplified=int(np.sum(size > 1)),
        damped=int(np.sum(size < 1)),
        exactly_one=int(np.sum(size == 1)),
        negative=int(np.sum(g < 0)),
    )


def gate_value(gate: str, z: ArrayLike) -> NDArray[np.floating]:
    """What a gate multiplies by: silu(z) = z · sigmoid(z), or sigmoid(z).

    >>> gate_value("sigmoid", 0.0)
    np.float64(0.5)
    """
    z = np.asarray(z, dtype=np.float64)
    sigmoid = 0.5 * (1.0 + np.tanh(0.5 * z))  # no overflow at either end
    return sigmoid if gate == "sigmoid" else z * sigmoid

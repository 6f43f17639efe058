"""Measures one module: is it an RMSNorm, and what are its gain, its eps and its gate?

On x = 1024 · s, with s a fixed vector of ±1, an RMSNorm's normalized vector is s to the last bit,
so its gain is output · s. On a small x the eps shows. Last, the output of uneven vectors is rebuilt
from the two: what cannot be rebuilt is no RMSNorm. Everything is fed in float32, to half-precision
modules too: in their own dtype the gain would be off by 4e-3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model_probe.norms import rms_norm
from model_probe.passes import weights_at_hand
from model_probe.sites import gate_value

TOLERANCE: Final = 1e-5  # relative to the largest value of the output
MAX_EPS: Final = 1e-2  # keeps out what merely passes its input on
_LARGE: Final = 1024.0
_GATE: Final = 32.0  # silu(32) = 32 and sigmoid(32) = 1 in float32

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class CallForm:
    """How a module was called: which argument is normed, which is its gate, what else there was."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    x: Tensor  # the first floating tensor
    z: Tensor | None  # a second one of the same number of elements: the gate
    size: int

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallForm | None:
        """The form of a call, None when no floating tensor of two dimensions or more went in."""
        floating = [
            v
            for v in (*args, *kwargs.values())
            if isinstance(v, Tensor) and v.is_floating_point() and v.ndim > 1
        ]
        if not floating:
            return None
        x = floating[0]
        z = floating[1] if len(floating) > 1 and floating[1].numel() == x.numel() else None
        return cls(args, kwargs, x, z, x.shape[-1])

    def run(self, module: nn.Module, x: Vector, z: Vector | None) -> Vector:
        """Call the module in this form on rows x [n, size] and gate z, in float32: [n, size]."""
        lead = (1,) * (self.x.ndim - 2)

        def tensor(rows: Vector) -> Tensor:
            return torch.from_numpy(rows.astype(np.float32)).reshape(*lead, *rows.shape).to(self.x.device)

        new = {id(self.x): tensor(x)}
        if self.z is not None and z is not None:
            new[id(self.z)] = tensor(z)
        args = tuple(new.get(id(a), a) for a in self.args)
        kwargs = {name: new.get(id(a), a) for name, a in self.kwargs.items()}
        with torch.no_grad():
            output = module(*args, **kwargs)
        return output.detach().to("cpu", torch.float64).numpy().reshape(x.shape)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredNorm:
    """What `measure_norm` found."""

    class_name: str
    gain: NDArray[np.float32] | None  # [size]
    eps: float
    convention: str  # one of model_probe.trace.CONVENTIONS
    gate: str | None
    why_no_gain: str | None


def measure_norm(module: nn.Module, form: CallForm) -> MeasuredNorm | None:
    """Gain, eps and gate of the module if it is an RMSNorm, else None.

    A module whose gate is multiplied in before the division norms all the same, but its output
    cannot be rebuilt from its input: it comes back without a gain, and with the reason. So does one
    whose weight is not finite everywhere.
    """
    random = np.random.default_rng(0)
    size = form.size
    sign = np.where(random.random(size) < 0.5, -1.0, 1.0)  # [size]
    constant_gate = None if form.z is None else np.full((1, size), _GATE)
    try:
        at_large = form.run(module, _LARGE * sign[None], constant_gate)[0]  # [size]
        finite = np.isfinite(at_large)  # [size]; everywhere, but for a broken weight
        at_large[~finite] = 0.0
        gate, scale = None, 1.0
        if constant_gate is not None:
            twice = form.run(module, _LARGE * sign[None], 2 * constant_gate)[0]
            twice[~finite] = 0.0
            gate = _gate_kind(at_large, twice)
            scale = _GATE if gate == "silu" else 1.0
        gain = at_large * sign / scale
        if not np.any(gain):
            return None
        eps = _measure_eps(module, form, sign, gain * scale, constant_gate)
        if eps is None:
            return None
        x = (
            random.normal(0.1, 1.0, (8, size))
            * np.exp(random.normal(0, 1, size))
            * np.logspace(-2, 2, 8)[:, None]
        )
        constant = None if form.z is None else np.full(x.shape, _GATE)
        if not _close(form.run(module, x, constant), rms_norm(x, gain * scale, eps), finite):
            return None
        if not finite.all():
            why = f"its weight is not finite in {int((~finite).sum())} of {size} features"
            return MeasuredNorm(type(module).__name__, None, eps, "other", gate, why)
        if form.z is not None:
            z = random.normal(0, 2, x.shape)
            expected = rms_norm(x, gain, eps) * gate_value(gate, z) if gate else None
            if expected is None or not _close(form.run(module, x, z), expected, finite):
                why = "its gate is not multiplied in after the norm, so its output does not follow from its input"
                return MeasuredNorm(type(module).__name__, None, eps, "other", None, why)
    except Exception:  # noqa: BLE001 - a module that cannot run on such vectors is not an RMSNorm
        return None
    stored = gain.astype(np.float32)
    return MeasuredNorm(type(module).__name__, stored, eps, _convention(module, stored), gate, None)


def _gate_kind(at_once: Vector, at_twice: Vector) -> str | None:
    ratio = np.linalg.norm(at_twice) / max(float(np.linalg.norm(at_once)), 1e-30)
    if abs(ratio - 2) < 1e-4:
        return "silu"
    if abs(ratio - 1) < 1e-4:
        return "sigmoid"
    return None


def _measure_eps(
    module: nn.Module, form: CallForm, sign: Vector, gain: Vector, gate: Vector | None
) -> float | None:
    """eps from the output on a vector of known small mean square, None when there is no such eps.

    For mean square m the output shrinks by r = 1 / sqrt(1 + eps / m). One m of 2⁻²⁰ serves the usual
    1e-6; a smaller eps is measured again at 2⁻⁴⁰, where float32 still holds the square.
    """
    loud = np.abs(gain) > 0.1 * np.abs(gain).max()
    eps = 0.0
    for exponent in (-10, -20):
        output = form.run(module, 2.0**exponent * sign[None], gate)[0]
        shrunk = float(np.median(output[loud] * sign[loud] / gain[loud]))
        if not np.isfinite(shrunk) or shrunk <= 0:
            return None
        mean_square = 2.0 ** (2 * exponent)
        eps = (shrunk**-2 - 1) * mean_square
        noise = 1e-6 * mean_square
        if eps < -noise or eps >= MAX_EPS:
            return None
        if eps > 1e-2 * mean_square:
            return float(f"{eps:.5g}")  # float32 tells no more digits apart
        if abs(eps) <= noise:
            eps = 0.0
    return float(f"{eps:.2g}")


def _close(measured: Vector, expected: NDArray[np.floating], where: NDArray[np.bool_]) -> bool:
    """Whether the two [rows, size] agree in those features."""
    largest = np.abs(expected).max(axis=-1, keepdims=True)
    near = np.abs(measured[:, where] - expected[:, where]) <= TOLERANCE * np.maximum(largest, 1e-30)
    return bool(np.all(near))


def _convention(module: nn.Module, gain: NDArray[np.float32]) -> str:
    with weights_at_hand(module):
        parameters = [p.detach().to("cpu", torch.float32).numpy() for p in module.parameters()]
    if not parameters:
        return "none"
    for stored in (p.reshape(-1) for p in parameters if p.size == gain.size):
        tolerance = TOLERANCE * max(1.0, float(np.abs(stored).max()))
        if np.abs(gain - stored).max() <= tolerance:
            return "weight"
        if np.abs(gain - (1 + stored)).max() <= tolerance:
            return "one_plus_weight"
    return "other"

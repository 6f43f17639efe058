"""RMSNorm as real model families write it, side by side: the same formula, other orders and other precisions.

Every function takes x [..., d], the stored weight [d] and eps, and gives [..., d] in the dtype of x. Ours, in the
style of the family that `FAMILIES` names:

    y = cast_then_gain(x, weight, eps)
    compare(gain_in_float32(x, weight, eps), y).differ       elements that are not equal to the bit

`compare_all` runs them all on all inputs and dtypes. What came of it is `model_probe.code_results`, which needs no
torch. The page shows the lines of these functions as they stand here (`code_results.source`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from model_probe.code_results import (
    CHECKPOINT,
    DTYPES,
    EXACT,
    INPUTS,
    VARIANTS,
    Comparison,
    ComparisonTable,
)

EPS: Final = 1e-6
TORCH_DTYPES: Final[Mapping[str, torch.dtype]] = MappingProxyType(
    {name: getattr(torch, name) for name in DTYPES}
)
GAIN_RANGE: Final = (
    0.5,
    2.0,
)  # within it gain − 1 is exact in every dtype (Sterbenz), so all get the same gain
_SEED: Final = 1910
_BITS: Final = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of an element

Norm = Callable[[Tensor, Tensor, float], Tensor]


def two_lines(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The formula as it stands, in the dtype of x from beginning to end: [..., d] → [..., d]."""
    normalized = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return weight * normalized


def cast_then_gain(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Up to float32, back, then the gain: Llama, Qwen2 and Qwen3 (LlamaRMSNorm in transformers). [..., d] → [..., d]."""
    wide = x.float()
    normalized = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * normalized.to(x.dtype)


def gain_in_float32(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Up to float32, the gain there, then back: OLMo 2, gpt-oss (Olmo2RMSNorm). [..., d] → [..., d]."""
    wide = x.float()
    normalized = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (weight * normalized).to(x.dtype)


def zero_centred(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The stored weight is gain − 1, added up in float32: Gemma, Qwen3.5 (Gemma3RMSNorm). [..., d] → [..., d]."""
    wide = x.float()
    normalized = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return ((1.0 + weight.float()) * normalized).to(x.dtype)


def torch_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """torch's own: what `torch.nn.RMSNorm` calls. [..., d] → [..., d]."""
    return functional.rms_norm(x, weight.shape, weight, eps)


def gain_first(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Two lines with the same three factors, multiplied in another order: [..., d] → [..., d]."""
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return (weight * x) * scale


def one_over_sqrt(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Two lines with 1 / sqrt, rounded twice, where rsqrt rounds once: [..., d] → [..., d]."""
    normalized = x * (1 / torch.sqrt(x.square().mean(-1, keepdim=True) + eps))
    return weight * normalized


WRITTEN: Final[Mapping[str, Norm]] = MappingProxyType(
    {
        norm.__name__: norm
        for norm in (
            two_lines,
            cast_then_gain,
            gain_in_float32,
            zero_centred,
            torch_rms_norm,
            gain_first,
            one_over_sqrt,
        )
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class OpenNorm:
    """A norm module of the open checkpoint, of which the class is to be compared."""

    module: nn.Module
    class_name: str
    convention: str  # "weight" or "one_plus_weight": how the class reads what it stores
    eps: float  # its own, as measured

    def __call__(self, x: Tensor, gain: Tensor) -> Tensor:
        """The class on x [..., d] with a gain [d] of ours in place of its own, on the CPU, in the dtype of x.

        Raises:
            ValueError: it keeps no weight of one dimension, or reads it in another way.
        """
        if self.convention not in ("weight", "one_plus_weight"):
            raise ValueError(f"{self.class_name} stores its gain in another way")
        module = copy.deepcopy(self.module).to("cpu")
        names = [name for name, p in module.named_parameters(recurse=False) if p.ndim == 1]
        if len(names) != 1:
            raise ValueError(f"{self.class_name} has {len(names)} weights")
        stored = gain - 1 if self.convention == "one_plus_weight" else gain
        setattr(module, names[0], nn.Parameter(stored.clone(), requires_grad=False))
        if isinstance(module, nn.RMSNorm):
            module.normalized_shape = tuple(gain.shape)
        with torch.no_grad():
            return module(x)


def random_gain(size: int, dtype: torch.dtype) -> Tensor:
    """A gain [size], none of it 1, the same numbers in every dtype to its precision, and gain − 1 exact in it."""
    drawn = np.random.default_rng(_SEED).uniform(*GAIN_RANGE, size)
    gain = torch.from_numpy(drawn).to(torch.bfloat16)  # 8 bits: every dtype but float16 below 2⁻¹⁴ holds them
    return torch.where(gain == 1, torch.tensor(1.5, dtype=torch.bfloat16), gain).to(dtype)


def inputs(residual: NDArray[np.float32]) -> Mapping[str, Tensor]:
    """What the norms are given, float64, by INPUTS: random, shifted, a real residual [tokens, d], zeros, large values."""
    random = np.random.default_rng(_SEED)
    small = random.standard_normal((2, 9, 32))
    shifted = random.standard_normal((2, 16, 256)) * 3 + 1
    powers = (3.0 ** np.arange(9))[:, None]  # token n is 3ⁿ times as large as token 0; float16 ends at 65504
    large = random.standard_normal((2, 9, 32)).clip(-4, 4) * powers
    arrays = (small, shifted, residual[None].astype(np.float64), np.zeros((2, 9, 32)), large)
    return {name: torch.from_numpy(array) for name, array in zip(INPUTS, arrays, strict=True)}


def compare(ours: Tensor, reference: Tensor) -> Comparison:
    """How far two outputs of one dtype and shape lie apart.

    Two NaN count as equal, −0 and 0 do not. The differences are those of the elements that are finite in both.

    Raises:
        ValueError: their dtypes or shapes are not alike.

    >>> compare(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
    Comparison(elements=2, differ=1, non_finite=0, largest_absolute=2.0, largest_relative=0.5)
    """
    if (ours.dtype, ours.shape) != (reference.dtype, reference.shape):
        raise ValueError(f"{ours.dtype} {ours.shape} is not {reference.dtype} {reference.shape}")
    return _Output.of(ours).compare(_Output.of(reference))


@dataclass(frozen=True, slots=True, eq=False)
class _Output:
    """An output in NumPy, where small tensors are compared many times without waking torch's threads."""

    bits: NDArray[np.integer]  # [elements]
    values: NDArray[np.float64]  # [elements]
    finite: NDArray[np.bool_]  # [elements]

    @classmethod
    def of(cls, output: Tensor) -> _Output:
        flat = output.detach().reshape(-1)
        values = flat.double().numpy()
        return cls(flat.view(_BITS[flat.element_size()]).numpy(), values, np.isfinite(values))

    def compare(self, reference: _Output) -> Comparison:
        nan = np.isnan(self.values) & np.isnan(reference.values)
        finite = self.finite & reference.finite
        b = reference.values[finite]
        apart = np.abs(self.values[finite] - b)
        relative = apart[b != 0] / np.abs(b[b != 0])
        return Comparison(
            elements=self.values.size,
            differ=int(np.sum((self.bits != reference.bits) & ~nan)),
            non_finite=int(np.sum(~self.finite)),
            largest_absolute=float(apart.max()) if apart.size else float("nan"),
            largest_relative=float(relative.max()) if relative.size else float("nan"),
        )


def outputs(
    x: Tensor, gain: Tensor, eps: float = EPS, opened: OpenNorm | None = None
) -> Mapping[str, Tensor]:
    """What every variant makes of x [..., d] with one gain [d], by name; `exact` is float64 rounded to x's dtype.

    Where the open checkpoint's norm is given its class is among them, and `eps` is to be its own.
    """
    results = {
        name: norm(x, gain - 1 if name == "zero_centred" else gain, eps) for name, norm in WRITTEN.items()
    }
    if opened is not None:
        results[CHECKPOINT] = opened(x, gain)
    results[EXACT] = two_lines(x.double(), gain.double(), eps).to(x.dtype)
    return results


def compare_all(residual: NDArray[np.float32], opened: OpenNorm | None = None) -> ComparisonTable:
    """Every variant against every other, on every input in every dtype: `ComparisonTable`.

    `residual` [tokens, d] is what the input of that name holds.
    """
    eps = EPS if opened is None else opened.eps
    numbers = np.full((len(INPUTS), len(DTYPES), len(VARIANTS), len(VARIANTS), 5), np.nan)
    given = inputs(residual)
    for i, x in enumerate(given.values()):
        for d, dtype in enumerate(TORCH_DTYPES.values()):
            results = outputs(x.to(dtype), random_gain(x.shape[-1], dtype), eps, opened)
            there = {VARIANTS.index(name): _Output.of(output) for name, output in results.items()}
            for r, reference in there.items():
                for v, ours in there.items():
                    numbers[i, d, r, v] = ours.compare(reference).numbers()
    shapes = {name: tuple(x.shape) for name, x in given.items()}
    return ComparisonTable(numbers, shapes, None if opened is None else opened.class_name, eps)


def findings() -> Mapping[str, Comparison]:
    """Single comparisons that the table does not hold, by FINDINGS."""
    x = inputs(np.ones((1, 1), np.float32))["small"].float()
    gain = random_gain(x.shape[-1], torch.float32)
    changed = gain.clone()
    changed[0] *= 1.5
    normalized = two_lines(x, torch.ones_like(gain), EPS)
    divided = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)
    told = {
        "one_gain_changed": compare(cast_then_gain(x, changed, EPS), two_lines(x, gain, EPS)),
        "gain_of_one": compare(normalized, divided),
    }
    for name in ("bfloat16", "float16"):
        every = _every_positive(TORCH_DTYPES[name])
        told[f"roots_{name}"] = compare(1 / torch.sqrt(every), torch.rsqrt(every))
    return MappingProxyType(told)


def _every_positive(dtype: torch.dtype) -> Tensor:
    """Every positive finite number of a dtype of two bytes, rising."""
    infinity = int(torch.tensor(torch.inf, dtype=dtype).view(torch.int16))
    return torch.arange(1, infinity, dtype=torch.int16).view(dtype)

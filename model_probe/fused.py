"""Norms that nothing outside can measure: fused with what stands before them, in place, or closed to float32.

A kernel may add the residual and norm in one step, write its result over its input, take only one
dtype, or read the norm's weight while the module itself never runs. Such a norm must not fall out of
the inventory: it is told by what it did in the pass (its output is one gain times some tensor over
that tensor's RMS, at every position; or the logits follow from its weight), and the model is refused
by the module's name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import torch
from torch import Tensor, nn

from model_probe.errors import ProbeError
from model_probe.passes import named_modules, plain

_TOLERANCE: Final = {torch.float32: 1e-3, torch.float64: 1e-3}  # of the largest output; eps is not known
_HALF_TOLERANCE: Final = 2e-2  # of bfloat16 and float16
_SPREAD: Final = 5.0  # times the tolerance: by so much the RMS of the rows has to differ
_CHANGED: Final = 1e-3  # of the logits: more than rounding
_REASON_LENGTH: Final = 120


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What went into a module and came out of it in the pass: the floating tensors, and those as they lie now."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    single: bool  # the module returned one tensor, not several

    @classmethod
    def of(cls, name: str, inputs: Iterator[Tensor], output: Any) -> Seen | None:
        """None where what went in and what came first out have not one shape."""
        given = tuple(t for t in inputs if t.is_floating_point() and t.ndim > 1)
        single = isinstance(output, Tensor)
        results = (output,) if single else tuple(output) if isinstance(output, tuple | list) else ()
        got = tuple(t for t in results if isinstance(t, Tensor) and t.is_floating_point())
        return cls(name, given, got, single) if given and got and got[0].shape == given[0].shape else None


def refuse_hidden(model: nn.Module, seen: Sequence[Seen], measured: Collection[str]) -> None:
    """Raise where a module of the pass is an RMSNorm that cannot be measured.

    `measured` names the modules that `measure_norm` took; of these only their memory is looked at.

    Raises:
        ProbeError: `fused_norm`, `in_place_norm`, or `norm_not_measured`.
    """
    for call in seen:
        module = plain(model.get_submodule(call.name))
        named = {"name": call.name, "class_name": type(module).__name__}
        y = call.outputs[0]
        if call.name in measured:
            if _same_memory(y, call.inputs[0]):
                raise ProbeError("in_place_norm", **named)
            continue
        own = [x for x in call.inputs if x.shape == y.shape and not _same_memory(x, y)]
        if call.single and own and _is_normed(y, own[0]):
            raise ProbeError("norm_not_measured", **named, reason=_why_not(module, own[0]))
        others = [x for x in call.outputs[1:] if x.shape == y.shape and not _same_memory(x, y)]
        sums = [a + b for a, b in combinations(own, 2)]
        if any(_is_normed(y, x) for x in (*own, *others, *sums)):
            raise ProbeError("fused_norm", **named)


def refuse_bypassed(
    model: nn.Module, ran: Collection[str], measured: Collection[str], logits: Callable[[], Tensor]
) -> None:
    """Raise where a norm that never ran has a weight that the result of the pass follows from all the same.

    `ran` names the modules that ran, `measured` the norms among them; `logits` runs the model. A norm that is
    not used (of a tower for pictures, of a layer that shares another's keys) changes nothing and is left out.

    Raises:
        ProbeError: `bypassed_norm`.
    """
    modules = dict(named_modules(model))
    classes = {type(modules[name]) for name in measured}
    classes |= {type(module) for module in modules.values() if "norm" in type(module).__name__.lower()}
    idle = [
        name
        for name, module in modules.items()
        if type(module) in classes and name not in ran and any(True for _ in module.parameters(recurse=False))
    ]
    if not idle or not _matters(model, idle, logits):
        return
    for name in idle:
        if _matters(model, [name], logits):
            raise ProbeError("bypassed_norm", name=name, class_name=type(modules[name]).__name__)


def _matters(model: nn.Module, names: Sequence[str], logits: Callable[[], Tensor]) -> bool:
    """Whether the logits are others where these modules have other weights; their own come back."""
    before = logits()
    with ExitStack() as undo:
        for name in names:
            weights = plain(model.get_submodule(name))._parameters
            for key, weight in weights.items():
                if weight is not None:
                    undo.callback(weights.__setitem__, key, weight)
                    weights[key] = nn.Parameter(weight.detach() * 1.5 + 0.5, requires_grad=False)
        after = logits()
    return not torch.allclose(after, before, rtol=_CHANGED, atol=_CHANGED, equal_nan=True)


def _is_normed(y: Tensor, x: Tensor) -> bool:
    """Whether y is x over the RMS of its last dimension, times a gain that is the same at every position.

    Where all rows of x have about one RMS nobody can tell it from x times a constant: no, then.
    """
    tolerance = _TOLERANCE.get(y.dtype, _HALF_TOLERANCE)
    with torch.no_grad():
        rows, result = (t.detach().double().reshape(-1, t.shape[-1]) for t in (x, y))
        rms = rows.square().mean(-1, keepdim=True).sqrt()  # [rows, 1]
        if not (torch.isfinite(rms).all() and rms.min() > 0 and torch.isfinite(result).all()):
            return False
        if rms.max() / rms.min() < 1 + _SPREAD * tolerance or not result.any():
            return False
        normalized = rows / rms
        # the gain that fits best, by feature
        gain = (result * normalized).sum(0) / normalized.square().sum(0).clamp(min=1e-30)
        return bool((result - normalized * gain).abs().max() <= tolerance * result.abs().max())


def _same_memory(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _why_not(module: nn.Module, x: Tensor) -> str:
    """What the module says when it is run by itself in float32."""
    try:
        with torch.no_grad():
            module(x.detach().float())
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0] if lines else ''}"[:_REASON_LENGTH].strip().rstrip(".:")
    return "on vectors whose answer is known it gives another"

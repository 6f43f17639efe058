"""RMSNorm with one line wrong, one mistake a function, and what each does to inputs that bring it out.

`right` is what all are compared with; the page shows the lines that differ (`code_results.source`).

    run_breaks(residual)["mean_of_x"]      outcomes, case by case

What `no_final_norm` does takes a checkpoint: `model_probe.code_runs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model_probe.code_results import Outcome
from model_probe.variants import EPS, random_gain

SHAPES: Final = {  # of the tensors that are normed without keepdim: what the case stands for
    "batch": (2, 9, 32),
    "square": (32, 32),  # as many tokens as features, no batch dimension
    "square_prompt": (1, 32, 32),
    "one_token": (2, 1, 32),  # two texts, one token each: how a model writes
    "alone": (1, 1, 32),
}
SIZES: Final = (1.0, 0.1, 0.016, 0.001, 0.0001, 0.0)  # RMS of a token; 0.016 is that of a real embedding
LARGEST: Final = (100.0, 255.0, 255.875, 256.0, 1000.0)  # |x| in float16; 255.875 is the last below 256
CLOSE: Final = 0.01  # RMS of the difference to RMS of the right output
_SEED: Final = 7467

Norm = Callable[[Tensor, Tensor, float], Tensor]


def right(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """What is to come out: upcast, mean of squares over the features, eps inside the root. [..., d] → [..., d]."""
    wide = x.float()
    mean_square = wide.square().mean(-1, keepdim=True)
    normalized = wide * torch.rsqrt(mean_square + eps)
    return (weight * normalized).to(x.dtype)


def no_keepdim(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The mean loses its dimension, and is laid along another one where it fits."""
    wide = x.float()
    mean_square = wide.square().mean(-1)
    normalized = wide * torch.rsqrt(mean_square + eps)
    return (weight * normalized).to(x.dtype)


def mean_of_x(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The square is forgotten: the root of a negative number wherever mean(x) + eps < 0."""
    wide = x.float()
    mean_square = wide.mean(-1, keepdim=True)
    normalized = wide * torch.rsqrt(mean_square + eps)
    return (weight * normalized).to(x.dtype)


def no_eps(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """eps is left out: 0 · (1 / 0) for a token of zeros."""
    wide = x.float()
    mean_square = wide.square().mean(-1, keepdim=True)
    normalized = wide * torch.rsqrt(mean_square)
    return (weight * normalized).to(x.dtype)


def eps_outside(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """eps is added to the root instead of under it."""
    wide = x.float()
    mean_square = wide.square().mean(-1, keepdim=True)
    normalized = wide / (torch.sqrt(mean_square) + eps)
    return (weight * normalized).to(x.dtype)


def no_upcast(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Squares are taken in the dtype of x: in float16 those of 256 and more are infinite."""
    wide = x
    mean_square = wide.square().mean(-1, keepdim=True)
    normalized = wide * torch.rsqrt(mean_square + eps)
    return (weight * normalized).to(x.dtype)


def wrong_dimension(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The mean goes over the tokens instead of the features."""
    wide = x.float()
    mean_square = wide.square().mean(-2, keepdim=True)
    normalized = wide * torch.rsqrt(mean_square + eps)
    return (weight * normalized).to(x.dtype)


def minus_one_read_as_weight(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """A stored gain − 1 is multiplied by as if it were the gain; `one_plus` is right for such a weight."""
    wide = x.float()
    mean_square = wide.square().mean(-1, keepdim=True)
    normalized = wide * torch.rsqrt(mean_square + eps)
    return (weight * normalized).to(x.dtype)


def one_plus(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """What is to come out where the stored weight is gain − 1. [..., d] → [..., d]."""
    wide = x.float()
    mean_square = wide.square().mean(-1, keepdim=True)
    normalized = wide * torch.rsqrt(mean_square + eps)
    return ((1.0 + weight.float()) * normalized).to(x.dtype)


def head(hidden: Tensor, final_norm: nn.Module, lm_head: nn.Module) -> Tensor:
    """The end of a language model: [..., d] → [..., vocabulary]."""
    hidden = final_norm(hidden)
    return lm_head(hidden)


def no_final_norm(hidden: Tensor, final_norm: nn.Module, lm_head: nn.Module) -> Tensor:
    """The LM head reads the residual as it is."""
    return lm_head(hidden)


def _random(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(_SEED).standard_normal(shape)).float()


def _tokens(rms: Iterable[float], size: int = 256) -> Tensor:
    """One token [d] of each RMS: [tokens, d]."""
    x = _random(len(tuple(rms)), size)
    unit = x / x.square().mean(-1, keepdim=True).sqrt()
    return unit * torch.tensor(list(rms))[:, None]


def _rms(output: Tensor) -> float:
    return float(output.double().square().mean().sqrt())


@dataclass(frozen=True, slots=True, eq=False)
class _Given:
    """What one case gives to a norm."""

    break_name: str
    case: str
    value: float  # as in `Outcome`
    x: Tensor


def _outcome(given: _Given, ours: Tensor | str, correct: Tensor, verdict: str | None = None) -> Outcome:
    """One case: `ours` is what came out, or what torch said instead."""
    if isinstance(ours, str):
        broken, non_finite, shape, found, error = math.nan, 0, None, "error", ours
    else:
        broken, non_finite, shape = _rms(ours), int((~ours.isfinite()).sum()), tuple(ours.shape)
        found, error = verdict or _verdict(ours, correct), ""
    return Outcome(
        break_name=given.break_name,
        case=given.case,
        value=given.value,
        shape=tuple(given.x.shape),
        out_shape=shape,
        error=error,
        right=_rms(correct),
        broken=broken,
        non_finite=non_finite,
        verdict=found,
    )


def _verdict(ours: Tensor, correct: Tensor) -> str:
    if ours.shape != correct.shape:
        return "shape"
    if bool(ours.isnan().any()):
        return "nan"
    if torch.equal(ours, correct):
        return "same"
    if not bool(ours.any()):
        return "zeros"
    return "close" if _rms(ours - correct) <= CLOSE * _rms(correct) else "other"


def _by_token(
    name: str, broken: Norm, x: Tensor, values: Iterable[float], prefix: str = ""
) -> tuple[Outcome, ...]:
    """Every token [d] of x [tokens, d] as a case of its own, numbered after the prefix."""
    weight = random_gain(x.shape[-1], x.dtype)
    ours, expected = broken(x, weight, EPS), right(x, weight, EPS)
    return tuple(
        _outcome(_Given(name, f"{prefix}{n}", value, x[n]), ours[n], expected[n])
        for n, value in enumerate(values)
    )


def keepdim_cases() -> tuple[Outcome, ...]:
    """The same mistake on tensors of five shapes: an error, another shape, a silent wrong result, and once nothing."""
    outcomes = []
    for case, shape in SHAPES.items():
        x, weight = _random(*shape), random_gain(shape[-1], torch.float32)
        ours: Tensor | str
        try:
            ours = no_keepdim(x, weight, EPS)
        except RuntimeError as error:
            ours = str(error).splitlines()[0]
        outcomes.append(_outcome(_Given("no_keepdim", case, math.nan, x), ours, right(x, weight, EPS)))
    return tuple(outcomes)


def mean_cases(residual: NDArray[np.float32]) -> tuple[Outcome, ...]:
    """Nine random tokens, whose means fall on both sides of 0, and the real residual's; `value` is mean(x)."""
    random, real = _random(9, 32), torch.from_numpy(residual)
    return (
        *_by_token("mean_of_x", mean_of_x, random, random.mean(-1).tolist(), "random_"),
        *_by_token("mean_of_x", mean_of_x, real, real.mean(-1).tolist(), "real_"),
    )


def size_cases(name: str, broken: Norm) -> tuple[Outcome, ...]:
    """Tokens of SIZES; `value` is the RMS of the token."""
    return _by_token(name, broken, _tokens(SIZES), SIZES)


def upcast_cases(residual: NDArray[np.float32]) -> tuple[Outcome, ...]:
    """float16 tokens of ±v, by LARGEST, then the real residual's tokens; `value` is the largest |x|."""
    signs = _random(len(LARGEST), 256).sign()
    made = (signs * torch.tensor(LARGEST)[:, None]).half()
    real = torch.from_numpy(residual).half()
    return (
        *_by_token("no_upcast", no_upcast, made, made.abs().amax(-1).tolist(), "made_"),
        *_by_token("no_upcast", no_upcast, real, real.abs().amax(-1).tolist(), "real_"),
    )


def dimension_cases() -> tuple[Outcome, ...]:
    """Six tokens, once as they are, once with another last token: whose output answers? `value` is its largest change."""
    x = _random(1, 6, 32) * torch.arange(1, 7)[None, :, None]
    changed = x.clone()
    changed[:, -1] *= 10
    weight = random_gain(32, torch.float32)
    outcomes = []
    for norm in (right, wrong_dimension):
        before, after = norm(x, weight, EPS)[0], norm(changed, weight, EPS)[0]
        moved = (after - before).abs().amax(-1)[:-1]  # of the tokens that were not touched
        for n, largest in enumerate(moved.tolist()):
            verdict = "leak" if largest > 0 else "same"
            case = f"{norm.__name__}_{n}"
            expected = right(x, weight, EPS)[0, n]
            given = _Given("wrong_dimension", case, largest, x[0, n])
            outcomes.append(_outcome(given, before[n], expected, verdict))
    return tuple(outcomes)


def weight_cases() -> tuple[Outcome, ...]:
    """One token with three stored weights: fresh (all 0), random, and one with gains up to 7; `value` is the mean gain."""
    x = _random(256)
    gains = {
        "fresh": torch.ones(256),
        "random": random_gain(256, torch.float32),
        "trained": 7 + _random(256),  # about the mean of a real final norm's gain
    }
    return tuple(
        _outcome(
            _Given("minus_one_read_as_weight", case, float(gain.mean()), x),
            minus_one_read_as_weight(x, gain - 1, EPS),
            one_plus(x, gain - 1, EPS),
        )
        for case, gain in gains.items()
    )


def run_breaks(residual: NDArray[np.float32]) -> Mapping[str, tuple[Outcome, ...]]:
    """What every broken norm does, by its name; `residual` [tokens, d] is a real one with a sink."""
    return MappingProxyType(
        {
            "no_keepdim": keepdim_cases(),
            "mean_of_x": mean_cases(residual),
            "no_eps": size_cases("no_eps", no_eps),
            "eps_outside": size_cases("eps_outside", eps_outside),
            "no_upcast": upcast_cases(residual),
            "wrong_dimension": dimension_cases(),
            "minus_one_read_as_weight": weight_cases(),
        }
    )

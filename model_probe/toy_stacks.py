"""Toy stacks of residual blocks at initialisation, and what autograd says about each of their layers.

A layer is an MLP: a first weight [4d, d], a ReLU and a second weight [d, 4d]. There is no attention in the
profiles that ship, so that nothing is left to explain a difference but where the norm stands; in the laboratory
(`model_probe.laboratory`) a layer may begin with causal self-attention, a block of its own. There are no biases
and no gains (γ = 1, as at the start of a training), and no positions. The loss is cross-entropy against random
classes, through a random head. A block f is placed as

    pre_norm       x + s · f(norm(x)), and a norm after the last layer
    post_norm      norm(x + s · f(x))
    sandwich_norm  x + s · norm(f(norm(x))), and a norm after the last layer
    no_norm        x + s · f(x)

with s = 1 unless the branch is scaled. A layer of a seed has the same weights in every stack, up to their scale:
stacks differ in nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import cross_entropy, linear, relu, scaled_dot_product_attention

from model_probe.laboratory import HEAD_SIZE, LAB_SERIES, NORMS, STACK_PLACEMENTS
from model_probe.profiles import (
    DEPTHS,
    FIXED_STD,
    INITIALISATIONS,
    PLACEMENTS,
    SERIES,
    Floats,
    Profiles,
    Provenance,
    StackProfile,
    StackSettings,
)
from model_probe.progress import Progress, silent

# Standard deviation of a weight's entries, from what it reads (fan_in) and what it gives (fan_out).
STANDARD_DEVIATIONS: Final[Mapping[str, Callable[[int, int], float]]] = {
    "xavier": lambda fan_in, fan_out: math.sqrt(2 / (fan_in + fan_out)),
    "fan_in": lambda fan_in, _: math.sqrt(1 / fan_in),
    "fixed": lambda *_: FIXED_STD,
}

_BATCH, _HEAD, _LAYERS = range(3)  # streams of random numbers; the layers' go on from the last
_ATTENTION: Final = 1  # second number of a layer's stream for its attention, so that its MLP stays as it is

Weights = tuple[
    Tensor, ...
]  # of a layer: its MLP's two, and where it has attention query, key, value and output


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What all the stacks of one seed share, before their weights get their scale."""

    settings: StackSettings
    inputs: Tensor  # float32 [tokens, hidden_size], standard normal
    head: Tensor  # float32 [classes, hidden_size], Xavier-normal
    targets: Tensor  # int64 [tokens]
    layers: tuple[
        Weights, ...
    ]  # float32 [4d, d] and [d, 4d], of attention four times [d, d]; standard normal

    def weights(self, initialisation: str) -> Iterator[Weights]:
        """The layers' weights at the scale of one of INITIALISATIONS. Raises KeyError for another."""
        deviation = STANDARD_DEVIATIONS[initialisation]
        for layer in self.layers:
            yield tuple(w * deviation(w.shape[1], w.shape[0]) for w in layer)


def problem(seed: int, depth: int, settings: StackSettings, blocks: str = "mlp") -> Problem:
    """The problem of a seed, with weights for `depth` layers. NumPy's numbers: the same on every machine.

    `blocks` is one of `model_probe.laboratory.BLOCKS`.
    """
    size, hidden = settings.hidden_size, settings.hidden_size * settings.mlp_ratio
    tokens = settings.batch * settings.positions

    def normal(stream: Sequence[int], *shapes: tuple[int, int]) -> list[Tensor]:
        random = np.random.default_rng([seed, *stream])
        return [torch.from_numpy(random.standard_normal(shape, dtype=np.float32)) for shape in shapes]

    def layer(index: int) -> Weights:
        mlp = normal((_LAYERS + index,), (hidden, size), (size, hidden))
        attention = normal((_LAYERS + index, _ATTENTION), *[(size, size)] * 4) if blocks != "mlp" else []
        return (*mlp, *attention)

    (inputs,) = normal((_BATCH,), (tokens, size))
    (head,) = normal((_HEAD,), (settings.classes, size))
    targets = np.random.default_rng([seed, _BATCH, 1]).integers(settings.classes, size=tokens)
    return Problem(
        settings,
        inputs,
        head * STANDARD_DEVIATIONS["xavier"](size, settings.classes),
        torch.from_numpy(targets),
        tuple(layer(index) for index in range(depth)),
    )


@dataclass(frozen=True, slots=True)
class Wiring:
    """How the blocks of a stack are put together."""

    placement: str  # one of STACK_PLACEMENTS
    norm: str = "rms_norm"  # one of `model_probe.laboratory.NORMS`
    branch_scale: float = 1.0  # what a block's result is multiplied by before it joins the stream


def layer_figures(weights: Sequence[Weights], wiring: Wiring, given: Problem) -> Floats:
    """LAB_SERIES of one stack of one seed: float64 [4, depth], of which the first three are SERIES.

    Raises:
        ValueError: the placement is not one of STACK_PLACEMENTS, or the norm not one of NORMS.
    """
    if wiring.placement not in STACK_PLACEMENTS:
        raise ValueError(f"placement is one of {STACK_PLACEMENTS}, not {wiring.placement!r}")
    if wiring.norm not in NORMS:
        raise ValueError(f"norm is one of {NORMS}, not {wiring.norm!r}")
    settings = given.settings
    normalize = getattr(functional, wiring.norm)

    def norm(x: Tensor) -> Tensor:
        return normalize(x, x.shape[-1:], eps=settings.eps)

    def joined(x: Tensor, block: Callable[[Tensor], Tensor]) -> Tensor:
        branch = block(norm(x) if wiring.placement in ("pre_norm", "sandwich_norm") else x)
        if wiring.placement == "sandwich_norm":
            branch = norm(branch)
        x = x + wiring.branch_scale * branch
        return norm(x) if wiring.placement == "post_norm" else x

    read: list[Tensor] = []  # each layer's input, [tokens, d]
    for layer in weights:
        for weight in layer:
            weight.requires_grad_()
    x = given.inputs.clone().requires_grad_()
    for first, second, *attention in weights:
        read.append(x)
        if attention:
            x = joined(x, partial(_attend, weights=attention, batch=settings.batch))
        x = joined(x, partial(_mlp, first=first, second=second))
    handed_on = [*read[1:], x]
    last = norm(x) if wiring.placement in ("pre_norm", "sandwich_norm") else x
    loss = cross_entropy(linear(last, given.head), given.targets)
    flat = [weight for layer in weights for weight in layer]
    gradients = [_length(gradient) for gradient in torch.autograd.grad(loss, [*flat, *read])]
    # one row a layer: its weights' gradients, the MLP's second in place 1
    of_weights = torch.stack(gradients[: len(flat)]).reshape(len(read), -1)
    of_inputs = torch.stack(gradients[len(flat) :])
    activations = torch.stack([_lengths(out.detach()).median() for out in handed_on])
    series = (of_weights[:, 1], of_inputs, activations, _length(of_weights, dim=-1))
    return torch.stack(series).reshape(len(LAB_SERIES), len(read)).numpy()


def _mlp(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return linear(relu(linear(x, first)), second)


def _attend(x: Tensor, weights: Sequence[Tensor], batch: int) -> Tensor:
    """Causal self-attention over the positions of each sequence: [tokens, d] → [tokens, d]."""
    *projections, output = weights
    heads = max(x.shape[-1] // HEAD_SIZE, 1)

    def split(values: Tensor) -> Tensor:
        return values.reshape(batch, -1, heads, x.shape[-1] // heads).transpose(
            1, 2
        )  # [batch, heads, pos, d/h]

    query, key, value = (split(linear(x, weight)) for weight in projections)
    mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
    return linear(mixed.transpose(1, 2).reshape(x.shape), output)


def _length(values: Tensor, dim: int | None = None) -> Tensor:
    """L2 in float64: squares of what a stack without a norm grows to do not fit float32."""
    return torch.linalg.vector_norm(values, dim=dim, dtype=torch.float64)


def _lengths(tokens: Tensor) -> Tensor:
    return _length(tokens, dim=-1)


def measure_profiles(
    settings: StackSettings | None = None,
    *,
    depths: Sequence[int] = DEPTHS,
    initialisations: Sequence[str] = INITIALISATIONS,
    progress: Progress | None = None,
) -> Profiles:
    """Every placement at every depth and initialisation, averaged over the seeds, in float32 on the CPU.

    About a minute and a half with all that is given by default. While it lasts, torch has one thread in this
    process: with so small matrices more would only wait for each other.
    """
    settings, progress = settings or StackSettings(), progress or silent
    wanted = list(product(initialisations, PLACEMENTS, depths))
    sums = {stack: np.zeros((len(SERIES), stack[2])) for stack in wanted}
    with one_thread():
        for seed in range(settings.seeds):
            given = problem(seed, max(depths), settings)
            for done, initialisation in enumerate(initialisations):
                progress("capture", (seed + done / len(initialisations)) / settings.seeds)
                weights = tuple(given.weights(initialisation))
                for placement, depth in product(PLACEMENTS, depths):
                    figures = layer_figures(weights[:depth], Wiring(placement), given)
                    sums[initialisation, placement, depth] += figures[: len(SERIES)]
    stacks = tuple(StackProfile(*stack, *(sums[stack] / settings.seeds)) for stack in wanted)
    recorded_at = datetime.now(UTC).isoformat(timespec="seconds")
    return Profiles(settings, Provenance(str(torch.__version__), "float32", "cpu", recorded_at), stacks)


@contextmanager
def one_thread() -> Iterator[None]:
    """While it lasts, torch has one thread in this process."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

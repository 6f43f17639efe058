"""Toy stacks of residual MLP blocks at initialisation, and what autograd says about each of their layers.

A layer holds a first weight [4d, d], a ReLU and a second weight [d, 4d], and no attention, so that nothing is
left to explain a difference but where the norm stands. There are no biases and no gains (γ = 1, as at the
start of a training). The loss is cross-entropy against random classes, through a random head.

    pre_norm    x + f(norm(x)), and a norm after the last layer
    post_norm   norm(x + f(x))
    no_norm     x + f(x)

A layer of a seed has the same weights in every stack, up to their scale: stacks differ in nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear, relu
from torch.nn.functional import rms_norm as torch_rms_norm

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


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What all the stacks of one seed share, before their weights get their scale."""

    settings: StackSettings
    inputs: Tensor  # float32 [tokens, hidden_size], standard normal
    head: Tensor  # float32 [classes, hidden_size], Xavier-normal
    targets: Tensor  # int64 [tokens]
    layers: tuple[tuple[Tensor, Tensor], ...]  # float32 [4d, d] and [d, 4d], standard normal

    def weights(self, initialisation: str) -> Iterator[tuple[Tensor, Tensor]]:
        """The layers' weights at the scale of one of INITIALISATIONS. Raises KeyError for another."""
        deviation = STANDARD_DEVIATIONS[initialisation]
        for layer in self.layers:
            first, second = (w * deviation(w.shape[1], w.shape[0]) for w in layer)
            yield first, second


def problem(seed: int, depth: int, settings: StackSettings) -> Problem:
    """The problem of a seed, with weights for `depth` layers. NumPy's numbers: the same on every machine."""
    size, hidden = settings.hidden_size, settings.hidden_size * settings.mlp_ratio
    tokens = settings.batch * settings.positions

    def normal(stream: int, *shapes: tuple[int, int]) -> list[Tensor]:
        random = np.random.default_rng([seed, stream])
        return [torch.from_numpy(random.standard_normal(shape, dtype=np.float32)) for shape in shapes]

    (inputs,) = normal(_BATCH, (tokens, size))
    (head,) = normal(_HEAD, (settings.classes, size))
    targets = np.random.default_rng([seed, _BATCH, 1]).integers(settings.classes, size=tokens)
    layers = (normal(_LAYERS + layer, (hidden, size), (size, hidden)) for layer in range(depth))
    return Problem(
        settings,
        inputs,
        head * STANDARD_DEVIATIONS["xavier"](size, settings.classes),
        torch.from_numpy(targets),
        tuple((first, second) for first, second in layers),
    )


def layer_figures(weights: Sequence[tuple[Tensor, Tensor]], placement: str, given: Problem) -> Floats:
    """SERIES of one stack of one seed: float64 [3, depth].

    Raises:
        ValueError: the placement is not one of PLACEMENTS.
    """
    if placement not in PLACEMENTS:
        raise ValueError(f"placement is one of {PLACEMENTS}, not {placement!r}")
    eps = given.settings.eps

    def norm(x: Tensor) -> Tensor:
        return torch_rms_norm(x, x.shape[-1:], eps=eps)

    read: list[Tensor] = []  # each layer's input, [tokens, d]
    seconds = [second.requires_grad_() for _, second in weights]
    x = given.inputs.clone().requires_grad_()
    for first, second in weights:
        read.append(x)
        branch = linear(relu(linear(norm(x) if placement == "pre_norm" else x, first)), second)
        x = norm(x + branch) if placement == "post_norm" else x + branch
    handed_on = [*read[1:], x]
    last = norm(x) if placement == "pre_norm" else x
    loss = cross_entropy(linear(last, given.head), given.targets)
    gradients = [gradient.norm() for gradient in torch.autograd.grad(loss, [*seconds, *read])]
    lengths = [torch.linalg.vector_norm(out.detach(), dim=-1).median() for out in handed_on]
    return torch.stack([*gradients, *lengths]).double().reshape(len(SERIES), len(read)).numpy()


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
    with _one_thread():
        for seed in range(settings.seeds):
            given = problem(seed, max(depths), settings)
            for done, initialisation in enumerate(initialisations):
                progress("capture", (seed + done / len(initialisations)) / settings.seeds)
                weights = tuple(given.weights(initialisation))
                for placement, depth in product(PLACEMENTS, depths):
                    figures = layer_figures(weights[:depth], placement, given)
                    sums[initialisation, placement, depth] += figures
    stacks = tuple(StackProfile(*stack, *(sums[stack] / settings.seeds)) for stack in wanted)
    recorded_at = datetime.now(UTC).isoformat(timespec="seconds")
    return Profiles(settings, Provenance(str(torch.__version__), "float32", "cpu", recorded_at), stacks)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

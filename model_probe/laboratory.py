"""The laboratory of toy stacks: one that the reader puts together, measured on demand with several seeds.

    result = measure(LabSettings(layers=24))
    stack = result.stack("xavier", "pre_norm")
    stack.mean("weight_gradient")[-1]      of the layer next to the head, mean over the seeds

Stacks, weights and series are those of `model_probe.toy_stacks`; with the settings of the profiles that ship, so
are the numbers. Every run measures all placements with all initialisations, for the picture depends on both.
torch is imported when something is measured, not before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np

from model_probe.errors import ProbeError
from model_probe.profiles import INITIALISATIONS, PLACEMENTS, SERIES, Floats, Provenance, StackSettings
from model_probe.progress import Cancelled, Progress, silent

BLOCKS: Final = ("mlp", "attention_mlp")
NORMS: Final = ("rms_norm", "layer_norm")
STACK_PLACEMENTS: Final = (*PLACEMENTS, "sandwich_norm")
BRANCHES: Final = ("plain", "scaled")  # a block's result as it is, or times 1/√(2 · layers)
LAB_SERIES: Final = (*SERIES, "layer_gradient")  # the last: L2 of the gradient on all weights of a layer

WIDTHS: Final = (64, 128, 256, 512)  # features of a token
LAYERS: Final = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
MOST_SEEDS: Final = 8
SIZE_LIMIT: Final = 256**2 * 96  # of hidden_size² · layers: half a gigabyte of weights and gradients
HEAD_SIZE: Final = 64  # features of an attention head


@dataclass(frozen=True, slots=True)
class LabSettings:
    """A stack as the reader puts it together; where the norm stands and how the weights begin is all tried."""

    hidden_size: int = 256  # features of a token, one of WIDTHS
    layers: int = 24  # from LAYERS
    blocks: str = "mlp"  # one of BLOCKS
    norm: str = "rms_norm"  # one of NORMS
    branch: str = "plain"  # one of BRANCHES
    seeds: int = 4  # 1 to MOST_SEEDS

    def __post_init__(self) -> None:
        """Raises ProbeError `stack_too_large` beyond SIZE_LIMIT, ValueError for what is not to be chosen."""
        for value, among in ((self.blocks, BLOCKS), (self.norm, NORMS), (self.branch, BRANCHES)):
            if value not in among:
                raise ValueError(f"{value!r} is not one of {among}")
        if not (min(WIDTHS) <= self.hidden_size <= max(WIDTHS) and self.hidden_size % HEAD_SIZE == 0):
            raise ValueError(f"hidden_size is a multiple of {HEAD_SIZE} up to {max(WIDTHS)}")
        if not (min(LAYERS) <= self.layers <= max(LAYERS) and 1 <= self.seeds <= MOST_SEEDS):
            raise ValueError(f"{self.layers} layers or {self.seeds} seeds are not to be had")
        if self.layers > most_layers(self.hidden_size):
            raise ProbeError(
                "stack_too_large",
                layers=self.layers,
                hidden_size=self.hidden_size,
                most=most_layers(self.hidden_size),
            )

    @property
    def branch_scale(self) -> float:
        """What a block's result is multiplied by before it joins the stream."""
        return 1 / math.sqrt(2 * self.layers) if self.branch == "scaled" else 1.0

    @property
    def stack(self) -> StackSettings:
        """What the stack has in common with those of the profiles."""
        return StackSettings(hidden_size=self.hidden_size, seeds=self.seeds)


def most_layers(hidden_size: int) -> int:
    """How many layers a stack of this width may have here."""
    return min(max(LAYERS), SIZE_LIMIT // hidden_size**2)


@dataclass(frozen=True, slots=True, eq=False)
class LabStack:
    """One placement with one initialisation, by seed and layer."""

    initialisation: str  # one of INITIALISATIONS
    placement: str  # one of STACK_PLACEMENTS
    figures: Floats  # [seeds, len(LAB_SERIES), layers]; NaN or infinite where float32 overflowed

    def series(self, name: str) -> Floats:
        """One of LAB_SERIES, [seeds, layers].

        Raises:
            KeyError: the name is not in LAB_SERIES.
        """
        if name not in LAB_SERIES:
            raise KeyError(name)
        return self.figures[:, LAB_SERIES.index(name)]

    def mean(self, name: str) -> Floats:
        """The mean over the seeds, [layers]; NaN where a seed's number is not finite."""
        return self._over_seeds(name)[0]

    def band(self, name: str) -> tuple[Floats, Floats]:
        """The smallest and the largest of the seeds, each [layers]; NaN as in `mean`."""
        _, low, high = self._over_seeds(name)
        return low, high

    def first_over_last(self, name: str) -> float:
        """The first layer's mean divided by the last's, NaN where one of them is not finite or the last is 0."""
        mean = self.mean(name)
        return float(mean[0] / mean[-1]) if mean[-1] > 0 else math.nan

    def not_finite(self, name: str) -> int:
        """In how many layers a number is not finite."""
        return int((~np.isfinite(self.series(name)).all(axis=0)).sum())

    def _over_seeds(self, name: str) -> tuple[Floats, Floats, Floats]:
        values = self.series(name)
        whole = np.isfinite(values).all(axis=0)
        clean = np.where(whole, values, np.nan)
        return clean.mean(axis=0), clean.min(axis=0), clean.max(axis=0)


@dataclass(frozen=True, slots=True, eq=False)
class LabResult:
    """What one run measured."""

    settings: LabSettings
    provenance: Provenance
    seeds: int  # that were finished: fewer than in the settings where the run was stopped
    stacks: tuple[LabStack, ...]

    def stack(self, initialisation: str, placement: str) -> LabStack:
        """The stack of this description. Raises KeyError when it was not measured."""
        for stack in self.stacks:
            if (stack.initialisation, stack.placement) == (initialisation, placement):
                return stack
        raise KeyError((initialisation, placement))


def measure(
    settings: LabSettings,
    *,
    initialisations: Sequence[str] = INITIALISATIONS,
    placements: Sequence[str] = STACK_PLACEMENTS,
    progress: Progress | None = None,
    turn: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> LabResult:
    """Every placement with every initialisation, seed by seed, in float32 on the CPU.

    `progress` gets the stage `stacks`, and is asked before every pass through a stack. Where it raises Cancelled,
    the seeds that are finished are the result. Each seed runs within a `turn` of its own, so that others who wait
    for the machine are let in between.

    Raises:
        Cancelled: before the first seed was finished.
    """
    progress = progress or silent
    stacks = [(start, placement) for start in initialisations for placement in placements]
    seeds: list[list[Floats]] = []
    try:
        for seed in range(settings.seeds):
            with turn():
                seeds.append(_one_seed(settings, seed, stacks, progress))
    except Cancelled:
        if not seeds:
            raise
    import torch

    recorded_at = datetime.now(UTC).isoformat(timespec="seconds")
    return LabResult(
        settings,
        Provenance(str(torch.__version__), "float32", "cpu", recorded_at),
        len(seeds),
        tuple(
            LabStack(*stack, np.stack(figures))
            for stack, figures in zip(stacks, zip(*seeds, strict=True), strict=True)
        ),
    )


def _one_seed(
    settings: LabSettings, seed: int, stacks: Sequence[tuple[str, str]], progress: Progress
) -> list[Floats]:
    """LAB_SERIES of every stack for one seed, each [len(LAB_SERIES), layers]."""
    progress("stacks", seed / settings.seeds)
    from model_probe.toy_stacks import Wiring, layer_figures, one_thread, problem

    given = problem(seed, settings.layers, settings.stack, settings.blocks)
    figures: list[Floats] = []
    with one_thread():
        for start, of_start in groupby(stacks, key=itemgetter(0)):
            weights = tuple(given.weights(start))
            for _, placement in of_start:
                progress("stacks", (seed + len(figures) / len(stacks)) / settings.seeds)
                wiring = Wiring(placement, settings.norm, settings.branch_scale)
                figures.append(layer_figures(weights, wiring, given))
    return figures

"""Runs experiments and sweeps: one case after another, each result given out as it comes.

    for point in sweep(experiment, output_scale(1.0, roles=("attention_input",)), amounts=(0.5, 1, 2)):
        point.amount, point.perplexity

Other measurements of the same checkpoint get their turn between two cases.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from model_probe.applying import chosen_sites, softmax_attention
from model_probe.experiments import EXPERIMENTS, MAP_LAYER, Outcomes, cases
from model_probe.interventions import NORM_KINDS, Intervention
from model_probe.observing import CONTINUED, Experiment
from model_probe.outcome import Candidate, Outcome
from model_probe.outcome_files import UNTOUCHED
from model_probe.trace import CheckpointInfo

if TYPE_CHECKING:
    from model_probe.checkpoints import Checkpoint
    from model_probe.progress import Progress

AMOUNTS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One run of a sweep."""

    amount: float | None  # the factor, where it is swept or set
    layer: int | None  # where the layer is swept
    perplexity: float
    mean_kl: float  # nats
    top: Candidate | None  # the likeliest next token; None where no logit is a number


def sweep(
    experiment: Experiment,
    intervention: Intervention,
    *,
    amounts: Sequence[float] | None = None,
    layers: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Iterator[SweepPoint]:
    """The intervention at each amount, or in each layer alone, as they come.

    Args:
        experiment: the prompt and its untouched run.
        intervention: what is done; its own amount or layers are replaced by each of those given.
        amounts: factors.
        layers: layer numbers. Give either these or amounts.
        progress: told of the stage `intervene` and the share that is done; may end the sweep.

    Raises:
        ProbeError: those of `applying.applied`, at the first point where it cannot be done.
        ValueError: both or neither of amounts and layers.
    """
    if (amounts is None) == (layers is None):
        raise ValueError("give either amounts or layers")
    points: list[tuple[float | None, int | None, Intervention]]
    if amounts is not None:
        points = [(amount, None, intervention.with_amount(amount)) for amount in amounts]
    else:
        points = [(intervention.amount, layer, intervention.at_layer(layer)) for layer in layers or ()]
    for done, (amount, layer, changed) in enumerate(points):
        if progress:
            progress("intervene", done / len(points))
        kl, perplexity, top = experiment.kl_and_perplexity(changed)
        yield SweepPoint(amount, layer, perplexity, kl, top)


def layers_of(checkpoint: Checkpoint, intervention: Intervention) -> tuple[int, ...]:
    """The layers in which the intervention can be done alone."""
    if intervention.kind in NORM_KINDS:
        sites = chosen_sites(checkpoint, intervention)
        return tuple(sorted({site.layer for site in sites if site.layer is not None}))
    if intervention.kind == "residual_scale":
        return tuple(range(checkpoint.info.num_layers))
    return tuple(softmax_attention(checkpoint.model))


def run_experiment(
    checkpoint: Checkpoint,
    prompt: str,
    name: str,
    progress: Progress | None = None,
) -> Iterator[tuple[str, Outcome]]:
    """One of EXPERIMENTS on a prompt: ("untouched", …) first, then every case that can be done here.

    A case that this checkpoint cannot do (a bias it does not have) raises when its turn comes.
    """
    yield from _run(Experiment(checkpoint, prompt), name, progress)


def _run(experiment: Experiment, name: str, progress: Progress | None) -> Iterator[tuple[str, Outcome]]:
    todo = cases(name, experiment.checkpoint.info.num_layers)
    # a long series is read as curves: its single runs need no attention, no maps, no continuation
    whole = len(todo) <= len(experiment.checkpoint.sites) // 2
    run = functools.partial(experiment.run, progress=progress)
    if whole:
        layers = tuple(softmax_attention(experiment.checkpoint.model))
        maps = (MAP_LAYER,) if MAP_LAYER in layers else layers[len(layers) // 2 :][:1]
        run = functools.partial(run, maps=maps, continued=CONTINUED)
    yield UNTOUCHED, run(attention=True)
    for done, case in enumerate(todo):
        if progress:
            progress("intervene", done / len(todo), case.code)
        yield case.code, run(*case.interventions, attention=whole)


def run_all(checkpoint: Checkpoint, prompt: str, progress: Progress | None = None) -> Outcomes:
    """Every experiment, for the file that ships and the command line."""
    experiment = Experiment(checkpoint, prompt)
    by_case: dict[str, dict[str, Outcome]] = {}
    untouched: Outcome | None = None
    for name in EXPERIMENTS:
        found = dict(_run(experiment, name, progress))
        first = found.pop(UNTOUCHED)
        untouched = untouched or first
        by_case[name] = found
    assert untouched is not None  # noqa: S101  there is at least one experiment
    return Outcomes(experiment.recorded_info, prompt, experiment.tokens, untouched, by_case)


def run_changes(
    checkpoint: Checkpoint, prompt: str, changes: Sequence[Intervention], progress: Progress | None = None
) -> Outcomes:
    """The prompt untouched and with these changes together, as the case `changes`."""
    experiment = Experiment(checkpoint, prompt, progress=progress)
    run = functools.partial(experiment.run, continued=CONTINUED, progress=progress)
    outcomes = {"free": {"changes": run(*changes)}} if changes else {}
    return Outcomes(experiment.recorded_info, prompt, experiment.tokens, run(), outcomes)


def points_json(checkpoint: CheckpointInfo, prompt: str, points: Sequence[SweepPoint]) -> str:
    """A sweep as JSON; a number that is not finite is null."""
    rows = [_row(point) for point in points]
    whole = {"format": "rmsnorm-sweep/1", "checkpoint": asdict(checkpoint), "prompt": prompt, "points": rows}
    return json.dumps(whole, ensure_ascii=False, allow_nan=False)


def points_csv(_: CheckpointInfo, __: str, points: Sequence[SweepPoint]) -> str:
    """A sweep as CSV, one row a point; a number that is not finite is empty."""
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, [*_row(SweepPoint(None, None, 0.0, 0.0, None))])
    writer.writeheader()
    writer.writerows(_row(point) for point in points)
    return table.getvalue()


def _row(point: SweepPoint) -> dict[str, object]:
    return {
        "amount": point.amount,
        "layer": point.layer,
        "perplexity": point.perplexity if math.isfinite(point.perplexity) else None,
        "mean_kl": point.mean_kl if math.isfinite(point.mean_kl) else None,
        "next_token": point.top.text if point.top else None,
        "next_token_probability": point.top.probability if point.top else None,
    }

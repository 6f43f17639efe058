"""The muted line under every picture of measured data: which checkpoint, how, when, on what.

Neither Streamlit nor torch is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

from babel.dates import format_date

from model_probe.profiles import Profiles, Provenance
from model_probe.runs import RunResult
from model_probe.trace import CheckpointInfo, NormTrace
from viz.text import Words, literal, number

# what ships with the app, what this machine has just measured, or what a reader's file says
Origin = Literal["recording", "live", "file"]
_PROMPT_CHARS: Final = 48


def provenance(
    words: Words, trace: NormTrace, *, origin: Origin = "recording", statistic: str | None = "median"
) -> str:
    """One line of Markdown: recorded or live, date, checkpoint file, dtype, device, prompt, and the statistic.

    `statistic` is one of `common.statistic`, None where the picture shows every token for itself.
    """
    parts = [
        checkpoint_provenance(words, trace.checkpoint, origin=origin),
        words.t("common.provenance.prompt", prompt=literal(_shortened(trace.prompt))),
    ]
    if statistic is not None:
        tokens = words.t("common.tokens", n=len(trace.tokens))
        parts.append(
            words.t(
                "common.provenance.statistic",
                statistic=words.t(f"common.statistic.{statistic}"),
                tokens=tokens,
            )
        )
    return " · ".join(parts)


def checkpoint_provenance(words: Words, info: CheckpointInfo, *, origin: Origin = "recording") -> str:
    """The part that no prompt has a say in: recorded or live, date, checkpoint file, dtype, device."""
    file = info.source.rsplit("/", 1)[-1]
    dequantized = file.lower().endswith(".gguf")
    date = format_date(datetime.fromisoformat(info.recorded_at), format="long", locale=words.lang)
    parts = [
        words.t(f"common.provenance.{origin}", date=date),
        literal(info.name) if file == info.name else f"{literal(info.name)} ({literal(file)})",
        words.t("common.provenance.dequantized", dtype=literal(info.dtype))
        if dequantized
        else literal(info.dtype),
        literal(info.device),
    ]
    return " · ".join(parts)


def profiles_provenance(words: Words, profiles: Profiles) -> str:
    """The line of a picture of toy stacks: what they are, when and with what they were measured."""
    made = profiles.provenance
    return words.t(
        "placement.provenance",
        seeds=profiles.settings.seeds,
        date=format_date(datetime.fromisoformat(made.recorded_at), format="long", locale=words.lang),
        dtype=made.dtype,
        device=made.device,
        torch=literal(made.torch),
    )


def runs_provenance(words: Words, runs: Sequence[RunResult]) -> str:
    """The line of a picture of recorded trainings: when they were made, how long they took, and with what."""
    return words.t(
        "train.provenance",
        date=format_date(datetime.fromisoformat(runs[0].recorded_at), format="long", locale=words.lang),
        seconds=number(sum(run.seconds for run in runs), 2),
        torch=literal(runs[0].torch),
    )


def stacks_provenance(words: Words, made: Provenance, seeds: int) -> str:
    """The line of stacks that were measured on this machine just now."""
    return words.t(
        "placement.lab.provenance",
        n=seeds,
        date=format_date(datetime.fromisoformat(made.recorded_at), format="long", locale=words.lang),
        dtype=made.dtype,
        device=made.device,
        torch=literal(made.torch),
    )


def trained_provenance(words: Words, began: datetime, torch: str) -> str:
    """The line of a picture of trainings on this machine: when they were begun, and with what."""
    return words.t(
        "train.provenance_live",
        date=format_date(began, format="long", locale=words.lang),
        torch=literal(torch),
    )


def costs_provenance(words: Words, made: Provenance) -> str:
    """The line of timings that were taken on this machine just now."""
    return words.t(
        "code.costs.provenance",
        date=format_date(datetime.fromisoformat(made.recorded_at), format="long", locale=words.lang),
        dtype=made.dtype,
        device=made.device,
        torch=literal(made.torch),
    )


def outcomes_provenance(
    words: Words, info: CheckpointInfo, prompt: str, tokens: int, *, origin: Origin = "recording"
) -> str:
    """The line of a picture of interventions: the checkpoint, the prompt, and how many tokens it has."""
    return " · ".join(
        (
            checkpoint_provenance(words, info, origin=origin),
            words.t("common.provenance.prompt", prompt=literal(_shortened(prompt))),
            words.t("common.tokens", n=tokens),
        )
    )


def _shortened(prompt: str) -> str:
    """The prompt's beginning, ended at a word where one ends nearby."""
    if len(prompt) <= _PROMPT_CHARS:
        return prompt
    start = prompt[:_PROMPT_CHARS]
    at_word = start.rsplit(" ", 1)[0]
    return (at_word if len(at_word) > _PROMPT_CHARS // 2 else start) + " …"

"""Small trainings in words: what a run is called beside others, its code in an address, and what became of it.

Neither Streamlit nor torch is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal

from babel.lists import format_list

from model_probe.runs import (
    LAST,
    LAYER_RANGE,
    LEARNING_RATE_RANGE,
    SEED_RANGE,
    STEP_RANGE,
    WARMUP_RANGE,
    RunResult,
    RunSettings,
    Step,
    corpus,
)
from viz.tables import number_table
from viz.text import NOT_A_NUMBER, Words, number

State = Literal["waiting", "learned", "stuck", "diverged"]
STATES: Final[tuple[State, ...]] = ("waiting", "learned", "stuck", "diverged")
_MARGIN: Final = 0.05  # share of that loss by which a run has to be below it: one batch is not the whole text
_SAME: Final = 0.05  # share of the loss within which two runs end alike: other batches part one run as much
_SEPARATOR: Final = "_"  # in a code; "-" stands in numbers
_SUPERSCRIPTS: Final = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_ALONE: Final = ("norm", "placement", "layers")  # what names a run that differs from no other
_RANGES: Final = {
    "layers": LAYER_RANGE,
    "learning_rate": LEARNING_RATE_RANGE,
    "warmup": WARMUP_RANGE,
    "steps": STEP_RANGE,
    "seed": SEED_RANGE,
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A run as far as it has gone, for charts and tables."""

    settings: RunSettings
    steps: tuple[Step, ...]
    diverged_at: int | None = None  # the step where it began

    @classmethod
    def of(cls, result: RunResult) -> Shown:
        """A run that is over."""
        return cls(result.settings, result.steps, result.diverged_at)

    @property
    def final_loss(self) -> float:
        """Mean loss of the last LAST steps, in nats a character; NaN where there are none or one is not finite."""
        last = [step.loss for step in self.steps[-LAST:]]
        return math.fsum(last) / len(last) if last and all(map(math.isfinite, last)) else math.nan

    @property
    def state(self) -> State:
        """What became of it so far; "learned" is clearly below the loss of knowing only how often each character occurs."""
        if not self.steps:
            return "waiting"
        if self.diverged_at is not None or not math.isfinite(self.final_loss):
            return "diverged"
        known = corpus(self.settings.text).frequency_loss
        return "learned" if self.final_loss < (1 - _MARGIN) * known else "stuck"

    @property
    def non_finite(self) -> int:
        """How many of its numbers are not finite."""
        return sum(
            not math.isfinite(value)
            for step in self.steps
            for value in (step.loss, step.gradient_norm, step.residual_l2)
        )


def names(runs: Sequence[RunSettings], words: Words) -> tuple[str, ...]:
    """What each run is called beside the others: by the settings in which they differ."""
    varied = [
        field.name for field in fields(RunSettings) if len({getattr(run, field.name) for run in runs}) > 1
    ]
    return tuple(described(run, varied or _ALONE, words) for run in runs)


def described(run: RunSettings, which: Sequence[str], words: Words) -> str:
    """Some settings of a run as a phrase. Without a norm there is no placement to name."""
    named = [name for name in which if not (name == "placement" and run.norm == "none")] or list(which)
    return words.t("train.name.separator").join(setting(run, name, words) for name in named)


def full_name(run: RunSettings, words: Words) -> str:
    """All settings of a run as a phrase."""
    return described(run, [field.name for field in fields(RunSettings)], words)


def setting(run: RunSettings, name: str, words: Words) -> str:
    """One setting of a run as a phrase."""
    value = getattr(run, name)
    if isinstance(value, str):
        return words.t(f"train.name.{name}.{value}")
    if name == "learning_rate":
        return words.t("train.name.learning_rate", rate=rate(value))
    return words.t(f"train.name.{name}", n=value)


def rate(value: float) -> str:
    """A learning rate with as many digits as it has.

    >>> rate(0.003), rate(0.00015)
    ('0.003', '1.5·10⁻⁴')
    """
    return number(value, len(f"{value:e}".partition("e")[0].rstrip("0").replace(".", "")))


def encode(run: RunSettings) -> str:
    """The settings as a code for the address.

    >>> encode(RunSettings())
    'rms_pre_6_32_0.001_0_300_0_en'
    """
    values = (getattr(run, field.name) for field in fields(RunSettings))
    return _SEPARATOR.join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


def decode(code: str) -> RunSettings | None:
    """The settings of a code, numbers beyond their range at its end; None where it is none.

    >>> decode(encode(RunSettings(layers=2))) == RunSettings(layers=2)
    True
    """
    parts = code.split(_SEPARATOR)
    if len(parts) != len(fields(RunSettings)):
        return None
    norm, placement, layers, width, learning_rate, warmup, steps, seed, text = parts
    try:
        return RunSettings(
            norm,
            placement,
            int(_kept("layers", int(layers))),
            int(width),
            _kept("learning_rate", float(learning_rate)),
            int(_kept("warmup", int(warmup))),
            int(_kept("steps", int(steps))),
            int(_kept("seed", int(seed))),
            text,
        )
    except ValueError:
        return None


def _kept(name: str, value: float) -> float:
    if math.isnan(value):
        raise ValueError(name)
    least, most = _RANGES[name]
    return min(max(value, least), most)


def finding(runs: Sequence[Shown], words: Words) -> str:
    """What a set of runs came to, as a sentence; runs are named by their number."""
    reached = {state: [i for i, run in enumerate(runs, 1) if run.state == state] for state in STATES}
    if len(runs) == 1 and runs[0].state != "waiting":
        run = runs[0]
        return words.t(
            f"train.finding.one_{run.state}",
            first=nats(run.steps[0].loss),
            last=nats(run.final_loss),
            step=run.diverged_at or len(run.steps),
        )
    if len(reached["learned"]) == len(runs):
        ends = sorted(run.final_loss for run in runs)
        least, most = nats(ends[0]), nats(ends[-1])
        return words.t(f"train.finding.all_{'learned' if least != most else 'alike'}", least=least, most=most)
    clauses = [
        words.t(f"train.finding.{state}", n=len(some), runs=listed(some, words))
        for state in ("learned", "stuck", "diverged", "waiting")
        if (some := reached[state])
    ]
    said = words.t("train.finding.join").join(clauses)
    return said[:1].upper() + said[1:]


def listed(numbers: Sequence[int], words: Words) -> str:
    """Numbers of runs as a list in a sentence."""
    return format_list([str(n) for n in numbers], style="standard", locale=words.lang)


def truth(preset: str, runs: Sequence[Shown]) -> str:
    """The answer to a preset's question that its runs give. Raises KeyError for another preset."""
    if preset == "norms":
        rms, layer = (
            next(run.final_loss for run in runs if run.settings.norm == norm) for norm in ("rms", "layer")
        )
        return "same" if abs(rms - layer) < _SAME * layer else "rms" if rms < layer else "layer"
    asked: Mapping[str, Callable[[RunSettings], str | None]] = {
        "depth": lambda run: run.placement if run.layers == deepest else None,
        "no_norm": lambda run: (
            None if run.norm != "none" else "small" if run.learning_rate < fastest else "large"
        ),
    }
    deepest, fastest = (
        max(getattr(run.settings, name) for run in runs) for name in ("layers", "learning_rate")
    )
    answers = [(asked[preset](run.settings), run.state) for run in runs]
    learned = [answer for answer, state in answers if answer is not None and state == "learned"]
    return {0: "neither", 1: str(learned[0]) if learned else ""}.get(len(learned), "both")


def outcome_table(runs: Sequence[Shown], words: Words) -> str:
    """What became of each run, in numbers."""
    called = names([run.settings for run in runs], words)
    heads = [words.t(f"train.table.{name}") for name in ("loss", "gradient_norm", "residual_l2", "steps")]
    rows = {
        f"run{i}": (
            words.t("train.numbered", n=i, name=name),
            [
                nats(run.final_loss),
                short(_largest(run, lambda step: step.gradient_norm)),
                short(run.steps[-1].residual_l2) if run.steps else NOT_A_NUMBER,
                _how_far(run, words),
            ],
        )
        for i, (run, name) in enumerate(zip(runs, called, strict=True), 1)
    }
    return number_table(words.t("train.table.caption", last=LAST), heads, rows)


def nats(loss: float) -> str:
    """A loss to a thousandth, as small differences of two are spoken of; a large one in few characters.

    >>> nats(1.0264), nats(0.9792), nats(687.2), nats(float("nan"))
    ('1.026', '0.979', '687', '—')
    """
    return f"{loss:.3f}" if abs(loss) < 100 else short(loss)


def short(value: float) -> str:
    """A number in few characters: from a hundred thousand on, two digits and a power of ten.

    >>> short(6_707_650.0), short(687.2)
    ('6.7·10⁶', '687')
    """
    if not abs(value) >= 1e5 or math.isinf(value):
        return number(value)
    digits, _, power = f"{value:.1e}".partition("e")
    return f"{digits}·10{str(int(power)).translate(_SUPERSCRIPTS)}"


def _how_far(run: Shown, words: Words) -> str:
    if run.diverged_at is not None:
        return words.t("train.table.diverged", step=run.diverged_at)
    if len(run.steps) == run.settings.steps:
        return str(len(run.steps))
    return words.t("train.table.of", done=len(run.steps), steps=run.settings.steps)


def _largest(run: Shown, read: Callable[[Step], float]) -> float:
    finite = [value for step in run.steps if math.isfinite(value := read(step))]
    return max(finite, default=math.nan)

"""Small trainings, as settings and results: what `model_probe.training` runs, what ships, and what is claimed of it.

No torch in here: the recorded runs of the presets are read with NumPy alone.

    runs = load_recorded("depth")
    runs[1].settings.placement, runs[1].final_loss, runs[1].steps[0].gradient_norm

JSON: `{"format": "rmsnorm-runs/1", "runs": [{"settings": {...}, "provenance": {...}, "diverged_at": null,
"sample": "...", "loss": [...], "gradient_norm": [...], "residual_l2": [...]}]}`, one entry a step, from step 1;
what is not finite is one of the strings "nan", "inf" and "-inf". CSV: one row a run and step. NPZ: one array a
run and series, `<run>.<series>`, float32 as it was measured, and `header`, the rest as JSON.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np

from model_probe.errors import ProbeError

FORMAT: Final = "rmsnorm-runs/1"
_DATA: Final = Path(__file__).parent / "data"

NORMS: Final = ("rms", "layer", "none")
PLACEMENTS: Final = ("pre", "post")  # with the norm "none" the two are the same stack
TEXTS: Final = ("zh", "en")
SERIES: Final = ("loss", "gradient_norm", "residual_l2")

CONTEXT: Final = 32  # characters that are read at once
BATCH: Final = 16  # pieces of text a step
HEAD_SIZE: Final = 16  # features of an attention head
MLP_RATIO: Final = 4  # hidden features of an MLP, in multiples of the width

WIDTHS: Final = (32, 64, 128)
LAYER_RANGE: Final = (1, 32)  # smallest and largest, both included, as in all ranges here
STEP_RANGE: Final = (10, 1000)
WARMUP_RANGE: Final = (0, 500)  # steps
LEARNING_RATE_RANGE: Final = (1e-5, 1.0)
SEED_RANGE: Final = (0, 9999)

DIVERGED_LOSS: Final = 1.5  # times the loss of guessing every character alike
DIVERGED_STEPS: Final = 10  # running, above that loss
_DIGITS: Final = 6  # significant digits kept in files; float32 has no more to give
LAST: Final = 20  # steps that the final loss is the mean of: one step's loss is that of a few lines of text


@dataclass(frozen=True, slots=True)
class RunSettings:
    """One run, wholly described: the same settings give the same losses. Raises ValueError out of range."""

    norm: str = "rms"  # one of NORMS
    placement: str = "pre"  # one of PLACEMENTS
    layers: int = 6  # each attention + MLP
    width: int = 32  # hidden_size, features of a token: one of WIDTHS
    learning_rate: float = 1e-3  # Adam's, after the warm-up
    warmup: int = 0  # steps in which the learning rate rises linearly to its value
    steps: int = 300
    seed: int = 0  # of the weights and the batches
    text: str = "en"  # one of TEXTS

    def __post_init__(self) -> None:
        for name, choices in (("norm", NORMS), ("placement", PLACEMENTS), ("width", WIDTHS), ("text", TEXTS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is one of {choices}, not {getattr(self, name)!r}")
        ranges: dict[str, tuple[float, float]] = {
            "layers": LAYER_RANGE,
            "learning_rate": LEARNING_RATE_RANGE,
            "warmup": WARMUP_RANGE,
            "steps": STEP_RANGE,
            "seed": SEED_RANGE,
        }
        for name, (least, most) in ranges.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} is from {least} to {most}, not {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class Step:
    """What was measured in one step, on its batch, before its update. Any of it may be NaN or infinite."""

    step: int  # from 1
    loss: float  # nats a character
    gradient_norm: float  # L2 over all weights together
    residual_l2: float  # L2 of what the last layer hands on (before a final norm), median over the tokens


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run as far as it went."""

    settings: RunSettings
    steps: tuple[Step, ...]
    diverged_at: int | None  # the step where it began, or None
    sample: str  # drawn by the model with the run's seed; empty where it has no probabilities any more
    seconds: float  # of training, on the machine and with the threads that it had
    recorded_at: str  # ISO 8601, UTC
    torch: str  # version

    @property
    def final_loss(self) -> float:
        """Mean loss of the last LAST steps, in nats; not finite where one of them is not."""
        last = [step.loss for step in self.steps[-LAST:]]
        return math.fsum(last) / len(last) if all(map(math.isfinite, last)) else math.nan


@dataclass(frozen=True, slots=True)
class Corpus:
    """A text that runs are trained on."""

    name: str  # one of TEXTS
    text: str
    characters: str = field(repr=False)  # the vocabulary: each character that occurs once, sorted

    @property
    def uniform_loss(self) -> float:
        """Nats a character for who takes every character for equally likely: ln of the vocabulary."""
        return math.log(len(self.characters))

    @property
    def frequency_loss(self) -> float:
        """Nats a character for who knows how often each occurs, and nothing of what stands before it."""
        total = len(self.text)
        return -math.fsum(n / total * math.log(n / total) for n in Counter(self.text).values())


@cache
def corpus(name: str) -> Corpus:
    """The text that ships under one of TEXTS. Raises KeyError for another name."""
    if name not in TEXTS:
        raise KeyError(name)
    text = (_DATA / "texts" / f"{name}.txt").read_text(encoding="utf-8")
    return Corpus(name, text, "".join(sorted(set(text))))


def diverged_at(losses: Sequence[float], uniform_loss: float) -> int | None:
    """The step (from 1) where a run began to diverge, or None.

    It diverges where its loss is not finite, or stays above DIVERGED_LOSS times the uniform loss for DIVERGED_STEPS
    steps running, and began with the first of these. A peak that it comes down from is none.
    """
    above = 0
    for step, loss in enumerate(losses, 1):
        if not math.isfinite(loss):
            return step - above
        above = above + 1 if loss > DIVERGED_LOSS * uniform_loss else 0
        if above == DIVERGED_STEPS:
            return step - above + 1
    return None


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a preset claims: a number of its runs, and between what it lies."""

    name: str  # a code
    measure: Callable[[Sequence[RunResult]], float]  # of the preset's runs, in their order
    least: float
    most: float

    def holds(self, results: Sequence[RunResult]) -> bool:
        """Whether the number lies between `least` and `most`; NaN does not."""
        return self.least <= self.measure(results) <= self.most


@dataclass(frozen=True, slots=True)
class Preset:
    """Runs that belong side by side, and what they show."""

    name: str
    runs: tuple[RunSettings, ...]  # at most four, of seed 0 on the English text
    checks: tuple[Check, ...]

    def variant(self, seed: int = 0, text: str = "en") -> tuple[RunSettings, ...]:
        """The runs with the weights and batches of another seed, and on another text."""
        return tuple(replace(run, seed=seed, text=text) for run in self.runs)


def smoothed(losses: Sequence[float], window: int = LAST) -> list[float]:
    """Mean of each `window` losses in a row: window - 1 fewer than given."""
    return [math.fsum(losses[i : i + window]) / window for i in range(len(losses) - window + 1)]


def largest_gap(first: RunResult, second: RunResult) -> float:
    """The largest distance between two runs' smoothed losses at the same step, in nats."""
    pairs = zip(*(smoothed([step.loss for step in run.steps]) for run in (first, second)), strict=False)
    return max(abs(one - other) for one, other in pairs)


def learned(run: RunResult) -> float:
    """The final loss as a multiple of the text's frequency loss: a run that is not below 1 has learned no context."""
    return run.final_loss / corpus(run.settings.text).frequency_loss


def _learned(place: int) -> Callable[[Sequence[RunResult]], float]:
    return lambda runs: learned(runs[place])


def _diverged(place: int) -> Callable[[Sequence[RunResult]], float]:
    return lambda runs: math.inf if (at := runs[place].diverged_at) is None else at


# The bounds leave room around what came out with RECORDED_SEEDS on each of TEXTS (--preset prints it).
PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            Preset(
                "norms",
                (RunSettings(norm="rms", learning_rate=3e-3), RunSettings(norm="layer", learning_rate=3e-3)),
                (
                    Check("curves_coincide", lambda runs: largest_gap(runs[0], runs[1]), 0.0, 0.1),
                    Check("rms_learns", _learned(0), 0.0, 0.75),
                    Check("layer_learns", _learned(1), 0.0, 0.75),
                ),
            ),
            Preset(
                "depth",
                (
                    RunSettings(placement="post", layers=6),
                    RunSettings(placement="post", layers=24),
                    RunSettings(placement="pre", layers=6),
                    RunSettings(placement="pre", layers=24),
                ),
                (
                    Check("post_6_learns", _learned(0), 0.0, 0.9),
                    Check("post_24_is_stuck", _learned(1), 0.97, 1.03),
                    Check("pre_6_learns", _learned(2), 0.0, 0.8),
                    Check("pre_24_learns", _learned(3), 0.0, 0.8),
                ),
            ),
            Preset(
                "no_norm",
                (
                    RunSettings(norm="none", learning_rate=1e-3),
                    RunSettings(norm="none", learning_rate=1e-2),
                    RunSettings(norm="rms", learning_rate=1e-3),
                    RunSettings(norm="rms", learning_rate=1e-2),
                ),
                (
                    Check("small_rate_learns", _learned(0), 0.0, 0.93),
                    Check("large_rate_diverges", _diverged(1), 2, 290),
                    Check("large_rate_stays_lost", _learned(1), 1.2, math.inf),
                    Check("rms_small_rate_learns", _learned(2), 0.0, 0.8),
                    Check("rms_large_rate_learns", _learned(3), 0.0, 0.75),
                ),
            ),
        )
    }
)
RECORDED_SEEDS: Final = (0, 1, 2)


@cache
def load_recorded(preset: str, seed: int = 0, text: str = "en") -> tuple[RunResult, ...]:
    """The runs of a preset that ship, in its order: a seed of RECORDED_SEEDS on one of TEXTS.

    Raises KeyError for another preset, seed or text.
    """
    recorded = _recorded(preset)
    if (seed, text) not in recorded:
        raise KeyError((preset, seed, text))
    return recorded[seed, text]


@cache
def _recorded(preset: str) -> Mapping[tuple[int, str], tuple[RunResult, ...]]:
    runs = {run.settings: run for run in load_runs(_DATA / "runs" / f"{PRESETS[preset].name}.npz")}
    return {
        (seed, text): tuple(runs[settings] for settings in PRESETS[preset].variant(seed, text))
        for seed in RECORDED_SEEDS
        for text in TEXTS
    }


def save_runs(runs: Sequence[RunResult], path: str | Path) -> None:
    """Write runs as JSON, CSV or NPZ, by the ending of `path`. Raises ValueError for another ending."""
    path = Path(path)
    writers: Mapping[str, Callable[[Sequence[RunResult]], str | bytes]] = {
        ".json": to_json,
        ".csv": to_csv,
        ".npz": _to_npz,
    }
    if path.suffix not in writers:
        raise ValueError(f"runs are saved as .json, .csv or .npz, not {path.suffix!r}")
    written = writers[path.suffix](runs)
    path.write_bytes(written.encode("utf-8") if isinstance(written, str) else written)


def load_runs(path: str | Path) -> tuple[RunResult, ...]:
    """Read the JSON or NPZ that `save_runs` wrote.

    Raises:
        ProbeError: `not_found`, or `not_runs` with the reason.
    """
    path = Path(path)
    try:
        read = _read_npz if path.suffix == ".npz" else _read_json
        return read(path)
    except FileNotFoundError:
        raise ProbeError("not_found", path=path) from None
    except (ValueError, KeyError, TypeError, OSError, BadZipFile, EOFError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ProbeError("not_runs", path=path.name, reason=reason[:120]) from None


def _read_json(path: Path) -> tuple[RunResult, ...]:
    entries = _entries(json.loads(path.read_text(encoding="utf-8")))
    return tuple(_result(entry, [[float(x) for x in entry[name]] for name in SERIES]) for entry in entries)


def _read_npz(path: Path) -> tuple[RunResult, ...]:
    with np.load(path, allow_pickle=False) as file:
        entries = _entries(json.loads(str(file["header"])))
        return tuple(
            _result(entry, [file[f"{number}.{name}"].astype(np.float64).tolist() for name in SERIES])
            for number, entry in enumerate(entries)
        )


def _entries(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if document["format"] != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    return list(document["runs"])


def _result(entry: Mapping[str, Any], columns: Sequence[Sequence[float]]) -> RunResult:
    figures = zip(*columns, strict=True)
    return RunResult(
        settings=RunSettings(**entry["settings"]),
        steps=tuple(Step(number, *values) for number, values in enumerate(figures, 1)),
        diverged_at=entry["diverged_at"],
        sample=entry["sample"],
        **entry["provenance"],
    )


def to_json(runs: Sequence[RunResult]) -> str:
    """The runs as JSON; a number that is not finite is a string."""
    document = {"format": FORMAT, "runs": [_entry(run) | _columns(run) for run in runs]}
    return json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def to_csv(runs: Sequence[RunResult]) -> str:
    """One row a run and step: run (from 0), the settings, step, and SERIES."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = [name for name in RunSettings.__dataclass_fields__ if name != "steps"]
    writer.writerow(["run", *names, "step", *SERIES])
    for number, run in enumerate(runs):
        settings = [getattr(run.settings, name) for name in names]
        for step in run.steps:
            writer.writerow([number, *settings, step.step, *(_written(getattr(step, n)) for n in SERIES)])
    return buffer.getvalue()


def _to_npz(runs: Sequence[RunResult]) -> bytes:
    arrays: dict[str, Any] = {
        f"{number}.{name}": np.array([getattr(step, name) for step in run.steps], dtype=np.float32)
        for number, run in enumerate(runs)
        for name in SERIES
    }
    header = {"format": FORMAT, "runs": [_entry(run) for run in runs]}
    arrays["header"] = np.array(json.dumps(header, allow_nan=False))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _entry(run: RunResult) -> dict[str, Any]:
    return {
        "settings": asdict(run.settings),
        "provenance": {"seconds": run.seconds, "recorded_at": run.recorded_at, "torch": run.torch},
        "diverged_at": run.diverged_at,
        "sample": run.sample,
    }


def _columns(run: RunResult) -> dict[str, list[float | str]]:
    return {name: [_written(getattr(step, name)) for step in run.steps] for name in SERIES}


def _written(value: float) -> float | str:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else str(value)

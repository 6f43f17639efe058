"""Small trainings, as settings and results: what `model_probe.training` runs, what ships, and what is claimed of it.

No torch in here: the recorded runs of the presets are read with the standard library alone.

    runs = load_recorded("depth")
    runs[1].settings.placement, runs[1].final_loss, runs[1].steps[0].gradient_norm

JSON: `{"format": "rmsnorm-runs/1", "runs": [{"settings": {...}, "provenance": {...}, "diverged_at": null,
"sample": "...", "loss": [...], "gradient_norm": [...], "residual_l2": [...]}]}`, one entry a step, from step 1;
what is not finite is one of the strings "nan", "inf" and "-inf". CSV: one row a run and step. NPZ: one array a
run and series, `<run>.<series>`, and `header`, the rest as JSON.
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

from model_probe.errors import ProbeError

FORMAT: Final = "rmsnorm-runs/1"
_DATA: Final = Path(__file__).parent / "data"

NORMS: Final = ("rms", "layer", "none")
PLACEMENTS: Final = ("pre", "post")  # with the norm "none" the two are the same stack
TEXTS: Final = ("zh", "en")
SERIES: Final = ("loss", "gradient_norm", "residual_l2")

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
    steps: int = 200
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
    sample: (
        str  # text of the model's own, drawn with the run's seed; empty where it has no probabilities left
    )
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


def diverged_at(losses: list[float], uniform_loss: float) -> int | None:
    """The step (from 1) where a run began to diverge, or None.

    It diverges where its loss is not finite, or stays above DIVERGED_LOSS times the uniform loss for DIVERGED_STEPS
    steps running; a peak that it comes down from is none.
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
    """One thing that a preset claims, as a number of its runs and where that number lies."""

    name: str  # a code
    measure: Callable[[Sequence[RunResult]], float]  # of the preset's runs, in their order
    least: float
    most: float

    def holds(self, results: Sequence[RunResult]) -> bool:
        """Whether the number is between `least` and `most`; NaN is not."""
        return self.least <= self.measure(results) <= self.most


@dataclass(frozen=True, slots=True)
class Preset:
    """Runs that belong side by side, and what they show."""

    name: str
    runs: tuple[RunSettings, ...]  # at most four
    checks: tuple[Check, ...]

    def with_seed(self, seed: int) -> tuple[RunSettings, ...]:
        """The runs with other weights and batches."""
        return tuple(replace(run, seed=seed) for run in self.runs)


def smoothed(losses: Sequence[float], window: int = LAST) -> list[float]:
    """Mean of each `window` losses in a row: window - 1 fewer than given."""
    return [math.fsum(losses[i : i + window]) / window for i in range(len(losses) - window + 1)]


def largest_gap(first: RunResult, second: RunResult) -> float:
    """The largest distance between two runs' smoothed losses at the same step, in nats."""
    pairs = zip(*(smoothed([step.loss for step in run.steps]) for run in (first, second)), strict=False)
    return max(abs(one - other) for one, other in pairs)


PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            Preset("norms", (RunSettings(norm="rms"), RunSettings(norm="layer")), ()),
            Preset(
                "depth",
                tuple(
                    RunSettings(placement=placement, layers=layers)
                    for placement in ("post", "pre")
                    for layers in (6, 24)
                ),
                (),
            ),
            Preset(
                "no_norm",
                tuple(
                    RunSettings(norm=norm, learning_rate=rate)
                    for norm in ("none", "rms")
                    for rate in (1e-3, 3e-2)
                ),
                (),
            ),
        )
    }
)
RECORDED_SEEDS: Final = (0, 1, 2)


@cache
def load_recorded(preset: str, seed: int = 0) -> tuple[RunResult, ...]:
    """The runs of a preset that ship, with a seed of RECORDED_SEEDS. Raises KeyError for another preset or seed."""
    wanted = PRESETS[preset].with_seed(seed)
    recorded = {run.settings: run for run in load_runs(_DATA / "runs" / f"{preset}.json")}
    return tuple(recorded[settings] for settings in wanted)


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
    """Read the JSON that `save_runs` wrote.

    Raises:
        ProbeError: `not_found`, or `not_runs` with the reason.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        return tuple(map(_from_entry, document["runs"]))
    except FileNotFoundError:
        raise ProbeError("not_found", path=path) from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ProbeError("not_runs", path=Path(path).name, reason=reason[:120]) from None


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
    import numpy as np

    arrays: dict[str, Any] = {
        f"{number}.{name}": np.array([getattr(step, name) for step in run.steps], dtype=np.float64)
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


def _from_entry(entry: Mapping[str, Any]) -> RunResult:
    columns = zip(*([float(value) for value in entry[name]] for name in SERIES), strict=True)
    steps = tuple(Step(number, *figures) for number, figures in enumerate(columns, 1))
    return RunResult(
        settings=RunSettings(**entry["settings"]),
        steps=steps,
        diverged_at=entry["diverged_at"],
        sample=entry["sample"],
        **entry["provenance"],
    )

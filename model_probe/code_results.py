"""What the page `code` shows: RMSNorms compared, and RMSNorms broken, with what came of each. No torch is needed.

`model_probe.code_runs` measures it; the file that ships is read here with NumPy alone:

    results = load_code_results()
    results.table.comparison("small", "bfloat16", "zero_centred", against="cast_then_gain").differ
    results.outcomes["mean_of_x"]                        what the broken line did, case by case
    source("variants", "cast_then_gain")                 the lines themselves, as they stand in this package

NPZ: `residual` [tokens, d] float32, `table` [inputs, dtypes, against, variants, 5] float64, and `header`, the rest as JSON
(`rmsnorm-code/1`). CSV: the table, one row a comparison. JSON: the header and the table.
"""

from __future__ import annotations

import ast
import csv
import functools
import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from model_probe.errors import ProbeError
from model_probe.trace import CheckpointInfo

FORMAT: Final = "rmsnorm-code/1"
SHIPPED: Final = Path(__file__).parent / "data" / "code.npz"

CHECKPOINT: Final = "checkpoint_class"  # the class of the open checkpoint
EXACT: Final = "exact"  # computed in float64, rounded once
VARIANTS: Final = (
    "two_lines",
    "cast_then_gain",
    "gain_in_float32",
    "zero_centred",
    "torch_rms_norm",
    CHECKPOINT,
    "gain_first",
    "one_over_sqrt",
    EXACT,
)
WITHOUT_SOURCE: Final = (CHECKPOINT, EXACT)  # of the variants
INPUTS: Final = ("small", "shifted", "residual", "zeros", "large")
DTYPES: Final = ("float64", "float32", "bfloat16", "float16")

BREAKS: Final = (
    "no_keepdim",
    "mean_of_x",
    "no_eps",
    "eps_outside",
    "no_upcast",
    "wrong_dimension",
    "minus_one_read_as_weight",
    "no_final_norm",
)
FINDINGS: Final = (
    "one_gain_changed",  # same order, float32, small input, one of the gains another one: not 0
    "gain_of_one",  # the normalized vector and what a gain of 1 leaves of it
    "roots_bfloat16",  # 1 / sqrt against rsqrt, on every positive number of the dtype
    "roots_float16",
)
VERDICTS: Final = ("same", "close", "other", "error", "shape", "nan", "zeros", "leak")  # close: within 1 %

_LEADING: Final = ("input", "dtype", "against", "variant")
_DIGITS: Final = 6  # significant, of a number in a file

Floats = NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far two outputs of one dtype and shape lie apart."""

    elements: int
    differ: int  # not equal to the bit
    non_finite: int  # NaN or infinite in the first of the two
    largest_absolute: float  # max |a − b| over what is finite in both; NaN where nothing is
    largest_relative: float  # max |a − b| / |b|, where b is not 0; NaN where nothing is

    @property
    def equal(self) -> bool:
        """Equal to the bit."""
        return self.differ == 0

    @property
    def share(self) -> float:
        """Of the elements that differ, 0 to 1."""
        return self.differ / self.elements

    def numbers(self) -> tuple[float, ...]:
        """In the order of the fields, as the table keeps them."""
        return (
            self.elements,
            self.differ,
            self.non_finite,
            self.largest_absolute,
            self.largest_relative,
        )


@dataclass(frozen=True, slots=True, eq=False)
class ComparisonTable:
    """Every variant against every other, on every input, in every dtype, all with one and the same random gain."""

    numbers: Floats  # [INPUTS, DTYPES, VARIANTS against, VARIANTS, 5] `Comparison.numbers`; NaN: not run
    shapes: Mapping[str, tuple[int, ...]]  # of each input
    class_name: str | None  # of the open checkpoint's norm; None where none was open
    eps: float

    @property
    def variants(self) -> tuple[str, ...]:
        """Those that were run: without a checkpoint its class is not among them."""
        return tuple(v for v in VARIANTS if v != CHECKPOINT or self.class_name is not None)

    def comparison(self, given: str, dtype: str, variant: str, *, against: str) -> Comparison:
        """One comparison.

        Raises:
            ValueError: not one of INPUTS, DTYPES, VARIANTS.
            KeyError: one of the two was not run.
        """
        numbers = self.numbers[
            INPUTS.index(given), DTYPES.index(dtype), VARIANTS.index(against), VARIANTS.index(variant)
        ]
        if not np.isfinite(numbers[0]):
            raise KeyError((variant, against))
        return Comparison(*(int(n) for n in numbers[:3]), *(float(n) for n in numbers[3:]))

    def row(self, given: str, dtype: str, *, against: str) -> Mapping[str, Comparison]:
        """Every other variant that was run against one, by name; empty where that one was not run."""
        if against not in self.variants:
            return {}
        return {
            variant: self.comparison(given, dtype, variant, against=against)
            for variant in self.variants
            if variant != against
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one broken norm did to one token, or to one tensor where shapes are the matter, beside what is right."""

    break_name: str  # one of BREAKS
    case: str  # what was given to it, a code
    value: float  # the number of the input that decides: its rms, its mean, its largest |x|
    shape: tuple[int, ...]  # of what went in
    out_shape: tuple[int, ...] | None  # of what came out; None where torch refused
    error: str  # torch's own words, empty without
    right: float  # RMS of the right output
    broken: float  # RMS of the broken output; NaN where it has NaN in it
    non_finite: int  # elements of the broken output
    verdict: str  # one of VERDICTS


@dataclass(frozen=True, slots=True)
class Prediction:
    """The next token that the checkpoint holds most likely, with its norm at the end and without."""

    prompt: str
    tokens: tuple[tuple[str, float], ...]  # text and probability, the likeliest first
    tokens_without: tuple[tuple[str, float], ...]  # without the final norm
    perplexity: float  # of the prompt
    perplexity_without: float
    residual_rms: float  # of the last token, before the final norm: what the LM head then reads
    normed_rms: float  # after it


@dataclass(frozen=True, slots=True)
class Bias:
    """The largest entry of a checkpoint's key biases, in size."""

    name: str  # of the parameter
    largest: float  # |b|
    median: float  # of |b| over the entries of that one parameter


@dataclass(frozen=True, slots=True)
class Provenance:
    """With what, and when, the comparisons and breaks were run."""

    torch: str  # version
    device: str
    recorded_at: str  # ISO 8601, UTC


@dataclass(frozen=True, slots=True, eq=False)
class CodeResults:
    """One run of the lab. What needs a checkpoint is None where none was open."""

    made: Provenance
    table: ComparisonTable
    findings: Mapping[str, Comparison]  # by FINDINGS
    outcomes: Mapping[str, tuple[Outcome, ...]]  # by BREAKS
    residual: NDArray[np.float32]  # [tokens, d] the real one among the inputs
    residual_site: str  # the norm that reads it
    residual_tokens: tuple[str, ...]  # [tokens] their texts
    source: CheckpointInfo  # whose residual it is
    checkpoint: CheckpointInfo | None  # that was open for this run
    prediction: Prediction | None
    bias: Bias | None  # None too where the keys have no bias

    def save(self, path: str | Path) -> None:
        """Write NPZ, JSON or CSV, by the ending of `path`.

        Raises:
            ValueError: another ending.
        """
        path = Path(path)
        writers: Mapping[str, Callable[[CodeResults], bytes]] = {
            ".npz": _to_npz,
            ".json": lambda results: to_json(results).encode("utf-8"),
            ".csv": _to_csv,
        }
        if path.suffix not in writers:
            raise ValueError(f"results are saved as .npz, .json or .csv, not {path.suffix!r}")
        path.write_bytes(writers[path.suffix](self))

    @classmethod
    def load(cls, path: str | Path) -> CodeResults:
        """Read the NPZ that `save` wrote.

        Raises:
            ProbeError: `not_found`, or `not_a_recording` with the reason.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                return _from_arrays(file)
        except FileNotFoundError:
            raise ProbeError("not_found", path=path) from None
        except (ValueError, KeyError, TypeError, OSError, EOFError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ProbeError("not_a_recording", path=Path(path).name, reason=reason[:120]) from None


@functools.cache
def load_code_results() -> CodeResults:
    """The results that ship with the app, read once."""
    return CodeResults.load(SHIPPED)


@functools.cache
def source(module: str, function: str) -> str:
    """The lines of a function of this package as they stand there, without its docstring; nothing is imported.

    Raises:
        KeyError: the module has no such function.
    """
    text = (Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            lines = text.splitlines()
            first = node.body[1 if ast.get_docstring(node) else 0]
            head, body = (
                lines[node.lineno - 1 : node.body[0].lineno - 1],
                lines[first.lineno - 1 : node.end_lineno],
            )
            return "\n".join([*head, *body])
    raise KeyError(function)


def to_json(results: CodeResults) -> str:
    """All but the residual as JSON; a number that is not finite is null."""
    document = _header(results) | {"table": _nested(results.table.numbers.tolist())}
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _to_csv(results: CodeResults) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*_LEADING, *Comparison.__slots__, "equal"])
    for given in INPUTS:
        for dtype in DTYPES:
            for against in results.table.variants:
                for variant, told in results.table.row(given, dtype, against=against).items():
                    writer.writerow([given, dtype, against, variant, *told.numbers(), told.equal])
    return buffer.getvalue().encode("utf-8")


def _to_npz(results: CodeResults) -> bytes:
    buffer = io.BytesIO()
    header = json.dumps(_header(results), ensure_ascii=False, allow_nan=False)
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        residual=results.residual,
        table=results.table.numbers,
        header=np.array(header),
    )
    return buffer.getvalue()


def _header(results: CodeResults) -> dict[str, Any]:
    table = results.table
    return {
        "format": FORMAT,
        "inputs": INPUTS,
        "dtypes": DTYPES,
        "variants": VARIANTS,
        "made": asdict(results.made),
        "shapes": table.shapes,
        "class_name": table.class_name,
        "eps": table.eps,
        "findings": {name: _nested(asdict(told)) for name, told in results.findings.items()},
        "outcomes": [_nested(asdict(o)) for outcomes in results.outcomes.values() for o in outcomes],
        "residual_site": results.residual_site,
        "residual_tokens": results.residual_tokens,
        "source": asdict(results.source),
        "checkpoint": None if results.checkpoint is None else asdict(results.checkpoint),
        "prediction": None if results.prediction is None else _nested(asdict(results.prediction)),
        "bias": None if results.bias is None else _nested(asdict(results.bias)),
    }


def _nested(value: Any) -> Any:
    """The same with short numbers, and null for what is not finite."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _nested(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_nested(each) for each in value]
    return value


def _from_arrays(arrays: Mapping[str, Any]) -> CodeResults:
    header = json.loads(str(arrays["header"]))
    names = [tuple(header[kind]) for kind in ("inputs", "dtypes", "variants")]
    if header["format"] != FORMAT or names != [INPUTS, DTYPES, VARIANTS]:
        raise ValueError(f"it is not of the format {FORMAT}")
    table = ComparisonTable(
        numbers=arrays["table"],
        shapes={name: tuple(shape) for name, shape in header["shapes"].items()},
        class_name=header["class_name"],
        eps=header["eps"],
    )
    if table.numbers.shape != (*map(len, names), len(VARIANTS), 5):
        raise ValueError("its table has another shape")
    every = [_outcome(entry) for entry in header["outcomes"]]
    return CodeResults(
        made=Provenance(**header["made"]),
        table=table,
        findings={
            name: Comparison(**{field: _number(n) for field, n in header["findings"][name].items()})
            for name in FINDINGS
        },
        outcomes={name: tuple(o for o in every if o.break_name == name) for name in BREAKS},
        residual=arrays["residual"],
        residual_site=header["residual_site"],
        residual_tokens=tuple(header["residual_tokens"]),
        source=CheckpointInfo(**header["source"]),
        checkpoint=None if header["checkpoint"] is None else CheckpointInfo(**header["checkpoint"]),
        prediction=_prediction(header["prediction"]),
        bias=None if header["bias"] is None else Bias(**header["bias"]),
    )


def _outcome(entry: Mapping[str, Any]) -> Outcome:
    numbers = {name: _number(entry[name]) for name in ("value", "right", "broken")}
    shape, out = tuple(entry["shape"]), entry["out_shape"]
    return Outcome(
        **(dict(entry) | numbers | {"shape": shape, "out_shape": None if out is None else tuple(out)})
    )


def _prediction(entry: Mapping[str, Any] | None) -> Prediction | None:
    if entry is None:
        return None
    likeliest = [tuple((t, p) for t, p in entry[name]) for name in ("tokens", "tokens_without")]
    floats = ("perplexity", "perplexity_without", "residual_rms", "normed_rms")
    return Prediction(
        entry["prompt"], likeliest[0], likeliest[1], **{name: _number(entry[name]) for name in floats}
    )


def _number(value: Any) -> Any:
    return math.nan if value is None else value

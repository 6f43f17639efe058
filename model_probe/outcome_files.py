"""Writes and reads outcomes: JSON (gzipped where the name says so) and CSV.

A number that is not finite is `null` in JSON and empty in CSV, and NaN once it is read again.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from model_probe.errors import ProbeError
from model_probe.experiments import Outcomes
from model_probe.interventions import Intervention
from model_probe.outcome import Attention, Candidate, Outcome, SiteMedians
from model_probe.trace import CheckpointInfo, Token

FORMAT: Final = "rmsnorm-outcomes/1"
COLUMNS: Final = (
    "experiment", "case", "perplexity", "mean_kl", "mean_entropy", "mean_jacobian", "mean_first_token",
    "next_token", "next_token_probability", "non_finite_logits", "first_non_finite", "continuation",
)  # fmt: skip
_DIGITS: Final = 6  # significant, of what is written
UNTOUCHED: Final = "untouched"


def to_json(outcomes: Outcomes) -> str:
    """Everything, as JSON."""
    whole = {
        "format": FORMAT,
        "checkpoint": asdict(outcomes.checkpoint),
        "prompt": outcomes.prompt,
        "tokens": [asdict(token) for token in outcomes.tokens],
        UNTOUCHED: _outcome_json(outcomes.untouched),
        "experiments": {
            experiment: {code: _outcome_json(outcome) for code, outcome in by_code.items()}
            for experiment, by_code in outcomes.by_case.items()
        },
    }
    return json.dumps(whole, ensure_ascii=False, allow_nan=False)


def to_csv(outcomes: Outcomes) -> str:
    """One row a case, COLUMNS."""
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(COLUMNS)
    writer.writerow(_row("", UNTOUCHED, outcomes.untouched))
    for experiment, by_code in outcomes.by_case.items():
        writer.writerows(_row(experiment, code, outcome) for code, outcome in by_code.items())
    return table.getvalue()


def save_outcomes(outcomes: Outcomes, path: Path) -> None:
    """Write .json, .json.gz or .csv, by the ending.

    Raises:
        ValueError: another ending.
    """
    if path.suffix == ".csv":
        path.write_bytes(to_csv(outcomes).encode())
    elif path.suffix == ".json":
        path.write_bytes(to_json(outcomes).encode())
    elif path.suffixes[-2:] == [".json", ".gz"]:
        path.write_bytes(gzip.compress(to_json(outcomes).encode(), 9, mtime=0))
    else:
        raise ValueError(f"outcomes are saved as .json, .json.gz or .csv, not {path.suffix!r}")


def load_outcomes(path: Path) -> Outcomes:
    """Read what `save_outcomes` wrote as JSON.

    Raises:
        ProbeError: `not_found`, or `not_outcomes` with the reason.
    """
    try:
        data = path.read_bytes()
        whole = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        if whole["format"] != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        return Outcomes(
            checkpoint=CheckpointInfo(**whole["checkpoint"]),
            prompt=whole["prompt"],
            tokens=tuple(Token(**token) for token in whole["tokens"]),
            untouched=_outcome(whole[UNTOUCHED]),
            by_case={
                experiment: {code: _outcome(entry) for code, entry in by_code.items()}
                for experiment, by_code in whole["experiments"].items()
            },
        )
    except FileNotFoundError:
        raise ProbeError("not_found", path=path) from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError, EOFError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ProbeError("not_outcomes", path=path.name, reason=reason[:120]) from None


def _row(experiment: str, code: str, outcome: Outcome) -> list[object]:
    best = outcome.top[0] if outcome.top else None
    first = outcome.first_non_finite
    attention = outcome.attention
    numbers = (
        outcome.perplexity,
        outcome.mean_kl,
        outcome.mean_entropy,
        outcome.mean_jacobian,
        float(np.mean(attention.first_token)) if attention else math.nan,
    )
    return [
        experiment,
        code,
        *("" if written is None else written for written in map(_number, numbers)),
        "" if best is None else best.text,
        "" if best is None else _number(best.probability),
        outcome.non_finite_logits,
        "" if first is None else first.name,
        outcome.continuation,
    ]


def _number(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def _numbers(array: Iterable[Any]) -> list[Any]:
    """Any depth of arrays as lists."""
    return [_number(float(item)) if np.ndim(item) == 0 else _numbers(item) for item in array]


def _array(written: list[Any]) -> NDArray[np.float64]:
    return np.array(written, dtype=np.float64)  # null becomes NaN


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    attention = outcome.attention
    return {
        "interventions": [_intervention_json(intervention) for intervention in outcome.interventions],
        "perplexity": _number(outcome.perplexity),
        "kl": _numbers(outcome.kl),
        "top": [
            asdict(candidate) | {"probability": _number(candidate.probability)} for candidate in outcome.top
        ],
        "attention": None
        if attention is None
        else {
            "layers": list(attention.layers),
            **{name: _numbers(getattr(attention, name)) for name in _ATTENTION_FIGURES},
            "maps": {str(layer): _numbers(weights) for layer, weights in attention.maps.items()},
        },
        "sites": [
            {
                name: _number(value) if isinstance(value, float) else value
                for name, value in asdict(site).items()
            }
            for site in outcome.sites
        ],
        "non_finite_logits": outcome.non_finite_logits,
        "continuation": outcome.continuation,
    }


_ATTENTION_FIGURES: Final = ("entropy", "heaviest", "first_token", "jacobian")


def _intervention_json(intervention: Intervention) -> dict[str, Any]:
    return {name: value for name, value in asdict(intervention).items() if name != "rms"}


def _outcome(entry: Mapping[str, Any]) -> Outcome:
    attention = entry["attention"]
    return Outcome(
        interventions=tuple(
            Intervention(
                kind=it["kind"],
                amount=it["amount"],
                layers=None if it["layers"] is None else tuple(it["layers"]),
                roles=None if it["roles"] is None else tuple(it["roles"]),
            )
            for it in entry["interventions"]
        ),
        perplexity=_float(entry["perplexity"]),
        kl=_array(entry["kl"]),
        top=tuple(Candidate(**candidate) for candidate in entry["top"]),
        attention=None
        if attention is None
        else Attention(
            layers=tuple(attention["layers"]),
            **{name: _array(attention[name]) for name in _ATTENTION_FIGURES},
            maps={
                int(layer): np.array(weights, dtype=np.float32)
                for layer, weights in attention["maps"].items()
            },
        ),
        sites=tuple(_site(site) for site in entry["sites"]),
        non_finite_logits=entry["non_finite_logits"],
        continuation=entry["continuation"],
    )


def _site(written: Mapping[str, Any]) -> SiteMedians:
    values: dict[str, Any] = {
        name: _float(value) if name in _MEDIANS else value for name, value in written.items()
    }
    return SiteMedians(**values)


_MEDIANS: Final = ("input_l2", "normalized_l2", "output_l2", "rms")


def _float(written: float | None) -> float:
    return math.nan if written is None else float(written)

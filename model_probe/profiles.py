"""Gradients and activations layer by layer, of toy stacks with the norm in one place or another.

`python -m model_probe profiles` measures them by autograd (`model_probe.toy_stacks`); the file that ships is
read here with NumPy alone:

    profiles = load_profiles()
    stack = profiles.stack("xavier", "pre_norm", depth=24)
    stack.weight_gradient[-1]              of the layer next to the head
    stack.first_over_last("weight_gradient")

JSON: `{"format": "rmsnorm-profiles/1", "settings": {...}, "provenance": {...}, "stacks": [{initialisation,
placement, depth, weight_gradient: [...], input_gradient: [...], activation: [...]}]}`, one entry a layer.
CSV: one row a stack and layer. NPZ: one array a stack and series, `<initialisation>.<placement>.<depth>.<series>`,
and `header`, the rest as JSON.
"""

from __future__ import annotations

import csv
import functools
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from model_probe.errors import ProbeError

FORMAT: Final = "rmsnorm-profiles/1"
SHIPPED: Final = Path(__file__).parent / "data" / "profiles.json"

PLACEMENTS: Final = ("pre_norm", "post_norm", "no_norm")
INITIALISATIONS: Final = ("xavier", "fan_in", "fixed")
SERIES: Final = ("weight_gradient", "input_gradient", "activation")
DEPTHS: Final = (2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48)  # layers

FIXED_STD: Final = 0.02  # of the weights with the initialisation `fixed`: GPT-2's, whatever the width

_DIGITS: Final = 6  # significant digits kept in files; float32 has no more to give
_LEADING: Final = ("initialisation", "placement", "depth", "layer")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StackSettings:
    """What all the stacks of one file have in common."""

    hidden_size: int = 256  # features of a token
    mlp_ratio: int = 4  # hidden features of an MLP, in multiples of hidden_size
    batch: int = 4  # sequences; the MLPs see batch · positions tokens
    positions: int = 16  # tokens of a sequence
    classes: int = 256  # of the random head
    eps: float = 1e-6  # of RMSNorm
    seeds: int = 8  # averaged: 0, 1, …, each with weights, inputs, head and targets of its own


@dataclass(frozen=True, slots=True)
class Provenance:
    """With what, and when, a file of profiles was measured."""

    torch: str  # version
    dtype: str
    device: str
    recorded_at: str  # ISO 8601, UTC


@dataclass(frozen=True, slots=True, eq=False)
class StackProfile:
    """One stack at initialisation, layer by layer: each figure is the mean over the seeds."""

    initialisation: str  # one of INITIALISATIONS
    placement: str  # one of PLACEMENTS
    depth: int  # layers
    weight_gradient: Floats  # [depth] L2 norm of the loss gradient on the layer's second weight
    input_gradient: Floats  # [depth] L2 norm of the loss gradient on what the layer reads, over all tokens
    activation: Floats  # [depth] L2 per token of what the layer hands on, median over the tokens

    def series(self, name: str) -> Floats:
        """One of SERIES, one number a layer.

        Raises:
            KeyError: the name is not in SERIES.
        """
        if name not in SERIES:
            raise KeyError(name)
        return getattr(self, name)

    def first_over_last(self, name: str) -> float:
        """The first layer's number divided by the last's. Raises KeyError as `series`."""
        values = self.series(name)
        return float(values[0] / values[-1])


@dataclass(frozen=True, slots=True, eq=False)
class Profiles:
    """The stacks that were measured together."""

    settings: StackSettings
    provenance: Provenance
    stacks: tuple[StackProfile, ...]

    @property
    def depths(self) -> tuple[int, ...]:
        """How many layers there are to choose from, rising."""
        return tuple(sorted({stack.depth for stack in self.stacks}))

    def stack(self, initialisation: str, placement: str, depth: int) -> StackProfile:
        """The stack of this description. Raises KeyError when it was not measured."""
        for stack in self.stacks:
            if (stack.initialisation, stack.placement, stack.depth) == (initialisation, placement, depth):
                return stack
        raise KeyError((initialisation, placement, depth))

    def save(self, path: str | Path) -> None:
        """Write the profiles as JSON, CSV or NPZ, by the ending of `path`.

        Raises:
            ValueError: another ending.
        """
        path = Path(path)
        writers: Mapping[str, Callable[[Profiles], str | bytes]] = {
            ".json": to_json,
            ".csv": to_csv,
            ".npz": _to_npz,
        }
        if path.suffix not in writers:
            raise ValueError(f"profiles are saved as .json, .csv or .npz, not {path.suffix!r}")
        written = writers[path.suffix](self)
        path.write_bytes(written.encode("utf-8") if isinstance(written, str) else written)

    @classmethod
    def load(cls, path: str | Path) -> Profiles:
        """Read the JSON that `save` wrote.

        Raises:
            ProbeError: `not_found`, or `not_profiles` with the reason.
        """
        try:
            return _from_document(json.loads(Path(path).read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise ProbeError("not_found", path=path) from None
        except (ValueError, KeyError, TypeError, OSError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ProbeError("not_profiles", path=Path(path).name, reason=reason[:120]) from None


@functools.cache
def load_profiles() -> Profiles:
    """The profiles that ship with the app, read once."""
    return Profiles.load(SHIPPED)


def to_json(profiles: Profiles) -> str:
    """The profiles as JSON; a number that is not finite is null."""
    return json.dumps(_document(profiles), allow_nan=False, separators=(",", ":"))


def to_csv(profiles: Profiles) -> str:
    """One row a stack and layer: initialisation, placement, depth, layer (from 0), and the three series."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*_LEADING, *SERIES])
    for stack in profiles.stacks:
        columns = [map(_written, stack.series(name)) for name in SERIES]
        for layer, numbers in enumerate(zip(*columns, strict=True)):
            writer.writerow([stack.initialisation, stack.placement, stack.depth, layer, *numbers])
    return buffer.getvalue()


def _to_npz(profiles: Profiles) -> bytes:
    header = _document(profiles) | {"stacks": [_key(stack) for stack in profiles.stacks]}
    arrays: dict[str, Any] = {
        f"{_key(stack)}.{name}": stack.series(name) for stack in profiles.stacks for name in SERIES
    }
    arrays["header"] = np.array(json.dumps(header, allow_nan=False))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _key(stack: StackProfile) -> str:
    return f"{stack.initialisation}.{stack.placement}.{stack.depth}"


def _document(profiles: Profiles) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "settings": asdict(profiles.settings),
        "provenance": asdict(profiles.provenance),
        "stacks": [
            {"initialisation": stack.initialisation, "placement": stack.placement, "depth": stack.depth}
            | {name: [_written(value) for value in stack.series(name)] for name in SERIES}
            for stack in profiles.stacks
        ],
    }


def _written(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None


def _from_document(document: Mapping[str, Any]) -> Profiles:
    if document["format"] != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    stacks = []
    for entry in document["stacks"]:
        series = {name: np.array(entry[name], dtype=np.float64) for name in SERIES}  # null becomes NaN
        stack = StackProfile(entry["initialisation"], entry["placement"], entry["depth"], **series)
        if any(series[name].shape != (stack.depth,) for name in SERIES):
            raise ValueError(f"{_key(stack)} has not one number a layer")
        stacks.append(stack)
    settings, provenance = StackSettings(**document["settings"]), Provenance(**document["provenance"])
    return Profiles(settings, provenance, tuple(stacks))

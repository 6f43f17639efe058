"""A `NormTrace` as JSON, CSV or NPZ, and back, refusing what is not one.

A file comes from anywhere: each is bounded in size, no pickle is opened, and its parts are checked
against each other before a trace is made of them.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from model_probe.errors import ProbeError
from model_probe.trace import (
    CONVENTIONS,
    FORMAT,
    ROLES,
    SERIES,
    CheckpointInfo,
    Floats,
    GainSummary,
    NormTrace,
    SiteTrace,
    Statistics,
    Token,
)

MAX_BYTES: Final = 256 * 2**20
_CSV_LEADING: Final = ("site", "layer", "role", "position", "token_id", "token")

Rows = Sequence[Mapping[str, Floats]]  # one a site: each of SERIES, float32 [tokens]


# writing


def to_json(trace: NormTrace) -> str:
    """The trace as the JSON of the format `rmsnorm-trace/1`."""
    sites = [_site_header(site) | _site_numbers(site) for site in trace.sites]
    return _dumps(_header(trace) | {"sites": sites})


def to_csv(trace: NormTrace) -> str:
    """One row a site and token. What a row cannot hold (provenance, prompt, gains) stands as JSON
    in the first row's last column, `trace`; the other rows leave it empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)  # lines end in \r\n, so that a token that is a lone \r is quoted too
    writer.writerow([*_CSV_LEADING, *SERIES, "trace"])
    header = _dumps(_header(trace))
    for site in trace.sites:
        layer = "" if site.layer is None else site.layer
        columns = [site.series(name) for name in SERIES]
        for token, *row in zip(trace.tokens, *columns, strict=True):
            numbers = ["" if not np.isfinite(x) else str(x) for x in row]
            writer.writerow(
                [site.name, layer, site.role, token.position, token.id, token.text, *numbers, header]
            )
            header = ""
    return buffer.getvalue()


def to_npz(trace: NormTrace) -> bytes:
    """Arrays [sites, tokens] by the names of SERIES, and `header`, the rest as JSON."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = to_arrays(trace)
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def to_arrays(trace: NormTrace) -> dict[str, NDArray[Any]]:
    """What `to_npz` writes: float32 [sites, tokens] a series, and the header."""
    arrays: dict[str, NDArray[Any]] = {
        name: np.stack([site.series(name) for site in trace.sites]).astype(np.float32) for name in SERIES
    }
    arrays["header"] = np.array(_dumps(_header(trace)))
    return arrays


WRITERS: Final[Mapping[str, Callable[[NormTrace], bytes]]] = {
    ".json": lambda trace: to_json(trace).encode(),
    ".csv": lambda trace: to_csv(trace).encode(),
    ".npz": to_npz,
}


def _dumps(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _header(trace: NormTrace) -> dict[str, Any]:
    header: dict[str, Any] = {
        "format": FORMAT,
        "checkpoint": asdict(trace.checkpoint),
        "prompt": trace.prompt,
        "tokens": [asdict(token) for token in trace.tokens],
        "sites": [_site_header(site) for site in trace.sites],
    }
    if trace.tokens_cut:
        header["tokens_cut"] = trace.tokens_cut
    return header


def _site_header(site: SiteTrace) -> dict[str, Any]:
    header: dict[str, Any] = {
        "name": site.name,
        "layer": site.layer,
        "role": site.role,
        "class": site.class_name,
        "size": site.size,
        "eps": site.eps if np.isfinite(site.eps) else None,
        "gain_convention": site.gain_convention,
        "gain": None if site.gain is None else asdict(site.gain),
        "non_finite": site.non_finite,
    }
    if site.heads is not None:
        header["heads"] = site.heads
    if site.why_no_gain is not None:
        header["why_no_gain"] = site.why_no_gain
    return header


def _site_numbers(site: SiteTrace) -> dict[str, Any]:
    return {
        side: {f.name: _finite_or_none(getattr(statistics, f.name)) for f in fields(Statistics)}
        for side, statistics in (("input", site.input), ("output", site.output))
    } | {"normalized": {"l2": _finite_or_none(site.normalized_l2)}}


def _finite_or_none(values: Floats) -> list[float | None]:
    # float(str(x)) is the shortest decimal that gives the same float32 again
    return [float(str(x)) if np.isfinite(x) else None for x in values]


# reading


class _Refused(Exception):
    """Why a file is not a trace, in words for the person."""


def load_trace(path: Path) -> NormTrace:
    """Read a file that `NormTrace.save` wrote.

    Raises:
        ProbeError: `not_found`, `unreadable`, or `not_a_trace` with the reason.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ProbeError("not_a_trace", path=path.name, reason="it is too large")
        data = path.read_bytes()
    except FileNotFoundError:
        raise ProbeError("not_found", path=path) from None
    except OSError as error:
        raise ProbeError("unreadable", path=path, reason=error.strerror) from None
    return read_trace(data, path.name)


def read_trace(data: bytes, name: str) -> NormTrace:
    """The same from the content of a file, whose `name` tells the kind and goes into messages.

    Raises:
        ProbeError: `not_a_trace` with the reason.
    """
    reader = _READERS.get(Path(name).suffix.lower())
    if reader is None:
        raise ProbeError("not_a_trace", path=name, reason="it ends in neither .json, .csv nor .npz")
    try:
        return reader(data)
    except _Refused as error:
        raise ProbeError("not_a_trace", path=name, reason=str(error)) from None
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError, EOFError, OSError) as error:
        reason = f"a part is missing or malformed: {type(error).__name__}"
        raise ProbeError("not_a_trace", path=name, reason=reason) from None


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> NormTrace:
    """The inverse of `to_arrays`. Raises the bare error of what is wrong."""
    columns = {name: np.asarray(arrays[name], dtype=np.float32) for name in SERIES}
    if any(column.ndim != 2 for column in columns.values()):
        raise _Refused("an array is not [sites, tokens]")
    count = {len(column) for column in columns.values()}
    if len(count) != 1:
        raise _Refused("its arrays are of different lengths")
    rows = [{name: column[i] for name, column in columns.items()} for i in range(count.pop())]
    return _assemble(json.loads(str(arrays["header"])), rows)


def _read_json(data: bytes) -> NormTrace:
    document = json.loads(data.decode("utf-8-sig"))
    if not isinstance(document, dict):
        raise _Refused("it is not a JSON object")
    rows = [
        {
            name: np.array(
                [_number(x) for x in site[name.split("_", 1)[0]][name.split("_", 1)[1]]], np.float32
            )
            for name in SERIES
        }
        for site in document.get("sites", [])
    ]
    return _assemble(document, rows)


def _read_csv(data: bytes) -> NormTrace:
    csv.field_size_limit(MAX_BYTES)
    reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
    if reader.fieldnames is None or not {*SERIES, "trace"} <= set(reader.fieldnames):
        raise _Refused("it lacks the columns of a trace")
    try:
        lines = list(reader)
    except csv.Error as error:
        raise _Refused(f"it is not a whole CSV file: {error}") from None
    if not lines or any(None in (*line.values(), *line) for line in lines):
        raise _Refused("it has no rows, or a row with more or fewer columns")
    header = json.loads(lines[0]["trace"])
    tokens = len(header["tokens"])
    if not tokens or len(lines) != tokens * len(header["sites"]):
        raise _Refused("it has more or fewer rows than sites times tokens")
    rows = [
        {
            name: np.array([_number(line[name]) for line in lines[start : start + tokens]], np.float32)
            for name in SERIES
        }
        for start in range(0, len(lines), tokens)
    ]
    return _assemble(header, rows)


def _read_npz(data: bytes) -> NormTrace:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(member.file_size for member in archive.infolist()) > MAX_BYTES:
                raise _Refused("it unpacks to more than a trace may hold")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return from_arrays({name: arrays[name] for name in (*SERIES, "header")})
    except zipfile.BadZipFile:
        raise _Refused("it is not a whole NPZ file") from None


_READERS: Final = {".json": _read_json, ".csv": _read_csv, ".npz": _read_npz}


def _assemble(header: Mapping[str, Any], rows: Rows) -> NormTrace:
    """Header and numbers as a trace, after checking that they belong together."""
    if header.get("format") != FORMAT:
        raise _Refused(f"its format is {str(header.get('format'))[:40]!r}, not {FORMAT!r}")
    tokens = tuple(
        Token(int(t["position"]), int(t["id"]), _text(t["text"]), bool(t["special"]))
        for t in header["tokens"]
    )
    sites: Iterable[Mapping[str, Any]] = header["sites"]
    if not tokens or not rows:
        raise _Refused("it has no tokens or no sites")
    if len(header["sites"]) != len(rows):
        raise _Refused("it has numbers for more or fewer sites than it names")
    return NormTrace(
        checkpoint=_checkpoint(header["checkpoint"]),
        prompt=_text(header["prompt"]),
        tokens=tokens,
        sites=tuple(_site(site, row, len(tokens)) for site, row in zip(sites, rows, strict=True)),
        tokens_cut=int(header.get("tokens_cut", 0)),
    )


def _checkpoint(info: Mapping[str, Any]) -> CheckpointInfo:
    values: dict[str, Any] = {
        f.name: int(info[f.name]) if f.type == "int" else _text(info[f.name]) for f in fields(CheckpointInfo)
    }
    return CheckpointInfo(**values)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Refused("a text is expected where there is something else")
    return value


def _site(header: Mapping[str, Any], numbers: Mapping[str, Floats], tokens: int) -> SiteTrace:
    if any(values.shape != (tokens,) for values in numbers.values()):
        raise _Refused(f"{_text(header['name'])} has more or fewer numbers than tokens")
    if header["role"] not in ROLES or header["gain_convention"] not in CONVENTIONS:
        raise _Refused(f"{_text(header['name'])} has an unknown role or gain convention")
    finite = {name: np.where(np.isfinite(v), v, np.float32(np.nan)) for name, v in numbers.items()}
    gain = header["gain"]
    heads = header.get("heads")
    why = header.get("why_no_gain")
    return SiteTrace(
        name=_text(header["name"]),
        layer=None if header["layer"] is None else int(header["layer"]),
        role=header["role"],
        class_name=_text(header["class"]),
        size=int(header["size"]),
        eps=_number(header["eps"]),
        gain_convention=header["gain_convention"],
        gain=None
        if gain is None
        else GainSummary(**{f.name: _number(gain[f.name]) for f in fields(GainSummary)}),
        input=Statistics(*(finite[f"input_{f.name}"] for f in fields(Statistics))),
        normalized_l2=finite["normalized_l2"],
        output=Statistics(*(finite[f"output_{f.name}"] for f in fields(Statistics))),
        non_finite=int(header["non_finite"]),
        heads=None if heads is None else int(heads),
        why_no_gain=None if why is None else _text(why),
    )


def _number(value: object) -> float:
    if value is None or value == "":
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _Refused("a number is expected where there is something else")
    return float(value)

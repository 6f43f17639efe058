"""A `NormTrace` as JSON, CSV or NPZ, and back, refusing what is not one.

A file comes from anywhere: each is bounded before it is unpacked or parsed, no pickle is opened, and its parts
are checked against each other before a trace is made of them.
"""

from __future__ import annotations

import csv
import io
import json
import math
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
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

MAX_BYTES: Final = 256 * 2**20  # of a file, and of what an NPZ unpacks to
MAX_TOKENS: Final = 8192
MAX_SITES: Final = 1024
MAX_LAYERS: Final = 4096
MAX_SIZE: Final = 2**20  # features normed together, or the width of a model
MAX_PROMPT: Final = 2**24  # characters
MAX_NAME: Final = 4096  # characters of any other text

REASONS: Final[Mapping[str, str]] = {
    "ending": "it ends in neither .json, .csv nor .npz",
    "too_large": "it is too large",
    "not_whole": "it is not a whole {kind} file",
    "not_an_object": "it is not a JSON object",
    "format": "its format is {found}, not {wanted}",
    "columns": "it lacks the columns of a trace",
    "nothing": "it has no tokens or no sites",
    "limits": "it has more than {tokens} tokens or {sites} sites",
    "counts": "its numbers are more or fewer than its sites times its tokens",
    "twice": "it has the same site twice",
    "negative": "a length in it is negative",
    "malformed": "a part is missing or malformed",
}
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


class _Refused(ValueError):
    """Why a file is not a trace: a key of `REASONS` and its facts."""

    def __init__(self, why: str, **facts: object) -> None:
        self.why, self.facts = why, facts
        super().__init__(REASONS[why].format(**facts))


def load_trace(path: Path) -> NormTrace:
    """Read a file that `NormTrace.save` wrote.

    Raises:
        ProbeError: `not_found`, `unreadable`, or `not_a_trace` with the reason.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _refusal(path.name, _Refused("too_large"))
        data = path.read_bytes()
    except FileNotFoundError:
        raise ProbeError("not_found", path=path) from None
    except OSError as error:
        raise ProbeError("unreadable", path=path, reason=error.strerror) from None
    return read_trace(data, path.name)


def read_trace(data: bytes, name: str, *, at_most: int = MAX_BYTES) -> NormTrace:
    """The same from the content of a file, whose `name` tells the kind and goes into messages.

    `at_most` bounds the file, and what an NPZ unpacks to, in bytes.

    Raises:
        ProbeError: `not_a_trace` with the `reason` as a sentence, and `why`, a key of `REASONS`, with its facts.
    """
    try:
        reader = _READERS.get(Path(name).suffix.lower())
        if reader is None:
            raise _Refused("ending")
        if len(data) > at_most:
            raise _Refused("too_large")
        return reader(data, at_most)
    except _Refused as refused:
        raise _refusal(name, refused) from None
    except (
        ArithmeticError, AttributeError, LookupError, TypeError, ValueError, MemoryError, RecursionError, OSError
    ):  # fmt: skip
        raise _refusal(name, _Refused("malformed")) from None


def _refusal(name: str, refused: _Refused) -> ProbeError:
    return ProbeError("not_a_trace", path=name, reason=str(refused), why=refused.why, **refused.facts)


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> NormTrace:
    """The inverse of `to_arrays`. Raises the bare error of what is wrong."""
    with np.errstate(over="ignore"):  # what float32 cannot hold is not finite
        columns = {name: np.asarray(arrays[name], dtype=np.float32) for name in SERIES}
    shapes = {column.shape for column in columns.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2:
        raise _Refused("counts")
    sites = min(next(iter(shapes))[0], MAX_SITES + 1)
    return _assemble(
        json.loads(str(arrays["header"])),
        [{name: column[i] for name, column in columns.items()} for i in range(sites)],
    )


def _read_json(data: bytes, at_most: int) -> NormTrace:
    document = _parsed(data)
    _bounded(document)
    rows = [
        {
            name: _numbers(site[name.partition("_")[0]][name.partition("_")[2]], len(document["tokens"]))
            for name in SERIES
        }
        for site in document["sites"]
    ]
    return _assemble(document, rows)


def _read_csv(data: bytes, at_most: int) -> NormTrace:
    csv.field_size_limit(MAX_BYTES)
    if len(data.partition(b"\n")[0]) > MAX_NAME:
        raise _Refused("columns")
    lines = csv.reader(io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline=""), strict=True)
    try:
        names = next(lines, [])
        if not {*SERIES, "trace"} <= set(names):
            raise _Refused("columns")
        first = next(lines, None)
        if first is None or len(first) != len(names):
            raise _Refused("not_whole", kind="CSV")
        header = _parsed(first[names.index("trace")].encode())
        _bounded(header)
        tokens, sites = len(header["tokens"]), len(header["sites"])
        places = [names.index(name) for name in SERIES]
        table = np.empty((len(SERIES), sites * tokens), np.float32)
        row = 0
        line: list[str] | None = first
        while line is not None:
            if len(line) != len(names) or row == sites * tokens:
                raise _Refused("counts")
            table[:, row] = [_number(line[place]) for place in places]
            row, line = row + 1, next(lines, None)
    except csv.Error:
        raise _Refused("not_whole", kind="CSV") from None
    if row != sites * tokens:
        raise _Refused("counts")
    columns = table.reshape(len(SERIES), sites, tokens)
    return _assemble(header, [dict(zip(SERIES, columns[:, i], strict=True)) for i in range(sites)])


_DIRECTORY_ENTRY: Final = b"PK\x01\x02"
_MOST_MEMBERS: Final = 64  # of an NPZ; a list of millions would be read whole before the first is opened


def _read_npz(data: bytes, at_most: int) -> NormTrace:
    if data.count(_DIRECTORY_ENTRY) > _MOST_MEMBERS:
        raise _Refused("not_whole", kind="NPZ")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.getinfo(f"{name}.npy") for name in (*SERIES, "header")}
            if sum(member.file_size for member in members.values()) > at_most:
                raise _Refused("too_large")
            return from_arrays({name: _array(archive, member) for name, member in members.items()})
    except (zipfile.BadZipFile, zlib.error, EOFError):
        raise _Refused("not_whole", kind="NPZ") from None


_NPY_HEADERS: Final = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """One array of an NPZ. NumPy's own reader would first make room for whatever size the array claims."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 1:
        raise _Refused("malformed")
    with archive.open(member) as file:
        shape, by_column, dtype = _NPY_HEADERS[np.lib.format.read_magic(file)](file)
        size = math.prod(shape) * dtype.itemsize
        if dtype.kind not in "fU" or min(shape, default=0) < 0:
            raise _Refused("malformed")
        if size > member.file_size:
            raise _Refused("not_whole", kind="NPZ")
        content = file.read(size)
    return np.frombuffer(content, dtype).reshape(shape, order="F" if by_column else "C")


_READERS: Final[Mapping[str, Callable[[bytes, int], NormTrace]]] = {
    ".json": _read_json,
    ".csv": _read_csv,
    ".npz": _read_npz,
}
# Lists and objects in a JSON text, brackets in a prompt counted with them: sites have 15 each, tokens one. Each
# empty one takes up to seventy bytes for its three.
_MOST_BRACKETS: Final = 2**20


def _parsed(text: bytes) -> dict[str, Any]:
    if text.count(b"{") + text.count(b"[") > _MOST_BRACKETS:
        raise _Refused("too_large")
    try:
        document = json.loads(text.decode("utf-8-sig"))
    except json.JSONDecodeError:
        raise _Refused("not_whole", kind="JSON") from None
    if not isinstance(document, dict):
        raise _Refused("not_an_object")
    return document


def _bounded(header: Mapping[str, Any]) -> None:
    """Refuses another format, and more tokens or sites than there may be."""
    if header.get("format") != FORMAT:
        raise _Refused("format", found=repr(header.get("format"))[:40], wanted=repr(FORMAT))
    tokens, sites = header["tokens"], header["sites"]
    if not isinstance(tokens, list) or not isinstance(sites, list):
        raise _Refused("malformed")
    if not tokens or not sites:
        raise _Refused("nothing")
    if len(tokens) > MAX_TOKENS or len(sites) > MAX_SITES:
        raise _Refused("limits", tokens=MAX_TOKENS, sites=MAX_SITES)


def _assemble(header: Mapping[str, Any], rows: Rows) -> NormTrace:
    """Header and numbers as a trace, after checking that they belong together."""
    _bounded(header)
    tokens = tuple(
        Token(
            position=_whole(token["position"], place, place),
            id=_whole(token["id"], 0, 2**31),
            text=_text(token["text"]),
            special=_flag(token["special"]),
        )
        for place, token in enumerate(header["tokens"])
    )
    if len(header["sites"]) != len(rows):
        raise _Refused("counts")
    sites = tuple(_site(site, row, len(tokens)) for site, row in zip(header["sites"], rows, strict=True))
    if len({site.name for site in sites}) != len(sites):
        raise _Refused("twice")
    return NormTrace(
        checkpoint=_checkpoint(header["checkpoint"]),
        prompt=_text(header["prompt"], MAX_PROMPT),
        tokens=tokens,
        sites=sites,
        tokens_cut=_whole(header.get("tokens_cut", 0), 0, 2**31),
    )


def _checkpoint(info: Mapping[str, Any]) -> CheckpointInfo:
    values: dict[str, Any] = {f.name: info[f.name] for f in fields(CheckpointInfo)}
    values["hidden_size"] = _whole(values["hidden_size"], 1, MAX_SIZE)
    values["num_layers"] = _whole(values["num_layers"], 0, MAX_LAYERS)
    for name in values.keys() - {"hidden_size", "num_layers"}:
        values[name] = _text(values[name])
    datetime.fromisoformat(values["recorded_at"])
    return CheckpointInfo(**values)


def _site(header: Mapping[str, Any], numbers: Mapping[str, Floats], tokens: int) -> SiteTrace:
    if any(values.shape != (tokens,) for values in numbers.values()):
        raise _Refused("counts")
    if header["role"] not in ROLES or header["gain_convention"] not in CONVENTIONS:
        raise _Refused("malformed")
    if any((values < 0).any() for name, values in numbers.items() if not name.endswith("_mean")):
        raise _Refused("negative")
    finite = {name: np.where(np.isfinite(v), v, np.float32(np.nan)) for name, v in numbers.items()}
    gain = header["gain"]
    heads = header.get("heads")
    why = header.get("why_no_gain")
    return SiteTrace(
        name=_text(header["name"]),
        layer=None if header["layer"] is None else _whole(header["layer"], 0, MAX_LAYERS),
        role=header["role"],
        class_name=_text(header["class"]),
        size=_whole(header["size"], 1, MAX_SIZE),
        eps=_number(header["eps"]),
        gain_convention=header["gain_convention"],
        gain=None
        if gain is None
        else GainSummary(**{f.name: _finite(gain[f.name]) for f in fields(GainSummary)}),
        input=Statistics(*(finite[f"input_{f.name}"] for f in fields(Statistics))),
        normalized_l2=finite["normalized_l2"],
        output=Statistics(*(finite[f"output_{f.name}"] for f in fields(Statistics))),
        non_finite=_whole(header["non_finite"], 0, 2**62),
        heads=None if heads is None else _whole(heads, 1, MAX_SIZE),
        why_no_gain=None if why is None else _text(why),
    )


def _text(value: object, most: int = MAX_NAME) -> str:
    """Raises ValueError for half a surrogate pair, which no page could be sent."""
    if not isinstance(value, str) or len(value) > most:
        raise _Refused("malformed")
    value.encode()
    return value


def _whole(value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _Refused("malformed")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _Refused("malformed")
    return value


def _numbers(values: object, count: int) -> Floats:
    if not isinstance(values, list) or len(values) != count:
        raise _Refused("counts")
    with np.errstate(over="ignore"):
        return np.array([_number(x) for x in values], np.float32)


def _finite(value: object) -> float:
    """A number that is one: a gain that is not finite has no summary."""
    number = _number(value)
    if not math.isfinite(number):
        raise _Refused("malformed")
    return number


def _number(value: object) -> float:
    if value is None or value == "":
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _Refused("malformed")
    return float(value)

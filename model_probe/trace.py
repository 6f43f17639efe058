"""`NormTrace`: what one pass did at every norm, and how it is written and read.

    trace.save("trace.json")                  JSON, CSV or NPZ, by the file's ending
    trace = NormTrace.load("trace.json")      the same, or ProbeError("not_a_trace")

Numbers are float32, one a token; a number that is not finite is `null` in JSON, empty in CSV and
NaN in NPZ and in memory, and is counted in `non_finite`. Infinities come back as NaN.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from model_probe.errors import ProbeError

FORMAT: Final = "rmsnorm-trace/1"
ROLES: Final = (
    "attention_input", "mlp_input", "final", "query", "key", "gated",
    "attention_output", "mlp_output", "latent", "other",
)  # fmt: skip
CONVENTIONS: Final = ("weight", "one_plus_weight", "none", "other")
RESIDUAL_ROLES: Final = ("attention_input", "mlp_input", "final")  # their input is the residual stream
PER_HEAD_ROLES: Final = ("query", "key", "gated")

# The per-token series of a site, as CSV columns and NPZ arrays name them.
SERIES: Final = (
    "input_l2", "input_mean", "input_std", "input_abs_max", "normalized_l2",
    "output_l2", "output_mean", "output_std", "output_abs_max",
)  # fmt: skip

_CSV_LEADING: Final = ("site", "layer", "role", "position", "token_id", "token")
MAX_FILE_BYTES: Final = 256 * 2**20
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """Where numbers come from: shown as provenance beside every measured figure."""

    name: str
    source: str  # the hub id, file or folder it was read from
    digest: str  # sha256 of the GGUF file, commit of the hub, or sha256 over the weights' headers
    architecture: str  # class of the model, "Qwen2ForCausalLM"
    model_type: str  # of config.json, "qwen2"
    hidden_size: int
    num_layers: int
    dtype: str  # "float32"
    device: str  # "cpu"
    torch: str  # version
    transformers: str  # version
    recorded_at: str  # ISO 8601, UTC


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the prompt, as text a person can read."""

    position: int
    id: int
    text: str  # literal; a piece of a split character as its bytes, "<0xF0><0x9F>"
    special: bool  # a control token of the tokenizer, typed or added


@dataclass(frozen=True, slots=True)
class GainSummary:
    """Statistics of a measured gain vector over its features."""

    mean: float
    rms: float
    min: float
    max: float
    std: float  # the population's


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is kept of one activation [tokens, size]: one float32 a token."""

    l2: Floats
    mean: Floats
    std: Floats  # the population's
    abs_max: Floats


@dataclass(frozen=True, slots=True)
class SiteTrace:
    """One call of a norm. Per-head norms hold the root mean square over heads of each figure
    (`abs_max`: the largest; `mean`: the mean)."""

    name: str  # of the module; "name#2" when it runs a second time in the pass
    layer: int | None  # None outside the layers
    role: str  # one of ROLES
    class_name: str
    size: int  # features normed together
    eps: float
    gain_convention: str  # one of CONVENTIONS
    gain: GainSummary | None  # None where the output cannot be rebuilt from the input
    input: Statistics
    normalized_l2: Floats
    output: Statistics
    non_finite: int  # elements of input and output that are NaN or infinite
    heads: int | None = None
    why_no_gain: str | None = None

    def series(self, name: str) -> Floats:
        """One of SERIES, one float32 a token.

        Raises:
            KeyError: the name is not in SERIES.
        """
        if name == "normalized_l2":
            return self.normalized_l2
        if name not in SERIES:
            raise KeyError(name)
        side, _, statistic = name.partition("_")
        return getattr(self.input if side == "input" else self.output, statistic)


@dataclass(frozen=True, slots=True)
class NormTrace:
    """One prompt through one checkpoint: every norm site in the order in which it ran."""

    checkpoint: CheckpointInfo
    prompt: str
    tokens: tuple[Token, ...]
    sites: tuple[SiteTrace, ...]
    tokens_cut: int = 0  # tokens of the prompt past the cap, which did not run

    def site(self, name: str) -> SiteTrace:
        """The site of this name. Raises KeyError when there is none."""
        for site in self.sites:
            if site.name == name:
                return site
        raise KeyError(name)

    def depth(self) -> tuple[SiteTrace, ...]:
        """The hidden-size sites along the residual stream, in order, the final norm last.

        Those whose input is the residual; where a model has none but the final one (OLMo 2 norms
        only what its branches give back), every hidden-size site outside attention heads.
        """
        stream = tuple(site for site in self.sites if site.role in RESIDUAL_ROLES)
        if any(site.role != "final" for site in stream):
            return stream
        return tuple(
            site
            for site in self.sites
            if site.size == self.checkpoint.hidden_size and site.role not in (*PER_HEAD_ROLES, "latent")
        )

    def non_finite_sites(self) -> tuple[SiteTrace, ...]:
        """The sites at which a NaN or an infinity passed, in order."""
        return tuple(site for site in self.sites if site.non_finite)

    # writing

    def to_json(self) -> str:
        """The trace as the JSON of the format `rmsnorm-trace/1`."""
        sites = [_site_header(site) | _site_numbers(site) for site in self.sites]
        document = self._header() | {"sites": sites}
        return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    def to_csv(self) -> str:
        """One row a site and token. What a row cannot hold (provenance, prompt, gains) stands as
        JSON in the first row's last column, `trace`; the other rows leave it empty."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([*_CSV_LEADING, *SERIES, "trace"])
        header = json.dumps(self._header(), ensure_ascii=False, allow_nan=False)
        for site in self.sites:
            columns = [site.series(name) for name in SERIES]
            for token, *row in zip(self.tokens, *columns, strict=True):
                layer = "" if site.layer is None else site.layer
                numbers = ["" if not np.isfinite(x) else str(x) for x in row]
                writer.writerow(
                    [site.name, layer, site.role, token.position, token.id, token.text, *numbers, header]
                )
                header = ""
        return buffer.getvalue()

    def to_npz(self) -> bytes:
        """Arrays [sites, tokens] by the names of SERIES, and `header`, the rest as JSON."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **self.arrays())
        return buffer.getvalue()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `to_npz` writes: float32 [sites, tokens] a series, and the header."""
        arrays: dict[str, NDArray[Any]] = {
            name: np.stack([site.series(name) for site in self.sites]).astype(np.float32) for name in SERIES
        }
        arrays["header"] = np.array(json.dumps(self._header(), ensure_ascii=False, allow_nan=False))
        return arrays

    def save(self, path: str | Path) -> None:
        """Write JSON, CSV or NPZ, by the ending of `path`.

        Raises:
            ValueError: another ending.
        """
        path = Path(path)
        writers = {
            ".json": lambda: self.to_json().encode(),
            ".csv": lambda: self.to_csv().encode(),
            ".npz": self.to_npz,
        }
        if path.suffix not in writers:
            raise ValueError(f"a trace is saved as .json, .csv or .npz, not {path.suffix!r}")
        path.write_bytes(writers[path.suffix]())

    def _header(self) -> dict[str, Any]:
        header: dict[str, Any] = {
            "format": FORMAT,
            "checkpoint": asdict(self.checkpoint),
            "prompt": self.prompt,
            "tokens": [asdict(token) for token in self.tokens],
            "sites": [_site_header(site) for site in self.sites],
        }
        if self.tokens_cut:
            header["tokens_cut"] = self.tokens_cut
        return header

    # reading

    @classmethod
    def load(cls, path: str | Path) -> NormTrace:
        """Read what `save` wrote.

        Raises:
            ProbeError: `not_found`, `unreadable`, or `not_a_trace` with the reason.
        """
        path = Path(path)
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise ProbeError("not_a_trace", path=path.name, reason="it is too large")
            data = path.read_bytes()
        except FileNotFoundError:
            raise ProbeError("not_found", path=path) from None
        except OSError as error:
            raise ProbeError("unreadable", path=path, reason=error.strerror) from None
        return cls.from_bytes(data, path.name)

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> NormTrace:
        """The same from the content of a file, whose `name` tells the kind and goes into messages.

        Raises:
            ProbeError: `not_a_trace` with the reason.
        """
        readers = {".json": _read_json, ".csv": _read_csv, ".npz": _read_npz}
        reader = readers.get(Path(name).suffix.lower())
        if reader is None:
            raise ProbeError("not_a_trace", path=name, reason="it ends in neither .json, .csv nor .npz")
        try:
            return reader(data)
        except ProbeError:
            raise
        except _Refused as error:
            raise ProbeError("not_a_trace", path=name, reason=str(error)) from None
        except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError, EOFError, OSError) as error:
            reason = f"a part is missing or malformed: {type(error).__name__}"
            raise ProbeError("not_a_trace", path=name, reason=reason) from None

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> NormTrace:
        """The inverse of `arrays`. Raises like `from_bytes`, but the bare errors."""
        header = json.loads(str(arrays["header"]))
        columns = [np.asarray(arrays[name], dtype=np.float32) for name in SERIES]
        if any(column.ndim != 2 for column in columns):
            raise _Refused("an array is not [sites, tokens]")
        rows = ({name: column[i] for name, column in zip(SERIES, columns, strict=True)} for i in _count())
        return _assemble(header, rows, (len(columns[0]), {len(column) for column in columns}))


class _Refused(Exception):
    """Why a file is not a trace, in words for the person."""


def _count() -> Iterator[int]:
    i = 0
    while True:
        yield i
        i += 1


def _finite_or_none(values: Floats) -> list[float | None]:
    # float(str(x)) is the shortest decimal that gives the same float32 again
    return [float(str(x)) if np.isfinite(x) else None for x in values]


def _number(value: object) -> float:
    if value is None or value == "":
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _Refused("a number is expected where there is something else")
    return float(value)


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


def _read_json(data: bytes) -> NormTrace:
    document = json.loads(data.decode("utf-8-sig"))
    if not isinstance(document, dict):
        raise _Refused("it is not a JSON object")
    rows = [
        {
            name: np.array([_number(x) for x in site[name.split("_", 1)[0]][name.split("_", 1)[1]]], np.float32)
            for name in SERIES
        }
        for site in document.get("sites", [])
    ]
    return _assemble(document, iter(rows), (len(rows), {len(rows)}))


def _read_csv(data: bytes) -> NormTrace:
    csv.field_size_limit(MAX_FILE_BYTES)
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
    return _assemble(header, iter(rows), (len(rows), {len(rows)}))


def _read_npz(data: bytes) -> NormTrace:
    import zipfile

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(member.file_size for member in archive.infolist()) > MAX_FILE_BYTES:
                raise _Refused("it unpacks to more than a trace may hold")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return NormTrace.from_arrays({name: arrays[name] for name in (*SERIES, "header")})
    except zipfile.BadZipFile:
        raise _Refused("it is not a whole NPZ file") from None


def _assemble(
    header: Mapping[str, Any],
    rows: Iterator[Mapping[str, Floats]],
    counts: tuple[int, set[int]],
) -> NormTrace:
    """Header and numbers as a trace, after checking that they belong together."""
    if header.get("format") != FORMAT:
        raise _Refused(f"its format is {str(header.get('format'))[:40]!r}, not {FORMAT!r}")
    tokens = tuple(
        Token(int(t["position"]), int(t["id"]), _text(t["text"]), bool(t["special"])) for t in header["tokens"]
    )
    sites_header: Sequence[Mapping[str, Any]] = header["sites"]
    if not tokens or not sites_header:
        raise _Refused("it has no tokens or no sites")
    if counts[1] != {len(sites_header)}:
        raise _Refused("it has numbers for more or fewer sites than it names")
    sites = tuple(_site(h, next(rows), len(tokens)) for h in sites_header)
    info = header["checkpoint"]
    checkpoint = CheckpointInfo(
        **{
            f.name: int(info[f.name]) if f.name in ("hidden_size", "num_layers") else _text(info[f.name])
            for f in fields(CheckpointInfo)
        }
    )
    return NormTrace(checkpoint, _text(header["prompt"]), tokens, sites, int(header.get("tokens_cut", 0)))


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
        gain=None if gain is None else GainSummary(**{f.name: _number(gain[f.name]) for f in fields(GainSummary)}),
        input=Statistics(*(finite[f"input_{f.name}"] for f in fields(Statistics))),
        normalized_l2=finite["normalized_l2"],
        output=Statistics(*(finite[f"output_{f.name}"] for f in fields(Statistics))),
        non_finite=int(header["non_finite"]),
        heads=None if heads is None else int(heads),
        why_no_gain=None if why is None else _text(why),
    )

"""A batch's folder: one Parquet dataset of traces, written part by part.

    pandas.read_parquet("out")                     every row
    pyarrow.dataset.dataset("out")                 the same, lazily
    duckdb.sql("from 'out/*.parquet'")             the same
    for one in read_batch("out"): one.trace        the traces again, as `capture` gave them

One row a site and token, in the order of the pass, like the CSV of one trace:

| column | type | |
|---|---|---|
| `prompt_index` | int64 | the prompt's place in the file of prompts, from 0 |
| `prompt_id` | string, may be null | the file's own `id` |
| `prompt` | string (dictionary) | its text |
| `tokens_cut` | int32 | tokens past the cap, which did not run |
| `site`, `role` | string (dictionary) | name and role of the norm |
| `layer` | int32, null outside the layers | |
| `position`, `token_id` | int32, int64 | of the token |
| `token` | string (dictionary) | its text |
| `special` | bool | a control token |
| nine series of `model_probe.trace.SERIES` | float32 | null where the number is not finite |
| `non_finite` | int64 | elements of the site's input and output that are not finite, over all tokens |

A prompt that stands in the file more than once is measured once and written under each of its indices.

Each file's schema metadata holds, under `rmsnorm_batch`, JSON with `format`, `checkpoint` (as in a trace's JSON),
`max_tokens`, `spread` (how the checkpoint was laid out: `device_map`, `tp_plan`), `sites` (what a row cannot hold:
class, size, eps, gain and its convention, heads) and `prompts` (index, sha256 of the text, time of the measurement).
Prompts that could not be measured stand in `_errors.jsonl`: `prompt_index`, `prompt_id`, `code`, `reason`.

A part is written under a name that no reader of a dataset looks at (a dot before it) and renamed when it is on
the disk, so that what stands there is whole; parts come in the order in which prompts were done.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from filelock import FileLock, Timeout

from model_probe.errors import ProbeError
from model_probe.prompt_files import Prompt, text_digest
from model_probe.trace import SERIES, CheckpointInfo, NormTrace
from model_probe.trace_files import from_arrays, to_arrays

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "rmsnorm-batch/1"
METADATA: Final = b"rmsnorm_batch"
ERRORS: Final = "_errors.jsonl"
_LOCK: Final = ".lock"
_SCRATCH: Final = ".half-"
_PART: Final = re.compile(r"part-(\d{6})\.parquet")
_SAME: Final = ("name", "digest", "dtype")  # of the checkpoint, in all parts of a folder


@dataclass(frozen=True, slots=True)
class BatchTrace:
    """One prompt of a batch and its trace."""

    index: int  # its place in the file of prompts
    id: str | None  # the file's own
    trace: NormTrace


@dataclass(frozen=True, slots=True)
class Settings:
    """What all parts of a folder have in common."""

    checkpoint: CheckpointInfo
    max_tokens: int
    spread: Mapping[str, str]

    def refuse_other(self, folder: Path, found: Settings) -> None:
        """Raise ProbeError `other_batch` where traces of these settings cannot stand beside the found ones."""
        for name in _SAME:
            here, there = getattr(self.checkpoint, name), getattr(found.checkpoint, name)
            if here != there:
                reason = f"the {name} of its checkpoint is {there}, not {here}"
                raise ProbeError("other_batch", path=folder, reason=reason)
        if self.max_tokens != found.max_tokens:
            reason = f"it cuts prompts to {found.max_tokens} tokens, not {self.max_tokens}"
            raise ProbeError("other_batch", path=folder, reason=reason)


@dataclass(frozen=True, slots=True)
class Measured:
    """A trace and the prompts that it is the trace of."""

    prompts: Sequence[Prompt]
    trace: NormTrace

    @property
    def rows(self) -> int:
        return len(self.prompts) * len(self.trace.sites) * len(self.trace.tokens)


def read_batch(folder: str | Path) -> Iterator[BatchTrace]:
    """The traces of a batch's folder, part by part, equal to what `capture` gave.

    Raises:
        ProbeError: `not_found`, `unreadable`, or `not_a_batch` naming the part and the reason.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ProbeError("not_found", path=folder)
    parts = sorted(path for path in folder.iterdir() if _PART.fullmatch(path.name))
    if not parts and not (folder / ERRORS).exists():
        raise ProbeError("not_a_batch", path=folder, reason="no part-….parquet is in it")
    for part in parts:
        yield from _read_part(part)


class BatchFolder:
    """The folder while a batch is written to it: what stands there already, and the next part."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: dict[int, str] = {}  # index → sha256 of the prompt
        self.removed: list[str] = []  # parts that were not whole
        self.settings: Settings | None = None  # of the parts that stand there
        self._next = 0

    @classmethod
    @contextmanager
    def opened(cls, folder: Path) -> Iterator[BatchFolder]:
        """Make the folder if it is not there, keep others from writing to it, and look at what stands there.

        Raises:
            ProbeError: `unwritable`, `disk_full`, `batch_busy`, `not_a_batch` for a Parquet file that is not ours,
                or `other_batch` where its parts do not belong together.
        """
        batch = cls(folder)
        lock = FileLock(folder / _LOCK)
        with _write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise ProbeError("batch_busy", path=folder) from None
        try:
            with _write_errors(folder):
                batch._look()
            yield batch
        finally:
            lock.release()

    def _look(self) -> None:
        for path in sorted(self.folder.iterdir()):
            if path.name.startswith(_SCRATCH):  # of a run that was killed
                path.unlink()
            elif path.suffix == ".parquet":
                self._take(path)

    def _take(self, path: Path) -> None:
        match = _PART.fullmatch(path.name)
        header = None
        with suppress(ProbeError):
            header = _header(path)
        if header is None:
            if match is None or _is_parquet(path):
                raise ProbeError("not_a_batch", path=self.folder, reason=f"{path.name} is another program's")
            path.unlink()
            self.removed.append(path.name)
            return
        settings = _settings(header)
        if self.settings is not None:
            settings.refuse_other(self.folder, self.settings)
        self.settings = settings
        self.done.update({entry["index"]: entry["sha256"] for entry in header["prompts"]})
        if match is not None:
            self._next = max(self._next, int(match[1]) + 1)

    def write(self, settings: Settings, measured: Sequence[Measured]) -> None:
        """Add a part. Whoever kills the program meanwhile finds it whole or not at all."""
        from pyarrow import parquet

        name = f"part-{self._next:06d}.parquet"
        table = to_table(settings, measured)

        def put(path: Path) -> None:
            parquet.write_table(table, path, compression="zstd")

        self._put(name, put)
        self._next += 1
        for each in measured:
            self.done.update({prompt.index: prompt.digest for prompt in each.prompts})

    def write_errors(self, errors: Iterable[tuple[Prompt, ProbeError]]) -> None:
        """Replace the list of prompts that could not be measured; without one there is no file."""
        lines = [
            json.dumps(
                {
                    "prompt_index": prompt.index,
                    "prompt_id": prompt.id,
                    "code": error.code,
                    "reason": str(error),
                }
            )
            for prompt, error in sorted(errors, key=lambda pair: pair[0].index)
        ]
        if not lines:
            (self.folder / ERRORS).unlink(missing_ok=True)
            return
        text = "".join(f"{line}\n" for line in lines)
        self._put(ERRORS, lambda path: path.write_text(text, encoding="utf-8"))

    def _put(self, name: str, write: Callable[[Path], object]) -> None:
        scratch = self.folder / f"{_SCRATCH}{name}"
        try:
            with _write_errors(self.folder):
                write(scratch)
                with scratch.open("rb") as file:
                    os.fsync(file.fileno())
                scratch.replace(self.folder / name)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise


def to_table(settings: Settings, measured: Sequence[Measured]) -> pa.Table:
    """The rows of a part, with the schema and metadata that the module's docstring tells."""
    import pyarrow as pa

    blocks = [(prompt, each.trace) for each in measured for prompt in each.prompts]
    sites = {header["name"]: header for each in measured for header in _site_headers(each.trace)}
    header = {
        "format": FORMAT,
        "checkpoint": asdict(settings.checkpoint),
        "max_tokens": settings.max_tokens,
        "spread": dict(settings.spread),
        "sites": list(sites.values()),
        "prompts": [
            {"index": prompt.index, "sha256": prompt.digest, "recorded_at": trace.checkpoint.recorded_at}
            for prompt, trace in blocks
        ],
    }
    table = pa.concat_tables([pa.table(_columns(prompt, trace)) for prompt, trace in blocks])
    metadata = {METADATA: json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()}
    return table.unify_dictionaries().combine_chunks().replace_schema_metadata(metadata)


def _columns(prompt: Prompt, trace: NormTrace) -> dict[str, pa.Array]:
    """The rows of one prompt."""
    import pyarrow as pa

    sites, tokens = len(trace.sites), len(trace.tokens)
    rows = sites * tokens

    def same(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), rows)

    def by_site(values: Iterable[object], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(pa.array(np.repeat(np.arange(sites), tokens)))

    def by_token(values: Iterable[object], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(pa.array(np.tile(np.arange(tokens), sites)))

    def number(name: str) -> pa.Array:
        values = np.concatenate([site.series(name) for site in trace.sites])
        return pa.array(values, pa.float32(), mask=~np.isfinite(values))

    return {
        "prompt_index": same(prompt.index, pa.int64()),
        "prompt_id": same(prompt.id, pa.string()),
        "prompt": same(prompt.text, pa.string()).dictionary_encode(),
        "tokens_cut": same(trace.tokens_cut, pa.int32()),
        "site": by_site([site.name for site in trace.sites], pa.string()).dictionary_encode(),
        "layer": by_site([site.layer for site in trace.sites], pa.int32()),
        "role": by_site([site.role for site in trace.sites], pa.string()).dictionary_encode(),
        "position": by_token([token.position for token in trace.tokens], pa.int32()),
        "token_id": by_token([token.id for token in trace.tokens], pa.int64()),
        "token": by_token([token.text for token in trace.tokens], pa.string()).dictionary_encode(),
        "special": by_token([token.special for token in trace.tokens], pa.bool_()),
        **{name: number(name) for name in SERIES},
        "non_finite": by_site([site.non_finite for site in trace.sites], pa.int64()),
    }


def _site_headers(trace: NormTrace) -> list[dict[str, Any]]:
    headers: list[dict[str, Any]] = json.loads(str(to_arrays(trace)["header"]))["sites"]
    for header in headers:
        del header["non_finite"]  # the prompt's, not the site's
    return headers


def _header(path: Path) -> dict[str, Any]:
    """The JSON in a part's metadata. Raises ProbeError `not_a_batch`."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        header = json.loads((parquet.read_metadata(path).metadata or {})[METADATA])
        if header["format"] != FORMAT:
            raise ValueError(f"its format is {header['format']}, not {FORMAT}")
        _settings(header)
    except (pa.ArrowException, OSError) as error:
        raise ProbeError(
            "not_a_batch", path=path, reason=str(error).splitlines()[0].rstrip(".") or "it is not whole"
        ) from None
    except (LookupError, TypeError, ValueError, AttributeError):
        raise ProbeError("not_a_batch", path=path, reason="it is another program's") from None
    return header


def _is_parquet(path: Path) -> bool:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        parquet.read_metadata(path)
    except (pa.ArrowException, OSError):
        return False
    return True


def _settings(header: Mapping[str, Any]) -> Settings:
    info = {f.name: header["checkpoint"][f.name] for f in fields(CheckpointInfo)}
    return Settings(CheckpointInfo(**info), int(header["max_tokens"]), dict(header["spread"]))


def _read_part(path: Path) -> Iterator[BatchTrace]:
    import pyarrow as pa
    from pyarrow import parquet

    header = _header(path)
    try:
        table = parquet.read_table(path)
        yield from _traces(header, table)
    except OSError as error:
        raise ProbeError("unreadable", path=path, reason=error.strerror or "it is not whole") from None
    except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ProbeError("not_a_batch", path=path, reason=str(error).splitlines()[0].rstrip(".")) from None


def _traces(header: Mapping[str, Any], table: pa.Table) -> Iterator[BatchTrace]:
    checkpoint = dict(header["checkpoint"])
    sites = {site["name"]: site for site in header["sites"]}
    entries = {entry["index"]: entry for entry in header["prompts"]}
    indices = table["prompt_index"].to_numpy()
    edges = [0, *(np.flatnonzero(np.diff(indices)) + 1).tolist(), len(indices)]
    for begin, end in pairwise(edges):
        block = table.slice(begin, end - begin)
        sites_in_block = int((block["position"].to_numpy() == 0).sum())
        tokens = len(block) // max(sites_in_block, 1)
        names = block["site"].to_pylist()[::tokens]
        counts = block["non_finite"].to_numpy()[::tokens].tolist()
        first = block.slice(0, tokens)
        arrays: dict[str, Any] = {name: block[name].to_numpy().reshape(len(names), tokens) for name in SERIES}
        index = int(indices[begin])
        document: dict[str, Any] = {
            "format": "rmsnorm-trace/1",
            "checkpoint": checkpoint | {"recorded_at": entries[index]["recorded_at"]},
            "prompt": block["prompt"][0].as_py(),
            "tokens": [
                {"position": position, "id": id_, "text": text, "special": special}
                for position, id_, text, special in zip(
                    *(first[name].to_pylist() for name in ("position", "token_id", "token", "special")),
                    strict=True,
                )
            ],
            "sites": [sites[name] | {"non_finite": count} for name, count in zip(names, counts, strict=True)],
            "tokens_cut": block["tokens_cut"][0].as_py(),
        }
        if text_digest(document["prompt"]) != entries[index]["sha256"]:
            raise ValueError(f"the text of prompt {index} is another than was measured")
        arrays["header"] = np.array(json.dumps(document, ensure_ascii=False))
        yield BatchTrace(index, block["prompt_id"][0].as_py(), from_arrays(arrays))


@contextmanager
def _write_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ProbeError("disk_full", needed="more bytes", path=folder) from None
        raise ProbeError("unwritable", path=folder, reason=error.strerror or str(error)) from None

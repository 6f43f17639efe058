"""The prompts of a batch: read from a file of JSON lines or from a Parquet file.

    prompts = read_prompts(Path("prompts.jsonl"))      {"prompt": "The river flows.", "id": "river"}

`prompt` is the text, `id` what its owner calls it, if anything; whatever else stands there is ignored. A prompt
is numbered by its place in the file, from 0; blank lines do not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from model_probe.errors import ProbeError

ENDINGS: Final = (".jsonl", ".parquet")
_COLUMNS: Final = ("prompt", "id")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of the file."""

    index: int  # its place in the file, from 0
    id: str | None  # the file's own, as text
    text: str  # empty where the file has none

    @property
    def digest(self) -> str:
        """sha256 of the text, in hexadecimal."""
        return text_digest(self.text)


def text_digest(text: str) -> str:
    """sha256 of the text as UTF-8, in hexadecimal; half a surrogate pair counts as what it is."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_prompts(path: Path) -> list[Prompt]:
    """All prompts of a .jsonl or .parquet file, in its order; an empty or missing text is kept as "".

    Raises:
        ProbeError: `not_found`, `unreadable`, or `bad_prompts` naming the line or the column.
    """
    if path.suffix not in ENDINGS:
        raise ProbeError("bad_prompts", path=path, reason="it ends in neither .jsonl nor .parquet")
    try:
        read = _json_lines if path.suffix == ".jsonl" else _parquet
        return list(read(path))
    except FileNotFoundError:
        raise ProbeError("not_found", path=path) from None
    except OSError as error:
        raise ProbeError("unreadable", path=path, reason=error.strerror or "not a whole file") from None


def _json_lines(path: Path) -> Iterator[Prompt]:
    index = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            if not line.strip():
                continue
            try:
                document = json.loads(line.decode("utf-8"))
            except UnicodeDecodeError:
                raise _broken_line(path, number, "is not UTF-8 text") from None
            except (ValueError, RecursionError):
                raise _broken_line(path, number, "is not JSON") from None
            if not isinstance(document, dict) or "prompt" not in document:
                raise _broken_line(path, number, 'is not an object with a "prompt"')
            text, name = document["prompt"], document.get("id")
            if text is not None and not isinstance(text, str):
                raise _broken_line(path, number, 'has a "prompt" that is not a text')
            if isinstance(name, bool) or not isinstance(name, str | int | None):
                raise _broken_line(path, number, 'has an "id" that is neither a text nor a whole number')
            if isinstance(name, str) and not _is_text(name):
                raise _broken_line(path, number, 'has an "id" with half a surrogate pair')
            yield Prompt(index, None if name is None else str(name), text or "")
            index += 1


def _broken_line(path: Path, number: int, what: str) -> ProbeError:
    return ProbeError("bad_prompts", path=path, reason=f"line {number} {what}")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parquet(path: Path) -> Iterator[Prompt]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if names.count("prompt") != 1 or names.count("id") > 1:
                raise ProbeError("bad_prompts", path=path, reason='it has no one column "prompt"')
            index = 0
            for batch in file.iter_batches(columns=[name for name in _COLUMNS if name in names]):
                columns: dict[str, list[Any]] = {
                    name: batch.column(name).cast(pa.string()).to_pylist() for name in batch.schema.names
                }
                for text, name in zip(
                    columns["prompt"], columns.get("id", [None] * batch.num_rows), strict=True
                ):
                    yield Prompt(index, name, text or "")
                    index += 1
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0].strip().rstrip(".")
        raise ProbeError("bad_prompts", path=path, reason=reason[:200]) from None

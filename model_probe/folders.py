"""What a checkpoint's folder must hold before anybody tries to load it, read without torch.

    files = check_folder(folder)           or ProbeError with what is wrong
    digest = headers_digest(folder, files)

Only config.json, the tokenizer's file names and the first bytes of each safetensors file are read:
milliseconds, whatever the size. Format: https://huggingface.co/docs/safetensors, "Format".
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from model_probe.errors import ProbeError

INDEX: Final = "model.safetensors.index.json"
SINGLE: Final = "model.safetensors"
# One of these sets of files is a tokenizer.
_TOKENIZERS: Final = (
    ("tokenizer.json",),
    ("tokenizer.model",),
    ("vocab.json", "merges.txt"),
    ("spiece.model",),
    ("vocab.txt",),
)
_MAX_HEADER_BYTES: Final = 100_000_000  # the format's own limit


def check_folder(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of a folder that has all a checkpoint needs, each of its full length.

    Raises:
        ProbeError: `unreadable`, `adapter_only`, `no_config`, `no_tokenizer`, `no_weights`, or
            `load_failed` where a file is damaged or missing.
    """
    try:
        names = {entry.name for entry in os.scandir(folder)}
        if "config.json" not in names:
            code = "adapter_only" if "adapter_config.json" in names else "no_config"
            raise ProbeError(code, path=folder)
        read_json(folder, "config.json")
        files = _weight_files(folder, names)
        if not files:
            raise ProbeError("adapter_only" if "adapter_config.json" in names else "no_weights", path=folder)
        for file in files:
            read_header(file)
        if not any(names.issuperset(tokenizer) for tokenizer in _TOKENIZERS):
            raise ProbeError("no_tokenizer", path=folder)
    except OSError as error:
        where = error.filename or folder
        raise ProbeError("unreadable", path=where, reason=error.strerror) from None
    return files


def is_whole(folder: Path) -> bool:
    """Whether `check_folder` has nothing against it."""
    try:
        check_folder(folder)
    except ProbeError:
        return False
    return True


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object of the folder.

    Raises:
        ProbeError: `load_failed` where it is not one.
        OSError: it cannot be read.
    """
    try:
        document = json.loads((folder / name).read_text(encoding="utf-8"))
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ProbeError("load_failed", path=folder, reason=f"{name} is not a JSON object")
    return document


def read_header(file: Path) -> Mapping[str, Any]:
    """The header of a safetensors file: tensor name → {dtype, shape, data_offsets}. Read anew when the file changes.

    Raises:
        ProbeError: `load_failed` where the file is cut short or is not safetensors.
        OSError: it cannot be read.
    """
    return _header(file)[1]


def headers_digest(folder: Path, files: Iterable[Path]) -> str:
    """sha256 over config.json and the headers of the weight files, in hexadecimal.

    Tells checkpoints of different shape, type or naming apart in a moment; two fine-tunings of the
    same model can only be told apart by reading all of their weights.
    """
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for file in sorted(files):
        digest.update(file.name.encode() + b"\0" + _header(file)[0])
    return digest.hexdigest()


def stored_dtype(files: Iterable[Path]) -> str:
    """The dtype that most of the stored numbers have, as safetensors names it ("BF16")."""
    counts: dict[str, int] = {}
    for file in files:
        for name, tensor in read_header(file).items():
            if name != "__metadata__":
                begin, end = tensor["data_offsets"]
                counts[tensor["dtype"]] = counts.get(tensor["dtype"], 0) + end - begin
    return max(counts, key=lambda dtype: counts[dtype])


def _weight_files(folder: Path, names: set[str]) -> tuple[Path, ...]:
    if INDEX in names:
        shards = sorted(set(dict(read_json(folder, INDEX).get("weight_map") or {}).values()))
        for shard in shards:
            if shard not in names:
                raise ProbeError("load_failed", path=folder, reason=f"{shard} is missing")
        return tuple(folder / shard for shard in shards)
    return (folder / SINGLE,) if SINGLE in names else ()


def _header(file: Path) -> tuple[bytes, Mapping[str, Any]]:
    now = file.stat()
    return _read_header(file, now.st_size, now.st_mtime_ns, now.st_ino)


@lru_cache(maxsize=64)  # every run of a page asks which checkpoints are here
def _read_header(file: Path, length: int, _changed: int, _inode: int) -> tuple[bytes, Mapping[str, Any]]:
    """As it stands in a file of this length, and what it says."""
    with file.open("rb") as opened:
        start = opened.read(8)
        (size,) = struct.unpack("<Q", start) if len(start) == 8 else (_MAX_HEADER_BYTES + 1,)
        if size > _MAX_HEADER_BYTES:
            raise ProbeError("load_failed", path=file, reason="it is not a safetensors file")
        header = opened.read(size)
    try:
        tensors = json.loads(header)
        end = max((t["data_offsets"][1] for name, t in tensors.items() if name != "__metadata__"), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        reason = "it is cut short" if len(header) < size else "it is not a safetensors file"
        raise ProbeError("load_failed", path=file, reason=reason) from None
    if length < 8 + size + end:
        raise ProbeError("load_failed", path=file, reason="it is cut short")
    return header, MappingProxyType(tensors)

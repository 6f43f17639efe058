"""A GGUF file becomes a folder of float32 safetensors, once, kept under the file's sha256.

transformers reads GGUF by dequantizing all of it, about 45 s for half a billion parameters; the
folder opens in about two. float32 keeps the logits equal to the file's bit for bit, where bfloat16
would be 9e-3 off. Norm weights are stored unquantized in GGUF files, so they are exact.

Source: transformers/modeling_gguf_pytorch_utils.py.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from model_probe.catalog import CONVERTED, PROVENANCE
from model_probe.errors import ProbeError
from model_probe.folders import is_whole
from model_probe.gguf_file import GgufHeader, read_gguf_header
from model_probe.progress import Progress, silent
from model_probe.storage import cache_dir, disk_errors, making, publish, require_space, sha256

BYTES_A_PARAMETER: Final = 4  # float32
_ROOM: Final = 50_000_000  # tokenizer, config, and what else writes to the disk meanwhile
_DIGESTS: Final = "digests"  # in the cache: the sha256 of files that were hashed before


def convert(gguf: Path, progress: Progress | None = None) -> Path:
    """The converted folder of a GGUF file, made now if it is not in the cache yet.

    Needs about 45 s, 4 GB of memory and 2.5 GB of disk for half a billion parameters. Two at once
    are safe: the second waits and takes the first's.

    Raises:
        ProbeError: `not_found`, `unreadable`, `bad_gguf`, `gguf_architecture`, `disk_full`,
            `cache_unwritable`, or `load_failed` for anything else that transformers says.
    """
    progress = progress or silent
    header = read_gguf_header(gguf)
    digest = _remembered_sha256(gguf, progress)
    if is_whole(cache_dir() / CONVERTED / digest):
        return cache_dir() / CONVERTED / digest
    _check_architecture(gguf, header)
    with making(f"{CONVERTED}/{digest}", progress) as (target, scratch):
        if not is_whole(target):
            needed = header.parameters * BYTES_A_PARAMETER + _ROOM
            require_space(needed)
            with disk_errors(needed):
                _convert(gguf, scratch, progress)
                _note_provenance(gguf, header, digest, scratch)
                publish(scratch, target)
    return target


def _check_architecture(gguf: Path, header: GgufHeader) -> None:
    """Refuse what transformers has no table for, before it reads the whole file to say so."""
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    def plain(name: str) -> str:  # llama.cpp's "qwen2moe" and "gpt-oss" are "qwen2_moe", "gpt_oss"
        return name.replace("-", "").replace("_", "")

    if plain(header.architecture) not in {plain(name) for name in GGUF_SUPPORTED_ARCHITECTURES}:
        raise ProbeError("gguf_architecture", path=gguf, architecture=header.architecture)


def _convert(gguf: Path, folder: Path, progress: Progress) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from model_probe.loading import quiet, translated

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    with quiet(), translated(gguf):
        progress("convert_tokenizer")
        tokenizer = AutoTokenizer.from_pretrained(**where)
        progress("convert_weights")
        model = AutoModelForCausalLM.from_pretrained(
            **where, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
        )
        progress("save")
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _note_provenance(gguf: Path, header: GgufHeader, digest: str, folder: Path) -> None:
    import torch
    import transformers

    noted = {
        "source": gguf.name,
        "sha256": digest,
        "quantization": header.quantization,
        "architecture": header.architecture,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "converted_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    (folder / PROVENANCE).write_text(json.dumps(noted, indent=2) + "\n", encoding="utf-8")


def _remembered_sha256(gguf: Path, progress: Progress) -> str:
    """The sha256 of a file; hashing half a gigabyte takes as long as opening the result, so what
    was found is kept for as long as path, length, time of change and inode are the same."""
    try:
        stat = gguf.stat()
        identity = f"{gguf.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}"
        note = cache_dir() / _DIGESTS / hashlib.sha256(identity.encode()).hexdigest()
        if note.is_file():
            return note.read_text(encoding="ascii")
        digest = sha256(gguf, progress)
    except OSError as error:
        raise ProbeError("unreadable", path=gguf, reason=error.strerror) from None
    with making(f"{_DIGESTS}/{note.name}") as (target, scratch):
        (scratch / "sha256").write_text(digest, encoding="ascii")
        publish(scratch / "sha256", target)
    return digest

"""A GGUF file becomes a folder of float32 safetensors, once, kept under the file's sha256.

transformers reads GGUF by dequantizing all of it, about 45 s for half a billion parameters; the
folder opens in about two. float32 keeps the logits equal to the file's bit for bit, where bfloat16
would be 9e-3 off. Norm weights are stored unquantized in GGUF files, so they are exact.

Source: transformers/modeling_gguf_pytorch_utils.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from model_probe.catalog import CONVERTED, PROVENANCE
from model_probe.errors import ProbeError
from model_probe.folders import is_whole
from model_probe.gguf_file import GgufHeader, read_gguf_header
from model_probe.gguf_norms import check_norms
from model_probe.memory import free_memory, require
from model_probe.progress import Progress, silent
from model_probe.storage import cache_dir, disk_errors, making, publish, remembered_sha256, require_space

BYTES_A_PARAMETER: Final = 4  # float32
_MEMORY: Final = 1.6  # of the result's size that converting takes at its peak, measured
_ROOM: Final = 50_000_000  # tokenizer, config, and what else writes to the disk meanwhile


def convert(gguf: Path, progress: Progress | None = None) -> Path:
    """The converted folder of a GGUF file, made now if it is not in the cache yet.

    Needs about 45 s, 4 GB of memory and 2.5 GB of disk for half a billion parameters. Two at once
    are safe: the second waits and takes the first's.

    Raises:
        ProbeError: `not_found`, `unreadable`, `bad_gguf`, `gguf_architecture`, `disk_full`,
            `too_little_memory`, `cache_unwritable`, `gguf_norm_differs` or `gguf_norm_lost` where transformers reads a norm
            wrongly, those of `discover`, or `load_failed` for anything else that transformers says.
    """
    progress = progress or silent
    header = read_gguf_header(gguf)
    digest = remembered_sha256(gguf, progress)
    if is_whole(cache_dir() / CONVERTED / digest):
        return cache_dir() / CONVERTED / digest
    _check_architecture(gguf, header)
    with making(f"{CONVERTED}/{digest}", progress) as (target, scratch):
        if not is_whole(target):
            needed = header.parameters * BYTES_A_PARAMETER + _ROOM
            require_space(needed)
            peak = int(_MEMORY * header.parameters * BYTES_A_PARAMETER)
            require(peak, free_memory(), path=gguf, device="cpu", dtype="float32")
            with disk_errors(needed):
                _convert(gguf, header, digest, scratch, progress)
                _note_provenance(gguf, header, digest, scratch)
                publish(scratch, target)
    return target


def _check_architecture(gguf: Path, header: GgufHeader) -> None:
    """Refuse what neither of transformers' readers has a table for, before it reads the whole file to say so."""
    from transformers.integrations.gguf import GGUF_ARCHS
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    def plain(name: str) -> str:  # llama.cpp's "qwen2moe" and "gpt-oss" are "qwen2_moe", "gpt_oss"
        return name.replace("-", "").replace("_", "")

    if plain(header.architecture) not in {
        plain(name) for name in (*GGUF_SUPPORTED_ARCHITECTURES, *GGUF_ARCHS)
    }:
        raise ProbeError("gguf_architecture", path=gguf, architecture=header.architecture)


def _convert(gguf: Path, header: GgufHeader, digest: str, folder: Path, progress: Progress) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from model_probe.discovery import discover
    from model_probe.loading import quiet, refuse_missing, translated
    from model_probe.site_files import keep_sites

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    with quiet(), translated(gguf), disk_errors(), _counted(progress):
        progress("convert_tokenizer")
        tokenizer = AutoTokenizer.from_pretrained(**where)
        progress("convert_weights")
        pair: Any = AutoModelForCausalLM.from_pretrained(
            **where,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
        model, report = pair
        refuse_missing(gguf, report)
        progress("discover")
        sites = discover(model.eval().requires_grad_(False))
        check_norms(gguf, header, sites)
        progress("save")
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        keep_sites(folder, sites, dtype="float32", digest=digest)


@contextmanager
def _counted(progress: Progress) -> Iterator[None]:
    """Have transformers' GGUF reader count its tensors to `progress` rather than on the terminal.

    Its bar is tqdm's own, which transformers' switch for bars does not reach.
    """
    from transformers import modeling_gguf_pytorch_utils as reader

    def count(tensors: Sequence[Any], **_: object) -> Iterator[Any]:
        for done, tensor in enumerate(tensors):
            progress("convert_weights", done / len(tensors))
            yield tensor

    before = reader.tqdm
    reader.tqdm = count
    try:
        yield
    finally:
        reader.tqdm = before


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

"""How much memory a checkpoint needs and how much is free, asked before it is loaded and without torch.

    needed, free = memory_needed(checkpoint), free_memory()

What is needed is read from the headers of the weight files: parameters times the size of the dtype,
and what loading takes beside them. On the real checkpoint (630 M parameters) that was 0.15 to 0.19 GB,
most of it the tokenizer's, whatever the dtype: transformers maps the files and copies tensor by tensor.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil  # type: ignore[import-untyped]

from model_probe.catalog import LocalCheckpoint, NamedCheckpoint
from model_probe.errors import ProbeError
from model_probe.folders import check_folder, read_header, read_json
from model_probe.storage import size_text

if TYPE_CHECKING:
    import torch

BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}  # of a number, by dtype
LOADING: Final = 200_000_000  # bytes that loading takes beside the weights
# How the parts of a name begin that belong to a wrapper's towers, or to the heads of Qwen3.5 that
# predict further tokens: they are stored and not loaded.
_NOT_LOADED: Final = (
    "vision", "visual", "audio", "multi_modal", "mm_projector", "embed_vision", "embed_audio", "mtp",
)  # fmt: skip
_HEAD: Final = "lm_head.weight"
_CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")
_MINE: Final = Path("/proc/self/cgroup")


def memory_needed(checkpoint: LocalCheckpoint | NamedCheckpoint | Path, dtype: str = "float32") -> int:
    """The bytes that a checkpoint takes in memory in float32, bfloat16 or float16.

    Of a known one that is not here, about; of a folder, from the headers of its weights. A tower
    that is not known as one counts, so that it is too much rather than too little.

    Raises:
        ProbeError: those of `check_folder`.
    """
    if isinstance(checkpoint, NamedCheckpoint):
        return checkpoint.parameters * BYTES[dtype] + LOADING
    folder = checkpoint.folder if isinstance(checkpoint, LocalCheckpoint) else checkpoint
    return parameters(folder) * BYTES[dtype] + LOADING


def parameters(folder: Path) -> int:
    """The numbers that are stored for a folder's text model, those that are tied once.

    Raises:
        ProbeError: those of `check_folder`.
    """
    files = check_folder(folder)
    tied = _ties_its_embeddings(read_json(folder, "config.json"))
    count = 0
    for file in files:
        for name, tensor in read_header(file).items():
            if name == "__metadata__" or (tied and name.endswith(_HEAD)) or _is_left_out(name):
                continue
            numbers = 1
            for length in tensor["shape"]:
                numbers *= length
            count += numbers
    return count


def free_memory() -> int:
    """The bytes that this process may still take: of the machine, of its container, of its limit."""
    bounds = [int(psutil.virtual_memory().available), *_left_in_groups(), *_left_in_address_space()]
    return max(min(bounds), 0)


def require_memory(folder: Path, dtype: str, device: torch.device) -> None:
    """Raise ProbeError `too_little_memory` where a checkpoint would not fit.

    It is read into the machine's memory first, and from there moved to an accelerator.

    Raises:
        ProbeError: `too_little_memory`, and those of `check_folder`.
    """
    needed = memory_needed(folder, dtype)
    require(needed, free_memory(), path=folder, device="cpu", dtype=dtype)
    free = free_on(device)
    if free is not None:
        require(needed - LOADING, free, path=folder, device=device.type, dtype=dtype)


def require(needed: int, free: int, *, path: Path, device: str, dtype: str) -> None:
    """Raise ProbeError `too_little_memory` unless as many bytes are free as are needed."""
    if free < needed:
        facts = {"needed": size_text(needed), "free": size_text(free)}
        raise ProbeError("too_little_memory", path=path, device=device, dtype=dtype, **facts)


def free_on(device: torch.device) -> int | None:
    """The bytes that are free on an accelerator; None where it is the CPU, or does not say."""
    import torch

    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # what torch holds for itself of earlier work is taken again
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return None


def _ties_its_embeddings(config: dict[str, Any]) -> bool:
    text = config.get("text_config")
    inner = text.get("tie_word_embeddings") if isinstance(text, dict) else None
    return bool(config.get("tie_word_embeddings") if inner is None else inner)


def _is_left_out(name: str) -> bool:
    return any(part.startswith(_NOT_LOADED) for part in name.split("."))


def _left_in_groups() -> Iterator[int]:
    """The bytes left to each control group that this process is in, of either version."""
    try:
        lines = _MINE.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            names, root = ("memory.max", "memory.current", "inactive_file"), _CONTROL_GROUPS
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            root = _CONTROL_GROUPS / "memory"
        else:
            continue
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            left = _left_in(folder, *names)
            if left is not None:
                yield left
            if folder == root:
                break


def _left_in(folder: Path, limit: str, used: str, reclaimable: str) -> int | None:
    """What a control group has left; None where it has no limit. Pages of files that it can drop count as free."""
    try:
        most = int((folder / limit).read_text(encoding="ascii"))
        now = int((folder / used).read_text(encoding="ascii"))
        statistics = dict(
            line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines()
        )
    except (OSError, ValueError):  # no such group here, or "max"
        return None
    return most - now + int(statistics.get(reclaimable, 0))


def _left_in_address_space() -> Iterator[int]:
    if os.name != "posix":
        return
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        yield limit - int(psutil.Process().memory_info().vms)

"""Opens a checkpoint, wherever it is, as a model that is ready to be measured.

    checkpoint = open_checkpoint("auto")                 the first known one on this machine
    checkpoint = open_checkpoint("qwen2.5-coder-0.5b")   a known name, fetched if it is not here
    checkpoint = open_checkpoint("folder")               a folder of safetensors
    checkpoint = open_checkpoint("file.gguf")            converted once, see model_probe.convert
    checkpoint = open_checkpoint("owner/name")           an id of the Hugging Face hub
    checkpoint = open_checkpoint("owner/name@v1.0")      … at a branch, a tag or a commit
    checkpoint = open_checkpoint("owner/name/file.gguf") … one GGUF file of it

torch is loaded when a checkpoint is opened, not when this module is.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from model_probe.catalog import (
    NAMED,
    HubId,
    automatic,
    find,
    hub_id,
    local_checkpoints,
    provenance,
    repository_of,
)
from model_probe.convert import convert
from model_probe.errors import ProbeError
from model_probe.fetching import fetch, fetch_hub_id
from model_probe.folders import check_folder, headers_digest
from model_probe.gguf_file import MAGIC
from model_probe.progress import Progress, silent
from model_probe.trace import CheckpointInfo

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from model_probe.sites import NormSite

__all__ = ["Checkpoint", "fetch", "local_checkpoints", "open_checkpoint"]

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class FileState:
    """What tells a file from one that was put in its place or written over."""

    path: Path
    identity: tuple[int, int, int, int]  # device, inode, bytes, nanoseconds of the last change

    @classmethod
    def of(cls, path: Path) -> FileState | None:
        """None where there is no such file."""
        try:
            found = path.stat()
        except OSError:
            return None
        return cls(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """An open checkpoint and the norms that were found in it."""

    info: CheckpointInfo
    model: PreTrainedModel  # in evaluation mode, parameters without gradients
    load_tokenizer: Callable[[], PreTrainedTokenizerBase]  # the same one each time
    sites: tuple[NormSite, ...]  # in the order in which they run
    lock: threading.RLock = field(default_factory=threading.RLock)  # one measurement at a time
    owned: bool = True  # False where somebody else loaded the model and goes on using it
    files: tuple[FileState, ...] = ()  # of the weights, as they were when it was opened

    @property
    def is_unchanged(self) -> bool:
        """Whether the files that it was read from are what they were, or are gone.

        Weights on a CPU may still lie in them (safetensors are mapped): to read what was cut off meanwhile would end
        the process, and what was written over is another checkpoint. A file that was removed stays whole for who has it.
        """
        return all(FileState.of(state.path) in (state, None) for state in self.files)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Of a checkpoint that this program converted it is read when it is first asked for: it takes longer
        than all the rest, and gains can be had without."""
        return self.load_tokenizer()

    def close(self) -> None:
        """Give the weights' memory back, now, whoever still holds this object or the model.

        Waits for a measurement under way; a later one raises ProbeError `weights_gone`. The weights of a
        model that somebody else loaded are left alone. Closing twice is closing once.
        """
        from model_probe.passes import free_weights

        if self.owned:
            with self.lock:
                free_weights(self.model)


def open_checkpoint(
    where: str | Path = "auto",
    *,
    device: str = "auto",
    dtype: str = "auto",
    device_map: str | Mapping[str, Any] | None = None,
    tp_plan: str | None = None,
    progress: Progress | None = None,
) -> Checkpoint:
    """Open a checkpoint and find its norms.

    Args:
        where: `auto`, a known name, a folder, a GGUF file, or a hub id; in this order a text is
            tried as each. `auto` takes only what is here, a name or an id that is not is fetched.
        device: `auto` (CUDA, then MPS, then CPU), `cpu`, `cuda` or `mps`.
        dtype: `auto` (float32 on a CPU, elsewhere the checkpoint's own), `float32`, `bfloat16` or
            `float16`.
        device_map: `auto`, or another that accelerate knows: the checkpoint is laid over all devices, the
            memory of the CPU and the disk, instead of lying on one device.
        tp_plan: `auto`: each process that torchrun started holds a part of it (model_probe.spreading).
        progress: told of the stages `load` and `discover`, those of fetching and converting, and
            `fallback` where `auto` had to be float32 on a device without bfloat16.

    Raises:
        ProbeError: any of the codes under "opening" and "fetching" in `model_probe.errors`.
    """
    progress = progress or silent
    place = _locate(str(where), progress)
    files = check_folder(place.folder)
    states = tuple(state for state in map(FileState.of, files) if state is not None)  # before they are read

    import torch
    import transformers

    from model_probe.discovery import discover
    from model_probe.loading import choose_device, choose_dtype, load, load_tokenizer, quiet
    from model_probe.memory import require_memory
    from model_probe.passes import input_device
    from model_probe.site_files import is_ours, keep_sites, kept_sites
    from model_probe.spreading import load_arguments
    from model_probe.text_part import text_config

    made_of = provenance(place.folder)
    chosen_device = choose_device(device)
    chosen_dtype = choose_dtype(dtype, chosen_device, files, dequantized=bool(made_of), progress=progress)
    spread = load_arguments(device_map, tp_plan)
    if not spread:
        require_memory(place.folder, str(chosen_dtype).removeprefix("torch."), chosen_device)
    loaded = load(
        place.folder, files, device=chosen_device, dtype=chosen_dtype, spread=spread, progress=progress
    )
    ours = is_ours(place.folder) and not spread
    tokenizer = _Once(lambda: load_tokenizer(place.folder))
    if not ours:
        tokenizer()  # what is wrong with it is said now
    digest = str(made_of.get("sha256") or place.commit or headers_digest(place.folder, files))
    key = {"dtype": str(chosen_dtype).removeprefix("torch."), "digest": digest}
    sites = kept_sites(place.folder, loaded.model, **key) if ours else None
    if sites is None:
        progress("discover")
        with quiet():  # the first pass of some architectures has advice on packages to install
            sites = discover(loaded.model)
        if ours:
            keep_sites(place.folder, sites, **key)
    config = text_config(loaded.model)
    info = CheckpointInfo(
        name=place.name,
        source=place.source,
        digest=digest,
        architecture=type(loaded.model).__name__,
        model_type=loaded.model_type,
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        dtype=key["dtype"],
        device=(input_device(loaded.model) if spread else chosen_device).type,
        torch=torch.__version__,
        transformers=transformers.__version__,
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return Checkpoint(info, loaded.model, tokenizer, sites, files=states)


class _Once:
    """Calls a function when it is first called itself, and gives that result from then on."""

    def __init__(self, make: Callable[[], PreTrainedTokenizerBase]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: PreTrainedTokenizerBase | None = None

    def __call__(self) -> PreTrainedTokenizerBase:
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made


@dataclass(frozen=True, slots=True)
class _Place:
    """A folder to open, and what to call it.

    A local path is named by its last part alone: traces are passed on, and where somebody keeps
    their files is nobody's business.
    """

    folder: Path
    name: str
    source: str
    commit: str | None = None


def _locate(where: str, progress: Progress) -> _Place:
    if where == "auto":
        chosen = automatic()
        if chosen is None:
            raise ProbeError("no_checkpoint")
        where = chosen
    if where in NAMED:
        fetch(where, progress=progress)
        found = find(where)
        if found is None:
            raise ProbeError("no_checkpoint")
        return _Place(found.folder, where, found.source, _commit(found.folder))
    path = Path(where).expanduser()
    if path.is_dir():
        return _local_folder(path, progress)
    if path.exists() or path.is_symlink():
        return _local_file(path, progress)
    named = hub_id(where)
    if named is not None and not Path(path.parts[0]).is_dir():
        return _hub_id(named, progress)
    if path.suffix == ".gguf" or len(path.parts) > 1 or where.startswith((".", "~")):
        raise ProbeError("not_found", path=where)
    raise ProbeError("unknown_name", name=where)


def _local_folder(folder: Path, progress: Progress) -> _Place:
    named = next((c for c in local_checkpoints() if c.folder == folder and c.name in NAMED), None)
    if named is not None:
        return _Place(folder, named.name, named.source, _commit(folder))
    source = provenance(folder).get("source")
    if source is not None:
        return _Place(folder, Path(source).stem, source)
    if not (folder / "config.json").exists():
        files = sorted(folder.glob("*.gguf"))
        if len(files) == 1:  # as a GGUF repository looks once it is downloaded
            return _local_file(files[0], progress)
    name = repository_of(folder.resolve())
    return _Place(folder, name, name, _commit(folder.resolve()))


def _local_file(path: Path, progress: Progress) -> _Place:
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except FileNotFoundError:  # a link to nowhere
        raise ProbeError("not_found", path=path) from None
    except OSError as error:
        raise ProbeError("unreadable", path=path, reason=error.strerror) from None
    if magic != MAGIC and path.suffix != ".gguf":
        raise ProbeError("load_failed", path=path, reason="it is neither a folder nor a GGUF file")
    return _Place(convert(path, progress), path.stem, path.name)


def _hub_id(named: HubId, progress: Progress) -> _Place:
    folder = fetch_hub_id(named, progress=progress)
    if named.file is not None:
        return _Place(folder, Path(named.file).stem, str(named))
    return _Place(folder, str(named), str(named), _commit(folder))


def _commit(folder: Path) -> str | None:
    """The commit that a folder of the hub client's cache is named by."""
    return folder.name if folder.parent.name == "snapshots" and _COMMIT.fullmatch(folder.name) else None

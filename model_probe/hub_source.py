"""The Hugging Face hub, through its own client and into its own cache.

HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE and a stored token count as they do elsewhere; what another
program downloaded is found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from model_probe.catalog import GgufFile
from model_probe.errors import ProbeError
from model_probe.progress import Progress
from model_probe.sources import (
    READ_SECONDS,
    ROOM,
    UNWANTED,
    WANTED,
    Attempt,
    SourceError,
    refuse_wrong,
    wanted,
)
from model_probe.storage import disk_errors, require_space


def hub_snapshot_from_network(repository: str, attempt: Attempt) -> Path:
    """Download a repository's checkpoint into the hub client's own cache; its snapshot folder.

    Raises:
        SourceError: no answer, no such repository, no safetensors in it, a broken transfer.
        ProbeError: `checksum`, `disk_full`.
    """
    from huggingface_hub import HfApi, constants, snapshot_download

    def work(endpoint: str, bars: type) -> Path:
        listing = HfApi(endpoint=endpoint).model_info(repository, files_metadata=True, timeout=READ_SECONDS)
        files = [file for file in listing.siblings or () if wanted(file.rfilename)]
        if not any(file.rfilename.endswith(".safetensors") for file in files):
            raise SourceError(f"{endpoint}/{repository} has no safetensors weights")
        _require_hub_space(sum(file.size or 0 for file in files))
        folder = Path(
            snapshot_download(
                repository,
                endpoint=endpoint,
                cache_dir=constants.HF_HUB_CACHE,
                allow_patterns=list(WANTED),
                ignore_patterns=list(UNWANTED),
                tqdm_class=bars,
            )
        )
        for file in files:
            attempt.progress("verify", detail=file.rfilename)
            published = file.lfs.sha256 if file.lfs else file.blob_id
            refuse_wrong(folder / file.rfilename, published, file.rfilename)
        return folder

    return _from_hub(repository, attempt, work)


def hub_file(repository: str, gguf: GgufFile, attempt: Attempt) -> Path:
    """Download one known file of a repository from the hub into its client's cache.

    Raises: like `hub_snapshot_from_network`.
    """
    from huggingface_hub import constants, hf_hub_download

    def work(endpoint: str, bars: type) -> Path:
        _require_hub_space(gguf.size)
        path = Path(
            hf_hub_download(
                repository,
                gguf.name,
                endpoint=endpoint,
                cache_dir=constants.HF_HUB_CACHE,
                tqdm_class=bars,
            )
        )
        attempt.progress("verify", detail=gguf.name)
        refuse_wrong(path, gguf.sha256, gguf.name)
        return path

    return _from_hub(repository, attempt, work)


def _from_hub(repository: str, attempt: Attempt, work: Callable[[str, type], Path]) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    if constants.HF_HUB_OFFLINE:
        raise SourceError(f"{endpoint} is not asked, as HF_HUB_OFFLINE is set")
    attempt.ask(endpoint)
    bars = _bars_for(attempt.progress)
    try:
        with _quiet(), disk_errors():
            return work(endpoint, bars)
    except (ProbeError, SourceError):
        raise
    except GatedRepoError:
        raise SourceError(f"{endpoint}/{repository} asks for a licence to be accepted first") from None
    except RepositoryNotFoundError:
        raise SourceError(f"{endpoint} has no repository {repository}") from None
    except Exception as error:
        # the client lets through whatever its HTTP library, its threads and its parsers raise
        raise SourceError(f"{endpoint} broke off ({type(error).__name__})") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the client's log lines off the terminal: what matters of them is told as a reason."""
    from huggingface_hub.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


class _Bars:
    """Stands in for the hub client's progress bars and passes on the bytes.

    One class a download, as the client makes the bars itself.
    """

    progress: Progress

    def __init__(self, iterable: Iterable[Any] = (), **settings: Any) -> None:
        self.iterable = iterable
        self.total = settings.get("total")
        self.n = settings.get("initial") or 0
        self.in_bytes = settings.get("unit") == "B"
        self.format_dict: dict[str, Any] = {}
        self.disable = False

    def update(self, amount: float | None = 1) -> None:
        self.n += amount or 0
        if self.in_bytes and self.total:
            self.progress("download", min(self.n / self.total, 1.0))

    def __iter__(self) -> Any:
        return iter(self.iterable)

    def __enter__(self) -> _Bars:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        # set_description, refresh, close, …: nothing to do
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_, **__: None


def _bars_for(progress: Progress) -> type[_Bars]:
    return type("Bars", (_Bars,), {"progress": staticmethod(progress)})


def _require_hub_space(needed: int) -> None:
    from huggingface_hub import constants

    require_space(needed + ROOM, Path(constants.HF_HUB_CACHE))

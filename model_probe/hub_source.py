"""The Hugging Face hub, through its own client and into its own cache.

HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE and a stored token count as they do elsewhere; what another
program downloaded is found.

The large files are taken by plain requests into the client's folder of blobs, and the client then makes
the snapshot of them. Its own download begins anew whenever it was broken off, checks lengths but not
hashes, and tells of every ten megabytes. So here a file goes on where it stopped, has its published
hash before it is called by its name, and a snapshot has its weights last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests

from model_probe.catalog import GgufFile, hub_folder
from model_probe.errors import ProbeError
from model_probe.sources import (
    READ_SECONDS,
    ROOM,
    UNWANTED,
    WANTED,
    Arriving,
    Attempt,
    SourceError,
    download,
    is_as_published,
    network_reason,
    refuse_wrong,
    wanted,
)
from model_probe.storage import disk_errors, locked, require_space

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo
    from huggingface_hub.hf_api import RepoSibling


def hub_snapshot_from_network(repository: str, attempt: Attempt, revision: str | None = None) -> Path:
    """Download a repository's checkpoint into the hub client's own cache; its snapshot folder.

    Raises:
        SourceError: no answer, no such repository, no safetensors in it, a broken transfer.
        ProbeError: `gated`, `checksum`, `disk_full`.
    """

    def work(hub: _Hub) -> Path:
        listing = hub.listing()
        files = [file for file in listing.siblings or () if wanted(file.rfilename)]
        if not any(file.rfilename.endswith(".safetensors") for file in files):
            raise SourceError(_no_weights(hub.endpoint, repository, listing))
        arriving = Arriving(attempt.progress, sum(file.size or 0 for file in files))
        hub.receive(listing, [file for file in files if file.lfs is not None], arriving)
        folder = hub.snapshot(listing, ["*.safetensors", *UNWANTED])
        for file in files:
            if file.lfs is None and (folder / file.rfilename).exists():
                refuse_wrong(folder / file.rfilename, file.blob_id, file.rfilename)
        arriving.reach(arriving.total, repository)
        hub.snapshot(listing, list(UNWANTED))  # the weights, which are in the cache by now
        hub.note_revision(listing)
        return folder

    return _from_hub(repository, revision, attempt, work)


def hub_file(
    repository: str,
    name: str,
    attempt: Attempt,
    revision: str | None = None,
    known: GgufFile | None = None,
) -> Path:
    """Download one file of a repository from the hub into its client's cache.

    A `known` file must have its own hash, whatever the hub says of it.

    Raises: like `hub_snapshot_from_network`.
    """
    from huggingface_hub import hf_hub_download

    def work(hub: _Hub) -> Path:
        listing = hub.listing()
        file = next((file for file in listing.siblings or () if file.rfilename == name), None)
        if file is None:
            raise SourceError(f"{hub.endpoint}/{repository} has no file {name}")
        if known is not None and (file.lfs is None or file.lfs.sha256 != known.sha256):
            raise ProbeError("checksum", name=name)
        arriving = Arriving(attempt.progress, file.size or 0)
        hub.receive(listing, [file] if file.lfs else [], arriving)
        path = hf_hub_download(
            repository, name, revision=listing.sha, endpoint=hub.endpoint, cache_dir=hub.cache,
            tqdm_class=_NoBars,
        )  # fmt: skip
        hub.note_revision(listing)
        arriving.reach(arriving.total, name)
        return Path(path)

    return _from_hub(repository, revision, attempt, work)


def hub_endpoint() -> str:
    """The hub's address; HF_ENDPOINT changes it."""
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


class _Hub:
    """One repository at one revision, while it is being downloaded."""

    def __init__(self, repository: str, revision: str | None, attempt: Attempt) -> None:
        from huggingface_hub import constants

        self.repository = repository
        self.revision = revision
        self.attempt = attempt
        self.endpoint = hub_endpoint()
        self.cache = Path(constants.HF_HUB_CACHE)
        self.blobs = hub_folder(repository) / "blobs"
        self.locks = self.cache / ".locks" / hub_folder(repository).name

    def listing(self) -> ModelInfo:
        """Its files with sizes and hashes, and the commit."""
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.endpoint).model_info(
            self.repository, revision=self.revision, files_metadata=True, timeout=READ_SECONDS
        )

    def receive(self, listing: ModelInfo, files: Sequence[RepoSibling], arriving: Arriving) -> None:
        """Bring large files into the client's blobs, each of the hash that the hub publishes."""
        from huggingface_hub.utils import build_hf_headers

        self.blobs.mkdir(parents=True, exist_ok=True)
        sizes = {file.lfs.sha256: file.size or 0 for file in files if file.lfs}
        missing = sum(size - self._bytes_here(sha256) for sha256, size in sizes.items())
        require_space(max(missing, 0) + ROOM, self.cache)
        headers = build_hf_headers()
        for file in files:
            if file.lfs is not None:
                url = f"{self.endpoint}/{self.repository}/resolve/{listing.sha}/{file.rfilename}"
                self._receive(url, file.lfs.sha256, file.size or 0, arriving, headers)

    def _bytes_here(self, sha256: str) -> int:
        paths = (self.blobs / sha256, self.blobs / f"{sha256}.incomplete")
        return max(path.stat().st_size if path.exists() else 0 for path in paths)

    def _receive(self, url: str, sha256: str, size: int, arriving: Arriving, headers: dict[str, str]) -> None:
        name = url.rpartition("/")[2]
        blob, half = self.blobs / sha256, self.blobs / f"{sha256}.incomplete"
        # the client's own lock of this file, so that no other program of the hub writes it meanwhile
        with locked(self.locks / f"{sha256}.lock", self.attempt.progress):
            if blob.exists():
                if blob.stat().st_size == size and is_as_published(blob, sha256, name, self.attempt.progress):
                    arriving.add(size, name)
                    return
                blob.unlink()
            try:
                download(url, half, size, arriving, headers)
            except OSError as error:
                if not isinstance(error, requests.RequestException):  # the disk is full
                    with suppress(OSError):
                        half.unlink()
                raise
            if not is_as_published(half, sha256, name, self.attempt.progress):
                half.unlink()
                raise ProbeError("checksum", name=name)
            half.replace(blob)

    def snapshot(self, listing: ModelInfo, ignore: list[str]) -> Path:
        """Let the client make the snapshot, less the files that are ignored; its folder."""
        from huggingface_hub import snapshot_download

        return Path(
            snapshot_download(
                self.repository,
                revision=listing.sha,
                endpoint=self.endpoint,
                cache_dir=self.cache,
                allow_patterns=list(WANTED),
                ignore_patterns=ignore,
                tqdm_class=_NoBars,
            )
        )

    def note_revision(self, listing: ModelInfo) -> None:
        """Say in the client's cache which commit a branch or tag is at, now that its files are here."""
        from huggingface_hub import constants

        revision = self.revision or constants.DEFAULT_REVISION
        if revision == listing.sha:
            return
        note = hub_folder(self.repository) / "refs" / revision
        note.parent.mkdir(parents=True, exist_ok=True)
        new = note.with_name(f"{note.name}.{os.getpid()}.tmp")
        new.write_text(str(listing.sha), encoding="ascii")
        new.replace(note)


def _no_weights(endpoint: str, repository: str, listing: ModelInfo) -> str:
    files = sorted(f.rfilename for f in listing.siblings or () if f.rfilename.endswith(".gguf"))
    hint = f"; name one of its GGUF files, such as {repository}/{files[0]}" if files else ""
    return f"{endpoint}/{repository} has no safetensors weights{hint}"


def _from_hub(repository: str, revision: str | None, attempt: Attempt, work: Callable[[_Hub], Path]) -> Path:
    """Do some work with the hub, one at a time for a repository, and say in a sentence what goes wrong."""
    from huggingface_hub import constants, errors

    hub = _Hub(repository, revision, attempt)
    if constants.HF_HUB_OFFLINE:
        raise SourceError(f"{hub.endpoint} is not asked, as HF_HUB_OFFLINE is set")
    attempt.ask(hub.endpoint)
    address = f"{hub.endpoint}/{repository}"
    try:
        with (
            disk_errors(folder=hub.cache),
            locked(hub.locks / "rmsnorm-lab.lock", attempt.progress),
            _quiet(),
        ):
            return work(hub)
    except (ProbeError, SourceError):
        raise
    except errors.GatedRepoError:
        raise ProbeError("gated", name=repository, address=address) from None
    except errors.RepositoryNotFoundError:
        hint = "" if _token() else ", or shows it only to a token (HF_TOKEN)"
        raise SourceError(f"{hub.endpoint} has no repository {repository}{hint}") from None
    except errors.RevisionNotFoundError:
        raise SourceError(f"{address} has no revision {revision}") from None
    except (requests.HTTPError, errors.HfHubHTTPError) as error:
        answer = error.response
        status = "unknown" if answer is None else answer.status_code
        if answer is not None and answer.headers.get("X-Error-Code") == "GatedRepo":
            raise ProbeError("gated", name=repository, address=address) from None
        if status == 401 and _token():
            raise SourceError(
                f"{hub.endpoint} does not accept the token of HF_TOKEN or the stored one"
            ) from None
        raise SourceError(f"{hub.endpoint} answers with status {status}") from None
    except requests.RequestException as error:
        raise SourceError(f"{hub.endpoint} {network_reason(error)}") from None
    except Exception as error:
        # the client lets through whatever its HTTP library, its threads and its parsers raise
        raise SourceError(f"{hub.endpoint} broke off ({type(error).__name__})") from error


def _token() -> str | None:
    from huggingface_hub import get_token

    return get_token()


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


class _NoBars:
    """Stands in for the hub client's progress bars: `Arriving` tells of the bytes."""

    def __init__(self, iterable: Iterable[Any] = (), **settings: Any) -> None:
        self.iterable = iterable
        self.total = settings.get("total")
        self.n = settings.get("initial") or 0
        self.format_dict: dict[str, Any] = {}
        self.disable = True

    def __iter__(self) -> Any:
        return iter(self.iterable)

    def __enter__(self) -> _NoBars:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        # update, set_description, refresh, close, …: nothing to do
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_, **__: None

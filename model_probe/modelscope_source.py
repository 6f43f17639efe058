"""ModelScope, through its own client and into its own cache.

The client is `modelscope-hub`, which ModelScope's large package `modelscope` takes its downloads from.
It is light: of it nothing of torch is loaded, and it is imported when something is asked of ModelScope,
not before. MODELSCOPE_CACHE, MODELSCOPE_ENDPOINT, MODELSCOPE_DOMAIN and a stored token count as they
do elsewhere; a download that was broken off goes on; what another program downloaded is found.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tqdm import tqdm  # type: ignore[import-untyped]

from model_probe.catalog import GgufFile, modelscope_cache
from model_probe.errors import ProbeError
from model_probe.sources import Arriving, Attempt, SourceError, wanted
from model_probe.storage import disk_errors, locked, require_space

if TYPE_CHECKING:
    from modelscope_hub import HubApi

_ROOM: Final = 300_000_000  # bytes: a large file arrives in parts that are joined at the end
_LATER: Final = (".safetensors", ".gguf")  # what makes a folder whole comes last


def modelscope_snapshot(repository: str, attempt: Attempt) -> Path:
    """Download a repository's checkpoint into the cache of ModelScope's client; its folder.

    Raises:
        SourceError, ProbeError: like `hub_snapshot_from_network`.
    """
    return _from_modelscope(repository, wanted, attempt)


def modelscope_file(repository: str, gguf: GgufFile, attempt: Attempt) -> Path:
    """Download one known file of a repository; its path in the cache of ModelScope's client.

    Raises: like `modelscope_snapshot`.
    """
    folder = _from_modelscope(repository, lambda path: path == gguf.name, attempt, sha256=gguf.sha256)
    return folder / gguf.name


def _from_modelscope(
    repository: str, choose: Callable[[str], bool], attempt: Attempt, sha256: str | None = None
) -> Path:
    """Download some files of a repository; the folder they are in.

    `sha256` is what a known file must have, whatever ModelScope says of it.
    """
    endpoint = modelscope_endpoint()
    attempt.ask(endpoint)
    cache = modelscope_cache()
    lock = cache / ".lock" / f"rmsnorm-lab--{repository.replace('/', '--')}.lock"
    with disk_errors(folder=cache), locked(lock, attempt.progress), _quiet(), _told(endpoint, repository):
        from modelscope_hub import HubApi, HubConfig

        api = HubApi(HubConfig(endpoint=endpoint, cache_dir=cache))
        files = [
            {"Path": file.path, "Size": file.size, "Sha256": file.sha256}
            for file in api.list_repo_files(repository, "model")
            if not file.is_dir and choose(file.path)
        ]
        if not any(str(file["Path"]).endswith(_LATER) for file in files):
            raise SourceError(f"{endpoint} has no weights of {repository} that are read here")
        for file in files:
            if sha256 is not None and file["Sha256"] not in (None, sha256):
                raise ProbeError("checksum", name=file["Path"])
            file["Sha256"] = file["Sha256"] or sha256
        total = sum(int(file["Size"] or 0) for file in files)
        require_space(total + _ROOM, cache)
        arriving = Arriving(attempt.progress, total)
        folder, done = cache, 0
        for late in (False, True):
            some = [file for file in files if str(file["Path"]).endswith(_LATER) is late]
            if some:
                folder = _download(api, endpoint, repository, some, arriving)
                done += sum(int(file["Size"] or 0) for file in some)
                arriving.reach(done, str(some[-1]["Path"]))
        return folder


def _download(
    api: HubApi, endpoint: str, repository: str, files: list[dict[str, Any]], arriving: Arriving
) -> Path:
    from modelscope_hub import FileDownloadError, FileIntegrityError, FileSizeMismatchError, ProgressCallback

    class Told(ProgressCallback):
        def update(self, size: int) -> None:
            arriving.add(size, self.filename)

    try:
        return Path(api.download_repo(repository, "model", file_list=files, progress_callbacks=[Told]))
    except FileDownloadError as error:
        # the client has gone on with the other files; the first that failed says enough
        name, first = next(iter(error.failed_files.items()))
        if isinstance(first, OSError) and first.errno is not None:
            _clear(Path(error.output_dir or modelscope_cache()), files)
        if isinstance(first, FileSizeMismatchError):
            raise SourceError(f"{endpoint} sends another length of {name} than it lists") from None
        if isinstance(first, FileIntegrityError):
            raise ProbeError("checksum", name=name) from None
        raise first from None


def _clear(folder: Path, files: list[dict[str, Any]]) -> None:
    """Remove what is half here of some files: the disk that is full has a better use for it."""
    for file in files:
        path = folder / file["Path"]
        half = re.compile(re.escape(path.name) + r"(\.incomplete|\.parallel_tmp|_\d+_\d+)")
        for beside in path.parent.iterdir():
            if half.fullmatch(beside.name):
                beside.unlink()


@contextmanager
def _told(endpoint: str, repository: str) -> Iterator[None]:
    """Turn the client's errors into SourceError."""
    import requests
    from modelscope_hub import errors

    try:
        yield
    except errors.NotExistError:
        raise SourceError(f"{endpoint} has no repository {repository}") from None
    except (errors.AuthenticationError, errors.PermissionDeniedError):
        raise SourceError(f"{endpoint} shows {repository} only to some who have signed in") from None
    except errors.NetworkError:
        raise SourceError(f"{endpoint} broke off") from None
    except errors.APIError as error:
        raise SourceError(f"{endpoint} answers with status {error.status_code}") from None
    except (KeyError, TypeError, ValueError, AttributeError):  # requests' JSONDecodeError is a ValueError
        raise SourceError(f"{endpoint} answers something that is not its list of files") from None
    except (errors.HubError, requests.RequestException) as error:
        raise SourceError(f"{endpoint} broke off ({type(error).__name__})") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the client's log lines and bars off the terminal: what matters of them is told as a reason."""
    from modelscope_hub import _download as client

    log = logging.getLogger("modelscope_hub")
    before, level = client.tqdm, log.level
    client.tqdm = partial(tqdm, disable=True)  # type: ignore[misc]
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        client.tqdm = before  # type: ignore[misc]
        log.setLevel(level)


def modelscope_endpoint() -> str:
    """ModelScope's address; MODELSCOPE_ENDPOINT, or MODELSCOPE_DOMAIN and _URL_SCHEME, change it."""
    given = (
        os.environ.get("MODELSCOPE_ENDPOINT") or os.environ.get("MODELSCOPE_DOMAIN") or "www.modelscope.cn"
    )
    scheme = os.environ.get("MODELSCOPE_URL_SCHEME") or "https://"
    return (given if "://" in given else scheme + given).rstrip("/")

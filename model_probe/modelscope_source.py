"""ModelScope, through the plain addresses of its public interface, into the project's cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import requests

from model_probe.catalog import FILES, SNAPSHOTS, GgufFile
from model_probe.folders import is_whole
from model_probe.sources import ROOM, TIMEOUT, Attempt, SourceError, network_reason, refuse_wrong, wanted
from model_probe.storage import making, publish, require_space


def modelscope_snapshot(repository: str, attempt: Attempt) -> Path:
    """Download a repository's checkpoint from ModelScope into the cache; its folder.

    Raises:
        SourceError, ProbeError: like `hub_snapshot_from_network`.
    """
    with making(f"{SNAPSHOTS}/{repository.replace('/', '--')}", attempt.progress) as (target, scratch):
        if not is_whole(target):
            _modelscope(repository, scratch, wanted, attempt)
            publish(scratch, target)
    return target


def modelscope_file(repository: str, gguf: GgufFile, attempt: Attempt) -> Path:
    """Download one known file of a repository from ModelScope into the cache.

    Raises: like `modelscope_snapshot`.
    """
    with making(f"{FILES}/{gguf.name}", attempt.progress) as (target, scratch):
        if not target.exists():
            _modelscope(repository, scratch, lambda path: path == gguf.name, attempt)
            refuse_wrong(scratch / gguf.name, gguf.sha256, gguf.name)
            publish(scratch / gguf.name, target)
    return target


def _modelscope(repository: str, folder: Path, choose: Callable[[str], bool], attempt: Attempt) -> None:
    endpoint = modelscope_endpoint()
    attempt.ask(endpoint)
    try:
        files = [file for file in _modelscope_files(endpoint, repository) if choose(file.name)]
        if not files:
            raise SourceError(f"{endpoint} has no files of {repository}")
        total = sum(file.size for file in files)
        require_space(total + ROOM)
        done = 0
        for file in files:
            url = f"{endpoint}/models/{repository}/resolve/master/{file.name}"
            path = folder / file.name
            with requests.get(url, stream=True, timeout=TIMEOUT) as answer, path.open("wb") as arriving:
                answer.raise_for_status()
                for piece in answer.iter_content(1 << 20):
                    arriving.write(piece)
                    attempt.progress("download", min((done + arriving.tell()) / total, 1.0), file.name)
            if path.stat().st_size != file.size:
                raise SourceError(f"{endpoint} broke off within {file.name}")
            refuse_wrong(path, file.sha256, file.name)
            done += file.size
    except requests.HTTPError as error:
        status = error.response.status_code if error.response is not None else "unknown"
        raise SourceError(f"{endpoint} answers with status {status}") from None
    except requests.RequestException as error:
        raise SourceError(f"{endpoint} {network_reason(error)}") from None


@dataclass(frozen=True, slots=True)
class _RemoteFile:
    name: str
    size: int  # bytes
    sha256: str | None


def _modelscope_files(endpoint: str, repository: str) -> list[_RemoteFile]:
    """The files of a repository. Raises SourceError, and requests' errors."""
    answer = requests.get(
        f"{endpoint}/api/v1/models/{repository}/repo/files",
        params={"Revision": "master", "Recursive": "true"},
        timeout=TIMEOUT,
    )
    answer.raise_for_status()
    try:
        return [
            _RemoteFile(str(file["Path"]), int(file["Size"]), file.get("Sha256") or None)
            for file in answer.json()["Data"]["Files"]
            if file["Type"] == "blob"
        ]
    except (KeyError, TypeError, ValueError):
        raise SourceError(f"{endpoint} answers something that is not its list of files") from None


def modelscope_endpoint() -> str:
    """ModelScope's address; MODELSCOPE_DOMAIN and MODELSCOPE_URL_SCHEME change it, as in its client."""
    scheme = os.environ.get("MODELSCOPE_URL_SCHEME") or "https://"
    return scheme + (os.environ.get("MODELSCOPE_DOMAIN") or "www.modelscope.cn")

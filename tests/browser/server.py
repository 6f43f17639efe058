"""A real `streamlit run` of the app on a free loopback port, with its log kept."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
START_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Server:
    """A running app."""

    url: str  # "http://127.0.0.1:PORT", without a slash at the end
    log_file: Path
    pid: int

    def log(self) -> str:
        """What the server printed so far."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")


@contextmanager
def running_app(
    log_file: Path, environment: Mapping[str, str] | None = None, script: str = "app.py"
) -> Iterator[Server]:
    """Starts the app with these environment variables added, waits until it answers, ends it on leaving.

    `script` is another page to serve instead, relative to the project's folder.

    Raises:
        RuntimeError: it did not answer in time; the message holds its log.
    """
    port = free_port()
    command = [
        sys.executable, "-m", "streamlit", "run", script,
        "--server.port", str(port), "--server.address", "127.0.0.1", "--server.headless", "true",
    ]  # fmt: skip
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    server = Server(f"http://127.0.0.1:{port}", log_file, process.pid)
    try:
        if not healthy(server.url, process):
            raise RuntimeError(f"the app did not start; its log:\n{server.log()}")
        yield server
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """A port of this machine that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def healthy(url: str, process: subprocess.Popen[bytes]) -> bool:
    """Whether the app answers before START_SECONDS are over."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=1) as answer:
                if answer.status == 200:
                    return True
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.1)
    return False

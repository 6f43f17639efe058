"""How much memory a piece of work takes beyond what was there before it: Linux, one process a measurement.

The kernel's own high-water mark is set back before each piece of work, so that loading the model does not
count. A process that has done something else before keeps memory for itself that the next piece of work would
not have to ask for; so each of the things that are compared is measured in a process of its own.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
TIMEOUT = 1800  # seconds
SPARE = 0.9  # of the free memory that a measurement may take: the rest is everybody's


def extra(work: Callable[[], object]) -> int:
    """Bytes of resident memory that the work needed at its peak beyond what was resident before it, a page at least.

    Raises:
        MemoryError, RuntimeError: as the work raises them where it wants more than the machine has free.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what earlier work freed is the system's again
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the high-water mark starts anew
    before = _status("VmRSS")
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    limit = _status("VmSize") + int(free() * SPARE)
    resource.setrlimit(resource.RLIMIT_AS, (limit, unlimited[1]))
    try:
        work()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, unlimited)
    return max(_status("VmHWM") - before, resource.getpagesize())


def free() -> int:
    """Bytes of memory that the machine can give without swapping."""
    return _figure("/proc/meminfo", "MemAvailable")


def in_process(module: str, *arguments: str) -> Any:
    """What `python -m MODULE ARGUMENTS` prints as its last line, JSON.

    Raises:
        RuntimeError: with what it wrote to standard error, when it failed or was ended by the system.
    """
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module} {' '.join(arguments)}: {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _status(key: str) -> int:
    """A figure of this process in bytes, from the kernel."""
    return _figure("/proc/self/status", key)


def _figure(file: str, key: str) -> int:
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))

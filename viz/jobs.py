"""Work that goes on in a thread of its own while the page is used.

A script that waits for slow work itself would lose it at the reader's next click, when Streamlit ends the run.
So the work runs in a `Job`, which every run can look at again, and jobs that share a machine take `Turns`. Who asks for
what somebody else has under way joins them (`Shared`). No Streamlit command is called in these threads.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from model_probe.progress import Cancelled, Progress
from viz.collecting import settle_once

Result = TypeVar("Result")

NOTED: Final = ("unreachable", "fallback")  # stages that say something and pass at once
_LOOK_SECONDS: Final = 0.2  # between two looks at the queue


@dataclass(frozen=True, slots=True)
class Told:
    """What a job last told of itself."""

    stage: str  # of `model_probe.progress.STAGES`, or "begin" or "queue"
    done: float | None = None  # share of the stage, 0 to 1
    detail: str = ""


class Job(Generic[Result]):
    """One piece of work, begun at once.

    job = Job(lambda progress: fetch("qwen2.5-coder-0.5b", progress=progress))
    while not job.wait(0.1): show(job.told)
    job.result()

    Work that is to be stopped tells of its progress often: at the next word after `stop` it is `Cancelled`.
    """

    def __init__(self, work: Callable[[Progress], Result]) -> None:
        self.told = Told("begin")
        self.notes: list[Told] = []  # of NOTED, which a reader is to keep in sight
        self._work = work
        self._result: Result | None = None
        self._error: BaseException | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="rmsnorm-lab-job", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._work(self._tell)
        except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the result
            self._error = error

    def _tell(self, stage: str, done: float | None = None, detail: str = "") -> None:
        if stage in NOTED:
            self.notes.append(Told(stage, None, detail))
        if self._stopping:
            raise Cancelled
        self.told = Told(stage, done, detail)

    def stop(self) -> None:
        """Ask the work to end at its next word of progress, in the queue too; `result` then raises Cancelled."""
        self._stopping = True

    @property
    def stopping(self) -> bool:
        """Whether the work was asked to end; `wait` says when it has."""
        return self._stopping

    def wait(self, seconds: float) -> bool:
        """Whether the work has ended, after waiting for it at most so long."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self) -> Result:
        """What the work returned; waits for its end. Raises what the work raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # None only where Result allows it


class Turns:
    """A queue: who comes first goes first, and everybody is told how many are before them."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._queue: deque[object] = deque()

    def __len__(self) -> int:
        """How many are at work or wait."""
        return len(self._queue)

    @contextmanager
    def take(self, progress: Progress) -> Iterator[None]:
        """Waits for one's turn; while waiting `progress` gets the stage "queue" and how many are before."""
        ticket = object()
        with self._condition:
            self._queue.append(ticket)
        try:
            with self._condition:
                while self._queue[0] is not ticket:
                    progress("queue", None, str(self._queue.index(ticket)))
                    self._condition.wait(_LOOK_SECONDS)
            yield
            settle_once()
        finally:
            with self._condition:
                self._queue.remove(ticket)
                self._condition.notify_all()


@dataclass(slots=True)
class _Joined(Generic[Result]):
    """A job, and when each of those who wait for it last looked (time.monotonic)."""

    job: Job[Result]
    looked: dict[str, float] = field(default_factory=dict)


def _anybody(looked: Mapping[str, float], seconds: float) -> bool:
    """Whether somebody has looked within so many seconds."""
    now = time.monotonic()
    return any(now - last < seconds for last in looked.values())


class Shared(Generic[Result]):
    """Jobs that any number of visitors wait for: one job for all who ask for the same.

    Who has looked within the last `patience` seconds waits for it. It ends when the last of them has left, and, unless
    it `goes_on`, when nobody waits any more.
    """

    def __init__(self, patience: float, *, goes_on: bool = False) -> None:
        self._patience = patience
        self._goes_on = goes_on
        self._lock = threading.Lock()  # guards what follows: nobody joins a job while it is being ended
        self._under_way: dict[Hashable, _Joined[Result]] = {}

    def join(self, key: Hashable, visitor: str, work: Callable[[Progress], Result]) -> Job[Result]:
        """The job under way for `key`, begun if there is none."""
        with self._lock:
            self._under_way = {k: j for k, j in self._under_way.items() if not j.job.wait(0)}
            joined = self._under_way.get(key)
            if joined is None or joined.job.stopping:
                looked = {visitor: time.monotonic()}  # before the work can ask who waits
                joined = _Joined(Job(lambda progress: work(self._watched(looked, progress))), looked)
                self._under_way[key] = joined
            joined.looked[visitor] = time.monotonic()
            return joined.job

    def look(self, job: Job[Any], visitor: str) -> None:
        """The visitor still waits for the job."""
        with self._lock:
            joined = self._joined(job)
            if joined is not None:
                joined.looked[visitor] = time.monotonic()

    def leave(self, job: Job[Any], visitor: str) -> bool:
        """The visitor waits no longer; whether the job goes on, for others."""
        with self._lock:
            joined = self._joined(job)
            if joined is not None:
                joined.looked.pop(visitor, None)
                if _anybody(joined.looked, self._patience):
                    return True
            job.stop()
        return False

    def has(self, job: Job[Any]) -> bool:
        """Whether the job is one of these."""
        with self._lock:
            return self._joined(job) is not None

    def _joined(self, job: Job[Any]) -> _Joined[Result] | None:
        """Called with the lock held."""
        return next((joined for joined in self._under_way.values() if joined.job is job), None)

    def _watched(self, looked: dict[str, float], progress: Progress) -> Progress:
        if self._goes_on:
            return progress

        def tell(stage: str, done: float | None = None, detail: str = "") -> None:
            with self._lock:
                if not _anybody(looked, self._patience):
                    self._under_way = {k: j for k, j in self._under_way.items() if j.looked is not looked}
                    raise Cancelled
            progress(stage, done, detail)

        return tell


class TooSlow(Cancelled):
    """Work took longer than it was given."""


class Within:
    """The progress of work that is stopped with TooSlow at its first word after so many seconds from its start."""

    def __init__(self, seconds: float, progress: Progress) -> None:
        self._seconds, self._progress = seconds, progress
        self.start()

    def start(self) -> None:
        """The seconds count from now on."""
        self._until = time.monotonic() + self._seconds

    def __call__(self, stage: str, done: float | None = None, detail: str = "") -> None:
        if time.monotonic() > self._until:
            raise TooSlow
        self._progress(stage, done, detail)

    @contextmanager
    def left_out(self) -> Iterator[Progress]:
        """The progress of what is not counted; the seconds count from its end."""
        yield self._progress
        self.start()


def untimed(progress: Progress) -> AbstractContextManager[Progress]:
    """The progress of a part of the work that `Within` does not count, where the work is counted at all."""
    return progress.left_out() if isinstance(progress, Within) else nullcontext(progress)

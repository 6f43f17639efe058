"""Work that goes on in a thread of its own while the page is used.

A script that waits for slow work itself would lose it at the reader's next click, when Streamlit ends the run.
So the work runs in a `Job`, which every run can look at again, and jobs that share a machine take `Turns`.
No Streamlit command is called in these threads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from model_probe.progress import Cancelled, Progress

Result = TypeVar("Result")

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
        self.given_up: list[str] = []  # sources that did not answer, with why
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
        if stage == "unreachable":
            self.given_up.append(detail)
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
        finally:
            with self._condition:
                self._queue.remove(ticket)
                self._condition.notify_all()

"""Jobs that visitors share: whoever stops only leaves while another one waits, and nobody joins what is being given up."""

from __future__ import annotations

import threading
import time

import pytest

from model_probe.progress import Cancelled, Progress
from viz.jobs import Shared

LONG = 30.0  # seconds, more than a test takes


def until(end: threading.Event, progress: Progress) -> str:
    """Work that goes on until it is ended, and tells of itself all the time."""
    give_up = time.monotonic() + LONG
    while not end.wait(0.01):
        progress("capture")
        assert time.monotonic() < give_up
    return "measured"


def test_who_stops_only_leaves_while_another_one_reads_another_page() -> None:
    shared: Shared[str] = Shared(patience=LONG)
    end = threading.Event()
    job = shared.join("a prompt", "first", lambda progress: until(end, progress))
    assert shared.join("a prompt", "second", lambda progress: until(end, progress)) is job
    time.sleep(0.1)  # the first is not looking meanwhile
    assert shared.leave(job, "second")
    assert not job.wait(0.1)
    end.set()
    assert job.result() == "measured"


@pytest.mark.parametrize("goes_on", [True, False])
def test_the_last_one_to_leave_ends_it(goes_on: bool) -> None:
    shared: Shared[str] = Shared(patience=LONG, goes_on=goes_on)
    end = threading.Event()
    job = shared.join("a prompt", "first", lambda progress: until(end, progress))
    shared.join("a prompt", "second", lambda progress: until(end, progress))
    assert shared.leave(job, "first")
    assert not shared.leave(job, "second")
    with pytest.raises(Cancelled):
        job.result()
    again = shared.join("a prompt", "third", lambda progress: until(end, progress))
    end.set()
    assert again is not job
    assert again.result() == "measured"


def test_one_who_is_out_of_patience_no_longer_waits() -> None:
    shared: Shared[str] = Shared(patience=0.2, goes_on=True)
    end = threading.Event()
    job = shared.join("a file", "first", lambda progress: until(end, progress))
    time.sleep(0.4)
    assert not job.wait(0)  # it goes on with nobody there
    shared.join("a file", "second", lambda progress: until(end, progress))
    assert not shared.leave(job, "second")
    with pytest.raises(Cancelled):
        job.result()


def test_nobody_joins_what_is_being_given_up() -> None:
    """A capture ends a moment after it was told so: who comes in that moment gets one that runs."""
    shared: Shared[str] = Shared(patience=0.1)
    given_up, end = threading.Event(), threading.Event()

    def slow_to_end(progress: Progress) -> str:
        try:
            return until(end, progress)
        except Cancelled:
            given_up.set()
            assert end.wait(LONG)
            raise

    job = shared.join("a prompt", "first", slow_to_end)
    assert given_up.wait(LONG)
    again = shared.join("a prompt", "second", lambda progress: "measured")
    assert not job.wait(0)
    assert again.result() == "measured"
    end.set()
    with pytest.raises(Cancelled):
        job.result()


def test_a_stop_between_two_looks_takes_nobody_along() -> None:
    """Two visitors stop and join the same again and again: a job that is handed out is never one that was stopped."""
    shared: Shared[str] = Shared(patience=LONG)
    end = threading.Event()
    stopped: list[str] = []

    def visit(name: str) -> None:
        for _ in range(300):
            job = shared.join("a prompt", name, lambda progress: until(end, progress))
            if job.stopping:
                stopped.append(name)
            shared.leave(job, name)

    visitors = [threading.Thread(target=visit, args=(name,)) for name in ("first", "second")]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    end.set()
    assert not stopped

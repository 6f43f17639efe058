"""Work that is told of and cancelled from the thread that waits for it."""

from __future__ import annotations

import threading
import time

import pytest

from model_probe.progress import Cancelled, Progress, relayed

Word = tuple[str, float | None, str]


def test_words_arrive_in_order_and_in_the_callers_thread() -> None:
    told: list[Word] = []
    threads: set[int] = set()

    def work(progress: Progress) -> str:
        assert threading.get_ident() != here
        progress("look", detail="an address")
        for i in range(3):
            progress("download", i / 2, "a file")
        return "done"

    def keep(stage: str, done: float | None = None, detail: str = "") -> None:
        told.append((stage, done, detail))
        threads.add(threading.get_ident())

    here = threading.get_ident()
    assert relayed(work, keep) == "done"
    assert told == [("look", None, "an address"), *(("download", i / 2, "a file") for i in range(3))]
    assert threads == {here}


def test_an_error_is_raised_where_the_caller_is() -> None:
    def work(progress: Progress) -> None:
        progress("look")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        relayed(work, lambda *_: None)


def test_work_that_says_nothing_can_be_cancelled() -> None:
    """The last word is said again meanwhile; that a source was given up is not."""
    told: list[str] = []
    end = threading.Event()

    def work(progress: Progress) -> None:
        progress("download")
        progress("unreachable", detail="an address")
        end.wait(60)

    def cancel(stage: str, done: float | None = None, detail: str = "") -> None:
        told.append(stage)
        if len(told) > 3:
            end.set()
            raise Cancelled

    with pytest.raises(Cancelled):
        relayed(work, cancel)
    assert told == ["download", "unreachable", "download", "download"]


def test_cancelled_work_ends_at_its_next_word() -> None:
    ended = threading.Event()

    def work(progress: Progress) -> None:
        try:
            while True:
                progress("download")
                time.sleep(0.01)
        except Cancelled:
            ended.set()
            raise

    def cancel(stage: str, done: float | None = None, detail: str = "") -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        relayed(work, cancel)
    assert ended.is_set()

"""Work that a reader asks for with a button: Run, how far it is, Stop, and what came of it or went wrong.

    def work(progress, turn): return measure(settings, progress=progress, turn=turn)
    run_button(page, OnDemand("lab", work, keep))

The work stands in the one queue before this machine (`viz.measure.turns`); it may give its turn up now and then, or
do everything within one `turn()`. While it goes on only its own part of the page is drawn again, so that the reader
can read on. A visitor who is gone does not keep others waiting: work that nobody has looked at ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import streamlit as st

from model_probe.errors import ProbeError
from model_probe.progress import Cancelled, Progress
from model_probe.settings import settings
from viz import measure
from viz.admission import Switch, allowed, began, refusal
from viz.jobs import Job, TooSlow, Within
from viz.shell import Page
from viz.text import literal

Result = TypeVar("Result")
Turn = Callable[[], AbstractContextManager[None]]

REFRESH_SECONDS: Final = 0.5  # between two looks at work that goes on
ABANDONED_SECONDS: Final = 120.0
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OnDemand(Generic[Result]):
    """What a button begins. Its label is `<page>.<name>.run`."""

    name: str  # of the work; several may be on a page
    work: Callable[[Progress, Turn], Result]  # in a thread: no Streamlit in it
    keep: Callable[[Result], None]  # in the page's script, when it has ended
    switch: Switch = "training"  # of the operator's, that it goes by


@dataclass(slots=True)
class _State:
    """What this session has under way under one name."""

    job: Job[Any] | None = None
    looked: float = 0.0  # time.monotonic of the last look
    stopped: bool = False  # the last work was stopped before it had a result
    error: Exception | None = None  # what the last work failed with


def running(page: Page, name: str) -> bool:
    """Whether this session's work of this name goes on, or waits for its turn."""
    job = _state(page, name).job
    return job is not None and not job.wait(0)


def run_button(
    page: Page, asked: OnDemand[Any], *, disabled: bool = False, above: Callable[[], None] | None = None
) -> None:
    """Draws the button, and while the work goes on how far it is and a button to stop it.

    `above` draws what grows with the work, over the button: again with each look.
    """
    if not allowed(asked.switch):
        st.caption(page.t("errors.switched_off"))
        return
    state = _state(page, asked.name)
    watching = state.job is not None
    draw = st.fragment(_drawn, run_every=REFRESH_SECONDS if watching else None)
    draw(page, asked, disabled, watching=watching, above=above)


def _drawn(
    page: Page,
    asked: OnDemand[Any],
    disabled: bool,
    *,
    watching: bool,
    above: Callable[[], None] | None = None,
) -> None:
    state = _state(page, asked.name)
    if state.job is not None and state.job.wait(0):
        _settle(state, asked)
        st.rerun()
    if watching != (state.job is not None):
        st.rerun()  # all of the page: the clock that looks at the work begins, or ends
    if above is not None:
        above()
    key = f"{page.entry.stem}-{asked.name}"
    if state.job is None:
        st.button(
            page.t(f"{page.entry.stem}.{asked.name}.run"),
            key=f"{key}-run",
            type="primary",
            disabled=disabled,
            on_click=_begin,
            args=(state, asked),
        )
        if state.error is not None:
            st.error(measure.sentence(state.error, page.words))
        elif state.stopped:
            st.info(page.t("common.stopped"))
        return
    state.looked = time.monotonic()
    told = state.job.told
    stage = "stopping" if state.job.stopping else told.stage
    words = page.t(f"progress.{stage}", detail=literal(told.detail))
    st.progress(min(max(told.done or 0.0, 0.0), 1.0), text=words)
    stopping = state.job.stopping
    st.button(page.t("common.stop"), key=f"{key}-stop", disabled=stopping, on_click=state.job.stop)


def _begin(state: _State, asked: OnDemand[Any]) -> None:
    if state.job is not None:
        return
    turns, limits = measure.turns(), settings()
    state.error = refusal(asked.switch, turns)
    if state.error is not None:
        return
    state.stopped, state.looked = False, time.monotonic()

    def work(progress: Progress) -> Any:
        def watched(stage: str, done: float | None = None, detail: str = "") -> None:
            if time.monotonic() - state.looked > ABANDONED_SECONDS:
                raise Cancelled
            progress(stage, done, detail)

        if asked.switch == "training":  # of bounded size
            return asked.work(watched, lambda: turns.take(watched))
        timed = Within(limits.run_seconds, watched)

        @contextmanager
        def turn() -> Iterator[None]:
            with turns.take(watched):
                timed.start()
                yield

        return asked.work(timed, turn)

    state.job = Job(work)
    began(state.job)


def _settle(state: _State, asked: OnDemand[Any]) -> None:
    job, state.job = state.job, None
    if job is None:
        return
    try:
        asked.keep(job.result())
    except TooSlow:
        state.error = ProbeError("too_slow", seconds=round(settings().run_seconds))
    except Cancelled:
        state.stopped = True
    except Exception as error:  # noqa: BLE001 - the reader gets a sentence, the log the traceback
        if not isinstance(error, ProbeError):
            _LOG.error("work on demand failed", exc_info=error)
        state.error = error


def _state(page: Page, name: str) -> _State:
    state: _State = st.session_state.setdefault(f"demand.{page.entry.stem}.{name}", _State())
    return state

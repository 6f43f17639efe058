"""The code lab on its page: what is shown, the recording or what was run here, and the run itself."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import streamlit as st

from model_probe.code_results import CodeResults, load_code_results
from model_probe.errors import ProbeError
from model_probe.progress import Cancelled, Progress
from model_probe.settings import settings
from viz import measure
from viz.admission import began, left, refusal
from viz.jobs import Job, Shared, TooSlow, Within
from viz.provenance import Origin
from viz.shell import Page
from viz.text import literal

if TYPE_CHECKING:
    from model_probe.checkpoints import Checkpoint

_JOB: Final = "code.job"
_RESULTS: Final = "code.results"
_FAILURE: Final = "code.failure"
_LOG: Final = logging.getLogger(__name__)
_HERE: Final = Path(__file__).resolve().parent

# Of this process: whoever asks for the same meanwhile joins it.
_runs: Shared[CodeResults] = Shared(patience=measure.ABANDONED_SECONDS)


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """The results on the page."""

    results: CodeResults
    origin: Origin


def shown() -> Shown:
    """What this session ran, else the recording. Draws the style of the page's code, too."""
    st.html(_HERE / "code.css")
    results: CodeResults | None = st.session_state.get(_RESULTS)
    return Shown(load_code_results(), "recording") if results is None else Shown(results, "live")


def with_checkpoint() -> Shown:
    """What this session ran on a checkpoint, else the recording, which was."""
    results: CodeResults | None = st.session_state.get(_RESULTS)
    if results is None or results.checkpoint is None:
        return Shown(load_code_results(), "recording")
    return Shown(results, "live")


def run_controls(page: Page) -> None:
    """The button that runs the lab here, what it would run on, and how far it is."""
    job: Job[CodeResults] | None = st.session_state.get(_JOB)
    offer = measure.chosen()
    with st.container(key="code-run", horizontal=True, vertical_alignment="center", gap="small"):
        st.button(page.t("code.run.run"), key="code.run", disabled=job is not None, on_click=_start)
        if job is not None:
            st.button(page.t("code.run.stop"), key="code.stop", disabled=job.stopping, on_click=_stop)
    if offer is None:
        st.caption(page.t("code.run.without"))
    else:
        st.caption(page.t("code.run.with", name=literal(offer.name)))
    failed: Exception | None = st.session_state.get(_FAILURE)
    if failed is not None:
        st.error(measure.sentence(failed, page.words))


def follow(page: Page) -> None:
    """Shows how far the run is until it ends, then keeps what came of it. In the place where it is to be seen."""
    job: Job[CodeResults] | None = st.session_state.get(_JOB)
    if job is None:
        return
    measure.show_progress(job, page.words, look=measure.looking(_runs, job))
    del st.session_state[_JOB]
    try:
        st.session_state[_RESULTS] = job.result()
    except TooSlow:
        st.session_state[_FAILURE] = ProbeError("too_slow", seconds=round(settings().run_seconds))
    except Cancelled:
        pass
    except Exception as error:  # noqa: BLE001 - the reader gets a sentence, the log the traceback
        if not isinstance(error, ProbeError):
            _LOG.error("the code lab failed", exc_info=error)
        st.session_state[_FAILURE] = error
    st.rerun()


def _start() -> None:
    st.session_state.pop(_FAILURE, None)
    if st.session_state.get(_JOB) is not None:
        return
    turns, seconds = measure.turns(), settings().run_seconds
    refused = refusal("live", turns)
    if refused is not None:
        st.session_state[_FAILURE] = refused
        return
    offer = measure.chosen()
    open_ = None if offer is None else measure.opener()

    def work(progress: Progress) -> CodeResults:
        with turns.take(progress):
            timed = Within(seconds, progress)
            checkpoint: Checkpoint | None = None if open_ is None else open_(timed)
            from model_probe.code_runs import run_code_lab  # loads torch

            return run_code_lab(checkpoint, timed)

    st.session_state[_JOB] = _runs.join(None if offer is None else offer.code, measure.visitor(), work)
    began(st.session_state[_JOB])


def _stop() -> None:
    job: Job[CodeResults] | None = st.session_state.get(_JOB)
    if job is not None and _runs.leave(job, measure.visitor()):  # it goes on, for others
        left(job)
        del st.session_state[_JOB]

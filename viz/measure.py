"""The recording and the live checkpoint, as the pages use them.

One checkpoint is opened a server process, for all visitors; whoever measures takes their turn. What a visitor
measured is kept in their own session. torch is imported when the first measurement runs, not before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import streamlit as st

from model_probe.catalog import NAMED, NamedCheckpoint, automatic
from model_probe.errors import ProbeError
from model_probe.progress import Progress
from model_probe.recording import Recording, load_recording
from model_probe.sites import NormSite
from model_probe.trace import CheckpointInfo, NormTrace
from viz.jobs import Job, Turns
from viz.text import Words, literal

if TYPE_CHECKING:
    from model_probe.checkpoints import Checkpoint

# What making the GGUF file ready takes, on two cores: said before it is begun.
CONVERSION_SECONDS: Final = 45
CONVERSION_MEMORY_GB: Final = 4
CONVERSION_DISK_GB: Final = 2.5
KEPT_RESULTS: Final = 12  # live traces of a session; the oldest goes first

_LOOK_SECONDS: Final = 0.1  # between two looks at a job
_JOB: Final = "measure.job"
_RESULTS: Final = "measure.results"
_FAILURE: Final = "measure.failure"
_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class Bench:
    """What all visitors share: the open checkpoint, the queue before it, and a download under way."""

    turns: Turns = field(default_factory=Turns)
    checkpoint: Checkpoint | None = None
    fetching: Job[Path] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)  # guards `fetching`


@st.cache_resource(show_spinner=False)
def _bench() -> Bench:
    """The one bench of this process: a model is loaded once, however many come at the same time."""
    return Bench()


def turns() -> Turns:
    """The one queue before this machine, for every kind of work and all visitors."""
    return _bench().turns


def opener() -> Callable[[Progress], Checkpoint]:
    """What opens the checkpoint that is here, once for all visitors.

    Asked for in the script, called in a job, inside its turn.
    """
    bench = _bench()
    return lambda progress: _opened(bench, progress)


def recording() -> Recording:
    """The recording that ships with the app."""
    return load_recording()


def recorded_checkpoint() -> NamedCheckpoint:
    """The checkpoint of the recording, which `start_fetching` brings."""
    return NAMED[recording().checkpoint.name]


def checkpoint_here() -> str | None:
    """What a measurement would open now: a name or the operator's choice; None when nothing is on this machine."""
    return automatic()


def open_sites() -> tuple[CheckpointInfo, tuple[NormSite, ...]] | None:
    """The checkpoint that has been opened on this machine and its norms, None while none has."""
    checkpoint = _bench().checkpoint
    return None if checkpoint is None else (checkpoint.info, checkpoint.sites)


def measured(prompt: str) -> NormTrace | None:
    """What this session measured of exactly this prompt, None when it has not."""
    return st.session_state.get(_RESULTS, {}).get(prompt)


def job() -> Job[NormTrace] | Job[Path] | None:
    """The work that this session waits for."""
    return st.session_state.get(_JOB)


def start_measuring(prompt: str) -> None:
    """Begin to measure a prompt on the checkpoint that is here, opening it if it is not open yet."""
    st.session_state.pop(_FAILURE, None)
    if checkpoint_here() is None:
        st.session_state[_FAILURE] = ProbeError("no_checkpoint")
        return
    bench = _bench()
    st.session_state[_JOB] = Job(lambda progress: _measure(bench, prompt, progress))


def start_fetching() -> None:
    """Begin to fetch the recording's checkpoint, or join a visitor who has begun."""
    st.session_state.pop(_FAILURE, None)
    bench, name = _bench(), recorded_checkpoint().name
    with bench.lock:
        if bench.fetching is None or bench.fetching.wait(0):
            bench.fetching = Job(lambda progress: _fetch(name, progress))
        st.session_state[_JOB] = bench.fetching


def follow(words: Words) -> None:
    """Show how far this session's work is until it ends, then keep what came of it and run the page again.

    Called last on a page, in the place where progress is to be seen. A reader who uses another control
    meanwhile ends only this wait; the next run follows again.
    """
    current = job()
    if current is None:
        return
    show_progress(current, words)
    del st.session_state[_JOB]
    try:
        result = current.result()
        if isinstance(result, NormTrace):
            _keep(result)
    except Exception as error:  # noqa: BLE001 - the reader gets a sentence, the log the traceback
        if not isinstance(error, ProbeError):
            _LOG.error("a job of the bench failed", exc_info=error)
        st.session_state[_FAILURE] = error
    st.rerun()


def show_progress(current: Job[Any], words: Words) -> None:
    """Show what a job tells of itself until it ends; a reader who uses a control meanwhile ends only this wait."""
    with st.status(words.t("progress.begin"), expanded=True) as status:
        bar, given_up = st.empty(), st.empty()
        told = None
        while not current.wait(_LOOK_SECONDS):
            if told == current.told:
                continue
            told = current.told
            status.update(label=words.t(f"progress.{told.stage}", detail=literal(told.detail)))
            if told.done is None:
                bar.empty()
            else:
                bar.progress(min(max(told.done, 0.0), 1.0))
            if current.given_up:
                given_up.caption("  \n".join(literal(source) for source in current.given_up))


def failure(words: Words) -> str | None:
    """What the last work of this session failed with, as a sentence of Markdown; None when it did not fail."""
    error = st.session_state.get(_FAILURE)
    return None if error is None else sentence(error, words)


def forget_failure() -> None:
    """Take the last failure's sentence off the page."""
    st.session_state.pop(_FAILURE, None)


def sentence(error: Exception, words: Words) -> str:
    """An error in the page's language, saying what to do here: Markdown, the facts in it literal."""
    if isinstance(error, ProbeError):
        facts = {name: _fact(value) for name, value in error.fields.items()}
        return words.t(f"errors.{error.code}", **facts)
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return words.t("errors.out_of_memory")
    return words.t("errors.unexpected")


def _fact(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(literal(str(v)) for v in value)
    return literal(str(value))


def _measure(bench: Bench, prompt: str, progress: Progress) -> NormTrace:
    with bench.turns.take(progress):
        checkpoint = _opened(bench, progress)
        from model_probe import capture  # loads torch, which by now is there

        return capture(checkpoint, prompt, progress=progress)


def _opened(bench: Bench, progress: Progress) -> Checkpoint:
    if bench.checkpoint is None:
        from model_probe import open_checkpoint

        bench.checkpoint = open_checkpoint("auto", progress=progress)
    return bench.checkpoint


def _fetch(name: str, progress: Progress) -> Path:
    from model_probe import fetch

    return fetch(name, progress=progress)


def _keep(trace: NormTrace) -> None:
    results: dict[str, NormTrace] = st.session_state.setdefault(_RESULTS, {})
    results.pop(trace.prompt, None)
    results[trace.prompt] = trace
    while len(results) > KEPT_RESULTS:
        del results[next(iter(results))]

"""The recording and the live checkpoint, as the pages use them.

One checkpoint at a time is open in a server process, for all visitors; whoever measures takes their turn, and who has
chosen another one has it opened in its place. What a visitor measured is kept in their own session. torch is imported
when the first measurement runs, not before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import streamlit as st

from model_probe.catalog import NAMED, NamedCheckpoint
from model_probe.errors import ProbeError
from model_probe.progress import Cancelled, Progress
from model_probe.recording import Recording, load_recording
from model_probe.sites import NormSite
from model_probe.trace import CheckpointInfo, NormTrace
from viz.address import Choice, remembered
from viz.jobs import Job, Turns
from viz.offers import Offer, here, offers
from viz.text import Words, literal

if TYPE_CHECKING:
    from model_probe.checkpoints import Checkpoint

# What making the GGUF file ready takes, on two cores: said before it is begun.
CONVERSION_SECONDS: Final = 45
CONVERSION_MEMORY_GB: Final = 4
CONVERSION_DISK_GB: Final = 2.5
KEPT_RESULTS: Final = 12  # live traces of a session; the oldest goes first

_LOOK_SECONDS: Final = 0.1  # between two looks at a job
_GONE_SECONDS: Final = 5.0  # who waits for a download looks oftener than this
_PAGE: Final = "probe"  # whose address holds the choice of a checkpoint
_CHOICE: Final = "checkpoint"
_JOB: Final = "measure.job"
_RESULTS: Final = "measure.results"  # {(code of the checkpoint, prompt): trace}, the oldest first
_FAILURE: Final = "measure.failure"
_STOPPED: Final = "measure.stopped"  # what the reader stopped last: "run" or "download"
_FETCHED: Final = "measure.fetched"  # code of the checkpoint that has just arrived
_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class Download:
    """A checkpoint under way, for all who wait for it."""

    job: Job[Path]
    looked: dict[str, float] = field(default_factory=dict)  # session → time.monotonic of its last look

    def others(self, session: str) -> bool:
        """Whether anybody else waits for it."""
        now = time.monotonic()
        return any(s != session and now - looked < _GONE_SECONDS for s, looked in self.looked.items())


@dataclass(slots=True)
class Bench:
    """What all visitors share: the open checkpoint, the queue before it, and the downloads under way."""

    turns: Turns = field(default_factory=Turns)
    checkpoint: Checkpoint | None = None
    code: str | None = None  # of the offer that is open
    downloads: dict[str, Download] = field(default_factory=dict)  # by the name of the checkpoint
    lock: threading.Lock = field(default_factory=threading.Lock)  # guards `downloads`


@st.cache_resource(show_spinner=False)
def _bench() -> Bench:
    """The one bench of this process: a model is loaded once, however many come at the same time."""
    return Bench()


def turns() -> Turns:
    """The one queue before this machine, for every kind of work and all visitors."""
    return _bench().turns


def opener() -> Callable[[Progress], Checkpoint]:
    """What opens the checkpoint that this visitor has chosen, unless it is open already.

    Asked for in the script, called in a job, inside its turn.

    Raises:
        ProbeError: when called, `no_checkpoint` if nothing is on this machine.
    """
    bench, offer = _bench(), chosen()
    return lambda progress: _opened(bench, offer, progress)


def recording() -> Recording:
    """The recording that ships with the app."""
    return load_recording()


def recorded_checkpoint() -> NamedCheckpoint:
    """The checkpoint of the recording."""
    return NAMED[recording().checkpoint.name]


def checkpoint_choice() -> Choice:
    """Which of the checkpoints on this machine is run, for the address of the probe."""
    runnable = here(offers())
    codes = tuple(offer.code for offer in runnable) or (recorded_checkpoint().name,)
    choice = Choice(_CHOICE, codes, codes[0])
    arrived = st.session_state.pop(_FETCHED, None)
    if arrived in codes:
        st.session_state[choice.key] = arrived
    return choice


def chosen() -> Offer | None:
    """What a run of this visitor would open now; None when nothing is on this machine."""
    runnable = here(offers())
    code = st.session_state.get(f"choice.{_CHOICE}") or remembered(_PAGE).get(_CHOICE)
    return next((offer for offer in runnable if offer.code == code), runnable[0] if runnable else None)


def open_sites() -> tuple[CheckpointInfo, tuple[NormSite, ...]] | None:
    """The checkpoint that this visitor has chosen and its norms, None while it is not the one that is open."""
    bench, offer = _bench(), chosen()
    checkpoint = bench.checkpoint
    if checkpoint is None or offer is None or bench.code != offer.code:
        return None
    return checkpoint.info, checkpoint.sites


def measured(prompt: str) -> NormTrace | None:
    """What this session measured of exactly this prompt on the chosen checkpoint, None when it has not."""
    return result(key(prompt))


def key(prompt: str) -> tuple[str, str]:
    """What a result of this prompt on the chosen checkpoint is kept under."""
    offer = chosen()
    return ("" if offer is None else offer.code), prompt


def result(key: tuple[str, str]) -> NormTrace | None:
    """What this session has kept under `key`, None when it has nothing there, or no longer."""
    kept: dict[tuple[str, str], NormTrace] = st.session_state.get(_RESULTS, {})
    return kept.get(key)


def results() -> tuple[NormTrace, ...]:
    """All that this session has measured and still keeps, the oldest first."""
    return tuple(st.session_state.get(_RESULTS, {}).values())


def job() -> Job[Any] | None:
    """The work that this session waits for."""
    return st.session_state.get(_JOB)


def start_measuring(prompt: str) -> None:
    """Begin to measure a prompt on the chosen checkpoint, opening it if it is not open yet."""
    forget_failure()
    offer = chosen()
    if offer is None:
        st.session_state[_FAILURE] = ProbeError("no_checkpoint")
        return
    bench = _bench()
    st.session_state[_JOB] = Job(lambda progress: _measure(bench, offer, prompt, progress))


def start_fetching(name: str) -> None:
    """Begin to fetch a checkpoint of the table, or join a visitor who has begun."""
    forget_failure()
    bench = _bench()
    with bench.lock:
        under_way = bench.downloads.get(name)
        if under_way is None or under_way.job.wait(0) or under_way.job.stopping:
            under_way = bench.downloads[name] = Download(Job(lambda progress: _fetch(name, progress)))
        under_way.looked[_session()] = time.monotonic()
        st.session_state[_JOB] = under_way.job


def cancel() -> None:
    """End this session's work. A download that others wait for as well goes on without this session."""
    current = job()
    if current is None:
        return
    with _bench().lock:
        download = _download_of(current)
        if download is not None:
            download.looked.pop(_session(), None)
            if download.others(_session()):
                del st.session_state[_JOB]
                return
    current.stop()


def follow(words: Words) -> None:
    """Show how far this session's work is until it ends, then keep what came of it and run the page again.

    Called last on a page, in the place where progress is to be seen. A reader who uses another control
    meanwhile ends only this wait; the next run follows again.
    """
    current = job()
    if current is None:
        return
    download = _download_of(current)
    st.button(words.t("common.stop"), key="measure-stop", disabled=current.stopping, on_click=cancel)
    show_progress(
        current, words, look=None if download is None else partial(_note_look, download, _session())
    )
    del st.session_state[_JOB]
    try:
        outcome = current.result()
        if isinstance(outcome, Measured):
            _keep(outcome)
        elif download is not None:
            st.session_state[_FETCHED] = _name_of(download)
    except Cancelled:
        st.session_state[_STOPPED] = "run" if download is None else "download"
    except Exception as error:  # noqa: BLE001 - the reader gets a sentence, the log the traceback
        if not isinstance(error, ProbeError):
            _LOG.error("a job of the bench failed", exc_info=error)
        st.session_state[_FAILURE] = error
    st.rerun()


def show_progress(current: Job[Any], words: Words, *, look: Callable[[], None] | None = None) -> None:
    """Show what a job tells of itself until it ends; a reader who uses a control meanwhile ends only this wait.

    `look` is called at each look.
    """
    with st.status(words.t("progress.begin"), expanded=True) as status:
        bar, given_up = st.empty(), st.empty()
        told = None
        while not current.wait(_LOOK_SECONDS):
            if look is not None:
                look()
            if told == current.told:
                continue
            told = current.told
            stage = "stopping" if current.stopping else told.stage
            status.update(label=words.t(f"progress.{stage}", detail=literal(told.detail)))
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


def stopped(words: Words) -> str | None:
    """What became of the last work of this session if its reader stopped it; None if not."""
    work = st.session_state.get(_STOPPED)
    return None if work is None else words.t(f"checkpoints.stopped.{work}")


def forget_failure() -> None:
    """Take what became of the last work off the page."""
    st.session_state.pop(_FAILURE, None)
    st.session_state.pop(_STOPPED, None)


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


@dataclass(frozen=True, slots=True)
class Measured:
    """A trace, and what it was asked for under."""

    key: tuple[str, str]
    trace: NormTrace


def _measure(bench: Bench, offer: Offer, prompt: str, progress: Progress) -> Measured:
    with bench.turns.take(progress):
        checkpoint = _opened(bench, offer, progress)
        from model_probe import capture  # loads torch, which by now is there

        return Measured((offer.code, prompt), capture(checkpoint, prompt, progress=progress))


def _opened(bench: Bench, offer: Offer | None, progress: Progress) -> Checkpoint:
    """Inside a turn: nobody else opens or uses a checkpoint meanwhile."""
    if offer is None:
        raise ProbeError("no_checkpoint")
    if bench.checkpoint is None or bench.code != offer.code:
        from model_probe import open_checkpoint

        bench.code = None
        if bench.checkpoint is not None:  # room for the next one first
            leaving, bench.checkpoint = bench.checkpoint, None
            leaving.close()
            del leaving
        bench.checkpoint = open_checkpoint(offer.where, progress=progress)
        bench.code = offer.code
    return bench.checkpoint


def _fetch(name: str, progress: Progress) -> Path:
    from model_probe import fetch

    return fetch(name, progress=progress)


def _keep(outcome: Measured) -> None:
    kept: dict[tuple[str, str], NormTrace] = st.session_state.setdefault(_RESULTS, {})
    kept.pop(outcome.key, None)
    kept[outcome.key] = outcome.trace
    while len(kept) > KEPT_RESULTS:
        del kept[next(iter(kept))]


def _download_of(current: Job[Any]) -> Download | None:
    return next((each for each in _bench().downloads.values() if each.job is current), None)


def _name_of(download: Download) -> str | None:
    return next((name for name, each in _bench().downloads.items() if each is download), None)


def _note_look(download: Download, session: str) -> None:
    download.looked[session] = time.monotonic()


def _session() -> str:
    """What tells this visitor's session from the others'."""
    identity: str = st.session_state.setdefault("measure.session", uuid4().hex)
    return identity

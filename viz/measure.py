"""The recording and the live checkpoint, as the pages use them.

One checkpoint at a time is open in a server process, for all visitors; whoever measures takes their turn, and who has
chosen another one has it opened in its place. What a visitor measured is kept in their own session. torch is imported
when the first measurement runs, not before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import streamlit as st
from cachetools import LRUCache
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from model_probe.catalog import NAMED, NamedCheckpoint
from model_probe.errors import ProbeError
from model_probe.progress import Cancelled, Progress
from model_probe.recording import Recording, load_recording
from model_probe.settings import Settings, settings
from model_probe.sites import NormSite
from model_probe.trace import CheckpointInfo, NormTrace
from viz.address import Choice, remembered
from viz.admission import allowed, began, left, refusal
from viz.collecting import settle
from viz.jobs import Job, Shared, TooSlow, Turns, Within, untimed
from viz.offers import Offer, here, offers
from viz.text import Words, literal

if TYPE_CHECKING:
    from model_probe.checkpoints import Checkpoint

# What making the GGUF file ready takes, on two cores: said before it is begun.
CONVERSION_SECONDS: Final = 45
CONVERSION_MEMORY_GB: Final = 4
CONVERSION_DISK_GB: Final = 2.5
KEPT_RESULTS: Final = 12  # live traces of a session; the oldest goes first
RESULT_BYTES: Final = 64_000_000  # of the traces kept for all visitors, the least used go first
RESULT_COUNT: Final = 256  # and so many at most
ABANDONED_SECONDS: Final = 60.0  # a run that nobody has looked at for so long gives its place back

_LOOK_SECONDS: Final = 0.1  # between two looks at a job
_PAGE: Final = "probe"  # whose address holds the choice of a checkpoint
_CHOICE: Final = "checkpoint"
_JOB: Final = "measure.job"
_RESULTS: Final = "measure.results"  # {(code of the checkpoint, prompt): trace}, the oldest first
_FAILURE: Final = "measure.failure"
_STOPPED: Final = "measure.stopped"  # what the reader stopped last: "run" or "download"
_FETCHING: Final = "measure.fetching"  # name of the checkpoint that this session waits for
_FETCHED: Final = "measure.fetched"  # code of the checkpoint that has just arrived
_NO_MEMORY: Final = ("out of memory", "allocate memory", "not enough memory")  # in an error's text
_LOG: Final = logging.getLogger(__name__)


Key = tuple[str, str]  # code of the offer, prompt: what a session keeps a result under


@dataclass(frozen=True, slots=True)
class Measured:
    """A trace, and what it was asked for under."""

    key: Key
    trace: NormTrace


def _size_of(trace: NormTrace) -> int:
    """Bytes of a trace, counted so that neither RESULT_BYTES nor RESULT_COUNT can be passed."""
    return max(trace.nbytes, RESULT_BYTES // RESULT_COUNT)


@dataclass(slots=True)
class Bench:
    """What all visitors share: the open checkpoint, the queue before it, work under way, and what came of it.

    `results` are kept by digest, files and dtype of the checkpoint, prompt and its limit: a file that was exchanged
    behind a name is another checkpoint.
    """

    turns: Turns = field(default_factory=Turns)
    checkpoint: Checkpoint | None = None
    code: str | None = None  # of the offer that is open
    downloads: Shared[Path] = field(default_factory=lambda: Shared(patience=ABANDONED_SECONDS, goes_on=True))
    captures: Shared[Measured] = field(default_factory=lambda: Shared(patience=ABANDONED_SECONDS))
    results: LRUCache[tuple[object, ...], NormTrace] = field(
        default_factory=lambda: LRUCache(RESULT_BYTES, getsizeof=_size_of)
    )
    lock: threading.Lock = field(default_factory=threading.Lock)  # guards `results`


# Of this process. Not in Streamlit's cache, which any browser can have emptied: each time another model would be loaded.
_the_bench = Bench()


def _bench() -> Bench:
    """The one bench of this process: a model is loaded once, however many come at the same time."""
    return _the_bench


def turns() -> Turns:
    """The one queue before this machine, for every kind of work and all visitors."""
    return _bench().turns


def visitor() -> str:
    """What tells this visitor's session from the others'."""
    identity: str = st.session_state.setdefault("measure.session", uuid4().hex)
    return identity


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


def key(prompt: str) -> Key:
    """What a result of this prompt on the chosen checkpoint is kept under."""
    offer = chosen()
    return ("" if offer is None else offer.code), prompt


def result(key: Key) -> NormTrace | None:
    """What this session has kept under `key`, None when it has nothing there, or no longer."""
    kept: dict[Key, NormTrace] = st.session_state.get(_RESULTS, {})
    return kept.get(key)


def results() -> tuple[NormTrace, ...]:
    """All that this session has measured and still keeps, the oldest first."""
    return tuple(st.session_state.get(_RESULTS, {}).values())


def job() -> Job[Any] | None:
    """The work that this session waits for."""
    return st.session_state.get(_JOB)


def fetching() -> bool:
    """Whether the work that this session waits for is a download."""
    return st.session_state.get(_FETCHING) is not None


def start_measuring(prompt: str) -> None:
    """Begin to measure a prompt on the chosen checkpoint, opening it if it is not open yet."""
    if job() is not None:
        return
    forget_failure()
    offer = chosen()
    if offer is None:
        st.session_state[_FAILURE] = ProbeError("no_checkpoint")
        return
    limits = settings()
    bench, wanted = _bench(), (offer.code, prompt)
    known = _known(bench, offer, prompt, limits) if allowed("live") else None
    if known is not None:
        _keep(Measured(wanted, known))
        return
    refused = refusal("live", bench.turns)
    if refused is not None:
        st.session_state[_FAILURE] = refused
        return
    st.session_state[_JOB] = bench.captures.join(
        (*wanted, limits.prompt_tokens),
        visitor(),
        lambda progress: _measure(bench, offer, prompt, progress),
    )
    began(st.session_state[_JOB])


def start_fetching(name: str) -> None:
    """Begin to fetch a checkpoint of the table, or join a visitor who has begun; not beside other work."""
    if job() is not None:
        return
    forget_failure()
    if not any(offer.name == name for offer in offers()):  # the operator does not offer it
        st.session_state[_FAILURE] = ProbeError("switched_off")
        return
    st.session_state[_JOB] = _bench().downloads.join(name, visitor(), lambda progress: _fetch(name, progress))
    st.session_state[_FETCHING] = name


def cancel() -> None:
    """End this session's work. What others wait for as well goes on without this session."""
    current = job()
    if current is not None and _shared(current).leave(current, visitor()):
        left(current)
        del st.session_state[_JOB]
        st.session_state.pop(_FETCHING, None)


def follow(words: Words) -> None:
    """Show how far this session's work is until it ends, then keep what came of it and run the page again.

    Called last on a page, in the place where progress is to be seen. A reader who uses another control
    meanwhile ends only this wait; the next run follows again.
    """
    current = job()
    if current is None:
        return
    st.button(words.t("common.stop"), key="measure-stop", disabled=current.stopping, on_click=cancel)
    show_progress(current, words, look=looking(_shared(current), current))
    del st.session_state[_JOB]
    name = st.session_state.pop(_FETCHING, None)
    try:
        outcome = current.result()
        if isinstance(outcome, Measured):
            _keep(outcome)
        else:
            st.session_state[_FETCHED] = name
    except TooSlow:
        st.session_state[_FAILURE] = ProbeError("too_slow", seconds=round(settings().run_seconds))
    except Cancelled:
        st.session_state[_STOPPED] = "run" if name is None else "download"
    except Exception as error:  # noqa: BLE001 - the reader gets a sentence, the log the traceback
        if not isinstance(error, ProbeError):
            _LOG.error("a job of the bench failed", exc_info=error)
        st.session_state[_FAILURE] = error
    st.rerun()


def looking(shared: Shared[Any], job: Job[Any]) -> Callable[[], None]:
    """What tells that this visitor waits for a shared job: nothing any more once their browser is gone."""
    reader, is_here = visitor(), _presence()

    def look() -> None:
        if is_here():
            shared.look(job, reader)

    return look


def show_progress(current: Job[Any], words: Words, *, look: Callable[[], None] | None = None) -> None:
    """Show what a job tells of itself until it ends; a reader who uses a control meanwhile ends only this wait.

    `look` is called at each look.
    """
    bar, notes = st.empty(), st.empty()
    bar.progress(0.0, text=words.t("progress.begin"))
    told = None
    while not current.wait(_LOOK_SECONDS):
        if look is not None:
            look()
        if told == current.told:
            continue
        told = current.told
        stage = "stopping" if current.stopping else told.stage
        label = words.t(f"progress.{stage}", detail=literal(told.detail))
        bar.progress(min(max(told.done or 0.0, 0.0), 1.0), text=label)
        if current.notes:
            lines = (words.t(f"progress.{n.stage}", detail=literal(n.detail)) for n in current.notes)
            notes.caption("  \n".join(lines))


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
    if isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in _NO_MEMORY):
        return words.t("errors.out_of_memory")
    return words.t("errors.unexpected")


def _fact(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(literal(str(v)) for v in value)
    return literal(str(value))


def _measure(bench: Bench, offer: Offer, prompt: str, progress: Progress) -> Measured:
    limits = settings()
    with bench.turns.take(progress):
        timed = Within(limits.run_seconds, progress)
        checkpoint = _opened(bench, offer, timed)
        trace = _known(bench, offer, prompt, limits)
        if trace is None:
            from model_probe import capture  # loads torch, which by now is there

            trace = capture(checkpoint, prompt, max_tokens=limits.prompt_tokens, progress=timed)
            with bench.lock:
                bench.results[_identity(checkpoint, limits, prompt)] = trace
        return Measured((offer.code, prompt), trace)


def _known(bench: Bench, offer: Offer, prompt: str, limits: Settings) -> NormTrace | None:
    """What was measured for somebody of this prompt on the open checkpoint, if it is the offered one."""
    checkpoint = bench.checkpoint
    if checkpoint is None or bench.code != offer.code:
        return None
    with bench.lock:
        return bench.results.get(_identity(checkpoint, limits, prompt))


def _identity(checkpoint: Checkpoint, limits: Settings, prompt: str) -> tuple[object, ...]:
    info = checkpoint.info
    return info.name, info.digest, checkpoint.files, info.dtype, info.device, limits.prompt_tokens, prompt


def _opened(bench: Bench, offer: Offer | None, progress: Progress) -> Checkpoint:
    """Inside a turn: nobody else opens or uses a checkpoint meanwhile."""
    if offer is None:
        raise ProbeError("no_checkpoint")
    if bench.checkpoint is None or bench.code != offer.code or not bench.checkpoint.is_unchanged:
        from model_probe import open_checkpoint

        bench.code = None
        if bench.checkpoint is not None:  # room for the next one first
            leaving, bench.checkpoint = bench.checkpoint, None
            leaving.close()
            del leaving
        with untimed(progress) as told:  # once for all visitors, no part of one's run
            bench.checkpoint = open_checkpoint(offer.where, device=settings().device, progress=told)
        bench.code = offer.code
        settle()
        _LOG.info("opened %s", offer.name)
    return bench.checkpoint


def _fetch(name: str, progress: Progress) -> Path:
    from model_probe import fetch

    return fetch(name, progress=progress)


def _keep(outcome: Measured) -> None:
    kept: dict[Key, NormTrace] = st.session_state.setdefault(_RESULTS, {})
    kept.pop(outcome.key, None)
    kept[outcome.key] = outcome.trace
    while len(kept) > KEPT_RESULTS:
        del kept[next(iter(kept))]


def _shared(current: Job[Any]) -> Shared[Any]:
    """Where others may have joined the job."""
    bench = _bench()
    return bench.downloads if bench.downloads.has(current) else bench.captures


def _presence() -> Callable[[], bool]:
    """Whether the browser of this session is still there: its script goes on without it."""
    context = get_script_run_ctx()
    if context is None or not runtime.exists():  # without a server, as in tests of a page
        return lambda: True
    server, identity = runtime.get_instance(), context.session_id
    return lambda: server.is_active_session(identity)

"""How long work tells what it is doing.

Every slow function of `model_probe` takes `progress=None` or a function of this shape. Stages are
codes, not words: the command line prints its own English for them, the app its own texts.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

Result = TypeVar("Result")

STAGES: Final = (
    "look",  # asking a source whether it answers; detail: its address
    "unreachable",  # a source was given up; detail: its address and why
    "wait",  # somebody else is making the same thing
    "download",  # detail: the file or the source
    "verify",
    "convert_tokenizer",
    "convert_weights",
    "save",
    "fallback",  # float32, because the device lacks bfloat16; detail: the device
    "load",
    "discover",
    "capture",
    "stacks",  # toy stacks are measured
    "compile",  # norms are compiled
    "costs",  # norms are timed
    "compare",  # the norms of the code lab
    "intervene",  # the changed checkpoint runs
    "train",  # small decoders
    "batch",  # prompt after prompt
    "batch_part",  # a part of a batch is written; detail: how many prompts there are, of how many
    "workers",  # workers of a cluster are started
)


class Cancelled(BaseException):
    """Raised by a progress function to end the work; what was half made is removed.

    Not an Exception, so that nothing on the way up, other libraries' loops among it, takes it for a
    failure that it could deal with.
    """


class Progress(Protocol):
    """Called with a stage of STAGES, and while it lasts again with what is done of it.

    It may raise Cancelled, or anything else that is not an Exception.
    """

    def __call__(self, stage: str, done: float | None = None, detail: str = "") -> None:
        """`done` is the share of the stage, 0 to 1, or None where it is not known."""


_LOOK_SECONDS: Final = 0.25  # between two words of `relayed`, at most
_END_SECONDS: Final = 2.0  # for cancelled work to end


def silent(stage: str, done: float | None = None, detail: str = "") -> None:
    """The progress of somebody who does not want to know."""


def relayed(work: Callable[[Progress], Result], progress: Progress) -> Result:
    """Do work in a thread of its own, while `progress` is told of it in the caller's.

    So a client that tells from several threads, or waits for a network that says nothing, can be
    shown and cancelled all the same. While nothing new happens, the last word is said again.
    Cancelled work that does not end within two seconds ends by itself at its next word.
    """
    words: queue.SimpleQueue[tuple[str, float | None, str] | None] = queue.SimpleQueue()
    stop = threading.Event()
    results: list[Result] = []
    errors: list[BaseException] = []

    def tell(stage: str, done: float | None = None, detail: str = "") -> None:
        if stop.is_set():
            raise Cancelled
        words.put((stage, done, detail))

    def run() -> None:
        try:
            results.append(work(tell))
        except BaseException as error:  # noqa: BLE001 - raised again where the caller is
            errors.append(error)
        finally:
            words.put(None)

    thread = threading.Thread(target=run, name="rmsnorm-lab-source", daemon=True)
    thread.start()
    last: tuple[str, float | None, str] | None = None
    try:
        while True:
            try:
                word = words.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if last is not None:
                    progress(*last)
                continue
            if word is None:
                break
            progress(*word)
            # that a source was given up is said once
            last = last if word[0] == "unreachable" else word
    except BaseException:
        stop.set()
        thread.join(_END_SECONDS)
        raise
    thread.join()
    if errors:
        raise errors[0]
    return results[0]

"""How long work tells what it is doing.

Every slow function of `model_probe` takes `progress=None` or a function of this shape. Stages are
codes, not words: the command line prints its own English for them, the app its own texts.
"""

from __future__ import annotations

from typing import Final, Protocol

STAGES: Final = (
    "look",  # asking a source whether it answers; detail: its address
    "unreachable",  # a source was given up; detail: its address and why
    "wait",  # somebody else is making the same thing
    "download",  # detail: the file or the source
    "verify",
    "convert_tokenizer",
    "convert_weights",
    "save",
    "load",
    "discover",
    "capture",
    "stacks",  # toy stacks are measured
    "compile",  # norms are compiled
    "costs",  # norms are timed
    "compare",  # the norms of the code lab
    "intervene",  # the changed checkpoint runs
    "train",  # small decoders
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


def silent(stage: str, done: float | None = None, detail: str = "") -> None:
    """The progress of somebody who does not want to know."""

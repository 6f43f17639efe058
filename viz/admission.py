"""Who may begin: what the operator allows, as long as there is room in the queue, a few things at once for each visitor.

error = refusal("live", turns)
if error is None:
    began(Job(work))
"""

from __future__ import annotations

from typing import Final, Literal, Protocol

import streamlit as st

from model_probe.errors import ProbeError
from model_probe.settings import settings
from viz.jobs import Turns

Switch = Literal["live", "training"]  # of model_probe.settings

MOST_AT_ONCE: Final = 2  # at work or waiting, of one visitor
_HELD: Final = "admission.held"  # what this session began


class Work(Protocol):
    """Something that was begun: a job, or a visitor's trainings."""

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, after waiting for it at most so long."""
        ...


def allowed(switch: Switch) -> bool:
    """Whether the operator lets visitors do what the switch is for."""
    return bool(getattr(settings(), switch))


def refusal(switch: Switch, turns: Turns) -> ProbeError | None:
    """Why this visitor may not begin now: `switched_off`, `queue_full` or `own_work`; None when they may."""
    waiting = len(turns)
    if not allowed(switch):
        return ProbeError("switched_off")
    if waiting >= settings().queue:
        return ProbeError("queue_full", n=waiting)
    if len(_held()) >= MOST_AT_ONCE:
        return ProbeError("own_work", n=MOST_AT_ONCE)
    return None


def began(work: Work) -> None:
    """This visitor has begun the work: it counts until it has ended."""
    st.session_state[_HELD] = [*(held for held in _held() if held is not work), work]


def left(work: Work) -> None:
    """This visitor waits for the work no longer; it may go on for others."""
    st.session_state[_HELD] = [held for held in _held() if held is not work]


def _held() -> list[Work]:
    return [work for work in st.session_state.get(_HELD, []) if not work.wait(0)]

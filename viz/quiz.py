"""The quiz as it stands in a session: what was answered, and the score.

Answers live in the session, not in a widget, so they outlive a change of page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import streamlit as st

from viz.questions import QUESTIONS, Option, Question, rights

_ANSWERS: Final = "quiz.answers"  # {question: option}


@dataclass(frozen=True, slots=True)
class Score:
    """How far a reader is."""

    right: int
    answered: int
    total: int


def answers() -> Mapping[str, str]:
    """What this session has answered: question → option."""
    given: dict[str, str] = st.session_state.setdefault(_ANSWERS, {})
    return given


def answer(question: Question, option: Option) -> None:
    """Keep an answer; the first one counts."""
    st.session_state.setdefault(_ANSWERS, {}).setdefault(question.key, option.code)


def ask_wrong_ones_again() -> None:
    """Forget the answers that were wrong."""
    st.session_state[_ANSWERS] = {key: code for key, code in answers().items() if code == rights()[key]}


def score() -> Score:
    """The score of this session's answers."""
    given = answers()
    return Score(sum(code == rights()[key] for key, code in given.items()), len(given), len(QUESTIONS))

"""Predict, then reveal: a question with a few answers, kept for the session, shown beside the result.

    guess = predict(page, "growth", codes=("1", "10", "100", "1000"))
    if guess is None: … the question is open
    guess.code                     what the reader said; None where they asked to be shown

The texts are `<page>.<name>.question` and `<page>.<name>.option.<code>`. An answer is given once: the page
keeps showing what was said before the result was known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import streamlit as st

from viz.shell import Page

_ANSWERS: Final = "predictions"  # {"start.growth": Prediction}: no widget's key, so it outlives page changes


@dataclass(frozen=True, slots=True)
class Prediction:
    """How a reader answered: with one of the codes, or by asking to be shown."""

    code: str | None


def predict(page: Page, name: str, codes: tuple[str, ...]) -> Prediction | None:
    """Draws the question; what was answered to it in this session, None while it is open."""
    question = f"{page.entry.stem}.{name}"
    answered = prediction(question)
    with st.container(key=f"predict-{name}"):
        st.markdown(f"**{page.t(f'{question}.question')}**")
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            for code in codes:
                said = answered is not None and answered.code == code
                st.button(
                    page.t(f"{question}.option.{code}"),
                    key=f"{question}.{code}.said"
                    if said
                    else f"{question}.{code}",  # the style sheet knows it
                    disabled=answered is not None,
                    on_click=_answer,
                    args=(question, code),
                )
            if answered is None:
                st.button(
                    page.t("common.show_me"),
                    key=f"{question}.show",
                    type="tertiary",
                    on_click=_answer,
                    args=(question, None),
                )
    return answered


def prediction(question: str) -> Prediction | None:
    """What was answered to "page.name" in this session, None while it is open."""
    answers: dict[str, Prediction] = st.session_state.get(_ANSWERS, {})
    return answers.get(question)


def _answer(question: str, code: str | None) -> None:
    st.session_state.setdefault(_ANSWERS, {}).setdefault(question, Prediction(code))

"""The probe's room: a column of controls beside the pictures, what is said over them, and the fetch offer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import streamlit as st

from viz import measure
from viz.probe_controls import MAX_CHARS, Shown
from viz.shell import Page
from viz.text import literal

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

_HERE: Final = Path(__file__).resolve().parent
_NAMED: Final = 4  # sites named in a warning

# Hands what is typed to Streamlit after a pause, so that Run wakes without a detour through another element.
_typing = st.components.v2.component(
    "rmsnorm_lab_typing",
    html="<span hidden></span>\n",
    js=(_HERE / "typing.js").read_text(encoding="utf-8"),
)


@dataclass(frozen=True, slots=True)
class Bench:
    """The room's places, filled in any order."""

    fold: DeltaGenerator  # takes one element
    controls: DeltaGenerator
    picture: DeltaGenerator


def bench() -> Bench:
    """Draws the empty room.

    On a phone the controls stand over the pictures and fold away behind a switch (`viz/probe.css`).
    """
    st.html(_HERE / "probe.css")
    with st.container(key="probe-bench"):
        fold = st.empty()
        left, right = st.columns([1, 3], gap="large")
    return Bench(fold, left.container(key="probe-controls"), right.container(key="probe-picture-column"))


def begin_controls(page: Page, room: Bench) -> None:
    """Draws the switch that folds the controls, and listens to what is typed."""
    room.fold.toggle(page.t("probe.controls"), key="probe-fold", persist_state="session")
    _typing(key="probe-typing", data={"field": "probe-text"})


def notices(page: Page, shown: Shown) -> None:
    """What the reader has to know before the pictures: a failure, another prompt than typed, cuts, non-finite sites."""
    trace, text = shown.trace, shown.text
    failed = measure.failure(page.words)
    if failed is not None:
        st.error(failed)
    elif not text:
        st.info(page.t("errors.empty_prompt"))
    elif trace.prompt != text or (shown.origin == "live" and not shown.is_current):
        asked = measure.job() is not None and not measure.fetching()
        why = "until_measured" if asked else "not_measured" if trace.prompt != text else "not_on_this"
        st.info(page.t(f"probe.{why}", run=page.t("probe.run")))
    stopped = measure.stopped(page.words)
    if stopped is not None:
        st.info(stopped)
    if len(text) >= MAX_CHARS:
        st.warning(page.t("probe.cut_characters", n=MAX_CHARS))
    if trace.tokens_cut:
        st.warning(page.t("probe.cut_tokens", kept=len(trace.tokens), n=trace.tokens_cut))
    broken = trace.non_finite_sites()
    if broken:
        names = ", ".join(literal(site.name) for site in broken[:_NAMED]) + (
            " …" if len(broken) > _NAMED else ""
        )
        dtype = trace.checkpoint.dtype
        advice = "non_finite" if dtype == "float16" else "non_finite_weights"
        st.warning(page.t(f"probe.{advice}", n=len(broken), names=names, dtype=dtype))
    if any(token.special for token in trace.tokens):
        st.info(page.t("probe.control_tokens"))

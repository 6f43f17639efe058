"""The first chart of a visit goes ahead of what stands around it.

A browser that gets a page of charts and controls at once loads the code of all of them and draws them together,
so that the first chart comes last. Held back until it is on the screen, the rest costs it nothing.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import streamlit as st

PATIENCE: Final = 2.5  # seconds; a browser that takes longer gets the rest all the same
_STEP: Final = 0.05  # seconds between two looks whether the browser has answered
_HELD: Final = "painted.held"  # this session has waited once; by now it has the code of charts

_watch = st.components.v2.component(
    "rmsnorm_lab_painted",
    html="<span hidden></span>\n",
    js=Path(__file__).with_name("painted.js").read_text(encoding="utf-8"),
)


def after_first_chart() -> None:
    """Waits, once in a session, until the browser says that a chart above this call is drawn.

    Its answer starts the run again, which ends the wait.
    """
    if st.session_state.get(_HELD):
        return
    st.session_state[_HELD] = True
    _watch(key="painted", on_painted_change=lambda: None)
    place = st.empty()
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        time.sleep(_STEP)
        place.empty()  # a run that is to start again stops here

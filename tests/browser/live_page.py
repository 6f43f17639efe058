"""A page for the browser tests: two live sliders, the second in a fragment."""

import dataclasses
import sys
from pathlib import Path

import streamlit as st

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from viz import address
from viz.live import live
from viz.live.saturation import saturation_slider
from viz.shell import Page, entry, palette, words

address.enter("test")
page = Page(entry("saturation"), words("en"), palette("light"))
slider = saturation_slider(page.words)
st.session_state["runs"] = st.session_state.get("runs", 0) + 1
st.title("Two sliders")
st.text(f"page runs: {st.session_state['runs']}")
live(page, dataclasses.replace(slider, name="first", parameter="first", drawing="saturation"))


@st.fragment
def second() -> None:
    code = live(page, dataclasses.replace(slider, name="second", parameter="second", drawing="saturation"))
    st.text(f"fragment says {code}")


second()

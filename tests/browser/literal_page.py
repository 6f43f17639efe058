"""A page for the browser tests: hostile text, shown through `viz.text.literal` wherever Markdown is drawn."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import streamlit as st  # noqa: E402

from viz.text import literal  # noqa: E402

st.title("hostile text")
for position, text in enumerate(json.loads((Path(__file__).parent / "hostile.json").read_text("utf-8"))):
    with st.container(key=f"body-{position}"):
        st.markdown(literal(text))
    with st.container(key=f"table-{position}"):
        st.markdown(f"| a | b |\n|---|---|\n| {literal(text)} | end |")
    with st.container(key=f"caption-{position}"):
        st.caption(f"before {literal(text)} after")

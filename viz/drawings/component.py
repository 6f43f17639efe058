"""How a drawing comes onto the page: `st.html` strips SVG, so it is a component, which only puts it there."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import streamlit as st

from viz.drawings.svg import Drawing

_HERE: Final = Path(__file__).resolve().parent

_component = st.components.v2.component(
    "rmsnorm_lab_drawing",
    html='<div class="drawing"></div>\n',
    css=(_HERE / "drawing.css").read_text(encoding="utf-8"),
    js=(_HERE / "drawing.js").read_text(encoding="utf-8"),
)


def draw(drawing: Drawing) -> None:
    """Puts a drawing on the page, as wide as it is, or as its place where that is narrower."""
    _component(key=f"drawing.{drawing.key}", data={"markup": drawing.markup()})

"""A figure on a page: its finding as text over it, which the browser wraps to the width there is, then the chart."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import plotly.graph_objects as go
import streamlit as st

from viz.figures.base import CONFIG, escaped_title

# Where a title must not be broken: a number stays with its measure word, its ordinal and its unit.
_TOGETHER: Final = re.compile(r"(?<=\d) (?=[\u4e00-\u9fff×%]|times\b)|(?<=第) (?=\d)")
_NO_BREAK_SPACE: Final = "\u00a0"
_WORD_JOINER: Final = "\u2060"


def chart(figure: go.Figure, *, key: str, alt: str, on_click: Callable[[], None] | None = None) -> None:
    """Draws a figure of `viz.figures` under its title; a click on a point arrives under `key` before `on_click`."""
    with st.container(gap="xxsmall"):
        st.html(f'<p class="lab-title">{unbroken(escaped_title(figure))}</p>')
        st.plotly_chart(
            figure,
            theme=None,
            key=key,
            config=CONFIG,
            alt=alt,
            on_select=on_click or "ignore",
            selection_mode="points",
        )


def unbroken(title: str) -> str:
    """A title whose numbers are not parted from what they count.

    >>> unbroken("涨到 187 倍") == "涨到 187\\u00a0倍"
    True
    """
    return _TOGETHER.sub(_NO_BREAK_SPACE, title).replace("-fold", f"-{_WORD_JOINER}fold")

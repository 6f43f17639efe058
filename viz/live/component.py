"""The component behind every live slider, and its way to the address and back.

The browser sends {"stop": code, "turn": number} when the reader lets go. A turn is never used twice, so that
returning to an earlier stop is news too, and the browser gets it back, so that it can tell an answer to what it
has just sent from an older one that must not move the thumb. It sends this as `released`: under the name `value`
Streamlit 1.67 takes a mapping apart and calls nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import streamlit as st

from viz.address import bind
from viz.live.slider import LiveSlider
from viz.shell import Page

_HERE: Final = Path(__file__).resolve().parent


def _joined(ending: str, *first: str) -> str:
    """The named files and the drawings' files of this ending as one text: a component has no imports."""
    paths = [*(_HERE / name for name in first), *sorted((_HERE / "drawings").glob(f"*{ending}"))]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


_component = st.components.v2.component(
    "rmsnorm_lab_live",
    html=(_HERE / "live.html").read_text(encoding="utf-8"),
    css=_joined(".css", "live.css"),
    js=_joined(".js", "core.js", "kit.js"),
)


def live(page: Page, slider: LiveSlider) -> str:
    """Draws the slider with its picture and sentence; the code of the stop it stands at.

    The address is read and written here: call it where no other choice is bound together with this one.
    """
    code = bind(slider.choice)[slider.choice.name]
    mount(page, slider, code)
    return code


def mount(page: Page, slider: LiveSlider, code: str) -> None:
    """Draws the slider at a stop, for a page that has bound the slider's choice itself."""
    key = f"live.{slider.name}"
    words = {
        "reset": page.t("live.reset"),
        "resets": page.t("live.resets", what=slider.label, value=slider.at(slider.default).shown),
    }
    _component(
        key=key,
        data={**slider.told(), "words": words, "stop": code, "heard": _sent(key).get("turn")},
        on_released_change=lambda: _take(key, slider),
    )


def _take(key: str, slider: LiveSlider) -> None:
    """What the reader let go of becomes the choice, which `bind` then puts into the address."""
    stop = _sent(key).get("stop")
    if stop in slider.choice.codes:
        st.session_state[slider.choice.key] = stop


def _sent(key: str) -> Mapping[str, Any]:
    """What the browser sent last. It may hold anything."""
    released = st.session_state.get(key, {}).get("released")
    return released if isinstance(released, Mapping) else {}

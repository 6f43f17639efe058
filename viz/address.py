"""What a reader chose, in the address, as codes that mean the same in every language.

Python is the only writer. A page names its shareable choices once, before it draws their widgets:

    LAYER = Choice("layer", codes=("0", "1", "2"), default="0")
    STATISTIC = Choice("statistic", codes=("median", "mean"), default="median")

    chosen = bind(LAYER, STATISTIC)
    st.segmented_control(label, STATISTIC.codes, key=STATISTIC.key, format_func=…)
    chosen["layer"]

`bind` writes what the widgets say into the address, in one history entry; where the address changed without
us (a link, Back, Forward) and the widget did not, it reads the address into the widget's session state. A choice at its
default is left out, so that addresses stay short. Links between pages carry the choices made on the page
they lead to (`remembered`), so a reader who comes back finds the page as it was left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import streamlit as st

LANGUAGE: Final = "lang"
_SEEN: Final = "address.seen"  # {name: (parameter, value) as they were when last bound}
_REMEMBERED: Final = "address.remembered"  # {page stem: {name: code}}
_SET: Final = "address.set"  # keys that were set here and not used by the reader since
_PAGE: Final = "address.page"  # the stem of the page being drawn


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice of a page: what it is called in the address, and what it may be.

    Attributes:
        name: of the parameter, "layer" in `?layer=11`.
        codes: what it may be.
        default: one of the codes; left out of the address.
    """

    name: str
    codes: tuple[str, ...]
    default: str

    @property
    def key(self) -> str:
        """Key of the widget's value in the session state."""
        return f"choice.{self.name}"

    def valid(self, value: object) -> str:
        """The value where it is one of the codes, else the default."""
        return value if isinstance(value, str) and value in self.codes else self.default


def bind(*choices: Choice) -> Mapping[str, str]:
    """What is chosen now, by name: address and widgets brought into step.

    Called once a run, before the widgets of these choices are drawn. What was set for a widget is set in every run until
    the reader has used it: Streamlit tells the browser of it only in the run that sets it, and a browser that is still
    loading a widget's code when the next run comes would show what the widget begins with.
    """
    params = st.query_params.to_dict()
    seen: dict[str, tuple[str | None, str]] = st.session_state.setdefault(_SEEN, {})
    ours: set[str] = st.session_state.setdefault(_SET, set())
    chosen: dict[str, str] = {}
    wanted = dict(params)
    for choice in choices:
        parameter = params.get(choice.name)
        shown = st.session_state.get(choice.key)
        before = seen.get(choice.name)
        widget_speaks = (
            before is not None and shown is not None and (shown != before[1] or parameter == before[0])
        )
        if widget_speaks:
            value = choice.valid(shown)
            if value == choice.default:
                wanted.pop(choice.name, None)
            else:
                wanted[choice.name] = value
        else:
            value = choice.valid(parameter)
        if shown != value:
            ours.add(choice.key)
        elif before is not None and shown != before[1]:
            ours.discard(choice.key)  # the browser has it: the reader has used it
        if choice.key in ours:
            st.session_state[choice.key] = value
        chosen[choice.name] = value
    if wanted != params:
        st.query_params.from_dict(wanted)
    seen.update({choice.name: (wanted.get(choice.name), chosen[choice.name]) for choice in choices})
    _remember(choices, chosen)
    return chosen


def enter(stem: str) -> None:
    """Says which page's choices are bound from here on; the page shell calls it."""
    if st.session_state.get(_PAGE) != stem:
        st.session_state[_PAGE] = stem
        st.session_state[_SEEN] = {}  # on another page the same name is another choice


def remembered(stem: str) -> Mapping[str, str]:
    """The choices last made on a page in this session, without those at their default."""
    return st.session_state.get(_REMEMBERED, {}).get(stem, {})


def language(browser_locale: str | None) -> str:
    """`?lang=` where it is one of the languages, else the browser's: zh* is Chinese, all else English."""
    for source in (st.query_params.get(LANGUAGE), browser_locale):
        primary = (source or "").replace("_", "-").split("-")[0].lower()
        if primary in ("zh", "en"):
            return primary
    return "en"


def set_language(lang: str) -> None:
    """Writes the language into the address; all else in it stays."""
    st.query_params[LANGUAGE] = lang


def _remember(choices: tuple[Choice, ...], chosen: Mapping[str, str]) -> None:
    stem = st.session_state.get(_PAGE)
    if stem is None:
        return
    pages: dict[str, dict[str, str]] = st.session_state.setdefault(_REMEMBERED, {})
    kept = pages.setdefault(stem, {})
    for choice in choices:
        if chosen[choice.name] == choice.default:
            kept.pop(choice.name, None)
        else:
            kept[choice.name] = chosen[choice.name]

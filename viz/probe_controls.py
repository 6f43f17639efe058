"""The controls of the probe: what is measured, how it is read out, and which layer, norm and token are looked at.

Every choice that a link can hold is a code in the address (`viz.address`); a prompt that the reader typed is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final
from zlib import crc32

import streamlit as st

from model_probe.presets import DEFAULT, PRESETS
from model_probe.trace import NormTrace, SiteTrace
from viz import measure
from viz.address import Choice, bind
from viz.figures.base import token_label
from viz.figures.depth import ROLES, DepthView
from viz.figures.heatmap import HeatmapView, cell_of
from viz.figures.tokens import TokensView
from viz.live import mount
from viz.live.layer import NormChoice, layer_slider, norm_codes
from viz.provenance import Origin
from viz.reading import (
    FINAL,
    LINES,
    SINK_CODES,
    STATISTIC_CODES,
    Reading,
    layer_code,
    layers,
)
from viz.shell import Page

MAX_CHARS: Final = 12_000  # of a typed prompt; the token limit of `capture` cuts what is still too long
HEATMAP: Final = "probe-heatmap"  # key of the heat map, whose clicks arrive under it
OWN: Final = "own"  # the prompt is the reader's

_PROMPT: Final = Choice("prompt", (*PRESETS, OWN), DEFAULT)
_LINE_SETS: Final = tuple("-".join(some) for n in range(len(ROLES) + 1) for some in combinations(ROLES, n))
_LINES: Final = Choice("lines", tuple(s or "none" for s in _LINE_SETS), "-".join(LINES))
_AXIS: Final = Choice("axis", ("log", "linear"), "log")
_STATISTIC: Final = Choice("statistic", STATISTIC_CODES, "median")
_SINKS: Final = Choice("sinks", SINK_CODES, "counted")
_SERIES: Final = Choice("series", tuple(LINES), "residual")
_DEFAULT_LAYER: Final = 4  # where the sink of the recorded prompt is at its largest
_TEXT: Final = "probe.text"
_SHOWN: Final = "probe.shown"  # origin of the trace on the page, and the preset's id or the result's key


@dataclass(frozen=True, slots=True)
class Shown:
    """The trace on the page, and what a run would measure instead."""

    trace: NormTrace
    origin: Origin
    text: str  # of the prompt in the box
    is_current: bool  # measured live, on exactly this prompt and the chosen checkpoint: nothing to run


@dataclass(frozen=True, slots=True)
class Looked:
    """How the trace is read and where the reader looks."""

    lines: tuple[str, ...]  # of viz.figures.depth.ROLES
    axis: str
    reading: Reading
    layer: str
    site: SiteTrace
    token: int
    series: str  # of viz.reading.LINES, for the pictures that show one

    @property
    def depth(self) -> DepthView:
        """The view of the depth chart."""
        return DepthView(self.lines, self.reading, self.axis, self.layer)

    @property
    def tokens(self) -> TokensView:
        """The view of the token bars."""
        return TokensView(self.series, self.axis, self.token)

    @property
    def heatmap(self) -> HeatmapView:
        """The view of the heat map."""
        return HeatmapView(self.series, self.layer, self.token)


def shown_prompt() -> Shown:
    """What the page shows for the prompt that the address and the box name; draws nothing."""
    code = bind(_PROMPT, measure.checkpoint_choice())[_PROMPT.name]
    if code != OWN and st.session_state.get(_TEXT) != PRESETS[code]:
        st.session_state[_TEXT] = PRESETS[code]
    return _shown(code, st.session_state.get(_TEXT, "")[:MAX_CHARS])


def look(trace: NormTrace) -> Looked:
    """How the address and the controls say that the trace is read; draws nothing.

    Apart from the controls, so that the page can send its chart before them: a browser that gets thirty
    controls first loads their code first, and the chart waits.
    """
    # at once: one step back undoes a click
    chosen = bind(_LINES, _AXIS, _STATISTIC, _SINKS, _SERIES, norm_choice(trace), _token_choice(trace))
    site = norm_codes(trace)[chosen["norm"]]
    token = int(chosen["token"])
    return Looked(
        lines=() if chosen["lines"] == "none" else tuple(chosen["lines"].split("-")),
        axis=chosen["axis"],
        reading=Reading(chosen["statistic"], token, chosen["sinks"]),
        layer=layer_code(site),
        site=site,
        token=token,
        series=chosen["series"],
    )


def prompt_controls(page: Page, shown: Shown) -> None:
    """Draws presets, prompt box and Run, after `shown_prompt`."""
    st.pills(
        page.t("probe.prompt"),
        _PROMPT.codes,
        required=True,
        key=_PROMPT.key,
        format_func=lambda c: page.t("probe.own") if c == OWN else page.t(f"common.preset.{c}"),
        on_change=_take_preset,
    )
    st.text_area(
        page.t("probe.text"),
        key=_TEXT,
        label_visibility="collapsed",
        max_chars=MAX_CHARS,
        height=132,
        placeholder=page.t("probe.placeholder"),
        on_change=_take_typed,
        persist_state="session",
    )
    _run(page, shown)


def reading_controls(page: Page, trace: NormTrace) -> None:
    """Draws the choices of lines, axis, statistic and token, after `look`."""
    _several(page.t("probe.lines"), _LINES, ROLES, lambda role: page.t(f"common.series.{role}"))
    _one(page.t("probe.axis"), _AXIS, lambda axis: page.t(f"probe.{axis}"))
    _one(page.t("probe.statistic"), _STATISTIC, lambda s: page.t(f"common.statistic.{s}"))
    _switch(page.t("probe.leave_sinks_out"), _SINKS, on="left_out", off="counted")
    tokens = {str(t.position): f"{t.position} · {token_label(t, 24)}" for t in trace.tokens}
    menu(page.t("probe.token"), _token_choice(trace), tokens)


def menu(label: str, choice: Choice, names: Mapping[str, str]) -> None:
    """Draws a choice, by its codes' names, as a menu. Other names make another widget: one that stays keeps the
    label it had in the browser."""
    key = f"{choice.key}.{crc32(chr(10).join(names.values()).encode(errors='surrogatepass'))}"
    st.session_state[key] = st.session_state[choice.key]

    def changed() -> None:
        st.session_state[choice.key] = st.session_state[key]

    st.selectbox(label, choice.codes, key=key, format_func=names.__getitem__, on_change=changed)


def norm_control(page: Page, looked: Looked, trace: NormTrace) -> None:
    """Draws the side of the norm that bars and map show, and the live slider over all norms."""
    _one(page.t("probe.series"), _SERIES, lambda line: page.t(f"common.series.{line}"))
    choice = norm_choice(trace)
    if len(choice.codes) > 1:  # a slider needs two ends
        code = next(code for code, site in norm_codes(trace).items() if site is looked.site)
        mount(page, layer_slider(trace, looked.series, looked.reading, choice, page.words), code)


def take_click(trace: NormTrace) -> None:
    """A cell of the heat map was clicked: its layer, norm and token become the ones looked at."""
    points = st.session_state[HEATMAP].selection.points
    cell = cell_of(trace, points[0]) if points else None
    if cell is not None:
        name, _, token = cell
        norm = next(code for code, site in norm_codes(trace).items() if site.name == name)
        st.session_state[norm_choice(trace).key] = norm
        st.session_state["choice.token"] = str(token)


def _shown(code: str, text: str) -> Shown:
    """What this session measured of the text, else the preset's recording, else what was shown before."""
    recorded = measure.recording().traces
    if measure.measured(text) is not None:
        st.session_state[_SHOWN] = ("live", measure.key(text))
    elif code != OWN:
        st.session_state[_SHOWN] = ("recording", code)
    origin, which = st.session_state.get(_SHOWN, ("recording", DEFAULT))
    trace = measure.result(which) if origin == "live" else recorded[which]
    if trace is None:  # the session has forgotten its oldest results
        return Shown(recorded[DEFAULT], "recording", text, is_current=False)
    return Shown(trace, origin, text, is_current=which == measure.key(text))


def _run(page: Page, shown: Shown) -> None:
    running = measure.job() is not None
    st.button(
        page.t("probe.running" if running and not measure.fetching() else "probe.run"),
        key="probe-run",
        width="stretch",
        disabled=running or shown.is_current or not shown.text,
        on_click=_measure_box,
    )


def _measure_box() -> None:
    # what is in the box now: it may have arrived together with the click
    measure.start_measuring(st.session_state[_TEXT][:MAX_CHARS])


def _take_preset() -> None:
    code = st.session_state[_PROMPT.key]
    if code is None:  # a busy browser that answered before it had taken the value; `bind` gives it again
        return
    measure.forget_failure()
    if code != OWN:
        st.session_state[_TEXT] = PRESETS[code]
    elif st.session_state.get(_TEXT) in PRESETS.values():
        st.session_state[_TEXT] = ""


def _take_typed() -> None:
    text = st.session_state[_TEXT]
    measure.forget_failure()
    st.session_state[_PROMPT.key] = next((code for code, prompt in PRESETS.items() if prompt == text), OWN)


def norm_choice(trace: NormTrace) -> NormChoice:
    """The norm that is looked at, any of the trace's; by default one where the recorded prompt's sink is large."""
    numbered = [code for code in layers(trace) if code != FINAL]
    layer = numbered[min(_DEFAULT_LAYER, len(numbered) - 1)] if numbered else FINAL
    codes = tuple(norm_codes(trace))
    return NormChoice("norm", codes, next(code for code in codes if code.startswith(f"{layer}.")))


def _token_choice(trace: NormTrace) -> Choice:
    return Choice("token", tuple(str(t.position) for t in trace.tokens), "0")


def _one(label: str, choice: Choice, name: Callable[[str], str]) -> None:
    st.segmented_control(label, choice.codes, required=True, key=choice.key, format_func=name, wrap=True)


def _several(label: str, choice: Choice, options: tuple[str, ...], name: Callable[[str], str]) -> None:
    """Any number of options, held in the address as one code."""
    key = f"{choice.key}.several"
    code = st.session_state[choice.key]
    st.session_state[key] = [] if code == "none" else code.split("-")

    def changed() -> None:
        taken = st.session_state[key]
        st.session_state[choice.key] = "-".join(o for o in options if o in taken) or "none"

    st.pills(label, options, selection_mode="multi", key=key, format_func=name, on_change=changed, wrap=True)


def _switch(label: str, choice: Choice, *, on: str, off: str) -> None:
    """A toggle between two codes."""
    key = f"{choice.key}.switch"
    st.session_state[key] = st.session_state[choice.key] == on

    def changed() -> None:
        st.session_state[choice.key] = on if st.session_state[key] else off

    st.toggle(label, key=key, on_change=changed)

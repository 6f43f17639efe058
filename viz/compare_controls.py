"""Compare, on the probe: what is laid over the page's trace, the file that a reader opens for it, and what is said of both.

What is chosen is in the address, `compare` and `map`. A file that was opened and what was measured live are this
session's alone: elsewhere such an address compares with nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import streamlit as st

from model_probe.errors import ProbeError
from model_probe.presets import PRESETS
from model_probe.trace import NormTrace
from model_probe.trace_files import REASONS, read_trace
from viz import measure
from viz.address import Choice, bind
from viz.compare import Pair, beginning
from viz.figures.base import shortened
from viz.figures.depth import depth_facts
from viz.figures.difference import difference_alt, difference_figure
from viz.figures.heatmap import HeatmapView, heatmap_alt, heatmap_figure
from viz.probe_controls import Looked, Shown, menu
from viz.provenance import Origin, provenance
from viz.reading import FINAL, layers, sites_of
from viz.shell import Page
from viz.tables import pair_site_table, site_table
from viz.text import inked, isolated, literal

if TYPE_CHECKING:
    import plotly.graph_objects as go

MEGABYTES: Final = 32  # of a file that a reader opens; .streamlit/config.toml has the same
MAX_UNPACKED: Final = 64 * 2**20  # bytes of it in memory
NONE: Final = "none"
FILE: Final = "file"
MAP: Final = Choice("map", ("first", "second", "ratio"), "first")

_RULES: Final = Path(__file__).with_name("compare.css").read_text(encoding="utf-8")
_NAME: Final = "compare"
_CODES: Final = "compare.codes"  # {what a live result is of: its code}
_OPENED: Final = "compare.opened"  # the file that was opened last
_TIMES: Final = "compare.times"  # how often one was
_NAME_CHARS: Final = 40
_READING: Final = (
    threading.Lock()
)  # one file at a time, whoever opens it: each may take several times its size


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that the reader has opened: its trace, or why it has none."""

    name: str
    trace: NormTrace | None
    error: ProbeError | None


def compared(shown: Shown) -> Pair | None:
    """The page's trace and the one to lay over it, None where nothing is compared; draws nothing."""
    offered = _offered()
    code = bind(_choice(offered), MAP)[_NAME]
    if code not in offered:
        return None
    second, origin = offered[code]
    return Pair(shown.trace, second, (shown.origin, origin))


def compare_controls(page: Page) -> None:
    """Draws the choice of what is compared with, and the opener of a file, after `compared`."""
    offered = _offered()
    choice = _choice(offered)
    menu(page.t("compare.label"), choice, {code: _label(page, code, offered) for code in choice.codes})
    if st.session_state[choice.key] != FILE:
        return
    opened: Opened | None = st.session_state.get(_OPENED)
    with st.container(key="compare-opener"):
        st.html(_css(page))
        st.file_uploader(
            page.t("compare.open"),
            key=_opener_key(),
            max_upload_size=MEGABYTES,
            on_change=_take_file,
            help=page.t("compare.open_note", n=MEGABYTES),
        )
    if opened is not None and opened.trace is not None:
        st.caption(page.t("compare.is_open", name=literal(opened.name)))
    if opened is not None and opened.error is not None:
        st.error(_refusal(page, opened.error))


def comparison(page: Page, pair: Pair | None, looked: Looked) -> None:
    """Says over the chart which trace is which, and what of the second cannot be drawn."""
    if pair is None:
        return
    if pair.is_same:
        st.info(page.t("compare.same"))
        return
    a, b = (literal(name) for name in pair.names(page.words))
    with st.container(key="probe-compared"):
        st.markdown(page.t("compare.over", a=a, b=b))
    if not pair.has_token(looked.reading):
        st.info(page.t("compare.no_token", position=looked.reading.token))


def second_finding(page: Page, pair: Pair | None, looked: Looked) -> None:
    """What the chart shows of the second."""
    if pair is None or pair.is_same:
        return
    page.prose("probe/depth_second", **depth_facts(pair.second, looked.reading))


def sources(page: Page, shown: Shown, pair: Pair | None, statistic: str | None) -> str:
    """The provenance of a picture of the page's trace, and of the second where there is one; `statistic` as in
    `viz.provenance.provenance`."""
    first = provenance(page.words, shown.trace, origin=shown.origin, statistic=statistic)
    if pair is None or pair.is_same:
        return first
    second = provenance(page.words, pair.second, origin=pair.origins[1], statistic=statistic)
    return page.t("compare.sources", a=first, b=second)


def layer_table(page: Page, pair: Pair | None, looked: Looked, trace: NormTrace) -> None:
    """Draws the table of the layer that is looked at, both traces' numbers side by side."""
    sites = sites_of(trace, looked.layer)
    if pair is None:
        st.html(site_table(trace, sites, page.words, looked.reading))
        return
    st.html(pair_site_table(pair, sites, page.words, looked.reading))
    if not pair.has_layer(looked.layer):
        numbered = [code for code in layers(pair.second) if code != FINAL]
        missing = "no_final" if looked.layer == FINAL or not numbered else "no_layer"
        last = numbered[-1] if numbered else ""
        st.caption(page.t(f"compare.{missing}", layer=looked.layer, last=last))
    elif any(pair.counterpart(site) is None for site in sites):
        st.caption(page.t("compare.no_norm"))


@dataclass(frozen=True, slots=True)
class Map:
    """A heat map to draw; whether its cells are the page's own, so that a click can choose one."""

    figure: go.Figure
    alt: str
    is_own: bool


def heat_map(page: Page, pair: Pair | None, trace: NormTrace, view: HeatmapView) -> Map:
    """Draws, while two traces are compared, the choice between them and their ratio; returns the map that is chosen."""
    words, palette = page.words, page.palette
    if pair is None:
        return Map(
            heatmap_figure(trace, words, palette, view), heatmap_alt(trace, words, view.line), is_own=True
        )
    unlike = pair.unlike()
    st.segmented_control(
        page.t("compare.map.label"),
        MAP.codes,
        required=True,
        key=MAP.key,
        format_func=lambda code: page.t(f"compare.map.{code}"),
    )
    if unlike is not None:
        st.caption(page.t(f"compare.unlike.{unlike}"))
    chosen = st.session_state[MAP.key]
    if chosen == "ratio" and unlike is None:
        return Map(
            difference_figure(pair, words, palette, view),
            difference_alt(pair, words, view.line),
            is_own=True,
        )
    if chosen == "second":
        there = view if unlike is None else HeatmapView(view.line)
        return Map(
            heatmap_figure(pair.second, words, palette, there, beside=trace),
            heatmap_alt(pair.second, words, view.line),
            is_own=unlike is None,
        )
    figure = heatmap_figure(trace, words, palette, view, beside=pair.second)
    return Map(figure, heatmap_alt(trace, words, view.line), is_own=True)


def _offered() -> Mapping[str, tuple[NormTrace, Origin]]:
    """What there is to compare with, by code: the recordings, this session's live results, the opened file."""
    offered: dict[str, tuple[NormTrace, Origin]] = {
        preset: (trace, "recording") for preset, trace in measure.recording().traces.items()
    }
    codes: dict[object, str] = st.session_state.setdefault(_CODES, {})
    for trace in measure.results():
        info = trace.checkpoint
        of = (info.name, info.digest, info.dtype, info.device, trace.prompt)
        offered[codes.setdefault(of, f"live-{len(codes) + 1}")] = (trace, "live")
    opened: Opened | None = st.session_state.get(_OPENED)
    if opened is not None and opened.trace is not None:
        offered[FILE] = (opened.trace, "file")
    return offered


def _choice(offered: Mapping[str, tuple[NormTrace, Origin]]) -> Choice:
    return Choice(_NAME, (NONE, *(code for code in offered if code != FILE), FILE), NONE)


def _label(page: Page, code: str, offered: Mapping[str, tuple[NormTrace, Origin]]) -> str:
    """An option's name: plain text, which the menu shows as it is."""
    if code == NONE:
        return page.t("compare.none")
    if code in PRESETS:
        return page.t("compare.recorded", name=page.t(f"common.preset.{code}"))
    if code not in offered:
        return page.t("compare.file")
    if code == FILE:
        return page.t("compare.opened", name=_seen(st.session_state[_OPENED].name))
    trace = offered[code][0]
    said = page.t("figures.quoted", text=isolated(beginning(trace.prompt)))
    return page.t("compare.measured", name=f"{said} · {_seen(trace.checkpoint.name)}")


def _seen(name: str) -> str:
    """A name from elsewhere as plain text, short, with nothing in it that cannot be seen."""
    return isolated(shortened(inked(name), _NAME_CHARS))


def _css(page: Page) -> str:
    """The page's words for the opener, where Streamlit has English ones only (`viz/compare.css`)."""
    told = {name: page.t(f"compare.{name}", n=MEGABYTES) for name in ("choose_file", "at_most", "not_taken")}
    variables = "".join(
        f"--lab-{name}:{json.dumps(text, ensure_ascii=False)};" for name, text in told.items()
    )
    return f"<style>.st-key-compare-opener{{{variables}}}{_RULES}</style>"


def _opener_key() -> str:
    """Of the opener, which is a new one after each file: what the old one holds is dropped."""
    return f"compare-open-{st.session_state.get(_TIMES, 0)}"


def _take_file() -> None:
    uploaded = st.session_state[_opener_key()]
    if uploaded is None:
        return
    name = Path(uploaded.name).name
    with _READING:
        st.session_state[_OPENED] = opened(uploaded.getvalue(), name)
    st.session_state[_TIMES] = st.session_state.get(_TIMES, 0) + 1


def opened(data: bytes, name: str) -> Opened:
    """A file's content as a trace that can be drawn, or why it is none."""
    try:
        trace = read_trace(data, name, at_most=MAX_UNPACKED)
        if not trace.depth():
            raise ProbeError(
                "not_a_trace", path=name, reason="it has no norm along the depth", why="no_depth"
            )
    except ProbeError as error:
        return Opened(name, None, error)
    return Opened(name, trace, None)


def _refusal(page: Page, error: ProbeError) -> str:
    """Why a file is no trace: a sentence of Markdown in the page's language, the facts in it literal."""
    facts = {name: literal(str(value)) for name, value in error.fields.items()}
    why = str(error.fields["why"])
    reason = page.t(f"compare.refused.{why}" if why in REASONS else f"compare.{why}", **facts)
    return page.t("errors.not_a_trace", path=facts["path"], reason=reason)

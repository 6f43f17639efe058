"""Whose gains a page shows, the open checkpoint's or the recording's, and which norm the reader looks at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from model_probe.presets import DEFAULT, PRESETS
from model_probe.sites import NormSite
from model_probe.trace import CheckpointInfo, NormTrace, depth_sites
from viz import measure
from viz.address import Choice, bind
from viz.provenance import Origin
from viz.reading import FINAL, layers, site_codes, sites_of
from viz.shell import Page
from viz.text import literal


@dataclass(frozen=True, slots=True)
class Gains:
    """The measured gains of one checkpoint, and the pass of the preset prompt through it."""

    checkpoint: CheckpointInfo
    sites: tuple[NormSite, ...]  # those with a gain, in the order of the pass
    origin: Origin
    trace: NormTrace | None  # of `DEFAULT`, None where this checkpoint has not run it
    trace_origin: Origin = "recording"
    left_out: int = 0  # sites whose gain could not be measured

    def depth(self) -> tuple[NormSite, ...]:
        """The sites along the residual stream, the final norm last."""
        return depth_sites(self.sites, self.checkpoint.hidden_size)


def current() -> Gains:
    """The gains of the checkpoint that is open on this machine, else those of the recording.

    A checkpoint of which no norm along the residual stream could be measured counts as none.
    """
    recording = measure.recording()
    recorded = recording.traces[DEFAULT]
    opened = measure.open_sites()
    if opened is not None:
        info, every = opened
        sites = tuple(site for site in every if site.gain is not None)
        live = measure.measured(PRESETS[DEFAULT])
        same = [t for t in (live, recorded) if t is not None and t.checkpoint.digest == info.digest]
        trace = same[0] if same else None
        trace_origin: Origin = "live" if trace is live else "recording"
        if depth_sites(sites, info.hidden_size):
            return Gains(info, sites, "live", trace, trace_origin, left_out=len(every) - len(sites))
    return Gains(recording.checkpoint, recording.sites, "recording", recorded)


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """The norm that the reader looks at, and what they chose it from."""

    site: NormSite
    of_layer: Choice
    of_site: Choice
    sites: Mapping[str, NormSite]  # of the layer, by the codes of `of_site`


def look(gains: Gains) -> Looked:
    """Which norm the address names; draws nothing. What has no gain is not among them."""
    of_layer = _layer_choice(gains)
    layer = bind(of_layer)[of_layer.name]
    sites = site_codes(sites_of(gains, layer))
    of_site = Choice("site", tuple(sites), next(iter(sites)))
    return Looked(sites[bind(of_site)[of_site.name]], of_layer, of_site, sites)


def site_controls(page: Page, looked: Looked) -> None:
    """Draws the selectors of layer and norm."""
    sites, of_layer, of_site = looked.sites, looked.of_layer, looked.of_site
    roles = [each.role for each in sites.values()]

    def name(code: str) -> str:
        role = page.t(f"common.role.{sites[code].role}")
        return role if roles.count(sites[code].role) == 1 else f"{role} · {literal(code)}"

    if len(of_layer.codes) > 1:  # a slider needs two ends
        st.select_slider(
            page.t("gain.layer"),
            of_layer.codes,
            key=of_layer.key,
            format_func=lambda code: page.t("figures.final_tick") if code == FINAL else code,
        )
    st.segmented_control(
        page.t("gain.site"), of_site.codes, required=True, key=of_site.key, format_func=name, wrap=True
    )


def _layer_choice(gains: Gains) -> Choice:
    """Of the layers, the middle one by default."""
    codes = layers(gains)
    numbered = [code for code in codes if code != FINAL]
    return Choice("layer", codes, numbered[(len(numbered) - 1) // 2] if numbered else codes[0])

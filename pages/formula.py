"""RMSNorm by hand: the formula, cells to change, why √d, and what LayerNorm does besides."""

import math

import streamlit as st

from model_probe.presets import DEFAULT
from model_probe.worked import COMPARED, EPS, layer_norm_steps, norm_parameters, rms_norm_steps
from viz import measure
from viz.cells import cells, shown
from viz.formula_tables import comparison_table, fixed, shapes_table, symbols_table
from viz.shell import open_page
from viz.text import literal, number

page = open_page("formula")
page.prose("formula/question")

entered = cells(page)
page.prose("formula/by_hand", eps=number(EPS, 1))

recording = measure.recording()
info, sites = measure.open_sites() or (recording.checkpoint, recording.sites)
name, size = literal(info.name), info.hidden_size

st.header(page.t("formula.heading.root_d"), anchor=False)
page.prose(
    "formula/root_d",
    n=len(entered),
    root_n=shown(math.sqrt(len(entered))),
    name=name,
    size=size,
    root=number(math.sqrt(size), 4),
)

st.header(page.t("formula.heading.beside"), anchor=False)
page.prose("formula/beside")
layer, root = layer_norm_steps(COMPARED), rms_norm_steps(COMPARED)
st.html(comparison_table(page.words, layer, root))
page.prose(
    "formula/reductions",
    layer_sum=fixed(layer.y.sum()),
    root_sum=fixed(root.y.sum()),
    mean=fixed(layer.mean),
    std=fixed(layer.std),
    rms=fixed(root.rms),
    rms_squared=fixed(root.mean_square),
    std_squared=fixed(layer.std**2),
    mean_squared=fixed(layer.mean**2),
)
learned = {site.name.partition("#")[0]: site.size for site in sites if site.gain is not None}
theirs, ours = norm_parameters(learned.values())
page.prose(
    "formula/parameters",
    name=name,
    norms=len(learned),
    size=size,
    ours=number(ours),
    theirs=number(theirs),
)

st.header(page.t("formula.heading.symbols"), anchor=False)
st.html(symbols_table(page.words))
page.prose("formula/symbols")

with st.expander(
    page.t("formula.deeper", deeper=page.t("common.deeper"), what=page.t("formula.heading.shapes"))
):
    trace = recording.traces[DEFAULT]
    st.html(
        shapes_table(
            page.words,
            page.t(f"common.preset.{DEFAULT}"),
            (1, len(trace.tokens), trace.checkpoint.hidden_size),
        )
    )
    page.prose("formula/shapes")

page.footer()

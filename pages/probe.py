"""The bench: measure a prompt on a real checkpoint and read out every norm, token by token."""

import math

import streamlit as st

from viz import measure
from viz.bench import begin_controls, bench, notices
from viz.chart import chart
from viz.checkpoint_controls import checkpoint_controls
from viz.compare_controls import (
    compare_controls,
    compared,
    comparison,
    heat_map,
    layer_table,
    second_finding,
    sources,
)
from viz.downloads import downloads
from viz.figures.depth import depth_alt, depth_facts, depth_figure
from viz.figures.published import published_figure, published_title
from viz.figures.tokens import tokens_alt, tokens_figure
from viz.painted import after_first_chart
from viz.predict import predict
from viz.probe_controls import (
    HEATMAP,
    look,
    norm_control,
    prompt_controls,
    reading_controls,
    shown_prompt,
    take_click,
)
from viz.provenance import provenance
from viz.reading import LINES
from viz.shell import open_page
from viz.tables import contrast_table, contrasted
from viz.text import number

page = open_page("probe")
page.prose("probe/question")

room = bench()
shown = shown_prompt()
looked = look(shown.trace)
pair = compared(shown)
trace, reading = shown.trace, looked.reading
over_tokens = None if reading.statistic == "token" else reading.statistic
source = sources(page, shown, pair, over_tokens)
each_token = provenance(page.words, trace, origin=shown.origin, statistic=None)
each_of_both = sources(page, shown, pair, None)
root = math.sqrt(trace.checkpoint.hidden_size)

with room.picture:
    notices(page, shown)
    comparison(page, pair, looked)
    chart(
        depth_figure(trace, page.words, page.palette, looked.depth, pair),
        key="probe-depth",
        alt=depth_alt(trace, page.words, looked.depth, pair),
    )

after_first_chart()
with room.controls:
    begin_controls(page, room)
    prompt_controls(page, shown)
    checkpoint_controls(page, choose=True)
    progress = st.container()
    compare_controls(page)
    reading_controls(page, trace)

with room.picture:
    with st.container(key="probe-finding"):  # keeps its height, so that new numbers move nothing below
        st.caption(source)
        page.prose("probe/depth", **depth_facts(trace, reading))
        second_finding(page, pair, looked)
    downloads(page, trace, chart="probe-depth", source=source)

    st.header(page.t("probe.layer_heading"), anchor=False)
    page.prose("probe/layer")
    norm_control(page, looked, trace)
    layer_table(page, pair, looked, trace)
    st.caption(each_of_both)  # the table names its statistic itself

    st.header(page.t("probe.tokens_heading"), anchor=False)
    page.prose("probe/tokens")
    chart(
        tokens_figure(trace, looked.site, page.words, page.palette, looked.tokens),
        key="probe-tokens",
        alt=tokens_alt(trace, looked.site, page.words, looked.series),
    )
    st.caption(each_token)
    page.prose("probe/map")
    shown_map = heat_map(page, pair, trace, looked.heatmap)
    chart(
        shown_map.figure,
        key=HEATMAP,
        alt=shown_map.alt,
        on_click=(lambda: take_click(trace)) if shown_map.is_own else None,
    )
    st.caption(each_of_both)

st.header(page.t("probe.stays.heading"), anchor=False)
first, later, names = contrasted(trace, page.words)
page.prose("probe/stays", first=names[0], later=names[1])
guess = predict(page, "stays", tuple(LINES))
st.html(contrast_table(first, later, page.words, names, "veiled" if guess is None else "shown"))
if guess is not None:
    said = "shown" if guess.code is None else "right" if guess.code == "normalized" else "other"
    st.markdown(page.t(f"probe.stays.{said}"))
    page.prose("probe/stays_why", size=trace.checkpoint.hidden_size, root=number(root, 4))
st.caption(provenance(page.words, trace, origin=shown.origin))

st.header(page.t("published.heading"), anchor=False)
page.prose("probe/elsewhere", n=len(trace.tokens))
chart(
    published_figure(trace, page.words, page.palette),
    key="probe-published",
    alt=page.t("published.alt", title=published_title(trace, page.words)),
)
st.caption(provenance(page.words, trace, origin=shown.origin, statistic="root_mean_square"))

page.footer()
with progress:
    measure.follow(page.words)

"""The first page: what this is about, a question, and the headline chart, from the recording."""

import math

import streamlit as st

from model_probe.presets import DEFAULT
from model_probe.recording import load_recording
from viz.book import BOOK, core_minutes
from viz.chart import chart
from viz.drawings import draw
from viz.drawings.forward import forward_map
from viz.figures.base import token_label
from viz.figures.depth import DepthView, depth_alt, depth_figure, growth
from viz.predict import predict
from viz.provenance import provenance
from viz.reading import Reading, sink_tokens
from viz.shell import open_page
from viz.text import literal, number

FACTORS = ("1", "10", "100", "1000")
VEILED = DepthView(lines=("normalized",))

page = open_page("start")
page.prose("start/what")

trace = load_recording().traces[DEFAULT]
st.header(page.t("start.map.heading"), anchor=False)
draw(forward_map(page.words, trace.checkpoint.num_layers, page.href))
page.prose("start/map")

st.header(page.t("start.growth.heading"), anchor=False)
page.prose("start/lengths", size=trace.checkpoint.hidden_size)
guess = predict(page, "growth", FACTORS)
factor = growth(trace, "residual")
if guess is not None:
    nearest = min(FACTORS, key=lambda code: abs(math.log(factor / float(code))))
    verdict = "shown" if guess.code is None else "right" if guess.code == nearest else "other"
    said = {} if guess.code is None else {"guess": page.t(f"start.growth.guess.{guess.code}")}
    page.say(
        f"start.growth.{verdict}",
        factor=number(factor),
        nearest=page.t(f"start.growth.guess.{nearest}"),
        **said,
    )
view = VEILED if guess is None else DepthView()
figure = depth_figure(trace, page.words, page.palette, view)
alt = depth_alt(trace, page.words, view)
chart(figure, key="start.depth", alt=alt)
st.caption(provenance(page.words, trace))

if guess is None:
    st.markdown(page.t("start.growth.veiled"))
else:
    residual, normalized = (Reading().line(trace, line) for line in ("residual", "normalized"))
    root = math.sqrt(trace.checkpoint.hidden_size)
    sink = sink_tokens(trace)[0]
    page.prose(
        "start/growth",
        first=number(residual[0]),
        last=number(residual[-1]),
        sites=len(trace.depth()),
        size=trace.checkpoint.hidden_size,
        root=number(root, digits=4),
        shortfall=number(100 * (1 - normalized.min() / root), digits=2),
        sink=literal(token_label(sink)),
        position=sink.position,
        sink_length=number(max(site.input.l2[sink.position] for site in trace.depth())),
    )
    page.link("probe", page.t("start.way.measure"))

st.header(page.t("start.way.heading"), anchor=False)
page.prose("start/way", minutes=core_minutes())
with st.container(key="start-route", horizontal=True, vertical_alignment="center"):
    for entry in BOOK:
        if entry.core:
            minutes = page.t("common.minutes", n=entry.minutes)
            page.link(entry.stem, f"{page.t(f'common.page.{entry.stem}')} *{minutes}*")

page.footer()

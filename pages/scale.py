"""Scale: what RMSNorm takes away and what it does not, where ε shows, and how it compares with LayerNorm."""

import math

import numpy as np
import streamlit as st

from model_probe.presets import DEFAULT
from model_probe.properties import CHANGES, respond
from model_probe.recording import load_recording
from model_probe.scaling import EPS, SIZE, common_shift, scaled
from viz.address import Choice, bind
from viz.chart import chart
from viz.figures.response import response_alt, response_figure
from viz.figures.shift import shift_alt, shift_figure
from viz.lesson_tables import response_table, scale_table
from viz.live import mount
from viz.live.scale import USUAL, scale_slider
from viz.predict import predict
from viz.provenance import checkpoint_provenance, provenance
from viz.shell import open_page
from viz.text import literal, number

CHANGE = Choice("change", tuple(CHANGES), "plus_5")
WORKED = (0.02, 0.001, 0.0001)  # RMS of the input

page = open_page("scale")
recording = load_recording()
spread = max(
    float(site.input.l2.max() / site.input.l2.min())
    for each in recording.traces.values()
    for site in each.depth()
)
page.prose("scale/question", size=SIZE, name=literal(recording.checkpoint.name), spread=number(spread, 2))

trace = recording.traces[DEFAULT]
first = trace.depth()[0]
root = math.sqrt(first.size)
embedding_rms = float(np.median(first.input.l2)) / root

slider = scale_slider(page.words, embedding_rms)
chosen = bind(slider.choice, CHANGE)
mount(page, slider, chosen["factor"])
st.caption(page.t("scale.illustration"))

st.header(page.t("scale.heading.eps"), anchor=False)
worked: dict[str, str] = {}
for n, rms in enumerate(WORKED, 1):
    worked |= {f"rms_{n}": f"{rms:g}", f"percent_{n}": f"{scaled(rms).percent:.1f}"}
page.prose("scale/eps", usual_from=f"{USUAL[0]:g}", usual_to=f"{USUAL[1]:g}", eps=number(EPS), **worked)

st.header(page.t("scale.heading.real"), anchor=False)
page.prose(
    "scale/real",
    rms=number(embedding_rms, 2),
    eps=number(first.eps),
    l2=number(float(np.median(first.normalized_l2)), 4),
    size=first.size,
    root=number(root, 4),
)
st.html(scale_table((*trace.depth()[:2], trace.depth()[-1]), page.words))
st.caption(provenance(page.words, trace))

st.header(page.t("scale.heading.blind"), anchor=False)
page.prose("scale/blind")
guess = predict(page, "change", ("rms_norm", "layer_norm", "both", "neither"))
change = None if guess is None else chosen["change"]
if guess is not None:
    outcome = "shown" if guess.code is None else "right" if guess.code == "layer_norm" else "other"
    said = {} if guess.code is None else {"guess": page.t(f"scale.change.guess.{guess.code}")}
    page.say(f"scale.change.{outcome}", **said)
    st.segmented_control(
        page.t("scale.change.control"),
        CHANGE.codes,
        required=True,
        key=CHANGE.key,
        format_func=lambda code: page.t(f"scale.change.name.{code}"),
        wrap=True,
    )
figure = response_figure(change, page.words, page.palette)
alt = response_alt(change, page.words)
chart(figure, key="scale.response", alt=alt)
if change is not None:
    st.html(response_table(change, page.words))
    trace_of_eps = number(respond("times_7", "rms_norm").largest_change, 1)
    page.prose("scale/blind_why", trace=trace_of_eps, rms=f"{respond(change, 'rms_norm').rms:.3f}")

st.header(page.t("scale.heading.shift"), anchor=False)
shifts = [common_shift(each) for each in recording.traces.values()]
ratios = np.concatenate([shift.ravel() for shift in shifts])
medians = [float(np.median(shift)) for shift in shifts]
page.prose(
    "scale/shift",
    n=number(float(ratios.size)),
    least=number(min(medians), 2),
    most=number(max(medians), 2),
    largest=number(float(ratios.max()), 2),
)
figure = shift_figure(ratios, page.words, page.palette)
alt = shift_alt(ratios, page.words)
chart(figure, key="scale.shift", alt=alt)
source = page.t("scale.shift.source", prompts=len(recording.traces))
st.caption(f"{checkpoint_provenance(page.words, recording.checkpoint)} · {source}")

with st.expander(page.t("common.deeper")):
    half = scaled(math.sqrt(EPS))
    page.prose("scale/deeper", rms=number(half.rms), percent=f"{half.percent:.1f}")

page.footer()

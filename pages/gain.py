"""The gain: one learned number a feature. What training has made of it, norm by norm, on a real checkpoint."""

import numpy as np
import streamlit as st

from model_probe.blending import blend, loudest_features, share_near_one
from model_probe.sites import summarize_gain
from viz import gains as source
from viz.address import bind
from viz.chart import chart
from viz.figures.features import FEATURES, features_alt, features_figure
from viz.figures.gain import gain_alt, gain_figure, start_figure
from viz.figures.loudness import loudness, loudness_alt, loudness_figure
from viz.lesson_tables import gain_table
from viz.live import mount
from viz.live.gain import PARTS, VEILED, gain_slider
from viz.painted import after_first_chart
from viz.predict import predict
from viz.provenance import checkpoint_provenance, provenance
from viz.reading import layer_code
from viz.shell import open_page
from viz.text import literal, number

SHARES = {"most": 1.0, "half": 0.5, "few": 0.05, "none": 0.0}  # what the answers claim to be near 1

page = open_page("gain")
page.prose("gain/question")

gains = source.current()
learned = [each.known_gain for each in gains.sites]
near = share_near_one(learned)
measured = checkpoint_provenance(page.words, gains.checkpoint, origin=gains.origin)

guess = predict(page, "near_one", tuple(SHARES))
if guess is not None:
    nearest = min(SHARES, key=lambda code: abs(SHARES[code] - near))
    outcome = "shown" if guess.code is None else "right" if guess.code == nearest else "other"
    said = {} if guess.code is None else {"guess": page.t(f"gain.near_one.guess.{guess.code}")}
    every = number(float(sum(gain.size for gain in learned)))
    page.say(
        f"gain.near_one.{outcome}",
        share=number(100 * near, 2),
        n=every,
        nearest=page.t(f"gain.near_one.guess.{nearest}"),
        **said,
    )

st.header(page.t("gain.heading.site"), anchor=False)
looked = source.look(gains)
site = looked.site
controls = st.container(key="gain-controls")  # drawn once the chart is, which need not wait for their code
if gains.left_out:
    st.caption(page.t("gain.left_out", n=gains.left_out))
if guess is None:
    chart(
        start_figure(site.size, page.words, page.palette),
        key="gain.histogram",
        alt=page.t("gain.histogram.alt_before", n=site.size),
    )
else:
    chart(
        gain_figure(site, page.words, page.palette),
        key="gain.histogram",
        alt=gain_alt(site, page.words),
    )
    st.caption(f"{measured} · {literal(site.name)}")
    st.html(gain_table(site, page.words))
    convention = page.t(f"gain.convention.{site.gain_convention}", **{"class": literal(site.class_name)})
    page.prose("gain/site", convention=convention)

after_first_chart()
with controls:
    source.site_controls(page, looked)
st.header(page.t("gain.heading.blend"), anchor=False)
slider = gain_slider(page.words, site, VEILED if guess is None else PARTS)
mount(page, slider, bind(slider.choice)[slider.choice.name])
st.caption(page.t("gain.even"))
st.caption(f"{measured} · {literal(site.name)}")

if guess is None:
    st.markdown(page.t("common.after_answer"))
else:
    st.header(page.t("gain.heading.jobs"), anchor=False)
    told = summarize_gain(site.known_gain)
    page.prose(
        "gain/jobs",
        rms=number(told.rms),
        least=number(told.min / told.rms, 2),
        most=number(told.max / told.rms, 2),
    )

    depth, trace = gains.depth(), gains.trace
    layer_shown = layer_code(site)
    lines = loudness(depth, trace)
    chart(
        loudness_figure(gains, trace, page.words, page.palette, layer=layer_shown),
        key="gain.loudness",
        alt=loudness_alt(lines, page.words),
    )
    st.caption(measured if trace is None else provenance(page.words, trace, origin=gains.trace_origin))
    if trace is not None:
        below, n = int(np.sum(lines.shares < 1)), len(lines.shares)
        page.prose(
            "gain/loudness",
            first=number(lines.measured[0]),
            least=number(lines.measured[1:-1].min()),
            most=number(lines.measured[1:-1].max()),
            last=number(lines.measured[-1]),
            where=page.t(f"gain.below.{'all' if below == n else 'some'}", below=below, n=n),
            share=number(100 * float(np.median(lines.shares)), 2),
        )

    st.header(page.t("gain.heading.features"), anchor=False)
    loud = loudest_features(depth, FEATURES)
    page.prose(
        "gain/features",
        n=len(loud.features),
        last=int(np.sum(loud.peaks == len(depth) - 1)),
        mean=number(summarize_gain(depth[-1].known_gain).mean),
    )
    chart(
        features_figure(gains, page.words, page.palette, layer=layer_shown),
        key="gain.features",
        alt=features_alt(gains, page.words),
    )
    st.caption(measured)

    st.header(page.t("gain.heading.claims"), anchor=False)
    cosines = [blend(each.known_gain, 1.0).cosine for each in gains.sites]
    page.prose(
        "gain/claims",
        cosine=number(blend(site.known_gain, 1.0).cosine, 2),
        least=number(min(cosines), 2),
        most=number(max(cosines), 2),
        far=number(100 * (1 - near), 2),
    )

    with st.expander(page.t("common.deeper")):
        page.prose("gain/deeper", name=site.name)

page.footer()

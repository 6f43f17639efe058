"""What the size of a token does to a softmax: too small tells nothing, too large lets nothing be learned."""

import math

import streamlit as st

from model_probe.experiments import load_recorded
from model_probe.illustrations import (
    FLAT_ENTROPY_SHARE,
    LARGEST_L2,
    SATURATED_TOP_SHARE,
    SCORES,
    SMALLEST_L2,
    UNIT_L2,
    attention_at,
    most_responsive_l2,
    zone_limits,
)
from model_probe.norms import softmax_jacobian_norm
from viz.chart import chart
from viz.effects import sharpness_by_factor
from viz.figures.release import beside_alt, beside_figure
from viz.live import live
from viz.live.saturation import CURVES, TALKED_ABOUT, VEILED, saturation_slider
from viz.predict import predict
from viz.provenance import outcomes_provenance
from viz.shell import open_page
from viz.text import number

page = open_page("saturation")
page.prose("saturation/question")

smallest, unit, drifted, largest = map(attention_at, (SMALLEST_L2, UNIT_L2, TALKED_ABOUT, LARGEST_L2))
most = attention_at(most_responsive_l2())
flat_end, peak, saturated_from = (number(l2) for l2 in zone_limits())

guess = predict(page, "response", ("falls", "hump", "rises"))
if guess is not None:
    said = {} if guess.code is None else {"guess": page.t(f"saturation.response.guess.{guess.code}")}
    outcome = "shown" if guess.code is None else "right" if guess.code == "hump" else "other"
    st.markdown(
        page.t(
            "saturation.response.numbers",
            verdict=page.t(f"saturation.response.{outcome}", **said),
            small=number(smallest.jacobian),
            smallest=number(smallest.l2, 1),
            most=number(most.jacobian),
            peak=peak,
            large=number(largest.jacobian, 1),
            largest=number(largest.l2),
        )
    )
live(page, saturation_slider(page.words, VEILED if guess is None else CURVES))
st.caption(page.t("saturation.illustration", scores=", ".join(map(str, SCORES))))

st.header(page.t("saturation.heading.softmax"), anchor=False)
page.prose("saturation/softmax")

st.header(page.t("saturation.heading.small"), anchor=False)
page.prose(
    "saturation/small",
    smallest=number(smallest.l2, 1),
    least=number(smallest.shares.min()),
    greatest=number(smallest.shares.max()),
    evenness=f"{100 * smallest.entropy_share:.2f} %",
)

if guess is None:
    st.markdown(page.t("common.after_answer"))
else:
    st.header(page.t("saturation.heading.large"), anchor=False)
    page.prose(
        "saturation/large",
        unit=number(unit.jacobian),
        most=number(most.jacobian),
        peak=peak,
        drifted=number(drifted.l2),
        top=number(drifted.top, 2),
        late=number(drifted.jacobian),
        large=number(largest.jacobian, 1),
        largest=number(largest.l2),
    )

    st.header(page.t("saturation.heading.limits"), anchor=False)
    page.prose(
        "saturation/limits",
        flat_share=f"{100 * FLAT_ENTROPY_SHARE:.0f} %",
        flat_end=flat_end,
        peak=peak,
        top_share=f"{100 * SATURATED_TOP_SHARE:.0f} %",
        saturated_from=saturated_from,
    )

    st.header(page.t("release.beside.heading"), anchor=False)
    page.prose("release/beside")
    recorded = load_recorded()
    measured = sharpness_by_factor(recorded.untouched, recorded.by_case["sharpness"])
    chart(
        beside_figure(measured, page.words, page.palette),
        key="saturation-measured",
        alt=beside_alt(measured, page.words),
    )
    st.caption(outcomes_provenance(page.words, recorded.checkpoint, recorded.prompt, len(recorded.tokens)))

page.link("probe", page.t("saturation.link.probe"))
page.link("release", page.t("saturation.link.release"), experiment="sharpness")

if guess is not None:
    with st.expander(page.t("common.deeper")):
        count = len(SCORES)
        page.prose(
            "saturation/deeper",
            equal=number(float(softmax_jacobian_norm([1 / count] * count))),
            pair=number(float(softmax_jacobian_norm([0.5, 0.5])), 1),
            maximum=number(math.log(count), 4),
            drifted=f"{TALKED_ABOUT:.0f}",
        )

page.footer()

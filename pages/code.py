"""Code: RMSNorm as model families write it, compared to the last bit, and what happens when one line is wrong."""

import streamlit as st

from model_probe.code_results import BREAKS, DTYPES, INPUTS, VARIANTS, WITHOUT_SOURCE
from viz import code_lab
from viz.address import Choice, bind
from viz.chart import chart
from viz.code_tables import (
    break_code,
    code_provenance,
    comparison_table,
    happened,
    lab_provenance,
    outcome_table,
    residual_provenance,
    told,
    variant_code,
    variant_name,
)
from viz.costs import costs_section
from viz.figures.code import ShareView, share_alt, share_figure
from viz.predict import predict
from viz.provenance import checkpoint_provenance
from viz.shell import open_page
from viz.text import literal, number

VARIANT = Choice("variant", VARIANTS, "gain_in_float32")
AGAINST = Choice("against", VARIANTS, "cast_then_gain")
GIVEN = Choice("input", INPUTS, "small")
DTYPE = Choice("dtype", DTYPES, "float32")
BREAK = Choice("break", BREAKS, "mean_of_x")

page = open_page("code")
page.prose("code/question")

shown = code_lab.shown()
results, table, numbers = shown.results, shown.results.table, told(shown.results)
made = code_provenance(page.words, results, shown.origin)
chosen = bind(VARIANT, AGAINST, GIVEN, DTYPE, BREAK)
variant, against = chosen["variant"], chosen["against"]
given, dtype, broken = chosen["input"], chosen["dtype"], chosen["break"]


def named(code: str) -> str:
    """What a variant is called in its menu."""
    return variant_name(code, page.words, table.class_name)


st.header(page.t("code.heading.side"), anchor=False)
page.prose("code/families", class_name=literal(code_lab.with_checkpoint().results.table.class_name or "—"))
left, right = st.columns(2, gap="medium")
left.selectbox(page.t("code.control.variant"), VARIANT.codes, key=VARIANT.key, format_func=named)
right.selectbox(page.t("code.control.against"), AGAINST.codes, key=AGAINST.key, format_func=named)
if variant in WITHOUT_SOURCE:
    st.markdown(page.t("code.diff.no_lines"))
else:
    st.html(variant_code(variant, against, page.words))

st.header(page.t("code.heading.bits"), anchor=False)
guess = predict(page, "order", ("none", "few", "quarter", "all"))
if guess is None:
    st.markdown(page.t("common.after_answer"))
else:
    outcome = "shown" if guess.code is None else "right" if guess.code == "none" else "other"
    said = {} if guess.code is None else {"guess": page.t(f"code.order.guess.{guess.code}")}
    page.say(f"code.order.{outcome}", differ=numbers["same"], all=numbers["all"], **said)
    left, right = st.columns(2, gap="medium", vertical_alignment="bottom")
    left.selectbox(
        page.t("code.control.input"),
        GIVEN.codes,
        key=GIVEN.key,
        format_func=lambda code: page.t(f"code.input.{code}"),
    )
    right.segmented_control(
        page.t("code.control.dtype"), DTYPE.codes, required=True, key=DTYPE.key, wrap=True
    )
    view = ShareView(given, dtype, against)
    chart(
        share_figure(table, page.words, page.palette, view),
        key="code.share",
        alt=share_alt(table, page.words, view),
    )
    st.caption(made)
    st.html(comparison_table(results, given, dtype, against, page.words))
    if given == "residual":
        st.caption(residual_provenance(page.words, results))
    page.prose("code/bits", **numbers)

code_lab.run_controls(page)
code_lab.follow(page)

st.header(page.t("code.heading.break"), anchor=False)
page.prose("code/break")
guess = predict(page, "loud", ("none", "one", "half", "all"))
if guess is None:
    st.markdown(page.t("common.after_answer"))
else:
    outcome = "shown" if guess.code is None else "right" if guess.code == "one" else "other"
    said = {} if guess.code is None else {"guess": page.t(f"code.loud.guess.{guess.code}")}
    page.say(f"code.loud.{outcome}", **said)
    st.selectbox(
        page.t("code.control.break"),
        BREAK.codes,
        key=BREAK.key,
        format_func=lambda code: page.t(f"code.break.{code}.name"),
    )
    st.html(break_code(broken, page.words))
    st.markdown(f"**{page.t('code.outcome.expected')}** {page.t(f'code.break.{broken}.expected')}")
    lab = code_lab.with_checkpoint() if broken == "no_final_norm" else shown
    if broken == "no_final_norm" and lab.results.prediction is None:
        st.markdown(page.t("code.break.no_final_norm.none"))
    else:
        st.markdown(f"**{page.t('code.outcome.happened')}** {happened(lab.results, broken, page.words)}")
        st.html(outcome_table(lab.results, broken, page.words))
    st.caption(lab_provenance(page.words, lab.results, lab.origin, broken))

costs_section(page)

st.header(page.t("code.heading.keep"), anchor=False)
page.prose("code/keep")
lab = code_lab.with_checkpoint()
bias, source = lab.results.bias, lab.results.checkpoint
if bias is not None and source is not None:
    page.prose(
        "code/bias",
        name=literal(source.name),
        parameter=bias.name,
        largest=number(bias.largest),
        median=number(bias.median, 2),
    )
    st.caption(checkpoint_provenance(page.words, source, origin=lab.origin))

with st.expander(page.t("common.deeper")):
    page.prose("code/deeper")

page.footer()

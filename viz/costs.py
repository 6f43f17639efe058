"""What it costs: the section of the page `code` that times RMSNorm against LayerNorm on this machine."""

from __future__ import annotations

from typing import Final

import streamlit as st

from model_probe.costs import FORWARD_TOKENS, HIDDEN_SIZES, NORMS, TOKENS, Costs, Size, Spread, measure_costs
from viz import measure
from viz.address import Choice, bind
from viz.chart import chart
from viz.figures.costs import costs_alt, costs_figure, duration, unit_of, way_name
from viz.on_demand import OnDemand, run_button
from viz.predict import Prediction, predict
from viz.provenance import checkpoint_provenance, costs_provenance
from viz.shell import Page
from viz.tables import number_table
from viz.text import Words, literal, number

NAME: Final = "costs"  # of the work
WIDTH: Final = Choice("width", tuple(map(str, HIDDEN_SIZES)), "896")
TOKENS_CHOICE: Final = Choice("tokens", tuple(map(str, TOKENS)), str(TOKENS[-1]))
ANSWERS: Final = ("double", "some", "same", "slower")  # what RMSNorm saves, fused, at the asked size
ASKED: Final = Size(896, TOKENS[-1])
_DOUBLE: Final = 2.0  # LayerNorm's time over RMSNorm's from which it is called double
_ALIKE: Final = 1.05  # up to which the two are called the same
_RESULT: Final = "costs.result"


def costs_section(page: Page) -> None:
    """Draws the section: its question, Run, and what was timed."""
    st.header(page.t("code.costs.heading"), anchor=False)
    page.prose("code/costs")
    guess = predict(page, "faster", ANSWERS)
    if guess is None:
        return
    chosen = bind(WIDTH, TOKENS_CHOICE)
    run_button(page, _run())
    costs: Costs | None = st.session_state.get(_RESULT)
    if costs is None:
        st.caption(page.t("code.costs.empty"))
        return
    with st.container(horizontal=True, gap="medium"):
        for choice in (WIDTH, TOKENS_CHOICE):
            label = page.t(f"code.costs.control.{choice.name}")
            st.segmented_control(label, choice.codes, required=True, key=choice.key, wrap=True)
    _outcome(page, costs, Size(int(chosen["width"]), int(chosen["tokens"])), guess)


def answer(costs: Costs) -> str:
    """Which of ANSWERS this machine gave."""
    ratio = costs.ratio("fused", ASKED).median
    if ratio >= _DOUBLE:
        return "double"
    return "some" if ratio > _ALIKE else "same" if ratio >= 1 / _ALIKE else "slower"


def costs_table(costs: Costs, size: Size, words: Words) -> str:
    """Every norm and variant at one size: time, its middle half, and multiples of the floor."""
    rows: dict[str, tuple[str, list[str]]] = {}
    for variant in costs.variants:
        for norm in NORMS:
            taken = Spread.of(costs.timing(norm, variant, size).seconds)
            over = costs.over_floor(norm, variant, size)
            rows[f"{norm}.{variant}"] = (
                way_name(norm, variant, words),
                [duration(taken.median, words), _between(taken, words), f"× {number(over.median)}"],
            )
    heads = [words.t(f"code.costs.column.{column}") for column in ("time", "half", "floor")]
    caption = words.t(
        "code.costs.caption",
        size=size.hidden_size,
        tokens=words.t("common.tokens", n=size.tokens),
        kilobytes=number(size.copied / 1e3),
        bandwidth=number(costs.copy(size).bandwidth / 1e9),
        floor=duration(costs.floor("rms_norm", size), words),
    )
    return number_table(caption, heads, rows)


def ratio_table(costs: Costs, size: Size, words: Words) -> str:
    """LayerNorm's time over RMSNorm's, by variant, with its spread."""
    rows = {}
    for variant in costs.variants:
        ratio = costs.ratio(variant, size)
        half = words.t("code.costs.between", low=number(ratio.low, 2), high=number(ratio.high, 2))
        name = words.t(f"code.costs.variant.{variant}")
        rows[f"ratio.{variant}"] = (name, [f"× {number(ratio.median, 3)}", half])
    heads = [words.t("code.costs.column.ratio"), words.t("code.costs.column.half")]
    return number_table(words.t("code.costs.ratio_caption"), heads, rows)


def _between(taken: Spread, words: Words) -> str:
    """The middle half in the median's unit, which stands beside it."""
    _, factor = unit_of(taken.median)
    return words.t("code.costs.between", low=number(taken.low * factor), high=number(taken.high * factor))


def _run() -> OnDemand[Costs]:
    opener = measure.opener() if measure.chosen() is not None else None
    return OnDemand(
        NAME, lambda progress, turn: measure_costs(checkpoint=opener, progress=progress, turn=turn), _keep
    )


def _keep(costs: Costs) -> None:
    st.session_state[_RESULT] = costs


def _outcome(page: Page, costs: Costs, size: Size, guess: Prediction) -> None:
    words = page.words
    chart(
        costs_figure(costs, size.hidden_size, words, page.palette),
        key="code-costs",
        alt=costs_alt(costs, size.hidden_size, words),
    )
    source = costs_provenance(words, costs.provenance)
    st.caption(source)
    if costs.not_compiled is not None:
        st.info(page.t(f"code.costs.{costs.not_compiled}"))
    truth = answer(costs)
    verdict = "shown" if guess.code is None else "right" if guess.code == truth else "other"
    said = {} if guess.code is None else {"guess": page.t(f"code.faster.guess.{guess.code}")}
    page.say(
        f"code.faster.{verdict}",
        truth=page.t(f"code.faster.guess.{truth}"),
        ratio=number(costs.ratio("fused", ASKED).median),
        tokens=ASKED.tokens,
        size=ASKED.hidden_size,
        **said,
    )
    st.html(costs_table(costs, size, words))
    st.html(ratio_table(costs, size, words))
    st.caption(source)
    page.prose("code/costs_why")
    fused = costs.operations["rms_norm"] == costs.operations["layer_norm"] == 1
    page.say(
        f"code.costs.{'both_fused' if fused else 'operations'}",
        rms=costs.operations["rms_norm"],
        layer=costs.operations["layer_norm"],
    )
    if costs.share is None:
        st.markdown(page.t("code.costs.no_checkpoint"))
        return
    share = costs.share
    page.prose(
        "code/costs_share",
        name=literal(share.checkpoint.name),
        n=share.norms,
        tokens=FORWARD_TOKENS,
        share=number(100 * share.share.median),
        low=number(100 * share.share.low),
        high=number(100 * share.share.high),
    )
    st.caption(checkpoint_provenance(words, share.checkpoint, origin="live"))

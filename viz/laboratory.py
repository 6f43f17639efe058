"""The laboratory on the page `placement`: a stack that the reader puts together, measured on this machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import streamlit as st

from model_probe.errors import ProbeError
from model_probe.laboratory import (
    BLOCKS,
    BRANCHES,
    LAB_SERIES,
    LAYERS,
    MOST_SEEDS,
    NORMS,
    STACK_PLACEMENTS,
    WIDTHS,
    LabResult,
    LabSettings,
    measure,
)
from model_probe.profiles import INITIALISATIONS
from viz.address import Choice, bind
from viz.chart import chart
from viz.figures.laboratory import LabView, not_drawn, stacks_alt, stacks_figure
from viz.measure import sentence
from viz.on_demand import OnDemand, run_button
from viz.predict import Prediction, predict
from viz.provenance import stacks_provenance
from viz.shell import Page
from viz.tables import number_table
from viz.text import Words, number

NAME: Final = "lab"  # of the work, and before the names of the page's labels
KEPT: Final = 12  # results of a session; the oldest goes first

BLOCKS_CHOICE: Final = Choice("blocks", BLOCKS, BLOCKS[0])
NORM: Final = Choice("norm", NORMS, NORMS[0])
BRANCH: Final = Choice("branch", BRANCHES, BRANCHES[0])
WIDTH: Final = Choice("width", tuple(map(str, WIDTHS)), "256")
LAYERS_CHOICE: Final = Choice("layers", tuple(map(str, LAYERS)), "24")
SEEDS: Final = Choice("seeds", tuple(str(n) for n in range(1, MOST_SEEDS + 1)), "4")
SHOWN: Final = Choice("lab_series", LAB_SERIES, "weight_gradient")
START: Final = Choice("lab_init", INITIALISATIONS, "xavier")
CHOICES: Final = (BLOCKS_CHOICE, NORM, BRANCH, WIDTH, LAYERS_CHOICE, SEEDS, SHOWN, START)

_RESULTS: Final = "lab.results"  # {LabSettings: LabResult} of this session
_LAST: Final = "lab.last"  # settings of what was measured last


def laboratory(page: Page) -> None:
    """Draws the section: its question, what the stack is made of, Run, and what came out."""
    st.header(page.t("placement.lab.heading"), anchor=False)
    page.prose("placement/lab")
    guess = predict(page, "scale_free", STACK_PLACEMENTS)
    if guess is None:
        return
    chosen = bind(*CHOICES)
    _controls(page)
    settings = _settings(page, chosen)
    run_button(page, _run(settings), disabled=settings is None)
    result = _shown(settings)
    if result is None:
        st.caption(page.t("placement.lab.empty"))
        return
    _outcome(page, result, LabView(chosen["lab_series"], chosen["lab_init"]), guess, settings)


def scale_free(result: LabResult) -> str:
    """The placement whose first layer's gradient keeps its ratio to the last one's best, whatever the weights."""
    return min(STACK_PLACEMENTS, key=lambda placement: _spread(result, placement))


def _spread(result: LabResult, placement: str) -> float:
    ratios = [result.stack(start, placement).first_over_last("weight_gradient") for start in INITIALISATIONS]
    if not all(math.isfinite(ratio) and ratio > 0 for ratio in ratios):
        return math.inf
    return max(ratios) / min(ratios)


def stacks_table(result: LabResult, series: str, words: Words) -> str:
    """The last layer's figure and first ÷ last, of every placement with every initialisation."""

    def cell(start: str, placement: str) -> str:
        stack = result.stack(start, placement)
        return f"{number(stack.mean(series)[-1])} ({number(stack.first_over_last(series))})"

    rows = {
        placement: (
            words.t(f"placement.lab.placement.{placement}"),
            [cell(start, placement) for start in INITIALISATIONS],
        )
        for placement in STACK_PLACEMENTS
    }
    heads = [words.t(f"placement.initialisation.{start}") for start in INITIALISATIONS]
    return number_table(
        words.t("placement.lab.table", series=words.t(f"placement.lab.axis.{series}")), heads, rows
    )


def _controls(page: Page) -> None:
    """Three columns that follow one another on a phone."""
    left, middle, right = st.columns(3, gap="medium")
    with left:
        _one(page, BLOCKS_CHOICE)
        _one(page, NORM)
    with middle:
        _one(page, BRANCH)
        _one(page, WIDTH, str)
    with right:
        for choice in (LAYERS_CHOICE, SEEDS):
            st.select_slider(page.t(f"placement.lab.control.{choice.name}"), choice.codes, key=choice.key)


def _one(page: Page, choice: Choice, name: Callable[[str], str] | None = None) -> None:
    def called(code: str) -> str:
        return page.t(f"placement.lab.{choice.name}.{code}")

    label = page.t(f"placement.lab.control.{choice.name}")
    st.segmented_control(
        label, choice.codes, required=True, key=choice.key, format_func=name or called, wrap=True
    )


def _settings(page: Page, chosen: Mapping[str, str]) -> LabSettings | None:
    """The settings that are chosen; None, and a sentence why, where they are too much."""
    try:
        return LabSettings(
            hidden_size=int(chosen["width"]),
            layers=int(chosen["layers"]),
            blocks=chosen["blocks"],
            norm=chosen["norm"],
            branch=chosen["branch"],
            seeds=int(chosen["seeds"]),
        )
    except ProbeError as error:
        st.warning(sentence(error, page.words))
        return None


def _run(settings: LabSettings | None) -> OnDemand[LabResult]:
    wanted = settings or LabSettings()
    return OnDemand(NAME, lambda progress, turn: measure(wanted, progress=progress, turn=turn), _keep)


def _keep(result: LabResult) -> None:
    results: dict[LabSettings, LabResult] = st.session_state.setdefault(_RESULTS, {})
    results.pop(result.settings, None)
    results[result.settings] = result
    st.session_state[_LAST] = result.settings
    while len(results) > KEPT:
        del results[next(iter(results))]


def _shown(settings: LabSettings | None) -> LabResult | None:
    """What was measured of these settings, else what was measured last, else None."""
    results: dict[LabSettings, LabResult] = st.session_state.get(_RESULTS, {})
    if settings in results:
        return results[settings]
    return results.get(st.session_state.get(_LAST, settings))


def _outcome(
    page: Page, result: LabResult, view: LabView, guess: Prediction, wanted: LabSettings | None
) -> None:
    words = page.words
    if result.settings != wanted:
        st.info(page.t("placement.lab.other_settings", what=described(result.settings, words)))
    elif result.seeds < result.settings.seeds:
        st.info(page.t("placement.lab.stopped", n=result.seeds, asked=result.settings.seeds))
    with st.container(horizontal=True, gap="medium"):
        for choice, names in ((START, "placement.initialisation"), (SHOWN, "placement.lab.series")):
            st.segmented_control(
                page.t(f"placement.lab.control.{choice.name}"),
                choice.codes,
                required=True,
                key=choice.key,
                format_func=partial(_called, words, names),
                wrap=True,
            )
    chart(
        stacks_figure(result, view, words, page.palette),
        key="placement-lab",
        alt=stacks_alt(result, view, words),
    )
    for placement, n in not_drawn(result, view).items():
        name = page.t(f"placement.lab.placement.{placement}")
        st.caption(page.t("placement.lab.not_drawn", name=name, n=n))
    st.caption(
        f"{stacks_provenance(words, result.provenance, result.seeds)} · {described(result.settings, words)}"
    )
    _verdict(page, result, guess)
    st.html(stacks_table(result, view.series, words))
    pre = {start: result.stack(start, "pre_norm") for start in INITIALISATIONS}
    ratios = {start: number(stack.first_over_last("weight_gradient")) for start, stack in pre.items()}
    page.prose("placement/lab_start", **ratios)


def _verdict(page: Page, result: LabResult, guess: Prediction) -> None:
    truth = scale_free(result)
    ratios = [result.stack(start, truth).first_over_last("weight_gradient") for start in INITIALISATIONS]
    verdict = "shown" if guess.code is None else "right" if guess.code == truth else "other"
    said = {} if guess.code is None else {"guess": page.t(f"placement.scale_free.guess.{guess.code}")}
    page.say(
        f"placement.scale_free.{verdict}",
        truth=page.t(f"placement.scale_free.guess.{truth}"),
        why=page.t("placement.scale_free.why") if truth == "sandwich_norm" else "",
        least=number(min(ratios), 4),
        most=number(max(ratios), 4),
        **said,
    )


def described(settings: LabSettings, words: Words) -> str:
    """A stack in words, for the line under its picture."""
    parts = [
        words.t(f"placement.lab.blocks.{settings.blocks}"),
        words.t(f"placement.lab.norm.{settings.norm}"),
        *([words.t("placement.lab.scaled_branch")] if settings.branch == "scaled" else []),
        words.t("placement.lab.size", size=settings.hidden_size),
        words.t("placement.layers", n=settings.layers),
    ]
    return " · ".join(parts)


def _called(words: Words, names: str, code: str) -> str:
    return words.t(f"{names}.{code}")

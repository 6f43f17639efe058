"""Training: small decoders with and without a norm, side by side. Recorded first, then the reader's own runs."""

from functools import partial

import streamlit as st

from model_probe.runs import PRESETS, RECORDED_SEEDS, corpus, load_recorded
from viz.address import Choice, bind
from viz.chart import chart
from viz.figures.training import training_alt, training_figure
from viz.outcomes import Shown, outcome_table, truth
from viz.predict import predict
from viz.provenance import runs_provenance
from viz.shell import open_page
from viz.text import number
from viz.training_controls import RUNS, own_runs, run_controls, sample_texts, train

PRESET = Choice("preset", tuple(PRESETS), "norms")
ANSWERS = {
    "norms": ("rms", "same", "layer"),
    "depth": ("pre", "post", "both", "neither"),
    "no_norm": ("small", "large", "both", "neither"),
}
OPEN = {"norms": (1,), "depth": (0, 2), "no_norm": (2, 3)}  # runs that are shown while the question is open

page = open_page("train")
page.prose("train/question")

chosen = bind(PRESET, *RUNS)
name = chosen["preset"]
st.segmented_control(
    page.t("train.presets"),
    PRESET.codes,
    required=True,
    key=PRESET.key,
    format_func=lambda code: page.t(f"train.preset.{code}"),
    wrap=True,
)
recorded = load_recorded(name)
page.prose(f"train/{name}", steps=recorded[0].settings.steps)
guess = predict(page, name, ANSWERS[name])
runs = [Shown.of(run) for run in recorded]
if guess is not None:
    said = {} if guess.code is None else {"guess": page.t(f"train.{name}.guess.{guess.code}")}
    right = truth(name, runs)
    verdict = "shown" if guess.code is None else "right" if guess.code == right else "other"
    page.say(f"train.verdict.{verdict}", truth=page.t(f"train.{name}.guess.{right}"), **said)
else:
    runs = [run if i in OPEN[name] else Shown(run.settings, ()) for i, run in enumerate(runs)]
title = page.t("train.veiled") if guess is None else None
chart(
    training_figure(runs, page.words, page.palette, title=title),
    key=f"train-{name}",
    alt=training_alt(runs, page.words),
)
st.caption(runs_provenance(page.words, recorded))
if guess is not None:
    st.html(outcome_table(runs, page.words))
    text = corpus(recorded[0].settings.text)
    ends = [[run.final_loss for run in load_recorded(name, seed)] for seed in RECORDED_SEEDS]
    gap = max(abs(first - second) for first, second, *_ in ends)
    spread = max(first for first, *_ in ends) - min(first for first, *_ in ends)
    page.prose(
        f"train/{name}_why",
        steps=recorded[0].settings.steps,
        gap=number(gap),
        spread=number(spread),
        frequency=number(text.frequency_loss),
        uniform=number(text.uniform_loss),
        **{f"loss{i}": number(run.final_loss) for i, run in enumerate(runs, 1)},
        **{f"residual{i}": number(run.steps[-1].residual_l2) for i, run in enumerate(runs, 1)},
        **{f"gradient{i}": number(run.steps[0].gradient_norm) for i, run in enumerate(runs, 1)},
    )
    sample_texts(page, runs, [run.sample for run in recorded])

st.header(page.t("train.heading.own"), anchor=False)
page.prose("train/own")
st.button(
    page.t("train.take", preset=page.t(f"train.preset.{name}")),
    key="train-take",
    on_click=partial(train, PRESETS[name].runs),
)
run_controls(page)
own_runs(page)

page.footer()

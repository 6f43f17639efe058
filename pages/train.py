"""Training: small decoders with and without a norm, side by side. Recorded first, then the reader's own runs."""

from functools import partial

import streamlit as st

from model_probe.runs import (
    BATCH,
    CONTEXT,
    DIVERGED_LOSS,
    DIVERGED_STEPS,
    HEAD_SIZE,
    MLP_RATIO,
    PRESETS,
    RECORDED_SEEDS,
    TEXTS,
    corpus,
    load_recorded,
)
from viz.address import Choice, bind
from viz.chart import chart
from viz.figures.training import training_alt, training_figure
from viz.kept import kept
from viz.outcomes import Shown, nats, outcome_table, truth
from viz.painted import after_first_chart
from viz.predict import predict
from viz.provenance import runs_provenance
from viz.shell import open_page
from viz.text import number
from viz.training_controls import own_runs, run_choices, run_controls, sample_texts, train, training

PRESET = Choice("preset", tuple(PRESETS), "norms")
ANSWERS = {
    "norms": ("rms", "same", "layer"),
    "depth": ("pre", "post", "both", "neither"),
    "no_norm": ("small", "large", "both", "neither"),
}
OPEN = {"norms": (1,), "depth": (0, 2), "no_norm": (2, 3)}  # runs that are shown while the question is open

page = open_page("train")
page.prose("train/question")


def choice_name(names: str, code: str) -> str:
    """What a choice is called on its button."""
    return page.t(f"train.{names}.{code}")


text = Choice("text", TEXTS, page.lang)
chosen = bind(PRESET, text, *run_choices(page.lang))
name = chosen["preset"]
with st.container(horizontal=True, gap="medium"):
    for choice, names in ((PRESET, "preset"), (text, "name.text")):
        st.segmented_control(
            page.t(f"train.recorded.{choice.name}"),
            choice.codes,
            required=True,
            key=choice.key,
            format_func=partial(choice_name, names),
            wrap=True,
        )
recorded = load_recorded(name, text=chosen["text"])
steps = recorded[0].settings.steps
rates = sorted({run.settings.learning_rate for run in recorded})
page.prose(f"train/{name}", steps=steps, ratio=number(rates[-1] / rates[0], 1))
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
    kept(training_figure)(tuple(runs), page.words, page.palette, title=title),
    key=f"train-{name}",
    alt=training_alt(runs, page.words),
)
after_first_chart()
st.caption(runs_provenance(page.words, recorded))
if guess is not None:
    st.html(outcome_table(runs, page.words))
    known = corpus(chosen["text"])
    ends = [[run.final_loss for run in load_recorded(name, seed, chosen["text"])] for seed in RECORDED_SEEDS]
    page.prose(
        f"train/{name}_why",
        steps=steps,
        seeds=len(RECORDED_SEEDS),
        gap=number(max(abs(first - second) for first, second, *_ in ends), 2),
        spread=number(max(first for first, *_ in ends) - min(first for first, *_ in ends), 2),
        frequency=number(known.frequency_loss),
        uniform=number(known.uniform_loss),
        **{f"loss{i}": nats(run.final_loss) for i, run in enumerate(runs, 1)},
        **{f"residual{i}": number(run.steps[-1].residual_l2, 2) for i, run in enumerate(runs, 1)},
        **{f"gradient{i}": number(run.steps[0].gradient_norm, 2) for i, run in enumerate(runs, 1)},
        **{f"diverged{i}": run.diverged_at for i, run in enumerate(runs, 1)},
    )
    sample_texts(page, runs, [run.sample for run in recorded])

st.header(page.t("train.heading.own"), anchor=False)
page.prose("train/own")
st.button(
    page.t("train.take", preset=page.t(f"train.preset.{name}")),
    key="train-take",
    disabled=training().running,
    on_click=partial(train, [run.settings for run in recorded]),
)
run_controls(page)
own_runs(page)

with st.expander(page.t("common.deeper")):
    texts = [corpus(name) for name in TEXTS]
    page.prose(
        "train/deeper",
        context=CONTEXT,
        batch=BATCH,
        head=HEAD_SIZE,
        ratio=MLP_RATIO,
        **{f"{text.name}_length": number(len(text.text)) for text in texts},
        **{f"{text.name}_characters": number(len(text.characters)) for text in texts},
        above=number(DIVERGED_LOSS, 2),
        running=DIVERGED_STEPS,
    )

page.footer()

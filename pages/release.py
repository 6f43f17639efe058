"""Release: the norm taken out of a trained model, turned up or replaced; what attention, prediction and residual answer."""

import streamlit as st

from model_probe.experiments import EXPERIMENTS, load_recorded
from viz import measure
from viz.address import bind
from viz.checkpoint_controls import checkpoint_controls
from viz.effects import best_label, truth
from viz.predict import predict
from viz.release import (
    EXPERIMENT,
    ROLE,
    SOURCE,
    case_choice,
    case_control,
    experiment_picture,
    head_choice,
    next_button,
    reasons,
    seen,
    setting,
    sharpness_map,
    watch_run,
)
from viz.release_bench import CHANGES, VIEW, bench_section
from viz.shell import open_page
from viz.text import literal, number

ANSWERS = {
    "invariance": ("neither", "larger", "smaller", "both"),
    "sharpness": ("holds", "rises", "breaks"),
    "louder": ("softmax", "values", "neither"),
    "one_brake": ("first", "middle", "last"),
    "all_brakes": ("sense", "numbers", "overflow"),
    "mean": ("same", "some", "much"),
}

page = open_page("release")
recorded = load_recorded()
page.prose(
    "release/question",
    prompt=literal(recorded.prompt),
    perplexity=number(recorded.untouched.perplexity),
    token=literal(best_label(recorded.untouched)),
    share=number(recorded.untouched.top[0].probability, 2),
)

case_choices = {name: case_choice(name, recorded.checkpoint.num_layers) for name in EXPERIMENTS}
head = head_choice(recorded)
chosen = bind(EXPERIMENT, *case_choices.values(), ROLE, SOURCE, head, *CHANGES, VIEW)
name = chosen["experiment"]
st.segmented_control(
    page.t("release.experiments"),
    EXPERIMENT.codes,
    required=True,
    key=EXPERIMENT.key,
    format_func=lambda code: page.t(f"release.experiment.{code}"),
    wrap=True,
)
page.prose(f"release/{name}", **setting(name, recorded))
guess = predict(page, name, ANSWERS[name])
if guess is None:
    st.markdown(page.t("common.after_answer"))
    watch_run(page, name)
else:
    right = truth(name, recorded)
    said = {} if guess.code is None else {"guess": page.t(f"release.{name}.guess.{guess.code}")}
    verdict = "shown" if guess.code is None else "right" if guess.code == right else "other"
    page.say(f"release.verdict.{verdict}", truth=page.t(f"release.{name}.guess.{right}"), **said)
    choice = case_choices[name]
    case_control(page, name, choice, seen(name, chosen["source"]))
    experiment_picture(page, name, chosen[choice.name], chosen["before"], chosen["source"])
    page.prose(f"release/{name}_why", **reasons(name, recorded, page))
    if name == "sharpness":
        sharpness_map(page, chosen[choice.name], head, chosen["source"])
    next_button(page, name)

bench_section(page, chosen["view"])
checkpoint_controls(page)
fetching = st.container()
failed = measure.failure(page.words)
if failed is not None:
    st.error(failed)
stopped = measure.stopped(page.words)
if stopped is not None:
    st.info(stopped)
with st.expander(page.t("release.deeper")):
    page.prose("release/deeper", n=len(recorded.tokens))

page.footer()
with fetching:
    measure.follow(page.words)

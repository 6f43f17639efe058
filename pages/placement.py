"""Placement: the norm before the block or after the sum, what the gradient makes of it, and what it costs."""

import math
from functools import partial

import streamlit as st

from model_probe.presets import DEFAULT
from model_probe.profiles import FIXED_STD, INITIALISATIONS, SERIES, load_profiles
from model_probe.recording import load_recording
from viz.address import Choice, bind
from viz.book import entry, open_pages
from viz.drawings import draw
from viz.drawings.blocks import post_norm, pre_norm
from viz.figures.depth import growth
from viz.laboratory import laboratory
from viz.live import mount
from viz.live.depth import VEILED, DepthView, depth_slider
from viz.predict import predict
from viz.provenance import profiles_provenance
from viz.shell import open_page
from viz.text import number

FEW, MANY = 6, 24  # layers: what the question and the prose compare
BLOCK = 8 / 25  # mean square of what a block gives back for a normed input, by Xavier; derived at the foot
SHOWN = Choice("series", SERIES, "weight_gradient")
START = Choice("init", INITIALISATIONS, "xavier")

page = open_page("placement")
page.prose("placement/question")

for column, drawing in zip(st.columns(2, gap="large"), (post_norm, pre_norm), strict=True):
    with column:
        page.say(f"placement.drawing.{drawing.__name__}")
        draw(drawing(page.words))
        page.prose(f"placement/{drawing.__name__}")

profiles = load_profiles()
settings, depths = profiles.settings, profiles.depths
root = math.sqrt(settings.hidden_size)


def last(placement: str, depth: int, series: str = "weight_gradient", start: str = "xavier") -> float:
    """A figure of a stack's last layer."""
    return float(profiles.stack(start, placement, depth).series(series)[-1])


def choice_name(names: str, code: str) -> str:
    """What a choice is called on its button."""
    return page.t(f"placement.{names}.{code}")


st.header(page.t("placement.heading.reaches"), anchor=False)
page.prose(
    "placement/stack",
    least=depths[0],
    most=depths[-1],
    size=settings.hidden_size,
    std=number(FIXED_STD, 1),
)
guess = predict(page, "deeper", ("pre", "post", "both", "neither"))
if guess is not None:
    outcome = "shown" if guess.code is None else "right" if guess.code == "pre" else "other"
    said = {} if guess.code is None else {"guess": page.t(f"placement.deeper.guess.{guess.code}")}
    page.say(f"placement.deeper.{outcome}", truth=page.t("placement.deeper.guess.pre"), **said)
slider = depth_slider(page.words, DepthView(placements=VEILED))
chosen = bind(slider.choice, SHOWN, START)
if guess is not None:
    with st.container(horizontal=True, gap="medium"):
        for choice, names in ((SHOWN, "series"), (START, "initialisation")):
            st.segmented_control(
                page.t(f"placement.control.{names}"),
                choice.codes,
                required=True,
                key=choice.key,
                format_func=partial(choice_name, names),
                wrap=True,
            )
    slider = depth_slider(page.words, DepthView(chosen["series"], chosen["init"]))
mount(page, slider, chosen["depth"])
st.caption(profiles_provenance(page.words, profiles))

if guess is not None:
    page.prose(
        "placement/reaches",
        few=FEW,
        many=MANY,
        pre_few=number(last("pre_norm", FEW)),
        pre_many=number(last("pre_norm", MANY)),
        post_few=number(last("post_norm", FEW)),
        post_many=number(last("post_norm", MANY)),
        none_factor=number(last("no_norm", MANY) / last("no_norm", FEW), 2),
    )

    st.header(page.t("placement.heading.vanish"), anchor=False)
    first_over_last = {
        placement: profiles.stack("xavier", placement, MANY).first_over_last("weight_gradient")
        for placement in ("pre_norm", "post_norm")
    }
    page.prose(
        "placement/vanish",
        many=MANY,
        most=depths[-1],
        pre_ratio=number(first_over_last["pre_norm"], 2),
        post_ratio=number(first_over_last["post_norm"], 2),
        std=number(FIXED_STD, 1),
        none_fixed=number(last("no_norm", depths[-1], start="fixed")),
        none_xavier=number(last("no_norm", depths[-1])),
    )

    st.header(page.t("placement.heading.cost"), anchor=False)
    page.prose(
        "placement/cost",
        size=settings.hidden_size,
        root=number(root, 2),
        most=depths[-1],
        grown=number(last("pre_norm", depths[-1], "activation")),
        factor=number(growth(load_recording().traces[DEFAULT], "residual")),
    )

st.header(page.t("placement.heading.freedom"), anchor=False)
page.prose("placement/freedom")

st.header(page.t("placement.heading.practice"), anchor=False)
page.prose("placement/practice")
if entry("train") in open_pages():
    page.link("train", page.t("placement.link.train"))

if guess is not None:
    laboratory(page)

    with st.expander(page.t("common.deeper")):
        grows = {depth: math.sqrt(1 + BLOCK * depth) for depth in (FEW, MANY)}
        page.prose(
            "placement/deeper",
            few=FEW,
            many=MANY,
            pre_foretold=number(grows[MANY]),
            pre_stream=number(last("pre_norm", MANY, "activation") / root),
            none_foretold=number((1 + BLOCK) ** (MANY / 2)),
            none_stream=number(last("no_norm", MANY, "activation") / root),
            ratio_foretold=number(grows[MANY] / grows[FEW]),
            ratio=number(last("pre_norm", FEW) / last("pre_norm", MANY)),
            size=settings.hidden_size,
            hidden=settings.hidden_size * settings.mlp_ratio,
            batch=settings.batch,
            positions=settings.positions,
            classes=settings.classes,
            seeds=settings.seeds,
        )

page.footer()

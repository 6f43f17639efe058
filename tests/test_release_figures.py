"""Pictures of interventions: what they draw, what they say, and that what is not a number is never drawn as one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from made_outcomes import WORDS, outcome, outcomes

from model_probe.experiments import EXPERIMENTS, LOGIT_FACTORS, load_recorded
from model_probe.illustrations import UNIT_L2, attention_at
from model_probe.interventions import Intervention, attention_logit_scale, no_division, output_scale
from model_probe.outcome import Outcome
from viz.effects import called, decode, effect_table, encode, kl_by_layer, sharpness_by_factor, truth
from viz.figures import release as figures
from viz.figures.base import title_of
from viz.text import LANGUAGES, words
from viz.theme import palette

PALETTES = [palette("light"), palette("dark")]
EVERYWHERE = pytest.mark.parametrize("lang", LANGUAGES)


def by_factor() -> dict[float, Outcome]:
    return {
        k: outcome((attention_logit_scale(k),) if k != 1 else (), sharp=k, perplexity=50 + k)
        for k in sorted((*LOGIT_FACTORS, 1.0))
    }


def drawn(figure: object, name: str) -> list[float | None]:
    return next(list(t.y) for t in figure.data if t.name == name)  # type: ignore[attr-defined]


@EVERYWHERE
def test_the_same_data_gives_the_same_picture_in_both_themes(lang: str) -> None:
    said, all_ = words(lang), outcomes()
    broken = outcome((no_division(),), perplexity=math.nan, kl=math.nan, broken=7)
    for colours in PALETTES:
        made = [
            lambda c=colours: figures.sharpness_figure(by_factor(), 4.0, said, c),
            lambda c=colours: figures.beside_figure(by_factor(), said, c),
            lambda c=colours: figures.perplexity_figure(
                all_.by_case["louder"], all_.untouched, "output_x2", said, c
            ),
            lambda c=colours: figures.layers_figure(all_.by_case["one_brake"], 3, 1, said, c),
            lambda c=colours: figures.depth_figure(all_.untouched, broken, "input_l2", said, c),
            lambda c=colours: figures.positions_figure(
                {"a": broken, "b": all_.untouched}, WORDS, "a", said, c
            ),
            lambda c=colours: figures.map_figure(all_.untouched, (1, 0), WORDS, said, c),
        ]
        for make in made:
            assert make().to_json() == make().to_json()
            assert title_of(make())


def test_entropy_and_jacobian_stand_over_the_factor() -> None:
    said, data = words("en"), by_factor()
    figure = figures.sharpness_figure(data, 4.0, said, PALETTES[0])
    assert list(figure.data[0].x) == sorted(data)
    assert drawn(figure, "entropy") == pytest.approx([0.5 / k for k in sorted(data)])
    assert drawn(figure, "Jacobian") == pytest.approx([0.25 / k for k in sorted(data)])
    assert "entropy from 0.500 to 0.125, perplexity from 51.0 to 54.0" in title_of(figure)


def test_the_measured_curve_lies_on_the_axis_of_the_illustration() -> None:
    figure = figures.beside_figure(by_factor(), words("en"), PALETTES[0])
    low, high = (10**end for end in figure.layout.xaxis.range)
    assert low == pytest.approx(1 / 32)
    assert high == pytest.approx(16)
    measured = next(t for t in figure.data if t.name == "entropy, measured")
    assert list(measured.x) == [0.25, 0.5, 1, 2, 4, 8, 16]


def test_the_illustrations_curve_is_that_of_its_slider() -> None:
    from model_probe.illustrations import UNIT_L2, attention_at

    figure = figures.beside_figure(by_factor(), words("en"), PALETTES[0])
    dotted = next(t for t in figure.data if t.name == "Jacobian, illustration")
    for k, value in list(zip(dotted.x, dotted.y, strict=True))[::15]:
        assert value == pytest.approx(attention_at(k * UNIT_L2).jacobian)


@EVERYWHERE
def test_what_is_not_a_number_is_named_and_not_drawn(lang: str) -> None:
    said = words(lang)
    broken = outcome((no_division(),), perplexity=math.inf, kl=math.nan, broken=7)
    depth = figures.depth_figure(outcome(), broken, "input_l2", said, PALETTES[0])
    after = list(depth.data[1].y)
    assert after[:2] == [2.0, 2.0]
    assert after[2:] == [None] * 5
    crosses = next(t for t in depth.data if t.name == "crosses")
    assert list(crosses.x) == [2, 3, 4, 5, 6]
    total = 7 + 5 * 7  # logits and the sites from layer 1 on
    assert str(total) in title_of(depth)

    bars = figures.perplexity_figure({"a": broken, "b": outcome()}, outcome(), "a", said, PALETTES[0])
    assert len(bars.data) == 1  # no bar for what is not a number
    assert any(said.t("release.no_number") in note.text for note in bars.layout.annotations)

    table = effect_table(outcome(), broken, said)
    assert said.t("release.no_number") in table
    assert str(total) in table
    positions = figures.positions_figure({"a": broken}, WORDS, "a", said, PALETTES[0])
    assert list(positions.data[0].y) == [None] * len(WORDS)


def test_an_attention_map_shows_only_what_a_token_can_see_and_its_tokens_literally() -> None:
    figure = figures.map_figure(outcome(), (1, 0), WORDS, words("en"), PALETTES[0])
    assert figure is not None
    weights = figure.data[0].z.astype(float)
    assert np.isnan(weights[0, 1:]).all()
    assert weights[4].sum() == pytest.approx(1, abs=1e-5)
    assert "&lt;b&gt;" in figure.layout.yaxis.ticktext[1]
    assert "$" not in "".join(figure.layout.yaxis.ticktext)
    assert figures.map_figure(outcome(), (2, 0), WORDS, words("en"), PALETTES[0]) is None
    assert figures.map_figure(outcome(attention=False), (1, 0), WORDS, words("en"), PALETTES[0]) is None


def test_layers_come_from_the_codes_in_their_order() -> None:
    by_case = outcomes().by_case["one_brake"]
    assert kl_by_layer(by_case, "attention_input") == pytest.approx({0: 0.1, 1: 0.2, 2: 0.3})
    assert kl_by_layer(by_case, "mlp_input") == pytest.approx({0: 0.4, 1: 0.5, 2: 0.6})
    figure = figures.layers_figure(by_case, 3, 1, words("en"), PALETTES[0])
    assert title_of(figure).startswith("Before attention, layer 0 is missed least")


def test_the_truth_follows_what_was_measured() -> None:
    all_ = outcomes()

    def told(experiment: str, **changed: object) -> str:
        by_case = {**all_.by_case, experiment: {**all_.by_case[experiment], **changed}}
        return truth(experiment, replace(all_, by_case=by_case))  # type: ignore[arg-type]

    assert {truth(name, all_) for name in EXPERIMENTS}  # each has one
    assert told("invariance", x16=outcome(kl=1e-6), x1_16=outcome(kl=0.2)) == "smaller"
    assert told("invariance", x16=outcome(kl=1e-6), x1_16=outcome(kl=1e-6)) == "neither"
    assert told("invariance", x16=outcome(kl=math.nan), x1_16=outcome(kl=1e-6)) == "larger"
    assert told("sharpness", x4=outcome(perplexity=69)) == "holds"
    assert told("sharpness", x4=outcome(perplexity=690)) == "rises"
    assert told("sharpness", x4=outcome(perplexity=math.nan)) == "breaks"
    assert told("louder", output_x2=outcome(perplexity=3e4), values_x2=outcome(perplexity=124)) == "neither"
    assert told("louder", output_x2=outcome(perplexity=3e4), values_x2=outcome(perplexity=2e4)) == "values"
    assert told("all_brakes", everywhere=outcome(perplexity=7e84)) == "numbers"
    assert told("all_brakes", everywhere=outcome(broken=3)) == "overflow"
    assert told("mean", layer_norm=outcome(perplexity=50.1)) == "same"
    assert told("mean", layer_norm=outcome(perplexity=math.nan)) == "much"


@pytest.mark.parametrize(
    "intervention",
    [
        output_scale(2, layers=(3, 4, 5), roles=("mlp_input", "final")),
        no_division(layers=(0,)),
        attention_logit_scale(0.25),
        Intervention("fixed_rms"),
    ],
)
def test_a_code_holds_an_intervention(intervention: Intervention) -> None:
    assert decode(encode(intervention)) == intervention


@pytest.mark.parametrize(
    "code", ["", "output_scale", "output_scale~~~", "no_division~2~~", "nothing~2~~", "value_scale~nan~~",
             "no_division~~5-2~", "no_division~~x~", "value_scale~2~~mlp_input", "no_division~~0-99999~",
             "no_division~~~nowhere"]
)  # fmt: skip
def test_a_code_that_is_none_is_refused(code: str) -> None:
    assert decode(code) is None


@EVERYWHERE
def test_every_kind_has_a_name(lang: str) -> None:
    from model_probe.interventions import KINDS, WITH_AMOUNT

    for kind in KINDS:
        name = called((Intervention(kind, 0.0625 if kind in WITH_AMOUNT else None),), words(lang))
        assert ("1/16" in name) == (kind in WITH_AMOUNT)


def test_the_recording_does_what_is_said_beside_the_illustration() -> None:
    """release/beside.md: the entropy falls, the response never rises, and at ×1 real heads are the sharper ones."""
    recorded = load_recorded()
    measured = sharpness_by_factor(recorded.untouched, recorded.by_case["sharpness"])
    entropy, response = (
        [getattr(each, name) for each in measured.values()] for name in ("mean_entropy", "mean_jacobian")
    )
    assert all(np.diff(entropy) < 0)
    assert all(np.diff(response) < 0)
    assert measured[1.0].mean_entropy < attention_at(float(UNIT_L2)).entropy_share

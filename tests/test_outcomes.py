"""Small trainings as the page shows them: codes, names, findings, curves and numbers, none of them invented."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_probe.runs import (
    LAYER_RANGE,
    LEARNING_RATE_RANGE,
    NORMS,
    PLACEMENTS,
    PRESETS,
    SEED_RANGE,
    STEP_RANGE,
    TEXTS,
    WARMUP_RANGE,
    WIDTHS,
    RunSettings,
    Step,
    corpus,
    load_recorded,
)
from viz.figures.base import title_of
from viz.figures.training import MOST_POINTS, run_style, training_alt, training_figure
from viz.outcomes import STATES, Shown, decode, encode, finding, names, nats, outcome_table, rate, truth
from viz.text import LANGUAGES, NOT_A_NUMBER, number, words
from viz.theme import DARK, LIGHT, contrast

LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
PRESET = pytest.mark.parametrize("preset", PRESETS)
EVERY_TEXT = pytest.mark.parametrize("text", TEXTS)
ANSWERS = {"norms": "same", "depth": "pre", "no_norm": "small"}
KNOWN = corpus("en").frequency_loss


def settings() -> st.SearchStrategy[RunSettings]:
    return st.builds(
        RunSettings,
        norm=st.sampled_from(NORMS),
        placement=st.sampled_from(PLACEMENTS),
        layers=st.integers(*LAYER_RANGE),
        width=st.sampled_from(WIDTHS),
        learning_rate=st.floats(*LEARNING_RATE_RANGE).map(lambda value: float(f"{value:g}")),
        warmup=st.integers(*WARMUP_RANGE),
        steps=st.integers(*STEP_RANGE),
        seed=st.integers(*SEED_RANGE),
        text=st.sampled_from(TEXTS),
    )


def run(*losses: float, diverged_at: int | None = None, **changed: object) -> Shown:
    steps = tuple(Step(i, loss, 1.0, 2.0) for i, loss in enumerate(losses, 1))
    return Shown(replace(RunSettings(), steps=max(10, len(losses)), **changed), steps, diverged_at)


LEARNED, STUCK = run(4.0, *[KNOWN / 2] * 20), run(4.0, *[KNOWN] * 20)
DIVERGED, WAITING = run(4.0, 9.0, math.nan, diverged_at=2), run()


@given(settings())
def test_a_code_holds_all_settings(one: RunSettings) -> None:
    assert decode(encode(one)) == one


@given(st.text(alphabet="rmspelayno_0123456789.-+eEinfaz ", max_size=60) | st.text())
def test_no_text_is_a_code_by_accident_and_none_is_an_error(text: str) -> None:
    assert decode(text) is None or isinstance(decode(text), RunSettings)


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ("rms_pre_999_32_1e9_-5_99999999_-1_en", (32, 1.0, 0, 1000, 0)),
        ("rms_pre_0_32_0_9999_0_123456_en", (1, 1e-5, 500, 10, 9999)),
        ("rms_pre_6_32_inf_0_200_0_en", (6, 1.0, 0, 200, 0)),
    ],
)
def test_numbers_out_of_range_end_at_the_range(code: str, kept: tuple[float, ...]) -> None:
    one = decode(code)
    assert one is not None
    assert (one.layers, one.learning_rate, one.warmup, one.steps, one.seed) == kept


@pytest.mark.parametrize("code", ["rms_pre_6_33_0.001_0_200_0_en", "rms_pre_6_32_nan_0_200_0_en", "x", ""])
def test_what_is_no_setting_is_no_code(code: str) -> None:
    assert decode(code) is None


@LANGUAGE
@PRESET
def test_runs_are_called_by_what_differs(lang: str, preset: str) -> None:
    runs = PRESETS[preset].runs
    called = names(runs, words(lang))
    assert len(set(called)) == len(runs)
    assert not any(words(lang).t("train.name.seed", n=0) in name for name in called)
    assert len(set(names([runs[0], runs[0]], words(lang)))) == 1


@LANGUAGE
def test_a_run_without_a_norm_has_no_placement(lang: str) -> None:
    pre = words(lang).t("train.name.placement.pre")
    assert pre not in names([RunSettings(norm="none")], words(lang))[0]
    assert pre in names([RunSettings()], words(lang))[0]


def test_a_learning_rate_keeps_its_digits() -> None:
    assert [rate(v) for v in (1.0, 0.03, 1e-5, 0.00123)] == ["1", "0.03", "10⁻⁵", "0.00123"]


def test_states() -> None:
    assert [r.state for r in (WAITING, LEARNED, STUCK, DIVERGED)] == list(STATES)
    assert run(4.0, math.inf).state == "diverged"
    assert math.isnan(WAITING.final_loss)
    assert DIVERGED.non_finite == 1


@LANGUAGE
@pytest.mark.parametrize("one", [LEARNED, STUCK, DIVERGED, WAITING])
def test_a_finding_for_every_state(lang: str, one: Shown) -> None:
    assert finding([one], words(lang))
    assert finding([one, LEARNED, STUCK, DIVERGED], words(lang))


def test_a_finding_names_the_runs() -> None:
    said = finding([LEARNED, STUCK, LEARNED, DIVERGED], words("en"))
    assert said == "Runs 1 and 3 learn; run 2 gets no further than character frequencies; run 4 diverges"
    both = finding([LEARNED, run(4.0, *[KNOWN / 3] * 20)], words("en"))
    assert nats(KNOWN / 3) in both
    assert number(KNOWN / 2) in both
    assert "alike" in finding([LEARNED, LEARNED], words("en"))


@EVERY_TEXT
@PRESET
def test_the_recorded_runs_answer_their_question(preset: str, text: str) -> None:
    runs = [Shown.of(result) for result in load_recorded(preset, text=text)]
    assert truth(preset, runs) == ANSWERS[preset]


def test_other_runs_would_give_other_answers() -> None:
    def with_losses(preset: str, *losses: float) -> list[Shown]:
        return [
            Shown(one, tuple(Step(i, loss, 1, 1) for i in range(1, 30)))
            for one, loss in zip(PRESETS[preset].runs, losses, strict=True)
        ]

    assert truth("norms", with_losses("norms", 1.0, 2.0)) == "rms"
    assert truth("norms", with_losses("norms", 2.0, 1.0)) == "layer"
    assert truth("depth", with_losses("depth", 1, 1, 1, 1)) == "both"
    assert truth("depth", with_losses("depth", 1, 1, 1, 9)) == "post"
    assert truth("depth", with_losses("depth", 1, 9, 1, 9)) == "neither"
    assert truth("no_norm", with_losses("no_norm", 9, 1, 1, 1)) == "large"


@EVERY_TEXT
@PRESET
def test_the_curves_are_what_was_recorded(preset: str, text: str) -> None:
    results = load_recorded(preset, text=text)
    figure = training_figure([Shown.of(result) for result in results], words("en"), LIGHT)
    for series, axis in (("loss", "y"), ("gradient_norm", "y2"), ("residual_l2", "y3")):
        curves = [trace for trace in figure.data if trace.yaxis == axis and trace.mode == "lines"]
        assert len(curves) == len(results)
        for curve, result in zip(curves, results, strict=True):
            for x, y in zip(curve.x, curve.y, strict=True):
                value = getattr(result.steps[x - 1], series)
                assert y == value if math.isfinite(value) else y is None
            assert curve.x[-1] == len(result.steps)


def test_what_is_not_finite_is_left_out_counted_and_never_zero() -> None:
    figure = training_figure([DIVERGED], words("en"), LIGHT)
    assert figure.data[0].y == (4.0, 9.0, None)
    assert "NaN" not in figure.to_json()
    assert words("en").t("train.alt.non_finite", n=1) in training_alt([DIVERGED], words("en"))
    assert number(math.nan) in outcome_table([DIVERGED], words("en"))


def test_divergence_is_marked_where_it_happens() -> None:
    figure = training_figure([LEARNED, DIVERGED], words("en"), LIGHT)
    crosses = [trace for trace in figure.data if trace.mode == "markers"]
    assert [(cross.marker.symbol, cross.x[0]) for cross in crosses] == [
        ("x", 1)
    ]  # its last loss in the picture
    assert any(shape.x0 == shape.x1 == DIVERGED.diverged_at for shape in figure.layout.shapes)
    said = words("en").t("train.diverges", n=2, step=2)
    assert any(said in note.text for note in figure.layout.annotations)
    assert not [t for t in training_figure([LEARNED], words("en"), LIGHT).data if t.mode == "markers"]


def test_growing_curves_do_not_move_the_loss_axis_nor_the_steps() -> None:
    whole = Shown.of(load_recorded("norms")[0])
    ranges = set()
    for made in (0, 1, 50, len(whole.steps)):
        figure = training_figure([replace(whole, steps=whole.steps[:made])], words("en"), LIGHT)
        assert figure.layout.height == training_figure([whole], words("en"), LIGHT).layout.height
        ranges.add((figure.layout.yaxis.range[1], figure.layout.xaxis.range))
    assert len(ranges) == 1


def test_a_long_run_is_drawn_from_its_first_to_its_last_step() -> None:
    figure = training_figure([run(*np.linspace(4, 1, 1000))], words("en"), LIGHT)
    x = figure.data[0].x
    assert (x[0], x[-1]) == (1, 1000)
    assert len(x) <= MOST_POINTS + 1


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_runs_are_told_apart_without_colour(palette: object) -> None:
    styles = [run_style(place, palette) for place in range(4)]  # type: ignore[arg-type]
    assert len({style.dash for style in styles}) == len({style.colour for style in styles}) == 4
    assert all(contrast(style.colour, palette.ground) >= 4.5 for style in styles)  # type: ignore[attr-defined]


@LANGUAGE
@pytest.mark.parametrize("size", [1e-30, 1e30, 0.0])
def test_extreme_numbers_are_drawn(lang: str, size: float) -> None:
    steps = tuple(Step(i, size, size, size) for i in range(1, 12))
    figure = training_figure([Shown(RunSettings(), steps), LEARNED, WAITING], words(lang), DARK)
    assert title_of(figure)
    for axis in (figure.layout.yaxis2, figure.layout.yaxis3):
        assert all(map(math.isfinite, axis.range))
        assert 1 <= len(axis.tickvals) <= 5
    json.loads(figure.to_json())


@LANGUAGE
@PRESET
def test_the_table_holds_the_numbers(lang: str, preset: str) -> None:
    results = load_recorded(preset)
    table = outcome_table([Shown.of(result) for result in results], words(lang))
    for result in results:
        assert nats(result.final_loss) in table
        if result.diverged_at is not None:
            assert words(lang).t("train.table.diverged", step=result.diverged_at) in table
    assert NOT_A_NUMBER in outcome_table([WAITING], words(lang))

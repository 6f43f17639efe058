"""The pictures of the gain and of scale: their counts are the reference's, their titles what was found."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_probe.blending import loudest_features
from model_probe.properties import CHANGES, respond
from model_probe.recording import load_recording
from model_probe.scaling import common_shift
from model_probe.sites import NormSite, count_gain, summarize_gain
from viz.figures.base import title_of
from viz.figures.features import FEATURES, features_alt, features_figure
from viz.figures.gain import MOST_BINS, gain_alt, gain_bins, gain_figure, start_figure
from viz.figures.loudness import loudness, loudness_figure
from viz.figures.response import SHOWN, response_alt, response_figure
from viz.figures.shift import shift_alt, shift_figure
from viz.gains import Gains
from viz.lesson_tables import gain_table, response_table, scale_table
from viz.text import LANGUAGES, number, words
from viz.theme import DARK, LIGHT

REFERENCE = json.loads(
    (Path(__file__).parent / "data" / "reference-qwen2.5-coder-0.5b.json").read_text(encoding="utf-8")
)
RECORDING = load_recording()
FOX = RECORDING.traces["fox"]
GAINS = Gains(RECORDING.checkpoint, RECORDING.sites, "recording", FOX)
SITE = pytest.mark.parametrize("name", list(REFERENCE["gains"]))
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)


def bars(figure: Any) -> tuple[np.ndarray, np.ndarray]:
    bar = next(trace for trace in figure.data if trace.type == "bar")
    return np.asarray(bar.x, dtype=float), np.asarray(bar.y, dtype=float)


def numbers_in(html: str) -> dict[str, str]:
    return dict(re.findall(r'data-figure="([\w.]+)">([^<]*)<', html))


def reference_counts(name: str) -> tuple[int, int, int]:
    """Amplified, damped and flipped features: the reference counts γ > 1 and γ < 1, the app |γ|."""
    told = REFERENCE["gains"][name]
    below_minus_one = int(np.sum(RECORDING.site(name).known_gain < -1))
    return told["above_1"] + below_minus_one, told["below_1"] - below_minus_one, told["negative"]


@SITE
def test_statistics_and_counts_are_the_references(name: str) -> None:
    gain, told = RECORDING.site(name).known_gain, REFERENCE["gains"][name]
    counts, summary = count_gain(gain), summarize_gain(gain)
    assert (counts.amplified, counts.damped, counts.negative) == reference_counts(name)
    assert counts.amplified + counts.damped + counts.exactly_one == gain.size
    for statistic in ("mean", "rms", "min", "max"):
        assert getattr(summary, statistic) == pytest.approx(told[statistic], rel=1e-6)


@SITE
def test_the_histogram_counts_what_the_reference_counts(name: str) -> None:
    site, told = RECORDING.site(name), REFERENCE["gains"][name]
    exactly_one = site.size - told["above_1"] - told["below_1"]
    figure = gain_figure(site, words("en"), LIGHT)
    centres, counts = bars(figure)
    assert len(counts) <= MOST_BINS
    assert counts.sum() == site.size
    assert counts[centres > 1].sum() == told["above_1"] + exactly_one  # an edge belongs to the bin above it
    assert counts[centres < 1].sum() == told["below_1"]
    assert counts[centres < 0].sum() == told["negative"]
    colours = np.array(figure.data[0].marker.color)
    assert set(colours[np.abs(centres) > 1]) <= {LIGHT.careful}
    assert set(colours[np.abs(centres) < 1]) <= {LIGHT.accent}
    hatched = np.array([shape != "" for shape in figure.data[0].marker.pattern.shape])
    assert (hatched == (centres < 0)).all()


@SITE
def test_the_table_says_the_same(name: str) -> None:
    told = REFERENCE["gains"][name]
    cells = numbers_in(gain_table(RECORDING.site(name), words("en")))
    shown = tuple(int(cells[count]) for count in ("amplified", "damped", "negative"))
    assert shown == reference_counts(name)
    assert int(cells["exactly_one"]) == 896 - told["above_1"] - told["below_1"]
    for statistic in ("min", "max", "mean", "rms"):
        assert cells[statistic] == number(told[statistic])


@pytest.mark.parametrize("gain", [[1.0], [-1.0, 1.0], [0.0, 0.0], [-3.0, 250.0, 0.999, 1.001]])
def test_bins_hold_every_value_and_end_at_one(gain: list[float]) -> None:
    bins = gain_bins(gain)
    assert bins.counts.sum() == len(gain)
    assert len(bins.lows) == len(bins.counts) <= MOST_BINS or bins.width == 1
    assert np.min(np.abs(bins.lows - 1)) < 1e-12
    for value in gain:
        inside = (bins.lows <= value + 1e-12) & (value < bins.lows + bins.width)
        assert bins.counts[inside].sum() >= 1


@LANGUAGE
def test_titles_say_what_was_found(lang: str) -> None:
    text = words(lang)
    first = title_of(gain_figure(RECORDING.site("model.layers.0.input_layernorm"), text, LIGHT))
    assert "896" in first
    assert "0" in first
    middle = title_of(gain_figure(RECORDING.site("model.layers.11.input_layernorm"), text, LIGHT))
    assert "784" in middle
    assert "112" in middle
    assert "896" in title_of(start_figure(896, text, LIGHT))
    assert "328" in gain_alt(RECORDING.site("model.layers.0.input_layernorm"), text)


def test_a_figure_is_the_same_for_the_same_data_and_follows_the_theme() -> None:
    site = RECORDING.site("model.norm")
    make = {
        "gain": lambda p: gain_figure(site, words("zh"), p),
        "start": lambda p: start_figure(896, words("zh"), p),
        "loudness": lambda p: loudness_figure(GAINS, FOX, words("zh"), p, layer="3"),
        "features": lambda p: features_figure(GAINS, words("zh"), p, layer="3"),
        "response": lambda p: response_figure("plus_5", words("zh"), p),
        "shift": lambda p: shift_figure(common_shift(FOX), words("zh"), p),
    }
    for name, figure in make.items():
        assert figure(LIGHT).to_json() == figure(LIGHT).to_json(), name
        assert figure(DARK).layout.paper_bgcolor == DARK.ground, name
        assert figure(LIGHT).layout.height == figure(DARK).layout.height, name


def test_the_pictures_without_a_gain_refuse() -> None:
    without = dataclasses.replace(RECORDING.sites[0], gain=None, why_no_gain="a gate")
    with pytest.raises(ValueError, match="not known"):
        gain_figure(without, words("en"), LIGHT)
    with pytest.raises(ValueError, match="not known"):
        gain_table(without, words("en"))


def test_loudness_is_the_gains_rms_and_the_measured_output() -> None:
    told = loudness(GAINS.depth(), FOX)
    for i, site in enumerate(FOX.depth()):
        rms = REFERENCE["gains"][site.name]["rms"]
        assert told.even[i] == pytest.approx(np.sqrt(896) * rms, rel=1e-6)
        assert told.measured[i] == pytest.approx(np.median(site.output.l2))
    # lesson: 2.8 at layer 0, 20 to 84 in the layers after it, 166 after the final norm
    assert told.measured[0] == pytest.approx(2.8, abs=0.05)
    assert 19 < told.measured[1:-1].min() <= told.measured[1:-1].max() < 84
    assert told.measured[-1] == pytest.approx(167, abs=1)


def test_without_a_pass_only_the_gains_line_is_drawn() -> None:
    figure = loudness_figure(GAINS, None, words("en"), LIGHT)
    assert [trace.name for trace in figure.data] == [words("en").t("gain.loudness.even")]
    assert loudness(GAINS.depth(), None).shares.size == 0
    both = loudness_figure(GAINS, FOX, words("en"), LIGHT)
    assert [trace.name for trace in both.data][-1] == words("en").t("gain.loudness.measured")


def test_the_map_holds_the_gains_around_one() -> None:
    sites = GAINS.depth()
    loud = loudest_features(sites, FEATURES)
    figure = features_figure(GAINS, words("en"), LIGHT, layer="11")
    heat = figure.data[0]
    assert heat.zmin == -heat.zmax
    assert heat.zmax == pytest.approx(np.log2(np.abs(loud.gains).max()))
    z = np.asarray(heat.z, dtype=float)
    assert z.shape == (49, FEATURES)
    assert z.max() == pytest.approx(heat.zmax)
    unclipped = np.abs(np.log2(np.abs(loud.gains))) < heat.zmax
    assert z[unclipped] == pytest.approx(np.log2(np.abs(loud.gains))[unclipped])
    assert len(figure.data[1].x) == int((loud.gains < 0).sum())
    assert figure.layout.shapes[0].y0 == 21.5  # layer 11's two norms
    assert figure.layout.shapes[0].y1 == 23.5
    assert str(int(loud.features[np.abs(loud.gains).max(axis=0).argmax()])) in title_of(figure)
    assert str(FEATURES) in features_alt(GAINS, words("en"))


@LANGUAGE
@pytest.mark.parametrize("change", CHANGES)
def test_the_response_is_drawn_as_it_is_computed(lang: str, change: str) -> None:
    figure = response_figure(change, words(lang), LIGHT)
    by_norm = {"rms_norm": figure.data[:2], "layer_norm": figure.data[2:]}
    for norm, (after, before) in by_norm.items():
        told = respond(change, norm)
        assert len(after.y) == len(before.y) == SHOWN
        assert set(np.round(after.y, 9)) <= set(np.round(told.after, 9))
        assert set(np.round(before.y, 9)) <= set(np.round(told.before, 9))
        assert np.allclose(after.y, before.y, atol=1e-5) is bool(told.same)
    key = "layer_norm" if change == "plus_5" else "both"
    name = words(lang).t(f"scale.change.name.{change}")
    assert title_of(figure).replace(" ", "") == words(lang).t(
        f"scale.change.finding.{key}", change=name
    ).replace(" ", "")  # a line may end anywhere
    cells = response_table(change, words(lang))
    assert number(respond(change, "rms_norm").largest_change, 2) in cells
    assert name in response_alt(change, words(lang))


def test_before_the_answer_nothing_has_changed() -> None:
    figure = response_figure(None, words("en"), LIGHT)
    assert {trace.type for trace in figure.data} == {"scatter"}
    assert response_alt(None, words("en"))


def test_the_shift_is_shown_on_the_whole_of_what_is_possible() -> None:
    ratios = np.concatenate([common_shift(trace).ravel() for trace in RECORDING.traces.values()])
    figure = shift_figure(ratios, words("en"), LIGHT)
    centres, counts = bars(figure)
    assert counts.sum() == ratios.size
    assert (centres.min(), centres.max()) == (pytest.approx(0.01), pytest.approx(0.99))
    assert number(100 * float(ratios.max()), 2) in title_of(figure)
    broken = np.append(ratios, np.nan)
    assert bars(shift_figure(broken, words("en"), LIGHT))[1].sum() == ratios.size
    assert "nan" not in shift_alt(broken, words("en")).lower()


def test_the_table_of_scale_tells_29_88_from_29_93() -> None:
    depth = FOX.depth()
    html = scale_table((depth[0], depth[-1]), words("en"))
    assert "29.876" in html
    assert "29.933" in html
    assert f"{100 * float(np.median(depth[0].normalized_l2)) / np.sqrt(896):.3f}" in html


def test_gains_of_one_checkpoint_are_placed_like_its_trace() -> None:
    assert [site.name for site in GAINS.depth()] == [site.name for site in FOX.depth()]
    per_head = NormSite("q", 0, "query", "X", 64, 1e-6, "weight", np.ones(64, dtype=np.float32))
    more = dataclasses.replace(GAINS, sites=(*GAINS.sites, per_head))
    assert more.depth() == GAINS.depth()

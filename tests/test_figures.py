"""The figures: what is drawn is what was measured, by role, literally, and nothing jumps."""

from __future__ import annotations

import html
import itertools
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_probe.recording import load_recording
from model_probe.trace import NormTrace, Statistics, Token
from viz.chart import unbroken
from viz.figures.base import escaped_title, literal, title_of, token_label, visible, wrapped
from viz.figures.depth import DepthView, depth_alt, depth_figure, depth_title, growth
from viz.figures.heatmap import HeatmapView, cell_of, heatmap_figure
from viz.figures.published import own_growth, published_figure
from viz.figures.tokens import MAX_ROWS, TokensView, tokens_figure
from viz.reading import LINES, Reading, layers, sink_tokens, site_codes, sites_of
from viz.sources import published_growth
from viz.tables import contrast_table, contrasted, site_table
from viz.text import LANGUAGES, THIN_SPACE, number, words
from viz.theme import DARK, LIGHT

LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
PHONE_CHARS = 37  # half-widths of a title's line at 390 pixels
HOSTILE = (
    "<b>x</b><img src=x onerror=alert(1)>",
    "$\\frac12$",
    "[a](javascript:alert(1))",
    "`",
    "|",
    "%{x}",
    "&lt;",
)


@pytest.fixture(scope="module")
def fox() -> NormTrace:
    return load_recording().traces["fox"]


def with_tokens(trace: NormTrace, texts: list[str], special: bool = False) -> NormTrace:
    """The trace with other token texts at its first positions."""
    changed = [replace(t, text=text, special=special) for t, text in zip(trace.tokens, texts, strict=False)]
    return replace(trace, tokens=(*changed, *trace.tokens[len(changed) :]))


def with_nan(trace: NormTrace, at: int, token: int) -> NormTrace:
    """The trace with one token of one site that overflowed."""
    site = trace.sites[at]

    def spoilt(values: np.ndarray) -> np.ndarray:
        values = values.copy()
        values[token] = np.nan
        return values

    broken = replace(
        site,
        input=Statistics(*(spoilt(getattr(site.input, name)) for name in ("l2", "mean", "std", "abs_max"))),
        normalized_l2=spoilt(site.normalized_l2),
        output=Statistics(*(spoilt(getattr(site.output, name)) for name in ("l2", "mean", "std", "abs_max"))),
        non_finite=7,
    )
    return replace(trace, sites=(*trace.sites[:at], broken, *trace.sites[at + 1 :]))


def named(figure: go.Figure, name: str) -> object:
    return next(trace for trace in figure.data if trace.name == name)


def texts(figure: go.Figure) -> str:
    """Everything of the figure that plotly reads as its markup."""
    return json.dumps(json.loads(figure.to_json()), ensure_ascii=False)


def test_the_three_lines_are_the_medians_of_the_trace(fox: NormTrace) -> None:
    figure = depth_figure(fox, words("en"), LIGHT)
    for line, side in (("residual", "input"), ("output", "output")):
        medians = [np.median(getattr(site, side).l2) for site in fox.depth()]
        np.testing.assert_allclose(named(figure, line).y, medians, rtol=1e-6)
    np.testing.assert_allclose(
        named(figure, "normalized").y, [np.median(site.normalized_l2) for site in fox.depth()], rtol=1e-6
    )
    assert len(named(figure, "residual").x) == 49  # two norms in each of 24 layers, and the final one
    assert figure.layout.xaxis.ticktext[-1] == "final"
    assert figure.layout.xaxis.tickvals[-1] == 48


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_a_role_is_told_by_more_than_its_colour(fox: NormTrace, colours: object) -> None:
    figure = depth_figure(fox, words("en"), colours, DepthView(lines=(*LINES, "sink")))  # type: ignore[arg-type]
    residual, normalized, output, sink = (named(figure, n) for n in (*LINES, "sink"))
    assert (residual.line.dash, residual.marker.symbol) == ("solid", "circle")
    assert (normalized.line.dash, normalized.mode) == ("solid", "lines")
    assert (output.line.dash, output.marker.symbol) == ("dash", "diamond")
    assert (sink.line.dash, sink.marker.symbol) == ("dot", "star")
    assert residual.line.color == colours.residual  # type: ignore[attr-defined]
    reference = next(shape for shape in figure.layout.shapes if shape.type == "line")
    assert reference.y0 == pytest.approx(math.sqrt(896))
    assert reference.line.dash == "longdash"
    assert any("√896 = 29.93" in a.text for a in figure.layout.annotations)


def test_the_title_is_the_finding_and_is_computed(fox: NormTrace) -> None:
    assert title_of(depth_figure(fox, words("en"), LIGHT)) == (
        f"The residual grows {number(growth(fox, 'residual'))}-fold; the normalized input does not"
    )
    assert number(growth(fox, "residual")) == "187"  # lesson.md: measured on fox
    shrinking = replace(fox, sites=fox.sites[::-1])
    assert "shrinks" in depth_title(shrinking, words("en"))
    token = depth_title(fox, words("en"), Reading("token", 0))
    assert "“The”" in token
    assert number(growth(fox, "residual", Reading("token", 0))) in token


def test_a_mean_is_named_as_one(fox: NormTrace) -> None:
    figure = depth_figure(fox, words("en"), LIGHT, DepthView(reading=Reading("mean")))
    assert figure.layout.yaxis.title.text == "L2 per token (mean)"
    layer_4 = [site.name for site in fox.depth()].index("model.layers.4.input_layernorm")
    assert named(figure, "residual").y[layer_4] == pytest.approx(60, rel=0.02)  # lesson.md; the median is 12
    left_out = depth_figure(fox, words("en"), LIGHT, DepthView(reading=Reading("mean", sinks="left_out")))
    assert named(left_out, "residual").y[layer_4] == pytest.approx(12, rel=0.05)


def test_sinks_are_a_series_with_gaps_where_there_is_none(fox: NormTrace) -> None:
    line = named(depth_figure(fox, words("en"), LIGHT, DepthView(lines=("sink",))), "sink")
    assert line.connectgaps is False
    assert np.isnan(line.y[0])
    assert np.nanmax(line.y) == pytest.approx(980, rel=0.05)
    assert [token.position for token in sink_tokens(fox)] == [0]


@LANGUAGE
@pytest.mark.parametrize("axis", ["log", "linear"])
def test_no_nan_is_drawn_as_zero(fox: NormTrace, lang: str, axis: str) -> None:
    """Fault 14."""
    broken = with_nan(fox, at=10, token=3)
    figure = depth_figure(broken, words(lang), LIGHT, DepthView(axis=axis))
    for line in LINES:
        drawn = named(figure, words(lang).t(f"common.series.{line}"))
        assert np.isnan(drawn.y[10])
        assert drawn.connectgaps is False
        assert not (np.asarray(drawn.y) == 0).any()
    cross = named(figure, words(lang).t("figures.non_finite"))
    assert list(cross.x) == [10]
    assert broken.sites[10].name in cross.text[0]
    assert broken.sites[10].name in title_of(figure).replace(" ", "")
    bars = tokens_figure(broken, broken.sites[10], words(lang), LIGHT, TokensView(axis=axis))
    assert np.isnan(bars.data[0].x[3])
    assert list(named(bars, words(lang).t("figures.non_finite")).y) == [3]
    cells = heatmap_figure(broken, words(lang), LIGHT, HeatmapView())
    assert np.isnan(cells.data[0].z[10][3])
    crosses = named(cells, words(lang).t("figures.non_finite"))
    assert (list(crosses.x), list(crosses.y)) == ([3], [10])


def test_a_trace_of_nothing_finite_still_makes_figures(fox: NormTrace) -> None:
    nothing = fox
    for at, token in itertools.product(range(len(fox.sites)), range(len(fox.tokens))):
        nothing = with_nan(nothing, at, token)
    for axis in ("log", "linear"):
        depth_figure(nothing, words("en"), LIGHT, DepthView(axis=axis, lines=(*LINES, "sink")))
        tokens_figure(nothing, nothing.sites[0], words("en"), LIGHT, TokensView(axis=axis))
    heatmap_figure(nothing, words("en"), LIGHT, HeatmapView())


def test_one_token_and_one_layer_make_figures(fox: NormTrace) -> None:
    def first(statistics: Statistics) -> Statistics:
        return Statistics(*(getattr(statistics, n)[:1] for n in ("l2", "mean", "std", "abs_max")))

    sites = tuple(
        replace(s, input=first(s.input), normalized_l2=s.normalized_l2[:1], output=first(s.output))
        for s in (*fox.sites[:2], fox.sites[-1])
    )
    small = replace(fox, tokens=fox.tokens[:1], sites=sites)
    assert layers(small) == ("0", "final")
    depth_figure(small, words("en"), LIGHT)
    tokens_figure(small, small.sites[0], words("en"), LIGHT, TokensView())
    heatmap_figure(small, words("en"), LIGHT, HeatmapView(layer="0", token=0))
    assert contrasted(small, words("en"))[1].role == "final"


def test_the_same_data_gives_the_same_figure(fox: NormTrace) -> None:
    for make in (
        lambda: depth_figure(fox, words("zh"), DARK),
        lambda: tokens_figure(fox, fox.sites[8], words("zh"), DARK, TokensView()),
        lambda: heatmap_figure(fox, words("zh"), DARK, HeatmapView()),
    ):
        assert make().to_json() == make().to_json()


def test_nothing_jumps_when_another_series_is_shown(fox: NormTrace) -> None:
    """Fault 26: heights and ranges are those of the trace, not of what is shown of it."""
    shapes = set()
    for lines in (tuple(LINES), ("residual",), ("normalized", "sink"), ()):
        figure = depth_figure(fox, words("en"), LIGHT, DepthView(lines=lines))
        shapes.add((figure.layout.height, figure.layout.yaxis.range, figure.layout.margin.t))
    assert len(shapes) == 1
    for make in (
        lambda line: tokens_figure(fox, fox.sites[8], words("en"), LIGHT, TokensView(line)),
        lambda line: heatmap_figure(fox, words("en"), LIGHT, HeatmapView(line)),
    ):
        figures = [make(line) for line in LINES]
        assert len({(f.layout.height, f.layout.xaxis.range, f.layout.yaxis.range) for f in figures}) == 1
    scales = {
        (f.data[0].zmin, f.data[0].zmax)
        for f in (heatmap_figure(fox, words("en"), LIGHT, HeatmapView(x)) for x in LINES)
    }
    assert len(scales) == 1


@LANGUAGE
def test_token_text_is_never_markup(fox: NormTrace, lang: str) -> None:
    """Fault 20."""
    hostile = with_tokens(fox, list(HOSTILE))
    for figure in (
        depth_figure(hostile, words(lang), LIGHT, DepthView(lines=("sink",), reading=Reading("token", 0))),
        tokens_figure(hostile, hostile.sites[8], words(lang), LIGHT, TokensView()),
        heatmap_figure(hostile, words(lang), LIGHT, HeatmapView()),
    ):
        drawn = texts(figure)
        assert not re.search(r"<(?!/?b>|br>|extra>|/extra>)", drawn)
        assert "<b>x" not in drawn
        assert "$" not in drawn
        assert "%{x}" not in re.sub(r'"hovertemplate": "[^"]*"', "", drawn)
    labels = tokens_figure(hostile, hostile.sites[8], words(lang), LIGHT, TokensView()).layout.yaxis.ticktext
    for text, label in zip(HOSTILE, labels, strict=False):
        shown = html.unescape(label)
        assert visible(text).startswith(shown.rstrip("…"))


def test_control_tokens_and_blanks_can_be_seen(fox: NormTrace) -> None:
    """Faults 16 and 18."""
    assert token_label(Token(0, 1, "<|im_end|>", special=True)) == "⟦<|im_end|>⟧"
    assert token_label(Token(0, 1, "<|im_end|>", special=False)) == "<|im_end|>"
    assert visible("  \n\t\u200d\u00a0") == "␣␣⏎⇥<U+200D><U+00A0>"
    assert visible("我🙂naïve<0xF0>") == "我🙂naïve<0xF0>"
    marked = with_tokens(fox, ["<|im_end|>"], special=True)
    bars = tokens_figure(marked, marked.sites[0], words("en"), LIGHT, TokensView())
    assert html.unescape(bars.layout.yaxis.ticktext[0]) == "⟦<|im_end|>⟧"
    assert words("en").t("figures.control") in bars.data[0].customdata[0]


def test_bars_are_the_tokens_numbers_and_sinks_are_hatched(fox: NormTrace) -> None:
    site = fox.site("model.layers.4.input_layernorm")
    bars = tokens_figure(fox, site, words("en"), LIGHT, TokensView(token=3)).data[0]
    np.testing.assert_allclose(bars.x, site.input.l2, rtol=1e-6)
    assert bars.marker.pattern.shape[0] == "/"
    assert set(bars.marker.pattern.shape[1:]) == {""}
    assert bars.marker.color[0] == LIGHT.sink
    assert [i for i, width in enumerate(bars.marker.line.width) if width] == [3]


def test_a_long_prompt_stands_as_columns_with_thinned_labels() -> None:
    paragraph = load_recording().traces["paragraph"]
    assert len(paragraph.tokens) > MAX_ROWS
    figure = tokens_figure(paragraph, paragraph.sites[0], words("en"), LIGHT, TokensView())
    assert len(figure.data[0].y) == len(paragraph.tokens)
    assert len(figure.layout.xaxis.ticktext) <= 20
    assert figure.layout.height < 600


def test_every_cell_of_the_map_can_be_clicked(fox: NormTrace) -> None:
    figure = heatmap_figure(fox, words("en"), LIGHT, HeatmapView(layer="4", token=3))
    cells = named(figure, "cells")
    assert len(cells.x) == 49 * len(fox.tokens)
    clicked = {cell_of(fox, {"x": float(x), "y": float(y)}) for x, y in zip(cells.x, cells.y, strict=True)}
    assert len(clicked) == 49 * len(fox.tokens)
    assert cell_of(fox, {"x": 5, "y": 0}) == ("model.layers.0.input_layernorm", "0", 5)
    assert cell_of(fox, {"x": 5, "y": 48}) == ("model.norm", "final", 5)
    for nowhere in ({}, {"x": 99, "y": 0}, {"x": 0, "y": -4}, {"x": "a", "y": 0}):
        assert cell_of(fox, nowhere) is None  # type: ignore[arg-type]
    np.testing.assert_allclose(
        10 ** np.asarray(figure.data[0].z[8]), fox.site("model.layers.4.input_layernorm").input.l2, rtol=1e-5
    )


@LANGUAGE
def test_titles_fit_a_phone(lang: str) -> None:
    for trace in load_recording().traces.values():
        figures = [depth_figure(trace, words(lang), LIGHT)]
        figures += [heatmap_figure(trace, words(lang), LIGHT, HeatmapView(line)) for line in LINES]
        figures += [
            tokens_figure(trace, site, words(lang), LIGHT, TokensView(line))
            for line in LINES
            for site in (trace.sites[0], trace.sites[-1])
        ]
        for figure in figures:
            lines = wrapped(escaped_title(figure), PHONE_CHARS).split("<br>")
            assert len(lines) <= 2  # what viz/style.css keeps room for
            assert max(len(html.unescape(line)) for line in lines) <= PHONE_CHARS


def test_labels_at_the_ends_of_curves_do_not_lie_on_each_other() -> None:
    for trace in load_recording().traces.values():
        for axis in ("log", "linear"):
            figure = depth_figure(trace, words("en"), LIGHT, DepthView(lines=(*LINES, "sink"), axis=axis))
            plot = figure.layout.height - figure.layout.margin.t - figure.layout.margin.b
            ends = sorted(a.y * plot for a in figure.layout.annotations)
            assert len(ends) >= 4
            assert min(b - a for a, b in itertools.pairwise(ends)) >= 16


@LANGUAGE
def test_the_alternative_text_says_where_each_line_begins_and_ends(fox: NormTrace, lang: str) -> None:
    alt = depth_alt(fox, words(lang))
    for line in LINES:
        values = Reading().line(fox, line)
        assert number(values[0], 4) in alt
        assert number(values[-1], 4) in alt
    assert "<" not in alt


@given(st.text(alphabet="ab .,;层归一化，。：<&$\u202f", max_size=120))
def test_wrapping_loses_nothing_and_keeps_to_the_width(text: str) -> None:
    escaped = literal(text)
    lines = wrapped(escaped, 20).split("<br>")
    assert "".join(lines).replace(" ", "") == escaped.replace(" ", "")


@pytest.mark.parametrize(
    ("title", "kept"),
    [("残差涨到 187 倍", "187\u00a0倍"), ("第 22 层", "第\u00a022\u00a0层"), ("22 times the median", "22\u00a0times"),
     ("grows 187-fold", "187-\u2060fold")],
)  # fmt: skip
def test_a_title_keeps_a_number_with_what_it_counts(title: str, kept: str) -> None:
    assert kept in unbroken(title)


class Cells(HTMLParser):
    """The text of a table's numbers by their data-figure, and all of its text."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.figures: dict[str, list[str]] = {}
        self.text = ""
        self.tags: set[str] = set()
        self._figure: str | None = None
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "td":
            self._figure = dict(attrs).get("data-figure")
            if self._figure:
                self.figures.setdefault(self._figure, []).append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self._figure = None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._figure:
            self.figures[self._figure][-1] += data


@LANGUAGE
def test_the_layers_table_holds_the_numbers_of_its_sites(fox: NormTrace, lang: str) -> None:
    sites = sites_of(fox, "4")
    table = Cells(site_table(fox, sites, words(lang), Reading()))
    for i, site in enumerate(sites):
        assert site.name in table.text
        assert site.class_name in table.text
        for side, statistics in (("input", site.input), ("output", site.output)):
            for name in ("l2", "mean", "std", "abs_max"):
                want = number(float(np.median(getattr(statistics, name))), 4)
                assert table.figures[f"{side}.{name}"][i] == want
        assert table.figures["normalized.l2"][i] == number(float(np.median(site.normalized_l2)), 4)
        rms = np.median(np.sqrt(site.input.l2.astype(float) ** 2 / 896 + site.eps))
        assert table.figures["input.rms"][i] == number(float(rms), 4)
    mean = Cells(site_table(fox, sites, words(lang), Reading("mean", sinks="left_out")))
    assert mean.figures["input.l2"][0] == number(float(np.mean(sites[0].input.l2[1:])), 4)


def test_the_table_shows_a_checkpoints_names_letter_for_letter(fox: NormTrace) -> None:
    """Fault 20."""
    site = replace(fox.sites[0], name="model.<script>alert(1)</script>", class_name="<i>&amp;</i>")
    table = Cells(site_table(with_tokens(fox, ["<u>|</u>"]), [site], words("en"), Reading("token", 0)))
    assert table.tags <= {"div", "table", "caption", "thead", "tbody", "tr", "td", "th", "wbr"}
    assert "model.<script>alert(1)</script>" in table.text
    assert "<u>|</u>" in table.text


@LANGUAGE
def test_the_exercise_veils_its_answer(fox: NormTrace, lang: str) -> None:
    first, later, names = contrasted(fox, words(lang))
    assert (first.name, later.name) == ("model.layers.0.input_layernorm", "model.layers.22.input_layernorm")
    veiled = Cells(contrast_table(first, later, words(lang), names, "veiled"))
    shown = Cells(contrast_table(first, later, words(lang), names, "shown"))
    assert all(cells[1:] == ["?", "?"] for cells in veiled.figures.values())
    medians = {line: cells[:2] for line, cells in shown.figures.items()}
    # lesson.md §7, measured on fox
    assert [float(x) for x in medians["exercise.residual"]] == pytest.approx([0.48, 76.5], rel=0.01)
    assert [float(x) for x in medians["exercise.output"]] == pytest.approx([2.8, 47.6], rel=0.02)
    assert medians["exercise.normalized"] == ["29.88", "29.93"]


def test_sites_of_a_layer_are_told_apart(fox: NormTrace) -> None:
    assert list(site_codes(sites_of(fox, "4"))) == ["input_layernorm", "post_attention_layernorm"]
    twice = (replace(fox.sites[0], name="a.norm"), replace(fox.sites[0], name="b.norm"))
    assert list(site_codes(twice)) == ["a.norm", "b.norm"]


def test_numbers_in_bars_use_the_pages_thin_space(fox: NormTrace) -> None:
    big = replace(fox, sites=tuple(replace(s, normalized_l2=s.normalized_l2 * 1000) for s in fox.sites))
    bars = tokens_figure(big, big.sites[0], words("en"), LIGHT, TokensView("normalized"))
    assert THIN_SPACE in bars.data[0].text[0]


@LANGUAGE
def test_published_growth_stands_beside_the_same_statistic_of_the_open_checkpoint(
    fox: NormTrace, lang: str
) -> None:
    first, last = fox.site("model.layers.0.input_layernorm"), fox.site("model.layers.23.input_layernorm")
    rms = [math.sqrt(np.mean(np.square(site.input.l2.astype(float)))) for site in (first, last)]
    assert own_growth(fox) == pytest.approx(rms[1] / rms[0], rel=1e-6)
    figure = published_figure(fox, words(lang), LIGHT)
    reported, own = (
        named(figure, words(lang).t("published.reported")),
        named(figure, words(lang).t("published.own")),
    )
    assert sorted(reported.x) == [cited.value for cited in published_growth()]
    assert own.marker.symbol != reported.marker.symbol
    np.testing.assert_allclose(own.x, [own_growth(fox)])
    rows = figure.layout.yaxis.ticktext
    assert rows[own.y[0]] == f"<b>{fox.checkpoint.name}</b>"
    placed = sorted([*zip(reported.y, reported.x, strict=True), (own.y[0], own.x[0])])
    assert [value for _, value in placed] == sorted(value for _, value in placed)
    assert number(own_growth(fox)) in title_of(figure)
    broken = published_figure(with_nan(fox, at=0, token=0), words(lang), LIGHT)
    assert len(broken.layout.yaxis.ticktext) == len(published_growth())

"""Compare: what two traces are called, where they can be compared, and what chart, map and table draw of both."""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from test_figures import HOSTILE, Cells, texts, with_nan, with_tokens

from model_probe.recording import load_recording
from model_probe.trace import NormTrace
from viz.compare import Pair, beginning, beginnings
from viz.figures.base import title_of
from viz.figures.depth import DepthView, depth_alt, depth_figure
from viz.figures.difference import difference_alt, difference_figure, difference_title, scale_end
from viz.figures.heatmap import HeatmapView, heatmap_figure
from viz.reading import LINES, Reading, sites_of
from viz.tables import pair_site_table
from viz.text import LANGUAGES, number, words
from viz.theme import DARK, LIGHT

LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
EN = words("en")


@pytest.fixture(scope="module")
def fox() -> NormTrace:
    return load_recording().traces["fox"]


@pytest.fixture(scope="module")
def river() -> NormTrace:
    return load_recording().traces["river"]


def scaled(trace: NormTrace, factor: float) -> NormTrace:
    """The trace with what goes into every norm made longer."""
    sites = tuple(replace(s, input=replace(s.input, l2=s.input.l2 * np.float32(factor))) for s in trace.sites)
    return replace(trace, sites=sites, checkpoint=replace(trace.checkpoint, dtype="bfloat16"))


def shallow(trace: NormTrace, layers: int = 6, hidden_size: int = 400) -> NormTrace:
    """The trace of a smaller checkpoint: the first layers and the final norm, of another width."""
    sites = tuple(s for s in trace.sites if s.layer is None or s.layer < layers)
    info = replace(
        trace.checkpoint, name="smaller", digest="0" * 64, hidden_size=hidden_size, num_layers=layers
    )
    return replace(trace, checkpoint=info, sites=tuple(replace(s, size=hidden_size) for s in sites))


def drawn(figure: go.Figure, name: str) -> object:
    return next(trace for trace in figure.data if trace.name == name)


# names


def test_a_name_is_what_differs(fox: NormTrace, river: NormTrace) -> None:
    assert Pair(fox, river).names(EN) == ("“The quick brown fox jumps …”", "“The river flows softly …”")
    assert Pair(fox, scaled(fox, 2)).names(EN) == ("float32", "bfloat16")
    other = shallow(river)
    assert Pair(fox, other).names(EN)[1] == "“The river flows softly …” · smaller"
    twin = replace(fox, checkpoint=replace(fox.checkpoint, digest="abcdef0123"))
    assert Pair(fox, twin).names(EN)[1] == f"{fox.checkpoint.name} abcdef01"


@LANGUAGE
def test_the_same_measured_twice_is_told_by_its_source(fox: NormTrace, lang: str) -> None:
    again = replace(fox, checkpoint=replace(fox.checkpoint, recorded_at="2031-02-03T04:05:06+00:00"))
    a, b = Pair(fox, again, ("recording", "live")).names(words(lang))
    assert (a, b) == (words(lang).t("compare.origin.recording"), words(lang).t("compare.origin.live"))
    assert Pair(fox, again, ("live", "live")).names(words(lang))[1] == "2031-02-03T04:05:06"
    a, b = Pair(fox, replace(fox), ("live", "live")).names(words(lang))
    assert a == b
    assert a  # nothing differs, and it has a name all the same


def test_prompts_that_begin_alike_are_told_by_their_first_difference() -> None:
    a, b = beginnings("word " * 50 + "ends here", "word " * 50 + "goes on", EN)
    assert "ends" in a
    assert "goes" in b
    assert a != b
    assert beginning("a\n\u202eb" + "x" * 99).startswith("a⏎<U+202E>b")


# where they can be compared


def test_the_second_lies_on_the_firsts_axis(fox: NormTrace, river: NormTrace) -> None:
    same = Pair(fox, river)
    assert not same.is_stretched
    np.testing.assert_array_equal(same.along(), np.arange(49))
    other = Pair(fox, shallow(fox))
    assert other.is_stretched
    assert len(other.along()) == 13
    assert (other.along()[0], other.along()[-1]) == (0, 48)
    assert Pair(shallow(fox), fox).along()[-1] == 12
    one = replace(fox, sites=fox.sites[-1:])
    np.testing.assert_array_equal(Pair(fox, one).along(), [48])


def test_a_counterpart_is_the_norm_of_the_same_layer_and_role(fox: NormTrace) -> None:
    pair = Pair(fox, shallow(fox))
    for site in fox.sites:
        other = pair.counterpart(site)
        if site.layer is not None and site.layer >= 6:
            assert other is None
        else:
            assert other is not None
            assert (other.layer, other.role) == (site.layer, site.role)
    renamed = replace(
        fox, sites=tuple(replace(s, name=f"other.{i}") for i, s in enumerate(fox.sites))
    )  # another architecture's names
    assert Pair(fox, renamed).counterpart(fox.sites[3]) is renamed.sites[3]
    assert pair.has_layer("5")
    assert not pair.has_layer("6")


def test_only_the_same_tokens_at_the_same_norms_have_a_ratio(fox: NormTrace, river: NormTrace) -> None:
    assert Pair(fox, scaled(fox, 2)).unlike() is None
    assert Pair(fox, river).unlike() == "tokens"
    assert Pair(fox, shallow(fox)).unlike() == "sites"
    for unlike in (river, shallow(fox)):
        with pytest.raises(ValueError, match="other"):
            Pair(fox, unlike).ratios("residual")
    np.testing.assert_allclose(Pair(fox, scaled(fox, 2)).ratios("residual"), 2, rtol=1e-6)
    np.testing.assert_allclose(Pair(fox, scaled(fox, 2)).ratios("output"), 1)


# the chart


@LANGUAGE
@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_the_seconds_lines_lie_over_the_firsts(
    fox: NormTrace, river: NormTrace, lang: str, colours: object
) -> None:
    view = DepthView(lines=(*LINES, "sink"))
    figure = depth_figure(fox, words(lang), colours, view, Pair(fox, river))  # type: ignore[arg-type]
    for role in (*LINES, "sink"):
        name = words(lang).t(f"common.series.{role}")
        a, b = drawn(figure, f"{name} A"), drawn(figure, f"{name} B")
        assert a.line.color == b.line.color == colours.role(role)  # type: ignore[attr-defined]
        assert b.line.width < a.line.width
        assert b.line.dash not in ("solid", a.line.dash)
        if role in LINES:
            np.testing.assert_allclose(a.y, Reading().line(fox, role))
            np.testing.assert_allclose(b.y, Reading().line(river, role))
    said = [html.unescape(a.text) for a in figure.layout.annotations]
    for mark, name in zip("AB", Pair(fox, river).names(words(lang)), strict=True):
        assert f"<b>{mark}</b> {name}" in said
    assert sum("√896" in text for text in said) == 1
    finding = title_of(figure)
    assert number(Reading().line(river, "residual")[-1] / Reading().line(river, "residual")[0]) in finding
    assert figure.layout.height == depth_figure(fox, words(lang), LIGHT).layout.height


def test_another_depth_and_width_are_stretched_and_said(fox: NormTrace) -> None:
    figure = depth_figure(fox, EN, LIGHT, pair=Pair(fox, shallow(fox)))
    assert figure.layout.xaxis.title.text == EN.t("compare.depth.x_stretched")
    b = drawn(figure, "residual B")
    assert len(b.x) == 13
    assert (b.x[0], b.x[-1]) == (0, 48)
    roots = [a.text for a in figure.layout.annotations if "√" in a.text]
    assert sorted(roots) == ["√400 = 20.00", "√896 = 29.93"]


@LANGUAGE
@pytest.mark.parametrize("axis", ["log", "linear"])
def test_the_axis_holds_both(fox: NormTrace, lang: str, axis: str) -> None:
    big = scaled(fox, 1000)
    figure = depth_figure(fox, words(lang), LIGHT, DepthView(axis=axis), Pair(fox, big))
    top = figure.layout.yaxis.range[1]
    most = Reading().line(big, "residual").max()
    assert top >= (math.log10(most) if axis == "log" else most)


@pytest.mark.parametrize("axis", ["log", "linear"])
def test_no_nan_of_the_second_is_drawn_as_zero(fox: NormTrace, axis: str) -> None:
    """Fault 14."""
    broken = with_nan(fox, at=10, token=3)
    figure = depth_figure(fox, EN, LIGHT, DepthView(axis=axis), Pair(fox, broken))
    for line in LINES:
        b = drawn(figure, f"{line} B")
        assert np.isnan(b.y[10])
        assert b.connectgaps is False
        assert not (np.asarray(b.y) == 0).any()
    assert list(drawn(figure, "not finite B").x) == [10]
    assert "In B" in title_of(figure)
    cells = difference_figure(Pair(fox, broken), EN, LIGHT, HeatmapView())
    z = np.asarray(cells.data[0].z, dtype=float)
    assert np.isnan(z[10][3])
    assert np.isnan(z).sum() == 1
    crosses = drawn(cells, "not finite")
    assert (list(crosses.x), list(crosses.y)) == ([3], [10])
    assert "1 cell" in title_of(cells)


def test_a_token_that_the_second_has_not_makes_no_line(fox: NormTrace, river: NormTrace) -> None:
    long, short = sorted((fox, river), key=lambda trace: -len(trace.tokens))
    reading = Reading("token", len(long.tokens) - 1)
    pair = Pair(
        long, short if len(short.tokens) < len(long.tokens) else replace(short, tokens=short.tokens[:-1])
    )
    cut = tuple(
        replace(
            s,
            input=replace(s.input, l2=s.input.l2[:3]),
            normalized_l2=s.normalized_l2[:3],
            output=replace(s.output, l2=s.output.l2[:3]),
        )
        for s in river.sites
    )
    pair = Pair(long, replace(river, tokens=river.tokens[:3], sites=cut))
    assert not pair.has_token(reading)
    assert pair.has_token(Reading("token", 2))
    assert pair.has_token(Reading())
    figure = depth_figure(long, EN, LIGHT, DepthView(reading=reading), pair)
    assert np.isnan(np.asarray(drawn(figure, "residual B").y, dtype=float)).all()
    assert np.isfinite(np.asarray(drawn(figure, "residual A").y, dtype=float)).all()


@LANGUAGE
def test_the_alternative_text_tells_both(fox: NormTrace, river: NormTrace, lang: str) -> None:
    pair = Pair(fox, river)
    alt = depth_alt(fox, words(lang), pair=pair)
    for trace, name in zip((fox, river), pair.names(words(lang)), strict=True):
        assert name in alt
        assert depth_alt(trace, words(lang)) in alt
    told = difference_alt(Pair(fox, scaled(fox, 2)), words(lang), "residual")
    assert "float32" in told
    assert "bfloat16" in told
    assert "2.00" in told


@LANGUAGE
def test_nothing_of_a_trace_is_markup(fox: NormTrace, lang: str) -> None:
    """Fault 20."""
    hostile = with_tokens(fox, list(HOSTILE))
    hostile = replace(
        hostile,
        prompt="".join(HOSTILE),
        checkpoint=replace(fox.checkpoint, name="<img src=x>$x$", dtype="<b>", device="%{x}"),
    )
    pair = Pair(fox, hostile)
    second = replace(hostile, tokens=hostile.tokens)
    same = Pair(hostile, replace(scaled(second, 2), checkpoint=replace(fox.checkpoint, dtype="<i>$")))
    for figure in (
        depth_figure(fox, words(lang), LIGHT, DepthView(lines=("sink",)), pair),
        difference_figure(same, words(lang), LIGHT, HeatmapView()),
    ):
        markup = texts(figure)
        assert not re.search(r"<(?!/?b>|br>|extra>|/extra>)", markup)
        assert "$" not in markup
        assert "%{x}" not in re.sub(r'"hovertemplate": "[^"]*"', "", markup)


# the map


@LANGUAGE
@pytest.mark.parametrize("line", LINES)
def test_the_difference_is_doublings_about_one(fox: NormTrace, lang: str, line: str) -> None:
    pair = Pair(fox, scaled(fox, 3))
    figure = difference_figure(pair, words(lang), LIGHT, HeatmapView(line, layer="4", token=2))
    cells = figure.data[0]
    assert cells.zmin == -cells.zmax
    z = np.asarray(cells.z, dtype=float)
    assert z.shape == (49, len(fox.tokens))
    np.testing.assert_allclose(z, math.log2(3) if line == "residual" else 0, atol=1e-6)
    assert np.abs(z).max() <= cells.zmax
    wanted = [list(stop) for stop in LIGHT.diverging()]
    assert [list(stop) for stop in cells.colorscale] == wanted
    assert words(lang).t("compare.map.equal") in cells.colorbar.ticktext
    if line == "residual":
        assert "3.00" in title_of(figure)
        tooltip = drawn(figure, "cells").text[0]
        assert number(float(fox.sites[0].input.l2[0]), 4) in tooltip
        assert number(3 * float(fox.sites[0].input.l2[0]), 4) in tooltip
    else:
        name = words(lang).t(f"common.series.{line}").capitalize()
        assert title_of(figure) == words(lang).t("compare.map.alike", line=name)
    plain = heatmap_figure(fox, words(lang), LIGHT, HeatmapView(line))
    assert figure.layout.height == plain.layout.height
    assert figure.layout.margin == plain.layout.margin
    assert figure.layout.yaxis.range == plain.layout.yaxis.range


def test_a_zero_has_no_ratio_and_no_cross(fox: NormTrace) -> None:
    l2 = fox.sites[0].input.l2.copy()
    l2[1] = 0
    zero = replace(
        fox, sites=(replace(fox.sites[0], input=replace(fox.sites[0].input, l2=l2)), *fox.sites[1:])
    )
    figure = difference_figure(Pair(fox, zero), EN, LIGHT, HeatmapView())
    assert np.isnan(figure.data[0].z[0][1])
    assert not [trace for trace in figure.data if trace.name == "not finite"]


def test_the_scale_ends_at_a_round_factor() -> None:
    assert scale_end(np.array([1.0, 1.0001])) == 1.01
    assert scale_end(np.array([1 / 3, 1.5])) == 4
    assert scale_end(np.array([np.nan])) == 1.01
    assert scale_end(np.array([1e30])) == 2**24


def test_a_and_b_have_one_colour_scale(fox: NormTrace) -> None:
    other = scaled(fox, 100)
    a = heatmap_figure(fox, EN, LIGHT, HeatmapView(), beside=other)
    b = heatmap_figure(other, EN, LIGHT, HeatmapView(), beside=fox)
    assert (a.data[0].zmin, a.data[0].zmax) == (b.data[0].zmin, b.data[0].zmax)
    assert a.data[0].zmax > heatmap_figure(fox, EN, LIGHT, HeatmapView()).data[0].zmax


@LANGUAGE
def test_titles_fit_a_phone(fox: NormTrace, river: NormTrace, lang: str) -> None:
    from test_figures import PHONE_CHARS

    from viz.figures.base import wrapped

    pairs = [Pair(fox, river), Pair(fox, scaled(fox, 3)), Pair(river, shallow(fox))]
    titles = [depth_figure(p.first, words(lang), LIGHT, pair=p).layout.meta["title"] for p in pairs]
    titles += [difference_title(pairs[1], words(lang), line) for line in LINES]
    for title in titles:
        assert len(wrapped(title, PHONE_CHARS).split("<br>")) <= 2, title


def test_the_same_pair_gives_the_same_figures(fox: NormTrace) -> None:
    pair = Pair(fox, scaled(fox, 2))
    for make in (
        lambda: depth_figure(fox, words("zh"), DARK, pair=pair),
        lambda: difference_figure(pair, words("zh"), DARK, HeatmapView()),
    ):
        assert make().to_json() == make().to_json()


def test_everything_not_finite_still_makes_figures(fox: NormTrace) -> None:
    nothing = replace(
        fox,
        sites=tuple(
            replace(s, input=replace(s.input, l2=np.full_like(s.input.l2, np.nan)), non_finite=9)
            for s in fox.sites
        ),
    )
    pair = Pair(fox, nothing)
    depth_figure(fox, EN, LIGHT, DepthView(lines=(*LINES, "sink")), pair)
    figure = difference_figure(pair, EN, LIGHT, HeatmapView())
    assert np.isnan(np.asarray(figure.data[0].z, dtype=float)).all()
    json.loads(figure.to_json())


# the table


@LANGUAGE
def test_the_table_holds_both_and_their_ratio(fox: NormTrace, lang: str) -> None:
    second = scaled(fox, 2)
    sites = sites_of(fox, "4")
    table = Cells(pair_site_table(Pair(fox, second), sites, words(lang), Reading()))
    for i, site in enumerate(sites):
        l2 = float(np.median(site.input.l2))
        assert table.figures["input.l2"][i] == number(l2, 4)
        assert table.figures["input.l2.second"][i] == number(2 * l2, 4)
        assert table.figures["input.l2.ratio"][i] == "2.00"
        assert table.figures["output.l2.ratio"][i] == "1.00"
        assert site.name in table.text
    assert table.figures["input.mean.ratio"][0] in ("—", "1.00")
    assert "<wbr>" not in table.text


def test_a_norm_that_the_second_has_not_is_a_dash(fox: NormTrace) -> None:
    pair = Pair(fox, shallow(fox))
    table = Cells(pair_site_table(pair, sites_of(fox, "20"), EN, Reading()))
    assert set(table.figures["input.l2.second"]) == set(table.figures["input.l2.ratio"]) == {"—"}
    there = Cells(pair_site_table(pair, sites_of(fox, "2"), EN, Reading()))
    assert "—" not in there.figures["input.l2.second"]
    assert "400" in there.text  # features: another width is told beside the first's


@LANGUAGE
def test_a_token_only_the_first_has_is_said_in_the_table(fox: NormTrace, lang: str) -> None:
    short = replace(fox, tokens=fox.tokens[:2])
    table = Cells(pair_site_table(Pair(fox, short), fox.sites[:1], words(lang), Reading("token", 5)))
    assert words(lang).t("compare.table.no_token", position=5) in table.text


def test_a_ratio_of_nothing_or_of_signs_is_a_dash(fox: NormTrace) -> None:
    site = fox.sites[0]
    flipped = replace(
        fox, sites=(replace(site, input=replace(site.input, mean=-site.input.mean)), *fox.sites[1:])
    )
    table = Cells(pair_site_table(Pair(fox, flipped), (site,), EN, Reading()))
    assert table.figures["input.mean.ratio"] == ["—"]
    assert table.figures["input.l2.ratio"] == ["1.00"]

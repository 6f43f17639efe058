"""Pictures of the intervention experiments: curves over a factor, over layers, over tokens; a head's attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from model_probe.illustrations import SCORES, UNIT_L2, attention_at
from model_probe.outcome import Outcome, SiteMedians
from model_probe.trace import RESIDUAL_ROLES, Token
from viz.effects import called, kl_by_layer, non_finite
from viz.figures.base import (
    LABEL_SIZE,
    TICK_SIZE,
    colour_bar,
    corner_label,
    frame,
    literal,
    site_title,
    title_of,
    token_label,
    unescaped,
)
from viz.text import Words, number
from viz.theme import Palette

HEIGHT: Final = 420
_ROW: Final = 44  # pixels of a bar
_LARGEST: Final = 1e12  # perplexity at which the bars end; the number stands beside them
_FLOOR_KL: Final = 1e-4
_TOKEN_TICKS: Final = 24
_TOKEN_CHARS: Final = 10
_FACTORS: Final = (1 / 32, 1 / 8, 1 / 2, 1, 2, 4, 8, 16)


def sharpness_figure(
    by_factor: Mapping[float, Outcome], chosen: float, words: Words, palette: Palette
) -> go.Figure:
    """Entropy and Jacobian, and under them perplexity, against the factor of the attention logits; 1 is untouched."""
    figure = frame(
        literal(sharpness_title(by_factor, chosen, words)), palette, height=460, left=52, bottom=48, above=22
    )
    factors = sorted(by_factor)
    for name, style in _ATTENTION_STYLES.items():
        _line(
            figure, factors, [getattr(by_factor[k], f"mean_{name}") for k in factors],
            name=words.t(f"release.axis.{name}"), colour=getattr(palette, style[0]), dash=style[1], symbol=style[2],
        )  # fmt: skip
        end = getattr(by_factor[factors[0]], f"mean_{name}")
        if math.isfinite(end):
            _label(
                figure,
                words.t(f"release.axis.{name}"),
                (factors[0], end),
                getattr(palette, style[0]),
                log_x=True,
            )
    perplexities = [by_factor[k].perplexity for k in factors]
    _line(
        figure, factors, perplexities, name=words.t("release.axis.perplexity"), colour=palette.careful,
        dash="solid", symbol="square", axis="2",
    )  # fmt: skip
    x = {
        **figure.layout.xaxis.to_plotly_json(),
        "type": "log",
        "range": [math.log10(factors[0]) - 0.06, math.log10(factors[-1]) + 0.06],
        "tickvals": factors,
        "ticktext": [f"×{k:g}" for k in factors],
    }
    title = {**figure.layout.xaxis.title.to_plotly_json(), "text": words.t("release.axis.logits")}
    y = figure.layout.yaxis.to_plotly_json()
    low, high = _decades(perplexities)
    figure.update_layout(
        xaxis={**x, "anchor": "y", "showticklabels": False},
        yaxis={**y, "domain": [0.44, 1.0], "range": [0, 1], "tickvals": [0, 0.25, 0.5, 0.75, 1]},
        xaxis2={**x, "anchor": "y2", "title": title},
        yaxis2={
            **y,
            "domain": [0.0, 0.30],
            "anchor": "x2",
            "type": "log",
            "range": [low, high],
            **_powers(low, high),
        },
    )
    _panel_name(figure, words.t("release.axis.attention"), 1.0, palette)
    _panel_name(figure, words.t("release.axis.perplexity"), 0.30, palette)
    for k, dash, colour in ((1.0, "longdash", palette.reference), (chosen, "solid", palette.accent)):
        figure.add_shape(
            type="line", x0=k, x1=k, xref="x", y0=0, y1=1, yref="paper", layer="below",
            line={"color": colour, "width": 1.4, "dash": dash},
        )  # fmt: skip
    return figure


_ATTENTION_STYLES: Final = {  # as on the page `saturation`
    "entropy": ("reference", "solid", "circle"),
    "jacobian": ("text", "dash", "diamond"),
}


def sharpness_title(by_factor: Mapping[float, Outcome], chosen: float, words: Words) -> str:
    """The finding: what the chosen factor does to entropy and perplexity."""
    if chosen not in by_factor or 1.0 not in by_factor:
        return words.t("release.finding.waiting")
    before, after = by_factor[1.0], by_factor[chosen]
    return words.t(
        "release.finding.sharpness" if chosen != 1 else "release.finding.sharpness_untouched",
        k=f"{chosen:g}",
        entropy=_figure(before.mean_entropy, words),
        entropy_after=_figure(after.mean_entropy, words),
        perplexity=_figure(before.perplexity, words),
        perplexity_after=_figure(after.perplexity, words),
    )


def beside_figure(by_factor: Mapping[float, Outcome], words: Words, palette: Palette) -> go.Figure:
    """The illustration's six scores and the real model's attention on one axis: the factor of the logits."""
    lines = np.geomspace(_FACTORS[0], _FACTORS[-1], 91)
    figure = frame(
        literal(beside_title(by_factor, words)), palette, height=HEIGHT + 40, left=46, bottom=48, above=84
    )
    drawn = [attention_at(float(k * UNIT_L2)) for k in lines]
    factors = sorted(by_factor)
    for name, (colour, _, symbol) in _ATTENTION_STYLES.items():
        at = [each.entropy_share if name == "entropy" else each.jacobian for each in drawn]
        label = words.t(f"release.axis.{name}")
        _line(
            figure, list(lines), at, name=words.t("release.beside.illustration", name=label),
            colour=getattr(palette, colour), dash="dot", symbol=None,
        )  # fmt: skip
        _line(
            figure, factors, [getattr(by_factor[k], f"mean_{name}") for k in factors],
            name=words.t("release.beside.measured", name=label), colour=palette.accent if name == "entropy" else palette.careful,
            dash="solid", symbol=symbol,
        )  # fmt: skip
    figure.update_xaxes(
        type="log",
        range=[math.log10(_FACTORS[0]), math.log10(_FACTORS[-1])],
        tickvals=list(_FACTORS),
        ticktext=[f"×{k:g}" if k >= 0.5 else f"×1/{round(1 / k)}" for k in _FACTORS],
        title_text=words.t("release.axis.logits"),
    )
    figure.update_yaxes(range=[0, 1.06], tickvals=[0, 0.5, 1])
    _legend(figure, palette, rows=4)
    return figure


def beside_title(by_factor: Mapping[float, Outcome], words: Words) -> str:
    """The finding: real attention is sharpened by the factor of its logits as the illustration's is."""
    least, most = min(by_factor), max(by_factor)
    return words.t(
        "release.beside.title",
        least=f"{least:g}",
        most=f"{most:g}",
        entropy=number(by_factor[least].mean_entropy, 2),
        entropy_after=number(by_factor[most].mean_entropy, 2),
    )


def beside_alt(by_factor: Mapping[float, Outcome], words: Words) -> str:
    """The chart for those who do not see it."""
    pairs = [
        words.t(
            "release.beside.alt_point",
            k=f"{k:g}",
            entropy=number(by_factor[k].mean_entropy),
            jacobian=number(by_factor[k].mean_jacobian),
        )
        for k in sorted(by_factor)
    ]
    return words.t("release.beside.alt", n=len(SCORES), points=" ".join(pairs))


def perplexity_figure(
    outcomes: Mapping[str, Outcome], untouched: Outcome, chosen: str, words: Words, palette: Palette
) -> go.Figure:
    """Perplexity of several runs as bars on a logarithmic axis; the untouched run is a line through them."""
    codes = list(outcomes)
    figure = frame(
        literal(perplexity_title(outcomes, untouched, words)), palette, height=70 + _ROW * len(codes), left=8,
        right=16, bottom=46, above=18,
    )  # fmt: skip
    low, high = (
        0.0,
        math.ceil(math.log10(min(_LARGEST, max([untouched.perplexity * 10, *_finite(outcomes)])))),
    )
    for row, code in enumerate(codes):
        outcome = outcomes[code]
        value = outcome.perplexity
        drawn = min(value, 10.0**high) if math.isfinite(value) else None
        name = called(outcome.interventions, words)
        colour = palette.accent if code == chosen else palette.muted
        if drawn is not None:
            figure.add_bar(
                x=[drawn], y=[row], orientation="h", width=0.34, marker={"color": colour}, name=literal(name),
                hovertemplate=f"{literal(name)}<br>{words.t('release.axis.perplexity')} {number(value)}<extra></extra>",
            )  # fmt: skip
        text = f"<b>{literal(name)}</b>" if code == chosen else literal(name)
        figure.add_annotation(
            text=f"{text}: {_figure(value, words)}", x=0, xref="paper", xanchor="left", xshift=2, y=row, yref="y",
            yanchor="bottom", yshift=7, showarrow=False, font={"size": LABEL_SIZE, "color": palette.text},
        )  # fmt: skip
    figure.update_xaxes(
        type="log", range=[low, high], title_text=words.t("release.axis.perplexity"), **_powers(low, high)
    )
    figure.update_yaxes(range=[len(codes) - 0.6, -0.8], showticklabels=False, showgrid=False)
    figure.add_shape(
        type="line", x0=untouched.perplexity, x1=untouched.perplexity, xref="x", y0=0, y1=1, yref="paper", layer="below",
        line={"color": palette.reference, "width": 1.4, "dash": "longdash"},
    )  # fmt: skip
    figure.add_annotation(
        text=words.t("release.untouched_at", value=number(untouched.perplexity)), x=math.log10(untouched.perplexity),
        xref="x", xanchor="left", xshift=4, y=1, yref="paper", yanchor="bottom", showarrow=False,
        font={"size": TICK_SIZE, "color": palette.reference},
    )  # fmt: skip
    return figure


def perplexity_title(outcomes: Mapping[str, Outcome], untouched: Outcome, words: Words) -> str:
    """The finding: how far the whole and its parts go."""
    parts = [
        code for code in ("output_x2", "logits_x4", "values_x2", "output_and_bias_x2") if code in outcomes
    ]
    if not parts:
        return words.t("release.finding.waiting")
    told = [
        _item(called(outcomes[code].interventions, words), outcomes[code].perplexity, words) for code in parts
    ]
    return words.t(
        "release.finding.louder",
        perplexity=number(untouched.perplexity),
        list=words.t("release.finding.join").join(told),
    )


def layers_figure(
    by_case: Mapping[str, Outcome], layers: int, chosen: int, words: Words, palette: Palette
) -> go.Figure:
    """Mean KL by the one layer whose norm does not divide: before attention, and before the MLP."""
    figure = frame(
        literal(layers_title(by_case, words)), palette, height=HEIGHT, left=54, right=20, bottom=48, above=40
    )
    values: list[float] = []
    for role, (colour, dash, symbol) in _ROLE_STYLES.items():
        kl = kl_by_layer(by_case, role)
        values += kl.values()
        name = words.t(f"common.role.{role}")
        _line(
            figure, list(kl), list(kl.values()), name=name, colour=getattr(palette, colour), dash=dash, symbol=symbol,
            hover=f"{words.t('figures.layer', layer='%{x}')}, {name}<br>KL %{{y:.3~g}}",
        )  # fmt: skip
        broken = [layer for layer, value in kl.items() if not math.isfinite(value)]
        _crosses(figure, broken, words, palette)
    low, high = _decades([v for v in values if v > 0] or [0.01, 10])
    figure.update_yaxes(type="log", range=[low, high], **_powers(low, high))
    figure.update_xaxes(
        range=[-0.6, layers - 0.4],
        tickvals=list(range(0, layers, max(1, math.ceil(layers / 8)))),
        title_text=words.t("release.axis.layer"),
    )
    _panel_name(figure, words.t("release.axis.kl"), 1.0, palette, above=22)
    figure.add_shape(
        type="line", x0=chosen, x1=chosen, xref="x", y0=0, y1=1, yref="paper", layer="below",
        line={"color": palette.accent, "width": 1.4},
    )  # fmt: skip
    _legend(figure, palette)
    return figure


_ROLE_STYLES: Final = {
    "attention_input": ("accent", "solid", "circle"),
    "mlp_input": ("careful", "dash", "square"),
}


def layers_title(by_case: Mapping[str, Outcome], words: Words) -> str:
    """The finding: the layers whose brake before attention is least and most missed."""
    kl = {
        layer: value
        for layer, value in kl_by_layer(by_case, "attention_input").items()
        if math.isfinite(value)
    }
    if len(kl) < 2:
        return words.t("release.finding.waiting")
    least, most = min(kl, key=kl.__getitem__), max(kl, key=kl.__getitem__)
    return words.t(
        "release.finding.one_brake",
        least=least,
        most=most,
        kl_least=number(kl[least], 2),
        kl_most=number(kl[most], 2),
    )


def layers_alt(by_case: Mapping[str, Outcome], words: Words) -> str:
    """The chart for those who do not see it."""
    told = [
        words.t(
            "release.alt.layer",
            layer=layer,
            role=words.t(f"common.role.{role}"),
            kl=_figure(value, words),
        )
        for role in _ROLE_STYLES
        for layer, value in kl_by_layer(by_case, role).items()
    ]
    return words.t("release.alt.layers", title=layers_title(by_case, words), points=" ".join(told))


def depth(outcome: Outcome) -> tuple[SiteMedians, ...]:
    """The sites along the residual stream, the final norm last; all sites where a model has none."""
    found = tuple(site for site in outcome.sites if site.role in RESIDUAL_ROLES)
    return found if len(found) > 1 else outcome.sites


def depth_figure(
    untouched: Outcome, changed: Outcome, series: str, words: Words, palette: Palette
) -> go.Figure:
    """Median L2 at every norm along the depth, untouched and changed; `series` is a field of SiteMedians.

    Where the changed run has no number stands a cross, and the title says from where on.
    """
    sites = depth(untouched)
    figure = frame(
        literal(depth_title(untouched, changed, series, words)), palette, height=HEIGHT, left=60, right=20, bottom=48,
        above=40,
    )  # fmt: skip
    role = {"input_l2": "residual", "normalized_l2": "normalized", "output_l2": "output"}[series]
    before = [getattr(site, series) for site in sites]
    after = [getattr(site, series) for site in depth(changed)]
    names = [site_title(words, site.layer, site.role) for site in sites]
    for values, name, colour, dash, symbol in (
        (before, words.t("release.untouched"), palette.reference, "longdash", None),
        (after, called(changed.interventions, words), palette.role(role), "solid", "circle"),
    ):
        _line(
            figure, list(range(len(values))), values, name=name, colour=colour, dash=dash, symbol=symbol, texts=names,
            hover=f"%{{text}}<br>{literal(name)}: %{{y:.4~g}}",
        )  # fmt: skip
    _crosses(figure, [i for i, value in enumerate(after) if not math.isfinite(value)], words, palette)
    if series == "normalized_l2":
        low, high = 0.0, 1.08 * max((v for v in (*before, *after) if math.isfinite(v)), default=1.0)
        figure.update_yaxes(range=[low, high])
    else:
        low, high = _decades([v for v in (*before, *after) if v > 0])
        figure.update_yaxes(type="log", range=[low, high], **_powers(low, high))
    first = {site.layer: i for i, site in reversed(list(enumerate(sites))) if site.layer is not None}
    step = max(1, math.ceil(len(first) / 8))
    ticks = dict(sorted(first.items()))
    shown = {i: str(layer) for layer, i in list(ticks.items())[::step]}
    figure.update_xaxes(
        range=[-0.6, len(sites) - 0.4],
        tickvals=list(shown),
        ticktext=list(shown.values()),
        title_text=words.t("release.axis.layer"),
    )
    _panel_name(figure, words.t(f"release.axis.{series}"), 1.0, palette, above=22)
    _legend(figure, palette)
    return figure


def depth_title(untouched: Outcome, changed: Outcome, series: str, words: Words) -> str:
    """The finding: where numbers end, or the first or last norm before and after."""
    name = called(changed.interventions, words)
    first = changed.first_non_finite
    if first is not None:
        return words.t(
            "release.finding.non_finite",
            name=name,
            site=site_title(words, first.layer, first.role),
            n=number(float(non_finite(changed))),
        )
    place = 0 if series == "normalized_l2" else -1
    before, after = depth(untouched)[place], depth(changed)[place]
    return words.t(
        f"release.finding.{series}",
        name=name,
        site=site_title(words, before.layer, before.role),
        before=number(getattr(before, series), 4),
        after=number(getattr(after, series), 4),
    )


def positions_figure(
    outcomes: Mapping[str, Outcome], tokens: Sequence[Token], chosen: str, words: Words, palette: Palette
) -> go.Figure:
    """KL of the next-token distribution at every token, one curve a run."""
    figure = frame(
        literal(positions_title(outcomes, words)), palette, height=HEIGHT + 40, left=60, right=20, bottom=104,
        above=22 + 20 * len(outcomes),
    )  # fmt: skip
    labels = [token_label(token, 24) for token in tokens]
    everything: list[float] = []
    for place, (code, outcome) in enumerate(outcomes.items()):
        kl = [max(float(value), _FLOOR_KL) if math.isfinite(value) else math.nan for value in outcome.kl]
        everything += kl
        name = called_with_place(outcome, words)
        colour = (palette.accent, palette.careful, palette.text, palette.muted)[place % 4]
        _line(
            figure, list(range(len(kl))), kl, name=name, colour=colour, dash=("solid", "dash", "dot", "dashdot")[place % 4],
            symbol=("circle", "diamond", "square", "triangle-up")[place % 4], width=2.8 if code == chosen else 1.8,
            texts=[literal(label) for label in labels],
            hover=f"<b>%{{text}}</b><br>{literal(name)}: KL %{{y:.3~g}}",
        )  # fmt: skip
        _crosses(figure, [i for i, value in enumerate(kl) if not math.isfinite(value)], words, palette)
    low, high = _decades([v for v in everything if v > 0] or [0.01, 1])
    figure.update_yaxes(type="log", range=[low, high + 0.06], **_powers(low, high))  # room for a marker
    step = max(1, math.ceil(len(tokens) / _TOKEN_TICKS))
    figure.update_xaxes(
        range=[-0.6, len(tokens) - 0.4],
        tickvals=list(range(0, len(tokens), step)),
        ticktext=[literal(token_label(token, _TOKEN_CHARS)) for token in tokens[::step]],
        tickangle=-90,
    )
    _panel_name(figure, words.t("release.axis.kl"), 1.0, palette, above=4 + 20 * len(outcomes))
    _legend(figure, palette, rows=len(outcomes))
    return figure


def called_with_place(outcome: Outcome, words: Words) -> str:
    """What was changed, with the norms' role where it is one only."""
    name = called(outcome.interventions, words)
    roles = {role for each in outcome.interventions for role in each.roles or ()}
    if len(roles) == 1 and outcome.interventions[0].kind != "output_scale":
        role = roles.pop()
        return f"{name} ({words.t(f'common.role.{role}')})"
    return name


def positions_title(outcomes: Mapping[str, Outcome], words: Words) -> str:
    """The finding: the mean KL of each run."""
    if not outcomes:
        return words.t("release.finding.waiting")
    told = [_item(called_with_place(each, words), each.mean_kl, words, 2) for each in outcomes.values()]
    return words.t("release.finding.positions", list=words.t("release.finding.join").join(told))


def map_figure(
    outcome: Outcome, place: tuple[int, int], tokens: Sequence[Token], words: Words, palette: Palette
) -> go.Figure | None:
    """Attention of the head at (layer, head) as a heat map, a row a query; None where no map was kept."""
    layer, head = place
    weights = head_map(outcome, layer, head)
    if weights is None:
        return None
    figure = frame(
        literal(map_title(outcome, layer, head, words)),
        palette,
        height=470,
        left=92,
        right=10,
        bottom=96,
        above=48,
    )
    rows, columns = weights.shape
    visible = np.where(
        np.arange(columns)[None, :] <= np.arange(rows)[:, None], weights.astype(np.float64), np.nan
    )
    names = [literal(token_label(token, 24)) for token in tokens]
    told = [[f"{names[r]} → {names[c]}" for c in range(columns)] for r in range(rows)]
    figure.add_heatmap(
        z=visible, zmin=0, zmax=1, colorscale=[list(stop) for stop in palette.sequential("reference")],
        xgap=1, ygap=1, text=told, hovertemplate="%{text}<br>%{z:.3f}<extra></extra>", hoverongaps=False,
        colorbar=colour_bar(words.t("release.map.bar"), {0.0: "0", 0.5: "0.5", 1.0: "1"}, palette),
    )  # fmt: skip
    bad = [(r, c) for r in range(rows) for c in range(r + 1) if not math.isfinite(weights[r, c])]
    if bad:
        figure.add_scatter(
            x=[c for _, c in bad], y=[r for r, _ in bad], mode="markers", hoverinfo="skip",
            marker={"symbol": "x", "size": 6, "color": palette.careful},
        )  # fmt: skip
    step = max(1, math.ceil(len(tokens) / _TOKEN_TICKS))
    ticks = list(range(0, len(tokens), step))
    short = [literal(token_label(tokens[i], _TOKEN_CHARS)) for i in ticks]
    figure.update_xaxes(
        range=[-0.5, columns - 0.5], tickvals=ticks, ticktext=short, tickangle=-90, showline=False
    )
    figure.update_yaxes(range=[rows - 0.5, -0.5], tickvals=ticks, ticktext=short, showgrid=False)
    corner_label(figure, words.t("release.map.corner"), palette)
    return figure


def head_map(outcome: Outcome, layer: int, head: int) -> NDArray[np.float32] | None:
    """Attention of a head [query, key]; None where it was not kept."""
    if outcome.attention is None or layer not in outcome.attention.maps:
        return None
    return outcome.attention.maps[layer][head]


def map_title(outcome: Outcome, layer: int, head: int, words: Words) -> str:
    """The finding: how sharp the head is, in this run."""
    attention = outcome.attention
    entropy = math.nan
    if attention is not None and layer in attention.layers:
        entropy = float(attention.entropy[attention.layers.index(layer), head])
    return words.t(
        "release.map.title",
        name=called(outcome.interventions, words),
        layer=layer,
        head=head,
        entropy=_figure(entropy, words, 2),
    )


def alt(figure: go.Figure, words: Words, kind: str) -> str:
    """A chart for those who do not see it: what is drawn, what it shows, and its numbers."""
    return words.t(f"release.alt.{kind}", title=title_of(figure), values=_values(figure))


def _values(figure: go.Figure) -> str:
    """The drawn curves in numbers, thinned to twelve a curve."""
    told = []
    for trace in figure.data:
        if trace.type not in ("scatter", "bar") or trace.name in (None, "crosses") or trace.y is None:
            continue
        values = list(trace.x if trace.type == "bar" else trace.y)
        step = max(1, math.ceil(len(values) / 12))
        told.append(
            f"{unescaped(trace.name)}: "
            + ", ".join(number(math.nan if v is None else float(v)) for v in values[::step])
        )
    return "; ".join(told)


def _figure(value: float, words: Words, digits: int = 3) -> str:
    return number(value, digits) if math.isfinite(value) else words.t("release.no_number")


def _item(name: str, value: float, words: Words, digits: int = 3) -> str:
    return words.t("release.finding.item", name=name, value=_figure(value, words, digits))


def _finite(outcomes: Mapping[str, Outcome]) -> list[float]:
    return [each.perplexity for each in outcomes.values() if math.isfinite(each.perplexity)]


def _line(
    figure: go.Figure,
    x: Sequence[float],
    y: Sequence[float],
    *,
    name: str,
    colour: str,
    dash: str,
    symbol: str | None,
    axis: str = "",
    width: float = 2.2,
    texts: Sequence[str] | None = None,
    hover: str | None = None,
) -> None:
    """A curve with gaps where there is no number."""
    figure.add_scatter(
        x=list(x), y=[value if math.isfinite(value) else None for value in y], xaxis=f"x{axis}", yaxis=f"y{axis}",
        mode="lines" if symbol is None else "lines+markers", name=literal(name), connectgaps=False,
        line={"color": colour, "width": width, "dash": dash}, text=texts,
        marker=None if symbol is None else {"symbol": symbol, "size": 7, "color": colour},
        hovertemplate=(hover or f"{literal(name)}<br>×%{{x:.3~g}}: %{{y:.4~g}}") + "<extra></extra>",
    )  # fmt: skip


def _crosses(figure: go.Figure, places: Sequence[int], words: Words, palette: Palette) -> None:
    """At the foot of the picture where a run has no number."""
    if places:
        figure.add_scatter(
            x=list(places), y=[0.02] * len(places), yaxis="y9", mode="markers", name="crosses", showlegend=False,
            marker={"symbol": "x", "size": 8, "color": palette.careful},
            hovertemplate=words.t("release.no_number") + "<extra></extra>",
        )  # fmt: skip
        figure.update_layout(
            yaxis9={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
        )


def _panel_name(figure: go.Figure, text: str, y: float, palette: Palette, above: int = 4) -> None:
    figure.add_annotation(
        text=f"<b>{text}</b>", x=0, xref="paper", xanchor="left", xshift=-36, y=y, yref="paper", yanchor="bottom",
        yshift=above, showarrow=False, font={"size": LABEL_SIZE, "color": palette.text},
    )  # fmt: skip


def _label(figure: go.Figure, text: str, at: tuple[float, float], colour: str, *, log_x: bool) -> None:
    figure.add_annotation(
        text=text, x=math.log10(at[0]) if log_x else at[0], xref="x", xanchor="left", y=at[1], yref="y", yanchor="bottom",
        yshift=6, showarrow=False, font={"size": LABEL_SIZE, "color": colour},
    )  # fmt: skip


def _legend(figure: go.Figure, palette: Palette, rows: int = 1) -> None:
    figure.update_layout(
        showlegend=True,
        legend={
            "orientation": "h" if rows == 1 else "v", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom",
            "font": {"size": TICK_SIZE, "color": palette.text}, "bgcolor": "rgba(0,0,0,0)",
        },
    )  # fmt: skip


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """log10 of whole decades around the values."""
    finite = [value for value in values if math.isfinite(value) and value > 0]
    if not finite:
        return 0.0, 1.0
    low, high = math.floor(math.log10(min(finite)) + 1e-9), math.ceil(math.log10(max(finite)) - 1e-9)
    return float(low), float(max(high, low + 1))


def _powers(low: float, high: float) -> dict[str, object]:
    """Ticks at powers of ten, thinned to at most six."""
    step = max(1, math.ceil((high - low) / 6))
    powers = range(math.ceil(low), math.floor(high) + 1, step)
    return {"tickvals": [10.0**p for p in powers], "ticktext": [_power(p) for p in powers]}


def _power(p: int) -> str:
    """A power of ten as a short label."""
    if -3 <= p <= 3:
        return number(10.0**p, 1)
    return "10" + str(p).translate(_SUPERSCRIPTS)


_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

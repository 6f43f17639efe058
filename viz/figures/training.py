"""The curves of small trainings side by side: loss, gradient norm and residual L2 over the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import plotly.graph_objects as go

from model_probe.runs import Step, corpus
from viz.figures.base import LABEL_SIZE, frame, literal, wrapped
from viz.outcomes import Shown, finding, names
from viz.text import Words, number
from viz.theme import Palette

HEIGHT: Final = 640
MOST_POINTS: Final = 400  # of a curve; a longer one is drawn at every second, third … step
_LEGEND_ROW: Final = 20  # pixels
_LEGEND_CHARS: Final = 38  # half-widths of a line: a phone shows them
_PANELS: Final = (
    ("loss", 0.60, 1.0),
    ("gradient_norm", 0.30, 0.50),
    ("residual_l2", 0.0, 0.20),
)  # of the height
_TOP: Final = 1.12  # times the loss of guessing: there the picture of the loss ends
_BEYOND: Final = 1e3  # times the median: there the logarithmic pictures end
_MOST_TICKS: Final = 5
_NEAR: Final = 0.035  # of the picture's height: ends closer than this share a label
_DASHES: Final = ("solid", "dash", "dot", "dashdot")
_SYMBOLS: Final = ("circle", "diamond", "square", "triangle-up")


@dataclass(frozen=True, slots=True)
class RunStyle:
    """How one of up to four runs is drawn, the same everywhere: never told by its colour alone."""

    colour: str
    dash: str
    symbol: str


def run_style(place: int, palette: Palette) -> RunStyle:
    """The style of the run at a place, from 0."""
    colours = (palette.accent, palette.careful, palette.text, palette.muted)
    return RunStyle(colours[place % 4], _DASHES[place % 4], _SYMBOLS[place % 4])


def training_figure(
    runs: Sequence[Shown], words: Words, palette: Palette, *, title: str | None = None
) -> go.Figure:
    """Three pictures over one another with the steps in common; runs are numbered from 1 as they are given.

    What is not finite is not drawn; where a run diverges stands a cross. `title` instead of the finding.
    """
    called = names([run.settings for run in runs], words)
    texts = list(dict.fromkeys(run.settings.text for run in runs))
    legend = _legend_of(runs, texts, words, palette)
    figure = frame(
        literal(title or finding(runs, words)),
        palette,
        height=HEIGHT + _LEGEND_ROW * _lines(legend),
        left=54,
        right=38,
        bottom=44,
        above=_LEGEND_ROW * _lines(legend) + 26,
    )
    steps = max((run.settings.steps for run in runs), default=1)
    for row, (series, bottom, top) in enumerate(_PANELS, 1):
        axis = "" if row == 1 else str(row)
        span = _loss_span(runs) if series == "loss" else _log_span(runs, series)
        for place, (run, name) in enumerate(zip(runs, called, strict=True)):
            _curve(figure, run, place, name, panel=(series, axis), words=words, palette=palette)
        _frame_panel(
            figure, (series, axis), (bottom, top), span=span, steps=steps, words=words, palette=palette
        )
    _guesses(figure, texts, palette)
    _ends(figure, runs, palette)
    _crosses(figure, runs, words, palette)
    _legend(figure, legend)
    return figure


def training_alt(runs: Sequence[Shown], words: Words) -> str:
    """The chart for those who do not see it."""
    called = names([run.settings for run in runs], words)
    lines = [
        words.t("train.alt.not_begun" if not run.steps else "train.alt.diverged" if run.diverged_at else "train.alt.run",
            n=i, name=name, first=number(run.steps[0].loss if run.steps else math.nan), last=number(run.final_loss),
            step=run.diverged_at or len(run.steps))
        for i, (run, name) in enumerate(zip(runs, called, strict=True), 1)
    ]  # fmt: skip
    broken = sum(run.non_finite for run in runs)
    if broken:
        lines.append(words.t("train.alt.non_finite", n=broken))
    return " ".join([words.t("train.alt.what"), *lines])


def _curve(
    figure: go.Figure,
    run: Shown,
    place: int,
    name: str,
    *,
    panel: tuple[str, str],
    words: Words,
    palette: Palette,
) -> None:
    series, axis = panel
    style = run_style(place, palette)
    drawn = run.steps[:: max(1, math.ceil(len(run.steps) / MOST_POINTS))]
    if run.steps and drawn[-1] is not run.steps[-1]:
        drawn = (*drawn, run.steps[-1])
    figure.add_scatter(
        x=[step.step for step in drawn],
        y=[_drawn(getattr(step, series)) for step in drawn],
        xaxis=f"x{axis}",
        yaxis=f"y{axis}",
        name=literal(words.t("train.numbered", n=place + 1, name=name)),
        mode="lines",
        line={"color": style.colour, "width": 2.2 if place == 0 else 2, "dash": style.dash},
        connectgaps=False,
        hovertemplate=f"{literal(words.t('train.numbered', n=place + 1, name=name))}<br>"
        f"{words.t('train.step')} %{{x}}: %{{y:.4~g}}<extra></extra>",
    )


def _drawn(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _frame_panel(
    figure: go.Figure,
    panel: tuple[str, str],
    place: tuple[float, float],
    *,
    span: tuple[float, float],
    steps: int,
    words: Words,
    palette: Palette,
) -> None:
    series, axis = panel
    last = series == _PANELS[-1][0]
    y: dict[str, object] = {
        **figure.layout.yaxis.to_plotly_json(),
        "domain": list(place),
        "anchor": f"x{axis}",
    }
    if series == "loss":
        y |= {"range": list(span), "nticks": 6}
    else:
        ticks = _ticks(*span)
        y |= {
            "type": "log",
            "range": [math.log10(value) for value in span],
            "tickvals": ticks,
            "ticktext": [_tick(tick) for tick in ticks],
        }
    x: dict[str, object] = {
        **figure.layout.xaxis.to_plotly_json(),
        "range": [0, steps],
        "nticks": 6,
        "anchor": f"y{axis}",
        "showticklabels": last,
    }
    if last:
        x["title"] = {**figure.layout.xaxis.title.to_plotly_json(), "text": words.t("train.axis.step")}
    figure.update_layout({f"yaxis{axis}": y, f"xaxis{axis}": x})
    figure.add_annotation(
        text=f"<b>{words.t(f'train.axis.{series}')}</b> {words.t(f'train.axis.{series}_what')}",
        x=0, xref="paper", xanchor="left", xshift=-44, y=place[1], yref="paper", yanchor="bottom", yshift=8,
        showarrow=False, font={"size": LABEL_SIZE, "color": palette.text},
    )  # fmt: skip


def _loss_span(runs: Sequence[Shown]) -> tuple[float, float]:
    """Up to a little above guessing, the same however far the runs are; from 0 where one of them gets that far."""
    texts = [corpus(run.settings.text) for run in runs]
    low = round(min((text.frequency_loss for text in texts), default=0.0)) / 2
    lowest = min((step.loss for run in runs for step in run.steps), default=low)
    return 0.0 if lowest < low else low, _TOP * max((text.uniform_loss for text in texts), default=1.0)


def _log_span(runs: Sequence[Shown], series: str) -> tuple[float, float]:
    """Round numbers around what is drawn, so that a curve that grows seldom moves the axis."""
    values = sorted(
        value
        for run in runs
        for step in run.steps
        if math.isfinite(value := getattr(step, series)) and value > 0
    )
    if not values:
        return 0.1, 10.0
    high = min(values[-1], values[len(values) // 2] * _BEYOND)
    low = max(values[0], high / _BEYOND**2)
    return _round(low / 1.05, down=True), _round(high * 1.05, down=False)


def _round(value: float, *, down: bool) -> float:
    """The next of 1, 2 and 5 times a power of ten below or above a value."""
    power = 10.0 ** math.floor(math.log10(value))
    steps = (1.0, 2.0, 5.0, 10.0)
    if down:
        return power * max(step for step in steps if step * power <= value * (1 + 1e-9))
    return power * min(step for step in steps if step * power >= value * (1 - 1e-9))


def _ticks(low: float, high: float) -> list[float]:
    """At most five: powers of ten, or 2 and 5 times them too where so few powers fit."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    few, many = (
        [
            step * 10.0**power
            for power in powers
            for step in steps
            if low <= step * 10.0**power * 1.001 <= high * 1.002
        ]
        for steps in ((1,), (1, 2, 5))
    )
    ticks = many if len(many) <= _MOST_TICKS else few if len(few) > 1 else many[::2]
    return ticks[:: math.ceil(len(ticks) / _MOST_TICKS)]


def _tick(value: float) -> str:
    """A round number, from ten thousand on as a power of ten."""
    if value < 1e4:
        return number(value, 1)
    digit, _, power = f"{value:.0e}".partition("e")
    return ("" if digit == "1" else f"{digit}·") + f"10<sup>{int(power)}</sup>"


def _guesses(figure: go.Figure, texts: Sequence[str], palette: Palette) -> None:
    """What knowing only how often each character occurs would cost: below it, something was learned."""
    for text in texts:
        loss = corpus(text).frequency_loss
        figure.add_shape(
            type="line", x0=0, x1=1, xref="x domain", y0=loss, y1=loss, yref="y", layer="below",
            line={"color": palette.reference, "width": 1.2, "dash": "longdash"},
        )  # fmt: skip


def _ends(figure: go.Figure, runs: Sequence[Shown], palette: Palette) -> None:
    """The runs' numbers where their loss ends; those that end together share a label."""
    low, high = _loss_span(runs)
    ends = sorted(
        (last.loss, last.step, place)
        for place, run in enumerate(runs)
        if run.steps and math.isfinite((last := run.steps[-1]).loss) and last.loss < high
    )
    groups: list[list[tuple[float, int, int]]] = []
    for end in ends:
        near = groups and end[0] - groups[-1][-1][0] < _NEAR * (high - low) and end[1] == groups[-1][-1][1]
        if near:
            groups[-1].append(end)
        else:
            groups.append([end])
    for group in groups:
        label = " ".join(
            f'<span style="color:{run_style(place, palette).colour}">{place + 1}</span>'
            for place in sorted(end[2] for end in group)
        )
        figure.add_annotation(
            text=f"<b>{label}</b>", x=group[0][1], xref="x", xanchor="left", xshift=3,
            y=sum(end[0] for end in group) / len(group), yref="y", yanchor="middle", showarrow=False,
            font={"size": LABEL_SIZE},
        )  # fmt: skip


def _crosses(figure: go.Figure, runs: Sequence[Shown], words: Words, palette: Palette) -> None:
    """Where a run diverges: a cross at its last loss that the picture holds, and the step."""
    low, high = _loss_span(runs)
    row = 0
    for place, run in enumerate(runs):
        if run.diverged_at is None:
            continue
        style = run_style(place, palette)
        at = _last_inside(run, high)
        right = run.diverged_at > 0.6 * max(r.settings.steps for r in runs)
        figure.add_scatter(
            x=[at.step if at else run.diverged_at], y=[at.loss if at else high], xaxis="x", yaxis="y",
            mode="markers", cliponaxis=False, showlegend=False,
            marker={"symbol": "x", "size": 10, "color": style.colour},
            hovertemplate=f"{words.t('train.diverges', n=place + 1, step=run.diverged_at)}<extra></extra>",
        )  # fmt: skip
        figure.add_shape(
            type="line", x0=run.diverged_at, x1=run.diverged_at, xref="x", y0=0, y1=1, yref="paper", layer="below",
            line={"color": style.colour, "width": 1, "dash": "dot"},
        )  # fmt: skip
        figure.add_annotation(
            text=f"✕ {words.t('train.diverges', n=place + 1, step=run.diverged_at)}",
            x=run.diverged_at, xref="x", xanchor="right" if right else "left", xshift=-4 if right else 4,
            y=low, yref="y", yanchor="bottom", yshift=4 + 18 * row, showarrow=False,
            font={"size": LABEL_SIZE, "color": style.colour},
        )  # fmt: skip
        row += 1


def _last_inside(run: Shown, high: float) -> Step | None:
    """The last step up to the divergence whose loss the picture holds."""
    before = [step for step in run.steps if run.diverged_at is None or step.step <= run.diverged_at]
    return next((step for step in reversed(before) if math.isfinite(step.loss) and step.loss <= high), None)


def _legend_of(
    runs: Sequence[Shown], texts: Sequence[str], words: Words, palette: Palette
) -> list[tuple[str, str, str]]:
    """(name in lines that fit a phone, colour, dash) of what is drawn: each run, and what they are measured by."""
    called = names([run.settings for run in runs], words)
    entries = []
    for place, name in enumerate(called):
        style = run_style(place, palette)
        entries.append((words.t("train.numbered", n=place + 1, name=name), style.colour, style.dash))
    for text in texts:
        name = words.t(
            "train.guess" if len(texts) == 1 else f"train.guess_{text}",
            loss=number(corpus(text).frequency_loss),
        )
        entries.append((name, palette.reference, "longdash"))
    return [(wrapped(literal(name), _LEGEND_CHARS), colour, dash) for name, colour, dash in entries]


def _lines(entries: Sequence[tuple[str, str, str]]) -> int:
    return sum(1 + name.count("<br>") for name, *_ in entries)


def _legend(figure: go.Figure, entries: Sequence[tuple[str, str, str]]) -> None:
    """Over the pictures, one under the other: a stroke, and what it is."""
    left = _lines(entries)
    for name, colour, dash in entries:
        first = _LEGEND_ROW * left + 16
        left -= 1 + name.count("<br>")
        figure.add_shape(
            type="line", xref="paper", yref="paper", xsizemode="pixel", ysizemode="pixel", xanchor=0, yanchor=1,
            x0=-44, x1=-8, y0=first, y1=first, line={"color": colour, "width": 2.2, "dash": dash},
        )  # fmt: skip
        figure.add_annotation(
            text=name, align="left", x=0, xref="paper", xanchor="left", y=1, yref="paper", yanchor="top",
            yshift=first + 11, showarrow=False, font={"size": LABEL_SIZE, "color": colour},
        )  # fmt: skip

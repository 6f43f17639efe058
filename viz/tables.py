"""Tables of a layer's norms and of the exercise, as HTML with every text of the checkpoint escaped.

A real <table>: read by a screen reader, selectable, and scrolled in its own box on a phone.
Neither Streamlit nor torch is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Final, Literal

import numpy as np

from model_probe.summaries import summarize
from model_probe.trace import NormTrace, SiteTrace
from viz.compare import Pair
from viz.figures.base import token_label
from viz.reading import LINES, Reading
from viz.text import NOT_A_NUMBER, Words, isolated, number

LATER_LAYER: Final = 22  # near the end of the recorded checkpoint's 24
_FIGURES: Final = ("l2", "rms", "mean", "std", "abs_max")  # of the input and of the output, in this order


def site_table(trace: NormTrace, sites: Sequence[SiteTrace], words: Words, reading: Reading) -> str:
    """One column a norm, one row a fact or a number; numbers over the tokens as `reading` says."""
    rows = [_row(words.t(f"tables.{name}"), [fact(site) for site in sites]) for name, fact in _facts(words)]
    for side in ("input", "normalized", "output"):
        rows.append(_group(words.t(f"tables.{side}"), len(sites)))
        for figure in _FIGURES if side != "normalized" else ("l2",):
            values = [number(_value(site, side, figure, reading), 4) for site in sites]
            rows.append(_row(words.t(f"tables.{figure}"), values, figure=f"{side}.{figure}"))
    if any(site.non_finite for site in sites):
        rows.append(_row(words.t("tables.non_finite"), [str(site.non_finite) for site in sites]))
    heads = "".join(f'<th scope="col">{escape(words.t(f"common.role.{site.role}"))}</th>' for site in sites)
    caption = escape(read_as(trace, words, reading))
    return (
        f'<div class="lab-table" tabindex="0" role="region" aria-label="{caption}"><table><caption>{caption}</caption>'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def pair_site_table(pair: Pair, sites: Sequence[SiteTrace], words: Words, reading: Reading) -> str:
    """The same with the second trace's numbers beside the first's, and their ratio: three columns a norm of the first.

    A norm that the second has not is a dash.
    """
    others = [pair.counterpart(site) for site in sites]
    rows = []
    for name, fact in _facts(words):
        cells = [
            _same_or_both(fact(site), NOT_A_NUMBER if other is None else fact(other))
            for site, other in zip(sites, others, strict=True)
        ]
        rows.append(f'<tr><th scope="row">{escape(words.t(f"tables.{name}"))}</th>{"".join(cells)}</tr>')
    for side in ("input", "normalized", "output"):
        rows.append(_group(words.t(f"tables.{side}"), 3 * len(sites)))
        for figure in _FIGURES if side != "normalized" else ("l2",):
            values = [
                (
                    _value(site, side, figure, reading),
                    math.nan if other is None else _value(other, side, figure, reading),
                )
                for site, other in zip(sites, others, strict=True)
            ]
            cells = [_both(a, b, f"{side}.{figure}") for a, b in values]
            rows.append(
                f'<tr><th scope="row">{escape(words.t(f"tables.{figure}"))}</th>{"".join(cells)}</tr>'
            )
    if any(site.non_finite for site in (*sites, *others) if site is not None):
        cells = [
            _same_or_both(str(site.non_finite), NOT_A_NUMBER if other is None else str(other.non_finite))
            for site, other in zip(sites, others, strict=True)
        ]
        rows.append(f'<tr><th scope="row">{escape(words.t("tables.non_finite"))}</th>{"".join(cells)}</tr>')
    roles = "".join(
        f'<th scope="colgroup" colspan="3">{escape(words.t(f"common.role.{site.role}"))}</th>'
        for site in sites
    )
    marks = (
        '<th scope="col" class="lab-number">A</th><th scope="col" class="lab-number">B</th>'
        '<th scope="col" class="lab-number">B ÷ A</th>'
    ) * len(sites)
    caption = escape(
        words.t(
            "compare.table.caption",
            a=read_as(pair.first, words, reading),
            b=read_as(pair.second, words, reading),
        )
    )
    return (
        f'<div class="lab-table lab-pairs" tabindex="0" role="region" aria-label="{caption}"><table>'
        f'<caption>{caption}</caption><thead><tr><td rowspan="2"></td>{roles}</tr><tr>{marks}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def contrasted(trace: NormTrace, words: Words) -> tuple[SiteTrace, SiteTrace, tuple[str, str]]:
    """The exercise's two norms and their names: the first of layer 0 and of LATER_LAYER, or of the last layer there
    is; the final norm where a model has one layer only."""
    sites = trace.depth()
    numbered = [site.layer for site in sites if site.layer is not None]
    later = min(LATER_LAYER, max(numbered, default=0))
    second = next((site for site in sites if site.layer == later and later), sites[-1])
    names = [
        words.t("figures.final_norm") if site.layer is None else words.t("figures.layer", layer=site.layer)
        for site in (sites[0], second)
    ]
    return sites[0], second, (names[0], names[1])


def contrast_table(
    first: SiteTrace,
    second: SiteTrace,
    words: Words,
    names: tuple[str, str],
    state: Literal["veiled", "shown"],
) -> str:
    """Median L2 of the three lines at two norms; while veiled, the second column and the factor are question marks."""
    shown = state == "shown"
    rows = []
    for line, series in LINES.items():
        a, b = (summarize(site.series(series)) for site in (first, second))
        cells = [number(a, 4), number(b, 4) if shown else "?", f"× {number(b / a)}" if shown and a else "?"]
        rows.append(_row(words.t(f"common.series.{line}"), cells, figure=f"exercise.{line}"))
    return _table(words.t("tables.contrast"), (*names, words.t("tables.factor")), rows)


def number_table(caption: str, heads: Sequence[str], rows: Mapping[str, tuple[str, Sequence[str]]]) -> str:
    """A table of numbers that are already text: `heads` over the columns; a row is its label and its cells.

    The keys of `rows` mark the numbers for those who look them up: data-figure="key".
    """
    return _table(caption, heads, [_row(label, cells, figure=key) for key, (label, cells) in rows.items()])


def pair_table(caption: str, rows: Sequence[Mapping[str, tuple[str, str]]]) -> str:
    """Labelled numbers side by side: every row holds as many pairs {key: (label, number)} as the first."""
    drawn = "".join(
        "<tr>"
        + "".join(
            f'<th scope="row">{escape(label)}</th><td class="lab-number" data-figure="{key}">{escape(value)}</td>'
            for key, (label, value) in row.items()
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="lab-table lab-fits"><table><caption>{escape(caption)}</caption><tbody>{drawn}</tbody></table></div>'


def _table(caption: str, heads: Sequence[str], rows: Sequence[str]) -> str:
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    return (
        f'<div class="lab-table lab-fits"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr><td></td>{columns}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _facts(words: Words) -> list[tuple[str, Callable[[SiteTrace], str]]]:
    return [
        ("name", lambda site: site.name),
        ("class", lambda site: site.class_name),
        ("size", lambda site: _size(site, words)),
        ("eps", lambda site: number(site.eps, 2)),
        ("gain", lambda site: _gain(site, words)),
    ]


def _size(site: SiteTrace, words: Words) -> str:
    if site.heads is None:
        return str(site.size)
    return words.t("tables.per_head", size=site.size, heads=site.heads)


def _gain(site: SiteTrace, words: Words) -> str:
    convention = words.t(f"tables.convention.{site.gain_convention}")
    if site.gain is None:
        return convention if site.why_no_gain is None else f"{NOT_A_NUMBER} {site.why_no_gain}"
    return words.t("tables.gain_rms", convention=convention, rms=number(site.gain.rms))


def _value(site: SiteTrace, side: str, figure: str, reading: Reading) -> float:
    """One number of the table; the rms is the root that divides (with eps), or of the output the plain one."""
    if figure != "rms":
        return reading.value(site, f"{side}_{figure}")
    statistic = "median" if reading.statistic == "token" else reading.statistic
    l2 = site.series(f"{side}_l2")[reading.tokens(site)].astype(np.float64)
    eps = site.eps if side == "input" and math.isfinite(site.eps) else 0.0
    return summarize(np.sqrt(l2**2 / site.size + eps), statistic)


def read_as(trace: NormTrace, words: Words, reading: Reading) -> str:
    """Which one number stands for all tokens, in words."""
    if reading.statistic == "token":
        if reading.token >= len(trace.tokens):  # of another prompt than the one it was chosen in
            return words.t("compare.table.no_token", position=reading.token)
        token = trace.tokens[reading.token]
        return words.t("tables.of_token", token=isolated(token_label(token)), position=token.position)
    over = "tables.without_sinks" if reading.sinks == "left_out" else "tables.of_all"
    return words.t(over, statistic=words.t(f"common.statistic.{reading.statistic}"), n=len(trace.tokens))


def _row(label: str, cells: Sequence[str], figure: str | None = None) -> str:
    """A row; `figure` marks the numbers for those who look them up: data-figure="input.l2"."""
    mark = "" if figure is None else f' class="lab-number" data-figure="{figure}"'
    values = "".join(f"<td{mark}>{_breakable(cell)}</td>" for cell in cells)
    return f'<tr><th scope="row">{escape(label)}</th>{values}</tr>'


def _same_or_both(a: str, b: str) -> str:
    """A fact of two norms: once over their three columns where it is the same."""
    if a == b:
        return f'<td colspan="3">{_breakable(a)}</td>'
    return f'<td>{_breakable(a)}</td><td colspan="2">{_breakable(b)}</td>'


def _both(a: float, b: float, figure: str) -> str:
    """Two numbers and how many times the first the second is, where both are above zero."""
    ratio = b / a if a > 0 and b > 0 else math.nan
    cells = ((number(a, 4), ""), (number(b, 4), ".second"), (number(ratio), ".ratio"))
    return "".join(f'<td class="lab-number" data-figure="{figure}{end}">{told}</td>' for told, end in cells)


def _group(label: str, columns: int) -> str:
    return f'<tr class="lab-group"><th scope="rowgroup" colspan="{columns + 1}">{escape(label)}</th></tr>'


def _breakable(text: str) -> str:
    """Escaped; a module's name may break after its dots and before its underscores."""
    is_name = text[:1].isalpha() and " " not in text
    return escape(text).replace(".", ".<wbr>").replace("_", "<wbr>_") if is_name else escape(text)

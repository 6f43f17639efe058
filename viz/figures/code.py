"""RMSNorms side by side: the share of output elements that are not equal to the reference's to the bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import plotly.graph_objects as go

from model_probe.code_results import CHECKPOINT, Comparison, ComparisonTable
from viz.figures.base import frame, literal
from viz.text import Words, number
from viz.theme import Palette

_ROW: Final = 34  # pixels
_FRAME: Final = 74
_LEFT: Final = 168


@dataclass(frozen=True, slots=True)
class ShareView:
    """Which comparisons are drawn: one of INPUTS, of DTYPES, and of VARIANTS."""

    given: str
    dtype: str
    against: str


def share_figure(table: ComparisonTable, words: Words, palette: Palette, view: ShareView) -> go.Figure:
    """One bar a variant, 0 to 100 %, each with its number; a variant that is equal to the bit says so."""
    rows = table.row(view.given, view.dtype, against=view.against)
    title = literal(share_title(table, words, view))
    figure = frame(title, palette, height=_FRAME + _ROW * (len(table.variants) - 1), left=_LEFT, right=24)
    shares = [100 * told.share for told in rows.values()]
    texts = [_label(told, words) for told in rows.values()]
    figure.add_bar(
        x=shares,
        y=list(range(len(rows))),
        orientation="h",
        width=0.5,
        marker={"color": palette.output, "line": {"width": 0}},
        hoverinfo="skip",
    )
    figure.add_scatter(  # the numbers stand beside the bars, inside the picture at 100 % too
        x=[min(share, 62.0) for share in shares],
        y=list(range(len(rows))),
        mode="text",
        text=[f"  {literal(text)}" for text in texts],
        textposition="middle right",
        textfont={"color": [palette.text if share <= 62 else palette.ground for share in shares]},
        hoverinfo="skip",
        cliponaxis=False,
    )
    names = [literal(_short(variant, words, table.class_name)) for variant in rows]
    figure.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=names, range=[len(rows) - 0.4, -0.6], showgrid=False
    )
    figure.update_xaxes(range=[0, 100], ticksuffix=" %", showgrid=True, title_text=words.t("code.figure.x"))
    return figure


def share_title(table: ComparisonTable, words: Words, view: ShareView) -> str:
    """The finding: how many versions agree to the bit, or how far the farthest is off."""
    rows = table.row(view.given, view.dtype, against=view.against)
    equal = sum(told.equal for told in rows.values())
    broken = sum(told.non_finite > 0 for told in rows.values())
    if broken:
        return words.t("code.figure.non_finite", dtype=view.dtype, n=broken)
    if not rows:
        return words.t("code.figure.nothing")
    most = max(told.share for told in rows.values())
    which = "all" if equal == len(rows) else "none" if not equal else "some"
    return words.t(
        f"code.figure.{which}", dtype=view.dtype, equal=equal, n=len(rows), most=number(100 * most, 2)
    )


def share_alt(table: ComparisonTable, words: Words, view: ShareView) -> str:
    """The chart in words: every variant with its share."""
    rows = table.row(view.given, view.dtype, against=view.against)
    each = words.t("figures.list_separator").join(
        f"{_short(variant, words, table.class_name)} {_label(told, words)}" for variant, told in rows.items()
    )
    return words.t("code.figure.alt", dtype=view.dtype, each=each)


def _label(told: Comparison, words: Words) -> str:
    if told.equal:
        return words.t("code.figure.equal")
    return f"{number(100 * told.share, 2)} %"


def _short(variant: str, words: Words, class_name: str | None) -> str:
    if variant == CHECKPOINT:
        return class_name or "—"
    return words.t(f"code.variant.{variant}")

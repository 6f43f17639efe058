"""What all figures share: the frame, axes, number and token labels, and text that plotly must not interpret."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import plotly.graph_objects as go
import plotly.io as pio

from model_probe.trace import Token
from viz.text import THIN_SPACE, Words, has_ink, inked, isolated
from viz.theme import FONT_STACK, Palette

LABEL_SIZE: Final = 13
TICK_SIZE: Final = 12
TOKEN_CHARS: Final = 15  # longest token label on an axis

# Given to st.plotly_chart: no logo, no gadgets; the page scrolls under a finger.
CONFIG: Final[dict[str, Any]] = {
    "displaylogo": False,
    "displayModeBar": False,
    "scrollZoom": False,
    "doubleClick": "reset",
    "responsive": True,
}

# Of plotly's own look: the kinds of traces that the charts are made of, and the spaces that none of them is in.
_TRACES: Final = ("bar", "heatmap", "scatter")
_OTHER_SPACES: Final = ("geo", "mapbox", "polar", "scene", "ternary")
pio.templates.default = None  # every figure gets what it needs from `frame`

_VISIBLE: Final = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"}
_PLOTLY_SPECIAL: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;", "%": "&#37;"})


def literal(text: str) -> str:
    """Text that plotly draws letter for letter: no tags, no MathJax, no %{…} template; nothing in it is invisible or
    turns what stands around it around.

    >>> literal("<b>$x$</b>")
    '&lt;b&gt;&#36;x&#36;&lt;/b&gt;'
    """
    return isolated(inked(text).translate(_PLOTLY_SPECIAL))


def unescaped(text: str) -> str:
    """The plain text of a label, for an `alt`: tags dropped, `literal` undone."""
    return html.unescape(re.sub(r"</?b>", "", text.replace("<br>", " ")))


def visible(text: str) -> str:
    """Text with its spaces and everything else that leaves no ink made visible.

    >>> visible(" river\\n"), visible("a\\u200db")
    ('␣river⏎', 'a<U+200D>b')
    """
    return "".join(_VISIBLE.get(c) or (c if _is_seen(c) else f"<U+{ord(c):04X}>") for c in text)


def token_label(token: Token, at_most: int = TOKEN_CHARS) -> str:
    """A token as a readable label of at most so many half-widths, not yet escaped; a control token stands in ⟦ ⟧.

    >>> token_label(Token(0, 151645, "<|im_end|>", special=True))
    '⟦<|im_end|>⟧'
    """
    text = shortened(visible(token.text), at_most - 2 if token.special else at_most)
    return f"⟦{text}⟧" if token.special else text


def shortened(text: str, at_most: int) -> str:
    """Text cut to so many half-widths, with an ellipsis where something is gone.

    >>> shortened("river", 5), shortened("rivers", 5), shortened("残差流", 5)
    ('river', 'rive…', '残差…')
    """
    if _drawn_width(text[: at_most + 1]) <= at_most:
        return text
    text = text[:at_most]
    while _drawn_width(text) >= at_most:
        text = text[:-1]
    return text + "…"


@lru_cache(maxsize=512)
def wrapped(text: str, at_most: int) -> str:
    """Text in as few lines of at most so many half-widths as can be, put together by <br>: plotly breaks no line.

    Breaks at spaces and between Chinese characters, best after a pause, and evenly. Entities of `literal`
    count as one character; only a word that is longer than a line is longer than `at_most`.
    """
    pieces = _pieces(text)
    best: list[tuple[float, list[str]]] = [(0.0, [])]  # for each number of pieces: cost, lines
    for end in range(1, len(pieces) + 1):
        ways = []
        for start in range(end - 1, -1, -1):
            line = "".join(pieces[start:end]).strip(" ")
            width = _half_widths(line)
            if width > at_most and start < end - 1:
                break
            cost = best[start][0] + _MANY_LINES + ((at_most - width) / at_most) ** 2
            if end < len(pieces) and not _ends_well(line, pieces[end]):
                cost += 1.0
            ways.append((cost, [*best[start][1], line]))
        best.append(min(ways))
    return "<br>".join(best[-1][1])


_MANY_LINES: Final = 10.0


def _pieces(text: str) -> list[str]:
    """Text cut where a line may end: words with the space before them, parts of dotted names, wide characters
    with the punctuation that hangs on them."""
    word = r" ?(?:&#?\w+;|[^ \u2e80-\u9fff\uff00-\uffef.]|\.(?![A-Za-z]))+\.?| ?\."
    wide = r" ?[\u2e80-\u9fff\uff00-\uffef][，。；：！？、）》”]*"
    return re.findall(f"{wide}|{word}| ", text)


def _half_widths(text: str) -> int:
    """How wide a text is drawn, in half-widths; entities of `literal` count as what they stand for."""
    return _drawn_width(html.unescape(text))


def _drawn_width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _ends_well(line: str, following: str) -> bool:
    return line[-1:] in "，。；：,.;:" or following[0] == " "


def _is_seen(c: str) -> bool:
    return has_ink(c) and unicodedata.category(c) not in ("Cn", "Zs")


def frame(
    title: str,
    palette: Palette,
    *,
    height: int,
    left: int = 60,
    right: int = 16,
    bottom: int = 52,
    above: int = 0,
) -> go.Figure:
    """An empty figure in the page's colours that carries its title, already escaped, as `meta`.

    The title is not drawn: plotly breaks no lines. `viz.chart` sets it over the figure, and a picture that is
    saved gets it from viz/downloads.js. Pixels: `height` of the figure, `above` left free over the plot.
    """
    layout = _layout(palette=palette, height=height, left=left, right=right, bottom=bottom, above=above)
    figure = go.Figure(layout=layout)  # a copy
    figure.layout.meta = {"title": title}
    return figure


@lru_cache(maxsize=128)  # plotly takes 20 ms to make one, and a millisecond to copy it
def _layout(*, palette: Palette, height: int, left: int, right: int, bottom: int, above: int) -> go.Layout:
    quiet = {
        "gridcolor": palette.grid,
        "linecolor": palette.grid,
        "zeroline": False,
        "ticks": "",
        "tickfont": {"size": TICK_SIZE, "color": palette.muted},
        "title": {"font": {"size": LABEL_SIZE, "color": palette.muted}, "standoff": 8},
        "fixedrange": True,
        "separatethousands": True,
    }
    return go.Layout(
        template=_template(),
        height=height,
        margin={"l": left, "r": right, "t": 14 + above, "b": bottom, "autoexpand": False},
        font={"family": FONT_STACK, "size": LABEL_SIZE, "color": palette.text},
        paper_bgcolor=palette.ground,
        plot_bgcolor=palette.ground,
        showlegend=False,
        dragmode=False,
        hovermode="closest",
        separators=f".{THIN_SPACE}",
        hoverlabel={
            "bgcolor": palette.surface,
            "bordercolor": palette.grid,
            "font": {"family": FONT_STACK, "size": LABEL_SIZE, "color": palette.text},
            "align": "left",
        },
        uirevision="keep",
        xaxis={**quiet, "showgrid": False, "showline": True},
        yaxis={**quiet, "showgrid": True},
    )


def _template() -> dict[str, object]:
    """Plotly's own look, as far as these charts use it: all of it makes every figure slower and 6 kB longer."""
    whole = pio.templates["plotly"].to_plotly_json()
    return {
        "data": {kind: whole["data"][kind] for kind in _TRACES},
        "layout": {key: value for key, value in whole["layout"].items() if key not in _OTHER_SPACES},
    }


def escaped_title(figure: go.Figure) -> str:
    """A figure's title, escaped by `literal`, which holds for HTML too."""
    return str(figure.layout.meta["title"])


def title_of(figure: go.Figure) -> str:
    """A figure's title as plain text."""
    return unescaped(escaped_title(figure))


def corner_label(figure: go.Figure, text: str, palette: Palette) -> None:
    """Names the y axis in the corner under it: upright, where turned 汉字 would lie on their side."""
    figure.add_annotation(
        text=text, x=0, xref="paper", xanchor="right", xshift=-6, y=0, yref="paper", yanchor="top", yshift=-4,
        showarrow=False, font={"size": LABEL_SIZE, "color": palette.muted},
    )  # fmt: skip


def colour_bar(title: str, ticks: Mapping[float, str], palette: Palette) -> dict[str, object]:
    """The bar over a heat map that says what its colours mean: labels by value."""
    return {
        "orientation": "h",
        "x": 0,
        "xanchor": "left",
        "y": 1,
        "yanchor": "bottom",
        "ypad": 4,
        "len": 1,
        "thickness": 10,
        "outlinewidth": 0,
        "tickvals": list(ticks),
        "ticktext": list(ticks.values()),
        "tickfont": {"size": TICK_SIZE, "color": palette.muted},
        "title": {"text": title, "side": "top", "font": {"size": LABEL_SIZE, "color": palette.muted}},
    }


def site_title(words: Words, layer: int | None, role: str) -> str:
    """What a norm site is called at the head of a sentence: "Layer 4, MLP input"."""
    name = words.t("figures.final_norm") if role == "final" else words.t(f"common.role.{role}")
    if layer is not None:
        name = words.t("figures.site", layer=layer, role=name)
    return name[:1].upper() + name[1:]

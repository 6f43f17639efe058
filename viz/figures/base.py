"""What all figures share: the frame, axes, number and token labels, and text that plotly must not interpret."""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Any, Final

import plotly.graph_objects as go

from model_probe.trace import Token
from viz.text import Words
from viz.theme import FONT_STACK, Palette

TITLE_CHARS: Final = 37  # half-widths in a title's line: what 390 pixels hold at TITLE_SIZE
TITLE_SIZE: Final = 16
TITLE_LINES: Final = 2  # room kept, so that a shorter finding moves nothing
LABEL_SIZE: Final = 13
TICK_SIZE: Final = 12
TITLE: Final = "title"  # name of the annotation that is a figure's title
_LINE_HEIGHT: Final = 21
TOKEN_CHARS: Final = 15  # longest token label on an axis

# Given to st.plotly_chart: no logo, no gadgets; the page scrolls under a finger.
CONFIG: Final[dict[str, Any]] = {
    "displaylogo": False,
    "displayModeBar": False,
    "scrollZoom": False,
    "doubleClick": "reset",
    "responsive": True,
}

_VISIBLE: Final = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥"}
_PLOTLY_SPECIAL: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;", "%": "&#37;"})


def literal(text: str) -> str:
    """Text that plotly draws letter for letter: no tags, no MathJax, no %{…} template.

    >>> literal("<b>$x$</b>")
    '&lt;b&gt;&#36;x&#36;&lt;/b&gt;'
    """
    return text.translate(_PLOTLY_SPECIAL)


def unescaped(text: str) -> str:
    """The plain text of a label, for an `alt`: tags dropped, `literal` undone."""
    return html.unescape(re.sub(r"</?b>", "", text.replace("<br>", " ")))


def visible(text: str) -> str:
    """Text with its spaces and everything else that leaves no ink made visible.

    >>> visible(" river\\n"), visible("a\\u200db")
    ('␣river⏎', 'a<U+200D>b')
    """
    return "".join(_VISIBLE.get(c) or (c if _has_ink(c) else f"<U+{ord(c):04X}>") for c in text)


def token_label(token: Token, at_most: int = TOKEN_CHARS) -> str:
    """A token as a readable label of at most so many half-widths, not yet escaped; a control token stands in ⟦ ⟧.

    >>> token_label(Token(0, 151645, "<|im_end|>", special=True))
    '⟦<|im_end|>⟧'
    """
    text = visible(token.text)
    room = at_most - 2 if token.special else at_most
    if _half_widths(text) > room:
        while _half_widths(text) >= room:
            text = text[:-1]
        text += "…"
    return f"⟦{text}⟧" if token.special else text


def wrapped(text: str, at_most: int = TITLE_CHARS) -> str:
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
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in html.unescape(text))


def _ends_well(line: str, following: str) -> bool:
    return line[-1:] in "，。；：,.;:" or following[0] == " "


def _has_ink(c: str) -> bool:
    return unicodedata.category(c) not in (
        "Cc",
        "Cf",
        "Cs",
        "Co",
        "Cn",
        "Zs",
        "Zl",
        "Zp",
    )


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
    """An empty figure in the page's colours with its title, which is already escaped, over it.

    Pixels: `height` of the figure with room for a title of TITLE_LINES, `above` left free between title and
    plot. The title is an annotation: plotly shifts titles of several lines out of the picture.
    """
    text = wrapped(title)
    extra = _LINE_HEIGHT * max(0, text.count("<br>") + 1 - TITLE_LINES)
    figure = go.Figure()
    figure.add_annotation(
        name=TITLE, text=f"<b>{text}</b>", showarrow=False, align="left",
        x=0, xref="paper", xanchor="left", xshift=4 - left, y=1, yref="paper", yanchor="bottom", yshift=10 + above,
        font={"size": TITLE_SIZE, "color": palette.text},
    )  # fmt: skip
    figure.update_layout(
        height=height + extra,
        margin={
            "l": left,
            "r": right,
            "t": 24 + _LINE_HEIGHT * TITLE_LINES + above + extra,
            "b": bottom,
            "autoexpand": False,
        },
        font={"family": FONT_STACK, "size": LABEL_SIZE, "color": palette.text},
        paper_bgcolor=palette.ground,
        plot_bgcolor=palette.ground,
        showlegend=False,
        dragmode=False,
        hovermode="closest",
        hoverlabel={
            "bgcolor": palette.surface,
            "bordercolor": palette.grid,
            "font": {"family": FONT_STACK, "size": LABEL_SIZE, "color": palette.text},
            "align": "left",
        },
        uirevision="keep",
    )
    quiet = {
        "gridcolor": palette.grid,
        "linecolor": palette.grid,
        "zeroline": False,
        "ticks": "",
        "tickfont": {"size": TICK_SIZE, "color": palette.muted},
        "title": {"font": {"size": LABEL_SIZE, "color": palette.muted}, "standoff": 8},
        "fixedrange": True,
    }
    figure.update_xaxes(**quiet, showgrid=False, showline=True)
    figure.update_yaxes(**quiet, showgrid=True)
    return figure


def title_of(figure: go.Figure) -> str:
    """A figure's title as plain text."""
    return unescaped(next(a.text for a in figure.layout.annotations if a.name == TITLE))


def site_title(words: Words, layer: int | None, role: str) -> str:
    """What a norm site is called at the head of a sentence: "Layer 4, MLP input"."""
    name = words.t("figures.final_norm") if role == "final" else words.t(f"common.role.{role}")
    if layer is not None:
        name = words.t("figures.site", layer=layer, role=name)
    return name[:1].upper() + name[1:]

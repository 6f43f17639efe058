"""The tables of the formula page: the symbols, RMSNorm beside LayerNorm, and the shapes on the way.

HTML, as `viz/tables.py` has it: a real <table>, scrolled in its own box on a phone. Neither Streamlit nor torch is
imported here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from model_probe.worked import LayerNormSteps, RMSNormSteps
from viz.text import MINUS, Words

SYMBOLS: Final = {  # symbol: how it is written, and whether RMSNorm keeps it
    "mu": ("μ", "dropped"),
    "sigma": ("σ²", "dropped"),
    "epsilon": ("ε", "kept"),
    "gamma": ("γ", "kept"),
    "beta": ("β", "dropped"),
}
SHAPES: Final = (  # step, symbolic shape
    ("x", "B, S, d"),
    ("upcast", "B, S, d"),
    ("square", "B, S, d"),
    ("mean", "B, S, 1"),
    ("eps", "B, S, 1"),
    ("rsqrt", "B, S, 1"),
    ("times_x", "B, S, d"),
    ("times_gain", "B, S, d"),
    ("downcast", "B, S, d"),
)


def symbols_table(words: Words) -> str:
    """One row a symbol: how it is read, what it is, where its value comes from, whether RMSNorm has it."""
    columns = ("read", "meaning", "origin")
    heads = ["", *(words.t(f"formula.symbols.{column}") for column in columns), "RMSNorm"]
    rows = []
    for name, (symbol, fate) in SYMBOLS.items():
        cells = [words.t(f"formula.symbols.{name}.{column}") for column in columns]
        cells.append(words.t(f"formula.symbols.{fate}"))
        rows.append(_row(symbol, map(escape, cells), f"formula-{fate}"))
    return _table(words.t("formula.symbols.caption"), heads, rows)


def comparison_table(words: Words, layer: LayerNormSteps, root: RMSNormSteps) -> str:
    """Both norms of one vector, an entry a row, their sums below, and the numbers that divide."""
    x, centred = (_numbers(values) for values in (layer.x, layer.centred))
    ours, theirs = _numbers(root.y), _numbers(layer.y)
    heads = [
        "x",
        words.t("formula.beside.centred"),
        words.t("formula.beside.layer_norm"),
        words.t("formula.beside.rms_norm"),
    ]
    rows = [
        _row(f"<i>x</i><sub>{i + 1}</sub>", cells, cell="lab-number")
        for i, cells in enumerate(zip(x, centred, theirs, ours, strict=True))
    ]
    sums = _numbers([float(values.sum()) for values in (layer.x, layer.centred, layer.y, root.y)])
    rows.append(_row(escape(words.t("formula.beside.sum")), sums, "formula-sum", cell="lab-number"))
    return _table(words.t("formula.beside.caption"), ["", *heads], rows)


def shapes_table(words: Words, prompt: str, sizes: tuple[int, int, int]) -> str:
    """One row a step of the computation: its shape in letters, and for one prompt: (texts, tokens, hidden size)."""
    letters = dict(zip("BSd1", (*sizes, 1), strict=True))
    rows = []
    for step, shape in SHAPES:
        here = ", ".join(str(letters[letter]) for letter in shape.split(", "))
        rows.append(_row(escape(words.t(f"formula.shapes.{step}")), [f"[{shape}]", f"[{here}]"]))
    heads = [
        words.t("formula.shapes.step"),
        words.t("formula.shapes.shape"),
        words.t("formula.shapes.here", prompt=prompt),
    ]
    return _table(words.t("formula.shapes.caption"), heads, rows)


def fixed(value: float, decimals: int = 2) -> str:
    """A number with so many decimals, as columns of a table need it; what rounds to nothing has no sign.

    >>> fixed(-0.218), fixed(-1e-17)
    ('−0.22', '0.00')
    """
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", MINUS)


def _numbers(values: Iterable[float]) -> list[str]:
    return [fixed(float(value)) for value in values]


def _row(head: str, cells: Iterable[str], kind: str = "", cell: str = "") -> str:
    """A row; `kind` and `cell` are its class and that of its cells. All of it is HTML already."""
    drawn = "".join(f'<td class="{cell}">{text}</td>' for text in cells)
    return f'<tr class="{kind}"><th scope="row">{head}</th>{drawn}</tr>'


def _table(caption: str, heads: Sequence[str], rows: Sequence[str]) -> str:
    label = escape(caption, quote=True)
    top = "".join(f'<th scope="col">{escape(head)}</th>' if head else "<td></td>" for head in heads)
    return (
        f'<div class="lab-table lab-formula" tabindex="0" role="region" aria-label="{label}"><table>'
        f"<caption>{label}</caption><thead><tr>{top}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )

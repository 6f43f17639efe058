"""Two layers of a stack, with the norm before the block or after the sum, and the gradient's way back through both.

Data runs down, the gradient runs up. The stream is orange where it is a bare sum, and thicker the more it has
added up; it is the colour of the normalized where a norm has just set its scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from viz.drawings.svg import PLUS_RADIUS, Drawing, Picture, Point, arrow, box, frame, line, plus, text
from viz.text import Words

WIDTH: Final = 330
HEIGHT: Final = 436
_STREAM: Final = 122  # x of the residual stream
_WAY: Final = 103  # x of the gradient's way
_BRANCH: Final = 240  # x of a block's branch
_BOX: Final = 128
_NORM: Final = 92  # width of a norm on the stream
_NORM_HEIGHT: Final = 28
_LAYERS: Final = (34, 182)  # y where each layer begins
_LAYER_HEIGHT: Final = 138
_HEAD: Final = 404  # y of the LM head's middle
_FINAL: Final = 356  # y of the final norm's middle
_TOP: Final = 24  # y where the stream begins
_GROWTH: Final = 1.8  # pixels that the stream gains with each sum
_THIN: Final = 2.4


def post_norm(words: Words) -> Drawing:
    """norm(x + f(x)): every norm stands in the gradient's way."""
    parts = [*_frames(words), *_ends(words)]
    start: Point = (_STREAM, _TOP)
    norms: list[float] = []
    for top in _LAYERS:
        total, norm = top + 82, top + 118
        kind = "normalized" if norms else "residual"  # nothing has normed the embedding
        parts.append(line([start, (_STREAM, total)], kind, width=_THIN))
        parts.append(arrow([(_STREAM, top + 13), (_BRANCH, top + 13), (_BRANCH, top + 25)], kind))
        parts.append(arrow([(_BRANCH, top + 61), (_BRANCH, total), (_STREAM + PLUS_RADIUS, total)], "quiet"))
        parts.append(box((_BRANCH, top + 43), words.t("drawings.block"), "quiet", width=_BOX, height=36))
        parts.append(line([(_STREAM, total), (_STREAM, norm)], "residual", width=_THIN + _GROWTH))
        parts.append(plus((_STREAM, total)))
        parts.append(_norm_on_stream(words.t("drawings.norm"), norm))
        start = (_STREAM, norm + _NORM_HEIGHT / 2)
        norms.append(norm)
    parts.append(arrow([start, (_STREAM, _HEAD - 17)], "normalized", width=_THIN))
    return _drawing(words, "post_norm", [*parts, *_way(words, "post_norm", norms)])


def pre_norm(words: Words) -> Drawing:
    """x + f(norm(x)): a bare path for the gradient, and a final norm where the stream ends."""
    parts = [*_frames(words), *_ends(words)]
    start, width = _TOP, _THIN
    for top in _LAYERS:
        total = top + 122
        parts.append(line([(_STREAM, start), (_STREAM, total)], "residual", width=width))
        parts.append(arrow([(_STREAM, top + 14), (_BRANCH, top + 14), (_BRANCH, top + 26)], "residual"))
        parts.append(line([(_BRANCH, top + 40), (_BRANCH, top + 70)], "normalized"))
        parts.append(arrow([(_BRANCH, top + 100), (_BRANCH, total), (_STREAM + PLUS_RADIUS, total)], "quiet"))
        name = words.t("drawings.norm")
        parts.append(box((_BRANCH, top + 40), name, "normalized", width=_BOX, height=_NORM_HEIGHT))
        parts.append(box((_BRANCH, top + 82), words.t("drawings.block"), "quiet", width=_BOX, height=36))
        parts.append(plus((_STREAM, total)))
        start, width = total + PLUS_RADIUS, width + _GROWTH
    parts.append(line([(_STREAM, start), (_STREAM, _FINAL)], "residual", width=width))
    parts.append(arrow([(_STREAM, _FINAL), (_STREAM, _HEAD - 17)], "normalized", width=_THIN))
    parts.append(_norm_on_stream(words.t("drawings.final_norm"), _FINAL))
    return _drawing(words, "pre_norm", [*parts, *_way(words, "pre_norm", [_FINAL])])


def _drawing(words: Words, placement: str, parts: list[str]) -> Drawing:
    return Drawing(
        key=placement,
        name=words.t(f"drawings.{placement}.name"),
        description=words.t(f"drawings.{placement}.description"),
        pictures=(Picture(WIDTH, HEIGHT, tuple(parts)),),
    )


def _frames(words: Words) -> list[str]:
    left = _STREAM - _NORM / 2 - 8
    labels = [
        text((WIDTH - 12, top + _LAYER_HEIGHT - 13), words.t("drawings.layer", n=n), "quiet small", "end")
        for n, top in enumerate(_LAYERS, start=1)
    ]
    return [*(frame((left, top), WIDTH - left, _LAYER_HEIGHT) for top in _LAYERS), *labels]


def _ends(words: Words) -> list[str]:
    """What goes into the first layer, and what reads the last."""
    return [
        text((_STREAM, 11), words.t("drawings.embedding"), "quiet small"),
        box((_STREAM, _HEAD), words.t("drawings.lm_head"), "quiet", width=_NORM),
    ]


def _norm_on_stream(name: str, y: float) -> str:
    return box((_STREAM, y), name, "normalized", width=_NORM, height=_NORM_HEIGHT)


def _way(words: Words, placement: str, norms: Sequence[float]) -> list[str]:
    """The gradient's way from the head to the embedding, cut at every norm that stands in it."""
    half, kind = _NORM_HEIGHT / 2, f"gradient {placement}"
    starts = [_HEAD - 17, *(norm - half for norm in reversed(norms))]
    ends = [*(norm + half for norm in reversed(norms)), _TOP - 2]
    beside = (_STREAM - _NORM / 2 - 14,)
    return [
        *(
            arrow([(_WAY, start), (_WAY, end)], kind, width=2)
            for start, end in zip(starts, ends, strict=True)
        ),
        *(text((*beside, norm), words.t("drawings.divided"), f"{placement} small", "end") for norm in norms),
        text((_WAY - 14, _TOP + 4), words.t("drawings.gradient"), f"{placement} small strong", "end"),
    ]

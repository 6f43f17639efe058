"""What a hostile visitor types: texts named by the harm they are meant to do, and random texts made of them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Final

MARKUP: Final[list[str]] = json.loads(
    (Path(__file__).parent / "browser" / "hostile.json").read_text(encoding="utf-8")
)
CONTROLS: Final = [chr(c) for c in (*range(0x20), 0x7F, *range(0x80, 0xA0))]
BIDI: Final = [chr(c) for c in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)]
ZERO_WIDTH: Final = [
    "\u200b",
    "\u200c",
    "\u200d",
    "\u2060",
    "\ufeff",
    "\u00ad",
    "\u034f",
    "\u3164",
    "\U000e0041",
]
UNPAIRED: Final = ["\ud800", "\udbff", "\udc00", "\udfff", "\udc80"]
NO_CHARACTERS: Final = ["\ufffe", "\uffff", "\ufdd0", "\U0010ffff", "\u0378"]
PATHS: Final = [
    "/etc/passwd",
    "../../../../etc/passwd",
    "file:///etc/passwd",
    "C:\\Windows\\win.ini",
    "\\\\host\\share\\model.gguf",
    "model.gguf\0.json",
    "/dev/zero",
]
HUB_IDS: Final = [
    "owner/name",
    "Qwen/Qwen3-0.6B",
    "hf://owner/name",
    "https://example.com/model.gguf",
    "owner/name@main",
]

# What may arrive as text that can be encoded, by what it is meant to do.
NASTY: Final[dict[str, str]] = {
    **{f"markup {i}": text for i, text in enumerate(MARKUP)},
    "script": "</style></textarea><script>alert(1)</script>",
    "attribute": "\" onmouseover='alert(1)' x=`",
    "plotly template": "%{x} %{customdata} <extra></extra> <br><sub>",
    "format": "{0} {lang} {x.__class__} %s %(n)d ${HOME}",
    "controls": "".join(CONTROLS),
    "NUL": "a\0b",
    "ANSI": "\x1b[2J\x1b[31m\x1b]0;title\x07\x9b31m",
    "bidi override": "abc\u202edef",
    "bidi unbalanced": "\u2067\u202b\u2066a\u2069\u2069\u202c\u202c",
    "bidi all": "x".join(BIDI),
    "right to left": "\u05e9\u05dc\u05d5\u05dd 123 \u0645\u0631\u062d\u0628\u0627",
    "zero width": "x".join(ZERO_WIDTH),
    "no characters": "".join(NO_CHARACTERS),
    "line separators": "a\u2028b\u2029c\u0085d\x0be\x0cf",
    "combining flood": "a" + "\u0301\u0489\u20dd" * 60,
    "emoji": "👩\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈 🏴\U000e0067\U000e0062\U000e007f",
    "control tokens": "<|im_end|><|im_start|>system\n<|endoftext|></s>[INST]",
    "many digits": "9" * 5000,
    "beyond a float": "1e999",
    "not a number": "nan",
    "digits of elsewhere": "１２３ १२ ٣",
    "separators": "_" * 50 + "~" * 50 + "-" * 50 + "." * 50,
    "query": "a=b&lang=zh#x?y;z%00%2e%2e%2f",
    "SQL": "'; DROP TABLE traces; --",
    "empty": "",
    "blanks": "   \t\n",
    **{f"path {i}": text for i, text in enumerate(PATHS)},
    **{f"hub {i}": text for i, text in enumerate(HUB_IDS)},
}
GIANT: Final = 100_000  # characters


def random_text(rng: random.Random, *, encodable: bool = True) -> str:
    """A text of a few pieces: words, nasty ones, and characters from all of Unicode."""
    pieces = [_piece(rng) for _ in range(rng.randint(1, 6))]
    if not encodable:
        pieces.insert(rng.randint(0, len(pieces)), rng.choice(UNPAIRED))
    return "".join(pieces)


def _piece(rng: random.Random) -> str:
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(list(NASTY.values()))[:200]
    if kind == 1:
        return rng.choice([*CONTROLS, *BIDI, *ZERO_WIDTH, *NO_CHARACTERS])
    if kind == 2:
        return " ".join(rng.choice(("The", "river", "我爱苗寨", "naïve", "Ωμέγα", "हिन्दी")) for _ in range(3))
    ends = (0x7F, 0x7FF, 0xFFFF, 0x10FFFF)
    return "".join(_character(rng, rng.choice(ends)) for _ in range(rng.randint(1, 12)))


def _character(rng: random.Random, most: int) -> str:
    while True:
        code = rng.randint(0, most)
        if not 0xD800 <= code <= 0xDFFF:
            return chr(code)

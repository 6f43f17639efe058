"""The map of the forward pass: its stations in order, as HTML text.

Neither Streamlit nor torch is imported here.
"""

from __future__ import annotations

from html import escape
from typing import Final

from viz.text import Words

BEFORE: Final = ("text", "tokenize", "embed")
LAYER: Final = ("norm", "attention", "add", "norm", "mlp", "add")
AFTER: Final = ("final_norm", "lm_head", "sample")


def forward_map(words: Words, num_layers: int) -> str:
    """An ordered list of stations, those of a layer in a list of their own, marked `num_layers` ×."""
    before = "".join(_station(words, name) for name in BEFORE)
    layer = "".join(_station(words, name) for name in LAYER)
    after = "".join(_station(words, name) for name in AFTER)
    times = escape(words.t("start.map.times", n=num_layers))
    repeated = f'<li class="lab-map-layer"><span class="lab-map-times">{times}</span><ol>{layer}</ol></li>'
    label = escape(words.t("start.map.label"), quote=True)
    return f'<ol class="lab-map" aria-label="{label}">{before}{repeated}{after}</ol>'


def _station(words: Words, name: str) -> str:
    kind = "norm" if name.endswith("norm") else "add" if name == "add" else "plain"
    return f'<li class="lab-map-{kind}">{escape(words.t(f"start.map.{name}"))}</li>'

"""The terms of the lesson, by group, and the page on which each can be seen.

A term's name is the label `glossary.name.<key>`, its explanation the prose `glossary/<key>`: one paragraph, which
the glossary shows and which prose opens in place, `[residual stream](term:residual_stream)`: see `viz/markup.py`.
In Chinese the English name stands beside the Chinese one.
Neither Streamlit nor torch is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from urllib.parse import urlencode

from viz.text import Words
from viz.text import words as words_of


@dataclass(frozen=True, slots=True)
class Term:
    """One term of the glossary."""

    key: str
    group: str  # one of GROUPS
    page: str  # stem of the page where it can be seen or moved
    choices: Mapping[str, str] = field(default_factory=dict)  # the state in which that page shows it

    @property
    def address(self) -> str:
        """The page and its state, as prose names them after `page:`.

        >>> Term("l2_norm", "norm", "probe", {"axis": "linear"}).address
        'probe?axis=linear'
        """
        return f"{self.page}?{urlencode(self.choices)}" if self.choices else self.page


GROUPS: Final = ("norm", "model", "place", "softmax", "trained")

TERMS: Final[tuple[Term, ...]] = (
    Term("rms_norm", "norm", "formula"),
    Term("layer_norm", "norm", "formula"),
    Term("rms", "norm", "formula"),
    Term("l2_norm", "norm", "probe"),
    Term("variance", "norm", "formula"),
    Term("epsilon", "norm", "scale"),
    Term("learned_gain", "norm", "gain"),
    Term("scale_invariance", "norm", "scale"),
    Term("upcast", "norm", "formula"),
    Term("token", "model", "start"),
    Term("feature", "model", "gain"),
    Term("hidden_size", "model", "formula"),
    Term("embedding", "model", "scale"),
    Term("residual_stream", "model", "start"),
    Term("attention", "model", "saturation"),
    Term("query_key", "model", "saturation"),
    Term("mlp", "model", "placement"),
    Term("lm_head", "model", "placement"),
    Term("weights", "model", "placement"),
    Term("gradient", "model", "placement"),
    Term("pre_norm", "place", "placement"),
    Term("post_norm", "place", "placement"),
    Term("identity_path", "place", "placement"),
    Term("final_norm", "place", "probe", {"norm": "final"}),
    Term("qk_norm", "place", "saturation"),
    Term("logits", "softmax", "saturation"),
    Term("entropy", "softmax", "saturation"),
    Term("softmax_saturation", "softmax", "saturation"),
    Term("perplexity", "softmax", "scale"),
    Term("kl_divergence", "softmax", "release"),
    Term("attention_sink", "trained", "probe"),
    Term("massive_activation", "trained", "probe"),
)

_BY_KEY: Final[Mapping[str, Term]] = MappingProxyType({entry.key: entry for entry in TERMS})


def term(key: str) -> Term:
    """The term of this key. Raises KeyError when the glossary has none."""
    return _BY_KEY[key]


def group(name: str) -> tuple[Term, ...]:
    """The terms of one of GROUPS, in the order in which they are read."""
    return tuple(entry for entry in TERMS if entry.group == name)


def explanation(key: str, words: Words) -> str:
    """What the term means: one paragraph of Markdown. Raises KeyError when the glossary has no such term."""
    return words.prose(f"glossary/{term(key).key}")


def english_name(key: str, words: Words) -> str:
    """The English name beside a Chinese one; "" where it is the same, or the language is English.

    >>> english_name("residual_stream", words_of("zh")), english_name("logits", words_of("zh"))
    ('residual stream', '')
    """
    name, english = (reader.t(f"glossary.name.{term(key).key}") for reader in (words, words_of("en")))
    return "" if english == name else english

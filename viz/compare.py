"""`Pair`: two traces side by side — what each is called, where the second has the first's norms, and by what factor.

The first, A, is the one that the page shows; B is laid over it. Neither Streamlit nor torch is imported here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from model_probe.trace import NormTrace, SiteTrace
from viz.figures.base import shortened, visible
from viz.provenance import Origin
from viz.reading import LINES, Reading, layer_code, layers
from viz.text import Words

PROMPT_CHARS: Final = 28  # half-widths of a prompt in a name
_PART_CHARS: Final = 32  # of any other part

Floats = NDArray[np.float64]
Place = tuple[int | None, str, int]  # layer, role, and which of that role in the layer


@dataclass(frozen=True, slots=True)
class Pair:
    """The trace of the page and the one laid over it."""

    first: NormTrace
    second: NormTrace
    origins: tuple[Origin, Origin] = ("recording", "recording")

    @property
    def is_same(self) -> bool:
        """Whether the second is the very trace that the page shows."""
        return self.first is self.second

    @property
    def is_stretched(self) -> bool:
        """Whether the two have other layers along the depth, so that one is stretched to the other's length."""
        a, b = ([layer_code(site) for site in trace.depth()] for trace in (self.first, self.second))
        return a != b

    def along(self) -> Floats:
        """Where the second's sites of the depth lie on the first's axis, of one step a site: [sites of the second].

        The ends lie on the ends, all others between them in equal steps.
        """
        first, second = len(self.first.depth()), len(self.second.depth())
        return np.linspace(0, first - 1, second) if second > 1 else np.array([first - 1.0])

    def counterpart(self, site: SiteTrace) -> SiteTrace | None:
        """The second's norm of the same layer and role; None where it has none."""
        return _by_place(self.second).get(_place_of(self.first, site))

    def has_layer(self, layer: str) -> bool:
        """Whether the second has a layer of this code."""
        return layer in layers(self.second)

    def has_token(self, reading: Reading) -> bool:
        """Whether the second has the token that is read; always, where all are."""
        return reading.statistic != "token" or reading.token < len(self.second.tokens)

    def unlike(self) -> str | None:
        """Why the two cannot be compared token by token: other "tokens", other "sites"; None when they can be."""
        tokens = [[(token.id, token.text) for token in trace.tokens] for trace in (self.first, self.second)]
        if tokens[0] != tokens[1]:
            return "tokens"
        sites = [[(site.name, site.role) for site in trace.depth()] for trace in (self.first, self.second)]
        return None if sites[0] == sites[1] else "sites"

    def ratios(self, line: str) -> Floats:
        """The second's L2 ÷ the first's, of one of `viz.reading.LINES`: [sites of the depth, tokens].

        NaN where one of the two is not finite or not above 0.

        Raises:
            ValueError: the two are `unlike`.
        """
        if self.unlike() is not None:
            raise ValueError(f"other {self.unlike()}")
        first, second = (
            np.stack([site.series(LINES[line]) for site in trace.depth()]).astype(np.float64)
            for trace in (self.first, self.second)
        )
        known = np.isfinite(first) & np.isfinite(second) & (first > 0) & (second > 0)
        return np.divide(second, first, out=np.full(first.shape, np.nan), where=known)

    def names(self, words: Words) -> tuple[str, str]:
        """What the two are called: only that in which they differ. Plain text, not escaped."""
        differing = [pair for pair in self._facts(words) if pair[0] != pair[1]]
        if not differing:  # the same measured twice
            differing = [pair for pair in self._sources(words) if pair[0] != pair[1]][:1]
        if not differing:
            differing = [beginnings(self.first.prompt, self.second.prompt, words)]
        a, b = zip(*differing, strict=True)
        return " · ".join(a), " · ".join(b)

    def _facts(self, words: Words) -> Iterator[tuple[str, str]]:
        if self.first.prompt != self.second.prompt:
            yield beginnings(self.first.prompt, self.second.prompt, words)
        a, b = self.first.checkpoint, self.second.checkpoint
        if a.name == b.name and a.digest != b.digest:
            yield f"{_part(a.name)} {a.digest[:8]}", f"{_part(b.name)} {b.digest[:8]}"
        yield _part(a.name), _part(b.name)
        yield _part(a.dtype), _part(b.dtype)
        yield _part(a.device), _part(b.device)

    def _sources(self, words: Words) -> Iterator[tuple[str, str]]:
        a, b = (words.t(f"compare.origin.{origin}") for origin in self.origins)
        yield a, b
        yield self.first.checkpoint.recorded_at[:19], self.second.checkpoint.recorded_at[:19]


def beginnings(first: str, second: str, words: Words) -> tuple[str, str]:
    """The beginnings of two prompts, quoted; where these are the same, what surrounds the first difference."""
    told = [beginning(prompt) for prompt in (first, second)]
    if told[0] == told[1] and first != second:
        differing = (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
        start = max(0, next(differing, min(len(first), len(second))) - PROMPT_CHARS // 3)
        told = ["… " + beginning(prompt[start:]) for prompt in (first, second)]
    a, b = (words.t("figures.quoted", text=text) for text in told)
    return a, b


def beginning(prompt: str) -> str:
    """The first words of a prompt, with everything visible that leaves no ink but the space; ended at a word where
    one ends nearby."""
    text = shortened(_inked(prompt[: PROMPT_CHARS + 1]), PROMPT_CHARS)
    whole = text.rpartition(" ")[0]
    return f"{whole} …" if text.endswith("…") and len(whole) > PROMPT_CHARS // 2 else text


def _part(text: str) -> str:
    return shortened(_inked(text[: _PART_CHARS + 1]), _PART_CHARS)


def _inked(text: str) -> str:
    return "".join(c if c == " " else visible(c) for c in text)


def _by_place(trace: NormTrace) -> dict[Place, SiteTrace]:
    counted: Counter[tuple[int | None, str]] = Counter()
    places: dict[Place, SiteTrace] = {}
    for site in trace.sites:
        places[site.layer, site.role, counted[site.layer, site.role]] = site
        counted[site.layer, site.role] += 1
    return places


def _place_of(trace: NormTrace, site: SiteTrace) -> Place:
    return next(place for place, each in _by_place(trace).items() if each.name == site.name)

"""The small tables of the lesson's pages. Neither Streamlit nor torch is imported here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from model_probe.properties import NORMS, respond
from model_probe.sites import NormSite, count_gain, summarize_gain
from model_probe.summaries import summarize
from model_probe.trace import SiteTrace
from viz.figures.base import site_title
from viz.tables import number_table, pair_table
from viz.text import Words, number

_DIGITS: Final = 5  # of the normalized L2: 29.88 against 29.93, and both against √d


def scale_table(sites: Sequence[SiteTrace], words: Words) -> str:
    """What goes into some norms, and how much of √d is there after the division, medians over the tokens."""
    rows = {}
    for site in sites:
        root = math.sqrt(site.size)
        normalized = summarize(site.normalized_l2)
        rows[site.name] = (
            site_title(words, site.layer, site.role),
            [
                number(summarize(site.input.l2) / root),
                number(normalized, _DIGITS),
                f"{100 * normalized / root:.3f}",
            ],
        )
    size = sites[0].size
    heads = (words.t("scale.real.rms"), words.t("scale.real.l2"), words.t("scale.real.percent", size=size))
    caption = words.t("scale.real.caption", size=size, root=number(math.sqrt(size), _DIGITS))
    return number_table(caption, heads, rows)


def response_table(change: str, words: Words) -> str:
    """How much the watched token's output answers to a change, and its RMS, under both norms."""
    rows = {}
    for norm in NORMS:
        told = respond(change, norm)
        rows[norm] = (words.t(f"scale.norm.{norm}"), [number(told.largest_change, 2), f"{told.rms:.3f}"])
    heads = (words.t("scale.change.largest"), words.t("scale.change.output_rms"))
    return number_table(words.t("scale.change.caption"), heads, rows)


def gain_table(site: NormSite, words: Words) -> str:
    """Counts and statistics of a gain.

    Raises:
        ValueError: the site has none.
    """
    counts, told = count_gain(site.known_gain), summarize_gain(site.known_gain)
    left = {name: str(getattr(counts, name)) for name in ("amplified", "damped", "exactly_one", "negative")}
    right = {name: number(getattr(told, name)) for name in ("min", "max", "mean", "rms")}
    rows = [
        {name: (words.t(f"gain.count.{name}"), value) for name, value in pair}
        for pair in zip(left.items(), right.items(), strict=True)
    ]
    return pair_table(words.t("gain.counts", size=site.size), rows)

"""What interventions do, in words and as tables: their names, what a reader's guess is held against, before and after.

Neither Streamlit nor torch is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from model_probe.experiments import LOGIT_FACTORS, Outcomes
from model_probe.interventions import Intervention
from model_probe.outcome import Outcome
from model_probe.trace import ROLES, Token
from viz.figures.base import token_label
from viz.tables import number_table
from viz.text import Words, isolated, number

TOO_FAR: Final = 1e-3  # nats of mean KL: below it nothing but rounding has changed
_HOLDS, _BREAKS = 3.0, 100.0  # times the untouched perplexity
_SAME, _DOUBLE = 1.05, 2.0  # the same, where little is expected
_MOST_OF_IT: Final = 0.5  # of the damage, as log perplexity
_CODE_PARTS: Final = 4

# The factors of the attention logits by their codes in the address; at 1 nothing is changed.
FACTORS: Final = {f"x{k:g}": k for k in sorted((*LOGIT_FACTORS, 1.0))}

Cases = Mapping[str, Outcome]


def called(interventions: Sequence[Intervention], words: Words) -> str:
    """What is changed, without where: "norm output × 2 + biases × 2"."""
    names = [
        words.t(f"release.does.{each.kind}", k="" if each.amount is None else factor(each.amount))
        for each in interventions
    ]
    return " + ".join(names) if names else words.t("release.untouched")


def factor(amount: float) -> str:
    """A factor as it is written: 1/16 and 0.25 alike are exact."""
    if 0 < amount < 0.2 and math.isclose(1 / amount, round(1 / amount)):
        return f"1/{round(1 / amount)}"
    return f"{amount:g}"


def placed(intervention: Intervention, words: Words) -> str:
    """What is changed, and where."""
    parts = [called((intervention,), words)]
    if intervention.layers is not None:
        first, last = intervention.layers[0], intervention.layers[-1]
        parts.append(
            words.t("release.where.layer", layer=first)
            if first == last
            else words.t("release.where.layers", first=first, last=last)
        )
    if intervention.roles is not None:
        parts += [words.t(f"common.role.{role}") for role in intervention.roles]
    return words.t("release.where.join").join(parts)


def encode(intervention: Intervention) -> str:
    """An intervention as a code for the address: kind, amount, layers, roles.

    >>> encode(Intervention("output_scale", 2.0, (3, 4, 5), ("mlp_input",)))
    'output_scale~2~3-5~mlp_input'
    """
    layers = "" if intervention.layers is None else f"{intervention.layers[0]}-{intervention.layers[-1]}"
    amount = "" if intervention.amount is None else f"{intervention.amount:g}"
    return "~".join((intervention.kind, amount, layers, ".".join(intervention.roles or ())))


def decode(code: str) -> Intervention | None:
    """The intervention of a code; None where it is none.

    >>> decode("no_division~~4-4~attention_input").layers
    (4,)
    """
    parts = code.split("~")
    if len(parts) != _CODE_PARTS:
        return None
    kind, amount, span, roles = parts
    try:
        layers = None
        if span:
            first, last = (int(end) for end in span.split("-"))
            if not 0 <= first <= last < _MOST_LAYERS:
                return None
            layers = tuple(range(first, last + 1))
        value = float(amount) if amount else None
        if value is not None and not math.isfinite(value):
            return None
        chosen = tuple(roles.split(".")) if roles else None
        if chosen is not None and not set(chosen) <= set(ROLES):
            return None
        return Intervention(kind, value, layers, chosen)
    except ValueError:
        return None


_MOST_LAYERS: Final = 512


def truth(experiment: str, outcomes: Outcomes) -> str:
    """The code of the answer that the measurement gives to an experiment's question."""
    by_case, untouched = outcomes.by_case[experiment], outcomes.untouched
    return _TRUTHS[experiment](by_case, untouched, outcomes)


def grows(outcome: Outcome, untouched: Outcome) -> float:
    """Perplexity as a multiple of the untouched run's; infinite where it is not a number."""
    ratio = outcome.perplexity / untouched.perplexity
    return ratio if math.isfinite(ratio) else math.inf


def _invariance(by_case: Cases, _untouched: Outcome, _all: Outcomes) -> str:
    larger, smaller = (not by_case[code].mean_kl <= TOO_FAR for code in ("x16", "x1_16"))
    if larger:
        return "both" if smaller else "larger"
    return "smaller" if smaller else "neither"


def _sharpness(by_case: Cases, untouched: Outcome, _all: Outcomes) -> str:
    ratio = grows(by_case["x4"], untouched)
    return "holds" if ratio < _HOLDS else "rises" if ratio < _BREAKS else "breaks"


def _louder(by_case: Cases, untouched: Outcome, outcomes: Outcomes) -> str:
    damage = math.log(grows(by_case["output_x2"], untouched))
    alone = {"softmax": outcomes.by_case["sharpness"]["x4"], "values": by_case["values_x2"]}
    shares = {code: math.log(grows(outcome, untouched)) / damage for code, outcome in alone.items()}
    most = max(shares, key=shares.__getitem__)
    return most if shares[most] > _MOST_OF_IT else "neither"


def _one_brake(by_case: Cases, _untouched: Outcome, _all: Outcomes) -> str:
    kl = kl_by_layer(by_case, "attention_input")
    layer = min(kl, key=lambda each: kl[each] if math.isfinite(kl[each]) else math.inf)
    third = len(kl) / 3
    return "first" if layer < third else "middle" if layer < 2 * third else "last"


def _all_brakes(by_case: Cases, untouched: Outcome, _all: Outcomes) -> str:
    everywhere = by_case["everywhere"]
    if everywhere.non_finite_logits or everywhere.first_non_finite is not None:
        return "overflow"
    return "sense" if grows(everywhere, untouched) < _HOLDS else "numbers"


def _mean(by_case: Cases, untouched: Outcome, _all: Outcomes) -> str:
    ratio = grows(by_case["layer_norm"], untouched)
    return "same" if ratio < _SAME else "some" if ratio < _DOUBLE else "much"


_TRUTHS: Final = {
    "invariance": _invariance,
    "sharpness": _sharpness,
    "louder": _louder,
    "one_brake": _one_brake,
    "all_brakes": _all_brakes,
    "mean": _mean,
}


def kl_by_layer(by_case: Cases, role: str) -> dict[int, float]:
    """Mean KL in nats by the layer whose norm of this role has no division, as far as it was run."""
    found = {}
    for code, outcome in by_case.items():
        name, _, layer = code.partition(".")
        if name == role:
            found[int(layer)] = outcome.mean_kl
    return dict(sorted(found.items()))


def sharpness_by_factor(untouched: Outcome, by_case: Cases) -> dict[float, Outcome]:
    """The outcomes of `sharpness` by the factor of the logits, the untouched run at 1."""
    found = {FACTORS[code]: outcome for code, outcome in by_case.items() if code in FACTORS}
    return dict(sorted({1.0: untouched, **found}.items()))


def next_token(outcome: Outcome, words: Words) -> str:
    """The likeliest next token and its share, as text that is not Markdown."""
    if not outcome.top:
        return words.t("release.no_number")
    best = outcome.top[0]
    return words.t(
        "release.token_share", token=isolated(best_label(outcome)), share=number(best.probability, 2)
    )


def best_label(outcome: Outcome) -> str:
    """The likeliest next token as a readable label; "" where no logit is a number."""
    return _label(outcome.top[0].id, outcome.top[0].text) if outcome.top else ""


def effect_table(untouched: Outcome, changed: Outcome, words: Words) -> str:
    """Before and after, one row a figure; what is not a number says so."""

    def shown(value: float, digits: int = 3) -> str:
        return number(value, digits) if math.isfinite(value) else words.t("release.no_number")

    rows = [
        ("perplexity", [shown(each.perplexity) for each in (untouched, changed)]),
        ("kl", ["0", shown(changed.mean_kl)]),
        ("next", [next_token(each, words) for each in (untouched, changed)]),
    ]
    if untouched.attention is not None and changed.attention is not None:
        pair = (untouched.attention, changed.attention)
        for name in ("entropy", "jacobian", "heaviest", "first_token"):
            rows.append((name, [shown(float(np.mean(getattr(each, name)))) for each in pair]))
    broken = non_finite(changed)
    if broken:
        rows.append(("non_finite", ["0", number(float(broken))]))
    heads = (words.t("release.untouched"), words.t("release.changed"))
    return number_table(
        words.t("release.table.caption"),
        heads,
        {name: (words.t(f"release.table.{name}"), cells) for name, cells in rows},
    )


def top_table(untouched: Outcome, changed: Outcome, words: Words) -> str:
    """The likeliest next tokens of both runs, rank by rank."""
    rows = {}
    for place in range(max(len(untouched.top), len(changed.top))):
        cells = [
            words.t(
                "release.token_share",
                token=isolated(_label(each.top[place].id, each.top[place].text)),
                share=number(each.top[place].probability, 2),
            )
            if place < len(each.top)
            else words.t("release.no_number")
            for each in (untouched, changed)
        ]
        rows[f"top{place + 1}"] = (str(place + 1), cells)
    heads = (words.t("release.untouched"), words.t("release.changed"))
    return number_table(words.t("release.table.top"), heads, rows)


def non_finite(outcome: Outcome) -> int:
    """Elements at norms and logits that are NaN or infinite."""
    return outcome.non_finite_logits + sum(site.non_finite for site in outcome.sites)


def _label(number_: int, text: str) -> str:
    return token_label(Token(0, number_, text, special=False))

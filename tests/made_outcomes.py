"""Hand-made outcomes: what the pictures of interventions are tested on without a model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from model_probe.experiments import CAPITAL, EXPERIMENTS, Case, Outcomes, cases
from model_probe.interventions import Intervention
from model_probe.outcome import Attention, Candidate, Outcome, SiteMedians
from model_probe.trace import CheckpointInfo, Token

LAYERS, HEADS, TOKENS, SIZE = 3, 2, 5, 16
INFO = CheckpointInfo(
    name="tiny", source="tiny", digest="", architecture="Qwen2ForCausalLM", model_type="qwen2", hidden_size=SIZE,
    num_layers=LAYERS, dtype="float32", device="cpu", torch="2", transformers="5", recorded_at="2026-01-02T03:04:05+00:00",
)  # fmt: skip
WORDS = tuple(Token(i, i, text, special=False) for i, text in enumerate(("The", " <b>", " $x$", "\n", " is")))


def outcome(
    interventions: Sequence[Intervention] = (),
    *,
    perplexity: float = 50.0,
    kl: float = 0.0,
    sharp: float = 1.0,
    broken: int = 0,
    attention: bool = True,
) -> Outcome:
    """An outcome with these figures; `sharp` divides entropy and Jacobian, `broken` elements are not finite from layer 1 on."""
    generator = np.random.default_rng(3)
    weights = np.tril(generator.uniform(0.1, 1, (HEADS, TOKENS, TOKENS))).astype(np.float32)
    weights /= weights.sum(-1, keepdims=True)
    figures = np.full((LAYERS, HEADS), 0.5) / sharp
    return Outcome(
        interventions=tuple(interventions),
        perplexity=perplexity,
        kl=np.full(TOKENS, kl),
        top=() if broken else tuple(Candidate(i, f" t{i}", 0.5 / (i + 1)) for i in range(10)),
        attention=Attention((0, 1, 2), figures, figures, figures, figures / 2, {1: weights})
        if attention
        else None,
        sites=_sites(broken),
        non_finite_logits=broken,
        continuation="" if broken else " and on",
    )


def outcomes() -> Outcomes:
    """A whole set, every case different."""

    def made(place: int, case: Case) -> Outcome:
        return outcome(
            case.interventions, perplexity=50.0 + 10 * place, kl=0.1 * (place + 1), sharp=1.0 + place
        )

    return Outcomes(
        INFO, CAPITAL, WORDS, outcome(),
        {name: {case.code: made(i, case) for i, case in enumerate(cases(name, LAYERS))} for name in EXPERIMENTS},
    )  # fmt: skip


def _sites(broken: int) -> tuple[SiteMedians, ...]:
    sites = [
        SiteMedians(f"layers.{layer}.{role}", layer, role, 2.0 + layer, 4.0, 3.0, 0.5, 0)
        for layer in range(LAYERS)
        for role in ("attention_input", "mlp_input")
    ]
    sites.append(SiteMedians("norm", None, "final", 9.0, 4.0, 3.0, 2.0, 0))
    if not broken:
        return tuple(sites)
    nan = math.nan
    return tuple(
        site if i < 2 else SiteMedians(site.name, site.layer, site.role, nan, nan, nan, nan, broken)
        for i, site in enumerate(sites)
    )

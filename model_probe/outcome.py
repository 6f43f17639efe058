"""What came of a run on a changed checkpoint, as data. torch is not needed to read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from model_probe.interventions import Intervention
from model_probe.trace import SiteTrace

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One token that may come next."""

    id: int
    text: str  # literal
    probability: float


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """Softmax attention by layer and head, averaged over the queries from the second on."""

    layers: tuple[int, ...]  # those that have softmax attention
    entropy: Floats  # [layers, heads], share of ln(visible tokens)
    heaviest: Floats  # [layers, heads], the largest share
    first_token: Floats  # [layers, heads], the share of the first token
    jacobian: Floats  # [layers, heads], Frobenius norm of the softmax Jacobian
    maps: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)  # by layer [heads, query, key]


@dataclass(frozen=True, slots=True)
class SiteMedians:
    """One norm call: L2 per token, median over the tokens; NaN where it is not finite."""

    name: str
    layer: int | None
    role: str
    input_l2: float
    normalized_l2: float
    output_l2: float
    rms: float  # median over tokens of sqrt(mean_square + ε) of what went in
    non_finite: int  # elements of input and output

    @classmethod
    def of(cls, site: SiteTrace) -> SiteMedians:
        """The medians of a measured site."""
        mean_square = np.square(site.input.l2.astype(np.float64)) / site.size
        with np.errstate(invalid="ignore"):
            return cls(
                name=site.name,
                layer=site.layer,
                role=site.role,
                input_l2=float(np.median(site.input.l2)),
                normalized_l2=float(np.median(site.normalized_l2)),
                output_l2=float(np.median(site.output.l2)),
                rms=float(np.median(np.sqrt(mean_square + site.eps))),
                non_finite=site.non_finite,
            )


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A run with interventions against the untouched run of the same prompt."""

    interventions: tuple[Intervention, ...]  # none: the untouched run
    perplexity: float  # exp of the mean negative log likelihood of tokens 2 to T
    kl: Floats  # [tokens] nats, untouched against changed next-token distribution
    top: tuple[Candidate, ...]  # the likeliest next tokens; none where no logit is a number
    attention: Attention | None  # None where it was not read, or no layer has softmax attention
    sites: tuple[SiteMedians, ...]  # in the order of the pass
    non_finite_logits: int
    continuation: str  # greedy; "" where it was not asked for

    @property
    def mean_kl(self) -> float:
        """Mean over positions, nats; NaN where a position's is not a number."""
        return float(np.mean(self.kl))

    @property
    def mean_entropy(self) -> float:
        """Mean normalised attention entropy over layers and heads; NaN without attention."""
        return float(np.mean(self.attention.entropy)) if self.attention else float("nan")

    @property
    def mean_jacobian(self) -> float:
        """Mean Frobenius norm of the softmax Jacobian over layers and heads; NaN without attention."""
        return float(np.mean(self.attention.jacobian)) if self.attention else float("nan")

    @property
    def first_non_finite(self) -> SiteMedians | None:
        """The first norm at which a NaN or an infinity passed."""
        return next((site for site in self.sites if site.non_finite), None)

"""Interventions: what is changed in an open checkpoint while a pass runs, and where.

    doubled = output_scale(2, roles=("attention_input",))
    with applied(checkpoint, doubled, bias_scale(2)):      # model_probe.applying
        …

An intervention is plain data, so that it can be shown, put into a link and recorded; torch is loaded
by what applies it. `layers=None` means every layer and, for a norm, those outside the layers too;
`roles=None` means a norm of any role. Several compose, in the order in which they are given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from model_probe.trace import ROLES

# What may be changed at a norm, and what elsewhere. Those with an amount say so.
NORM_KINDS: Final = (
    "input_scale", "output_scale", "no_division", "fixed_rms", "unit_gain", "layer_norm", "skip_norm",
)  # fmt: skip
OTHER_KINDS: Final = ("residual_scale", "attention_logit_scale", "value_scale", "bias_scale")
KINDS: Final = (*NORM_KINDS, *OTHER_KINDS)
_MOST_LAYERS: Final = 1000  # of a range that is written
WITH_AMOUNT: Final = ("input_scale", "output_scale", *OTHER_KINDS)


@dataclass(frozen=True, slots=True)
class Intervention:
    """One change: its kind, how much, and where."""

    kind: str  # one of KINDS
    amount: float | None = None  # the factor; for fixed_rms the RMS, None for each site's own median
    layers: tuple[int, ...] | None = None  # None: everywhere
    roles: tuple[str, ...] | None = None  # of model_probe.trace.ROLES; None: any. Norm kinds only
    rms: tuple[tuple[str, float], ...] = ()  # fixed_rms, once resolved: RMS by the name of the site

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind!r} is not one of {', '.join(KINDS)}")
        if (self.amount is None) == (self.kind in WITH_AMOUNT):
            needed = "needs an amount" if self.amount is None else "takes no amount"
            if self.kind != "fixed_rms":
                raise ValueError(f"{self.kind} {needed}")
        if self.amount is not None and not math.isfinite(self.amount):
            raise ValueError(f"{self.amount} is not a finite number")
        if self.roles is not None and self.kind not in NORM_KINDS:
            raise ValueError(f"{self.kind} is not done at a norm, so it takes no roles")

    def with_amount(self, amount: float) -> Intervention:
        """The same change by another factor."""
        return Intervention(self.kind, amount, self.layers, self.roles)

    def at_layer(self, layer: int) -> Intervention:
        """The same change in one layer alone."""
        return Intervention(self.kind, self.amount, (layer,), self.roles)


_WRITTEN: Final = re.compile(
    r"(?P<kind>[a-z_]+)(=(?P<amount>[^@:]+))?(@(?P<roles>[a-z_,]+))?(:(?P<layers>[0-9,-]+))?"
)


def parse(written: str) -> Intervention:
    """An intervention as the command line writes it: KIND[=FACTOR][@ROLE,…][:LAYERS].

    >>> parse("output_scale=2@attention_input:0-2,5").layers
    (0, 1, 2, 5)

    Raises:
        ValueError: it is not written so, with a sentence.
    """
    found = _WRITTEN.fullmatch(written)
    if found is None:
        raise ValueError(f"{written!r} is not written as KIND[=FACTOR][@ROLE,…][:LAYERS]")
    roles = found["roles"].split(",") if found["roles"] else None
    if unknown := sorted(set(roles or ()) - set(ROLES)):
        raise ValueError(f"{unknown[0]!r} is not one of the roles {', '.join(ROLES)}")
    try:
        amount = float(found["amount"]) if found["amount"] else None
    except ValueError:
        raise ValueError(f"{found['amount']!r} is not a number") from None
    layers = parse_layers(found["layers"]) if found["layers"] else None
    return Intervention(found["kind"], amount, layers, None if roles is None else tuple(roles))


def parse_layers(written: str) -> tuple[int, ...]:
    """Layer numbers written as `0-3,7`.

    Raises:
        ValueError: they are not.
    """
    layers: list[int] = []
    for part in written.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or part.endswith("-"):
            raise ValueError(f"{written!r} are not layers, as 0-3,7 are")
        if int(last or first) - int(first) > _MOST_LAYERS:
            raise ValueError(f"{part} are more than {_MOST_LAYERS} layers")
        layers += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(layers))


Layers = Sequence[int] | None
Roles = Sequence[str] | None


def input_scale(k: float, *, layers: Layers = None, roles: Roles = None) -> Intervention:
    """Multiply what goes into the norm by k. Where mean_square ≫ ε nothing follows from it."""
    return _at_norms("input_scale", k, layers, roles)


def output_scale(k: float, *, layers: Layers = None, roles: Roles = None) -> Intervention:
    """Multiply what comes out of the norm by k."""
    return _at_norms("output_scale", k, layers, roles)


def no_division(*, layers: Layers = None, roles: Roles = None) -> Intervention:
    """Leave the division by RMS out: output = input · gain."""
    return _at_norms("no_division", None, layers, roles)


def fixed_rms(rms: float | None = None, *, layers: Layers = None, roles: Roles = None) -> Intervention:
    """Divide by one number whatever the token: by `rms`, or by the site's median RMS in the untouched run."""
    return _at_norms("fixed_rms", rms, layers, roles)


def unit_gain(*, layers: Layers = None, roles: Roles = None) -> Intervention:
    """Leave the gain out: output = input / RMS."""
    return _at_norms("unit_gain", None, layers, roles)


def layer_norm(*, layers: Layers = None, roles: Roles = None) -> Intervention:
    """Subtract the mean first, as LayerNorm does; the same gain, no bias (Ba et al. 2016, eq. 4)."""
    return _at_norms("layer_norm", None, layers, roles)


def skip_norm(*, layers: Layers = None, roles: Roles = None) -> Intervention:
    """Hand the input on as it is, neither divided nor multiplied by the gain."""
    return _at_norms("skip_norm", None, layers, roles)


def residual_scale(k: float, *, layers: Layers = None) -> Intervention:
    """Multiply the residual by k: behind the embedding, or with `layers` behind these layers."""
    return Intervention("residual_scale", float(k), _tuple(layers))


def attention_logit_scale(k: float, *, layers: Layers = None) -> Intervention:
    """Multiply the attention logits by k, before the softmax."""
    return Intervention("attention_logit_scale", float(k), _tuple(layers))


def value_scale(k: float, *, layers: Layers = None) -> Intervention:
    """Multiply the finished values, their bias included, by k."""
    return Intervention("value_scale", float(k), _tuple(layers))


def bias_scale(k: float, *, layers: Layers = None) -> Intervention:
    """Multiply the biases of the query, key and value projections by k."""
    return Intervention("bias_scale", float(k), _tuple(layers))


def _at_norms(kind: str, amount: float | None, layers: Layers, roles: Roles) -> Intervention:
    given = None if amount is None else float(amount)
    return Intervention(kind, given, _tuple(layers), None if roles is None else tuple(roles))


def _tuple(layers: Layers) -> tuple[int, ...] | None:
    return None if layers is None else tuple(layers)

"""`NormTrace`: what one pass did at every norm, and how it is written and read.

    trace.save("trace.json")                  JSON, CSV or NPZ, by the file's ending
    trace = NormTrace.load("trace.json")      the same, or ProbeError("not_a_trace")

Numbers are float32, one a token; a number that is not finite is `null` in JSON, empty in CSV and
NaN in NPZ and in memory, and is counted in `non_finite`. Infinities come back as NaN.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

FORMAT: Final = "rmsnorm-trace/1"
ROLES: Final = (
    "attention_input", "mlp_input", "final", "query", "key", "gated",
    "attention_output", "mlp_output", "latent", "other",
)  # fmt: skip
CONVENTIONS: Final = ("weight", "one_plus_weight", "none", "other")
RESIDUAL_ROLES: Final = ("attention_input", "mlp_input", "final")  # their input is the residual stream
PER_HEAD_ROLES: Final = ("query", "key", "gated")

# The per-token series of a site, as CSV columns and NPZ arrays name them.
SERIES: Final = (
    "input_l2", "input_mean", "input_std", "input_abs_max", "normalized_l2",
    "output_l2", "output_mean", "output_std", "output_abs_max",
)  # fmt: skip

Floats = NDArray[np.float32]
_ARRAY_BYTES: Final = 112  # of an array beside its numbers
_TOKEN_BYTES: Final = 200  # of a `Token` with a short text


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """Where numbers come from: shown as provenance beside every measured figure."""

    name: str
    source: str  # the hub id, file or folder it was read from
    digest: str  # sha256 of the GGUF file, commit of the hub, or sha256 over the weights' headers
    architecture: str  # class of the model, "Qwen2ForCausalLM"
    model_type: str  # of config.json, "qwen2"
    hidden_size: int
    num_layers: int
    dtype: str  # "float32"
    device: str  # "cpu"
    torch: str  # version
    transformers: str  # version
    recorded_at: str  # ISO 8601, UTC


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the prompt, as text a person can read."""

    position: int
    id: int
    text: str  # literal; a piece of a split character as its bytes, "<0xF0><0x9F>"
    special: bool  # a control token of the tokenizer, typed or added


@dataclass(frozen=True, slots=True)
class GainSummary:
    """Statistics of a measured gain vector over its features."""

    mean: float
    rms: float
    min: float
    max: float
    std: float  # the population's


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """What is kept of one activation [tokens, size]: one float32 a token."""

    l2: Floats
    mean: Floats
    std: Floats  # the population's
    abs_max: Floats


@dataclass(frozen=True, slots=True, eq=False)
class SiteTrace:
    """One call of a norm. Per-head norms hold the root mean square over heads of each figure
    (`abs_max`: the largest; `mean`: the mean)."""

    name: str  # of the module; "name#2" when it runs a second time in the pass
    layer: int | None  # None outside the layers
    role: str  # one of ROLES
    class_name: str
    size: int  # features normed together
    eps: float
    gain_convention: str  # one of CONVENTIONS
    gain: GainSummary | None  # None where the output cannot be rebuilt from the input
    input: Statistics
    normalized_l2: Floats
    output: Statistics
    non_finite: int  # elements of input and output that are NaN or infinite
    heads: int | None = None
    why_no_gain: str | None = None

    def series(self, name: str) -> Floats:
        """One of SERIES, one float32 a token.

        Raises:
            KeyError: the name is not in SERIES.
        """
        if name == "normalized_l2":
            return self.normalized_l2
        if name not in SERIES:
            raise KeyError(name)
        side, _, statistic = name.partition("_")
        return getattr(self.input if side == "input" else self.output, statistic)


class PlacedSite(Protocol):
    """What says where a norm site lies: a `SiteTrace`, or a `NormSite` that no prompt has passed yet."""

    @property
    def name(self) -> str: ...
    @property
    def layer(self) -> int | None: ...
    @property
    def role(self) -> str: ...
    @property
    def size(self) -> int: ...


Placed = TypeVar("Placed", bound=PlacedSite)


def depth_sites(sites: Iterable[Placed], hidden_size: int) -> tuple[Placed, ...]:
    """The hidden-size sites along the residual stream, in order, the final norm last.

    Those whose input is the residual; where a model has none but the final one (OLMo 2 norms only
    what its branches give back), every hidden-size site outside attention heads.
    """
    sites = tuple(sites)
    stream = tuple(site for site in sites if site.role in RESIDUAL_ROLES)
    if any(site.role != "final" for site in stream):
        return stream
    return tuple(
        site for site in sites if site.size == hidden_size and site.role not in (*PER_HEAD_ROLES, "latent")
    )


@dataclass(frozen=True, slots=True, eq=False)
class NormTrace:
    """One prompt through one checkpoint: every norm site in the order in which it ran."""

    checkpoint: CheckpointInfo
    prompt: str
    tokens: tuple[Token, ...]
    sites: tuple[SiteTrace, ...]
    tokens_cut: int = 0  # tokens of the prompt past the cap, which did not run

    def site(self, name: str) -> SiteTrace:
        """The site of this name. Raises KeyError when there is none."""
        for site in self.sites:
            if site.name == name:
                return site
        raise KeyError(name)

    def depth(self) -> tuple[SiteTrace, ...]:
        """The hidden-size sites along the residual stream, in order, the final norm last: `depth_sites`."""
        return depth_sites(self.sites, self.checkpoint.hidden_size)

    def non_finite_sites(self) -> tuple[SiteTrace, ...]:
        """The sites at which a NaN or an infinity passed, in order."""
        return tuple(site for site in self.sites if site.non_finite)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, as good as: the series, what numpy takes to hold each, tokens and prompt."""
        series = len(SERIES) * (4 * len(self.tokens) + _ARRAY_BYTES) * len(self.sites)
        return series + _TOKEN_BYTES * len(self.tokens) + 4 * len(self.prompt)

    def save(self, path: str | Path) -> None:
        """Write JSON, CSV or NPZ, by the ending of `path`.

        Raises:
            ValueError: another ending.
        """
        from model_probe.trace_files import WRITERS

        path = Path(path)
        if path.suffix not in WRITERS:
            raise ValueError(f"a trace is saved as .json, .csv or .npz, not {path.suffix!r}")
        path.write_bytes(WRITERS[path.suffix](self))

    @classmethod
    def load(cls, path: str | Path) -> NormTrace:
        """Read what `save` wrote.

        Raises:
            ProbeError: `not_found`, `unreadable`, or `not_a_trace` with the reason.
        """
        from model_probe.trace_files import load_trace

        return load_trace(Path(path))

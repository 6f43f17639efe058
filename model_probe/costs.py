"""What a norm costs: RMSNorm against LayerNorm, three ways to run each, timed on this machine.

    costs = measure_costs()
    costs.over_floor("rms_norm", "fused", hidden_size=896, tokens=512).median
    costs.ratio("fused", hidden_size=896, tokens=512)      LayerNorm's time / RMSNorm's, with its spread

`eager` is the formula written out in torch, an operation at a time; `fused` is torch's own function, which is one
operation only where torch has a kernel for it (`operations` counts them); `compiled` is the formula put through
torch.compile, where a compiler works. Everything is timed in turn, round by round, on one thread:
what else the machine does then meets all alike. The floor is what no norm can fall below: the bytes that it has to
read and write at least, at the bandwidth of a plain copy of as many rows, measured in the same rounds. torch is
imported when something is measured, not before.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from model_probe.profiles import Provenance
from model_probe.progress import Progress, silent
from model_probe.trace import CheckpointInfo

if TYPE_CHECKING:
    from torch import Tensor

    from model_probe.checkpoints import Checkpoint

NORMS: Final = ("rms_norm", "layer_norm")
VARIANTS: Final = ("eager", "fused", "compiled")
HIDDEN_SIZES: Final = (256, 896, 4096)  # features of a token; 896 is the recorded checkpoint's
TOKENS: Final = (1, 8, 64, 512)
ROUNDS: Final = 15
FORWARD_ROUNDS: Final = 5
FORWARD_TOKENS: Final = 64
EPS: Final = 1e-6

_BYTES: Final = 4  # of a float32
_ROUND_SECONDS: Final = 1e-3  # what one timing takes at least: short calls are repeated
_MOST_CALLS: Final = 1000
_COMPILERS: Final = ("c++", "g++", "clang++", "cl")

Turn = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Spread:
    """Several timings of one thing: the median, and between which values the middle half lies."""

    low: float  # lower quartile
    median: float
    high: float  # upper quartile

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        low, median, high = np.quantile(np.asarray(values, dtype=np.float64), (0.25, 0.5, 0.75))
        return cls(float(low), float(median), float(high))


@dataclass(frozen=True, slots=True)
class Size:
    """How much is normed at once."""

    hidden_size: int  # features of a token
    tokens: int

    @property
    def copied(self) -> int:
        """Bytes that a copy of the rows reads and writes."""
        return 2 * self.hidden_size * self.tokens * _BYTES

    def moved(self, norm: str) -> int:
        """Bytes that a norm reads and writes at least: the rows in and out, its gain, LayerNorm's bias.

        Raises:
            KeyError: the norm is not one of NORMS.
        """
        parameters = {"rms_norm": 1, "layer_norm": 2}[norm]
        return self.copied + parameters * self.hidden_size * _BYTES


@dataclass(frozen=True, slots=True)
class Timing:
    """One way to run one norm at one size."""

    norm: str  # one of NORMS
    variant: str  # one of VARIANTS
    size: Size
    seconds: tuple[float, ...]  # of a call, one a round


@dataclass(frozen=True, slots=True)
class CopyTiming:
    """A plain copy at one size."""

    size: Size
    seconds: tuple[float, ...]  # of a copy, one a round

    @property
    def bandwidth(self) -> float:
        """Bytes a second, read and written, of the fastest copy."""
        return self.size.copied / min(self.seconds)


@dataclass(frozen=True, slots=True)
class NormShare:
    """What all norms of a checkpoint take of one forward pass."""

    checkpoint: CheckpointInfo
    norms: int  # calls of a norm in the pass
    tokens: int
    forward: tuple[float, ...]  # seconds, one a round
    inside: tuple[float, ...]  # seconds of it within the norms

    @property
    def share(self) -> Spread:
        """Of the pass, 0 to 1."""
        return Spread.of(
            [inside / forward for inside, forward in zip(self.inside, self.forward, strict=True)]
        )


@dataclass(frozen=True, slots=True)
class Costs:
    """What one run measured."""

    timings: tuple[Timing, ...]
    copies: tuple[CopyTiming, ...]
    not_compiled: str | None  # why `compiled` is missing: "no_compiler" or "failed"; None where it is there
    share: NormShare | None  # None where no checkpoint was given
    operations: Mapping[str, int]  # of which torch's own function is made here, by norm; fused is 1
    provenance: Provenance

    @property
    def variants(self) -> tuple[str, ...]:
        """Those of VARIANTS that were measured."""
        there = {timing.variant for timing in self.timings}
        return tuple(variant for variant in VARIANTS if variant in there)

    def timing(self, norm: str, variant: str, size: Size) -> Timing:
        """The timing of this description. Raises KeyError when it was not measured."""
        for timing in self.timings:
            if (timing.norm, timing.variant, timing.size) == (norm, variant, size):
                return timing
        raise KeyError((norm, variant, size))

    def copy(self, size: Size) -> CopyTiming:
        """The copy at this size. Raises KeyError when it was not measured."""
        for copy in self.copies:
            if copy.size == size:
                return copy
        raise KeyError(size)

    def floor(self, norm: str, size: Size) -> float:
        """Seconds that the bytes of a norm take at the bandwidth of the fastest copy. Raises KeyError as `copy`."""
        return size.moved(norm) / self.copy(size).bandwidth

    def over_floor(self, norm: str, variant: str, size: Size) -> Spread:
        """The time of a norm in multiples of its floor. Raises KeyError as `timing`."""
        floor = self.floor(norm, size)
        return Spread.of([seconds / floor for seconds in self.timing(norm, variant, size).seconds])

    def ratio(self, variant: str, size: Size) -> Spread:
        """LayerNorm's time divided by RMSNorm's, round by round. Raises KeyError as `timing`."""
        rms, layer = (self.timing(norm, variant, size).seconds for norm in NORMS)
        return Spread.of([theirs / ours for ours, theirs in zip(rms, layer, strict=True)])


def measure_costs(
    *,
    sizes: Sequence[Size] | None = None,
    rounds: int = ROUNDS,
    checkpoint: Callable[[Progress], Checkpoint] | None = None,
    progress: Progress | None = None,
    turn: Turn = nullcontext,
) -> Costs:
    """Time every norm, variant and size in float32 on the CPU; and the norms of a checkpoint that is opened for it.

    Compiling takes up to a minute, all else seconds. `progress` gets the stages `compile`, `costs` and what opening
    the checkpoint tells. Compiling, each size and the checkpoint run within a `turn` of their own.

    Raises:
        ProbeError: as `open_checkpoint`.
    """
    progress = progress or silent
    sizes = sizes or [Size(hidden_size, tokens) for hidden_size in HIDDEN_SIZES for tokens in TOKENS]
    with turn():
        progress("compile")
        import torch

        compiled, not_compiled = _compiled(sizes)
    timings: list[Timing] = []
    copies: list[CopyTiming] = []
    for done, size in enumerate(sizes):
        with turn():
            copy, others = _time_size(
                size, compiled, rounds, lambda share: progress("costs", share), done / len(sizes)
            )
        copies.append(copy)
        timings += others
    share = None
    if checkpoint is not None:
        with turn():
            share = norm_share(checkpoint(progress), progress=progress)
    recorded_at = datetime.now(UTC).isoformat(timespec="seconds")
    made = Provenance(str(torch.__version__), "float32", "cpu", recorded_at)
    operations = {name: _operations(norm) for name, norm in FUSED.items()}
    return Costs(tuple(timings), tuple(copies), not_compiled, share, operations, made)


def norm_share(
    checkpoint: Checkpoint,
    *,
    tokens: int = FORWARD_TOKENS,
    rounds: int = FORWARD_ROUNDS,
    progress: Progress | None = None,
) -> NormShare:
    """Time forward passes of a checkpoint, and within them its norms as they are; on a CPU on one thread too."""
    from model_probe.capturing import forward
    from model_probe.toy_stacks import one_thread

    progress = progress or silent
    count = len(checkpoint.tokenizer)
    ids = [int(i) for i in np.random.default_rng(0).integers(min(count, 1000), size=tokens)]
    passes: list[float] = []
    insides: list[float] = []
    with one_thread(), checkpoint.lock, _norm_seconds(checkpoint) as inside:
        forward(checkpoint, ids)  # warm
        for done in range(rounds):
            progress("costs", done / rounds)
            inside.clear()
            start = time.perf_counter()
            forward(checkpoint, ids)
            passes.append(time.perf_counter() - start)
            insides.append(sum(inside))
        calls = len(inside)
    return NormShare(checkpoint.info, calls, tokens, tuple(passes), tuple(insides))


@contextmanager
def _norm_seconds(checkpoint: Checkpoint) -> Iterator[list[float]]:
    """While the block runs, the list gets the seconds of every call of a norm."""
    import torch

    on_cuda = next(checkpoint.model.parameters()).device.type == "cuda"
    seconds: list[float] = []
    begun: list[float] = []

    def now() -> float:
        if on_cuda:
            torch.cuda.synchronize()  # a call returns before its work is done there
        return time.perf_counter()

    def before(*_: Any) -> None:
        begun.append(now())

    def after(*_: Any) -> None:
        seconds.append(now() - begun.pop())

    handles = []
    try:
        for name in dict.fromkeys(site.module for site in checkpoint.sites):
            module = checkpoint.model.get_submodule(name)
            handles.append(module.register_forward_pre_hook(before))
            handles.append(module.register_forward_hook(after))
        yield seconds
    finally:
        for handle in handles:
            handle.remove()


def _rms_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    import torch

    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * gain


def _layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    import torch

    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPS) * gain + bias


def _fused_rms_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    from torch.nn.functional import rms_norm

    return rms_norm(x, x.shape[-1:], gain, EPS)


def _fused_layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    from torch.nn.functional import layer_norm

    return layer_norm(x, x.shape[-1:], gain, bias, EPS)


Norm = Callable[..., Any]

EAGER: Final[Mapping[str, Norm]] = {"rms_norm": _rms_norm, "layer_norm": _layer_norm}
FUSED: Final[Mapping[str, Norm]] = {"rms_norm": _fused_rms_norm, "layer_norm": _fused_layer_norm}


def cpp_compiler() -> str | None:
    """The C++ compiler that torch.compile would find for the CPU, None where there is none."""
    named = os.environ.get("CXX")
    wanted = (named,) if named else _COMPILERS if sys.platform == "win32" else _COMPILERS[:-1]
    return next(filter(None, map(shutil.which, wanted)), None)


def _compiled(sizes: Sequence[Size]) -> tuple[Mapping[str, Norm], str | None]:
    """The eager norms compiled and run at every size, or none of them and why."""
    if cpp_compiler() is None:
        return {}, "no_compiler"
    import torch

    from model_probe.toy_stacks import one_thread

    compiled = {name: torch.compile(norm, dynamic=True) for name, norm in EAGER.items()}
    try:
        with one_thread(), torch.no_grad():
            for size in sizes:
                given = _given(size)
                for name, norm in compiled.items():
                    torch.testing.assert_close(norm(*given), EAGER[name](*given))
    except Exception:  # noqa: BLE001 - whatever a compiler does wrong, the rest can be measured
        return {}, "failed"
    return compiled, None


def _given(size: Size) -> tuple[Tensor, Tensor, Tensor]:
    """Rows [tokens, hidden_size], a gain and a bias [hidden_size], float32, the same at every call."""
    import torch

    random = np.random.default_rng([size.hidden_size, size.tokens])
    x = random.standard_normal((size.tokens, size.hidden_size), dtype=np.float32)
    gain, bias = random.uniform(0.5, 1.5, (2, size.hidden_size)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(gain), torch.from_numpy(bias)


def _operations(norm: Norm) -> int:
    """Of how many operations of torch a call of the norm is made, on the CPU in float32."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    given = _given(Size(HIDDEN_SIZES[0], 2))
    with torch.no_grad(), Counting():
        norm(*given)
    return len(seen)


def _time_size(
    size: Size, compiled: Mapping[str, Norm], rounds: int, tell: Callable[[float], None], done: float
) -> tuple[CopyTiming, list[Timing]]:
    """The copy and every norm at one size, in turn; the order of a round is the last one's turned round."""
    import torch

    from model_probe.toy_stacks import one_thread

    given = _given(size)
    out = torch.empty_like(given[0])
    ways: dict[tuple[str, str] | None, Callable[[], Any]] = {None: lambda: out.copy_(given[0])}
    for variant, norms in zip(VARIANTS, (EAGER, FUSED, compiled), strict=True):
        for name, norm in norms.items():
            ways[name, variant] = lambda norm=norm: norm(*given)  # type: ignore[misc]
    seconds: dict[tuple[str, str] | None, list[float]] = {way: [] for way in ways}
    with one_thread(), torch.no_grad():
        calls = {way: _calls(call) for way, call in ways.items()}
        for round_ in range(rounds):
            tell(done)
            for way in reversed(ways) if round_ % 2 else ways:
                seconds[way].append(_seconds(ways[way], calls[way]))
    timings = [Timing(*way, size, tuple(taken)) for way, taken in seconds.items() if way is not None]
    return CopyTiming(size, tuple(seconds[None])), timings


def _calls(call: Callable[[], Any]) -> int:
    """How many calls make up one timing, after one to warm up."""
    call()
    once = min(_seconds(call, 1) for _ in range(3))
    return int(min(max(_ROUND_SECONDS / once, 1), _MOST_CALLS))


def _seconds(call: Callable[[], Any], calls: int) -> float:
    """Seconds of one call, over so many in a row."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls

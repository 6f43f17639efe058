"""Capture on an accelerator against the CPU, on models of real size with random weights: under three minutes.

    python tests/gpu/check.py                on the accelerator that is here
    python tests/gpu/check.py --small        the same layers, narrow, on whatever is here, the CPU too

Needs torch, transformers and numpy in the versions of requirements.txt and this repository; nothing is
fetched. Qwen3.5-0.8B and Qwen3-0.6B are built from the configurations below, weights from a fixed seed and
already rounded to bfloat16, so that all dtypes hold the same model. In float32 and in bfloat16 it prints, by
role, the largest deviation and where it was, of

    figures    what the trace says, from NumPy in float64 on the activations of the same pass
    rebuilt    the norm's output, from what its input, measured gain, eps and gate predict
    cpu        what the trace says, from a trace of the CPU in float32

then the time of a capture and of the bare pass (device events on CUDA) and the peak memory of both. The exit
status is 1 when a deviation is over its tolerance, or when the norms or their gains are not the CPU's.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from model_probe.capturing import capture, forward, token_ids
from model_probe.discovery import discover
from model_probe.sites import NormSite
from model_probe.trace import CheckpointInfo, NormTrace

QWEN3_5_0_8B: Final[dict[str, Any]] = {
    "model_type": "qwen3_5_text",
    "vocab_size": 248_320,
    "hidden_size": 1024,
    "intermediate_size": 3584,
    "num_hidden_layers": 24,
    "layer_types": [*["linear_attention"] * 3, "full_attention"] * 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": True,
}
QWEN3_0_6B: Final[dict[str, Any]] = {
    "model_type": "qwen3",
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
NARROW: Final[dict[str, Any]] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
NARROW_LINEAR: Final[dict[str, Any]] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
MODELS: Final = {"Qwen3.5-0.8B": QWEN3_5_0_8B, "Qwen3-0.6B": QWEN3_0_6B}

# Relative. `figures`: to the value. `rebuilt`: to the site's largest output. `cpu`: of a token's L2, to it or to
# the site's median where that is more; in bfloat16 every layer rounds once more, so it grows with the depth, and
# what a gated norm reads is a sum of differences, of which little may be left.
TOLERANCES: Final = {
    "float32": {"figures": 1e-5, "rebuilt": 1e-5, "cpu": 1e-3},
    "bfloat16": {"figures": 1e-5, "rebuilt": 1e-2, "cpu": 5e-2},
}
GATED_TOLERANCE: Final = 0.25  # `cpu`, in bfloat16
GAIN_TOLERANCE: Final = 1e-6
TOKENS: Final = 512
SMALL_TOKENS: Final = 48
PAIRS: Final = 9  # of a capture and a bare pass, in turn
SMALL_PAIRS: Final = 3


class Ids:
    """Stands in for a tokenizer: one token a character, its id from the character and its place."""

    added_tokens_decoder: dict[int, Any] = {}  # noqa: RUF012 - read only

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary

    def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
        ids = [(ord(c) * 7919 + at * 104_729 + at * at) % self.vocabulary for at, c in enumerate(text)]
        return {"input_ids": ids}

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        return [str(id_) for id_ in ids]


@dataclass
class Ready:
    """What `capture` needs of a checkpoint."""

    info: CheckpointInfo
    model: Any
    tokenizer: Ids
    sites: tuple[NormSite, ...]
    lock: threading.RLock


@dataclass(frozen=True)
class Deviation:
    """The largest deviation among the sites of a role, and where it was."""

    value: float
    site: str


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--small", action="store_true", help="narrow layers and a short prompt")
    parser.add_argument("--device", default="auto", help="auto, cuda, mps or cpu")
    parser.add_argument("--tokens", type=int, help=f"of the prompt; else {TOKENS}, or {SMALL_TOKENS}")
    chosen = parser.parse_args(arguments)
    tokens = chosen.tokens or (SMALL_TOKENS if chosen.small else TOKENS)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False  # float32 is float32
    device = torch.device(best_device() if chosen.device == "auto" else chosen.device)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {device_name(device)}")
    began, failures = time.perf_counter(), 0
    for name, settings in MODELS.items():
        failures += check(
            name,
            narrowed(settings) if chosen.small else settings,
            device,
            "x" * tokens,
            SMALL_PAIRS if chosen.small else PAIRS,
        )
    print(f"{time.perf_counter() - began:.0f} s in all; {'FAIL' if failures else 'pass'}")
    return 1 if failures else 0


def check(name: str, settings: dict[str, Any], device: torch.device, prompt: str, pairs: int) -> int:
    """Print the tables of one model; how many tolerances were not kept."""
    model = build(settings)
    reference = ready(name, model)
    expected = capture(reference, prompt)  # type: ignore[arg-type]
    print(f"\n{name}, random weights: {parameters(model) / 1e6:.0f} M parameters, {len(prompt)} tokens")
    print(f"  {roles(reference.sites)}")
    failures = 0
    for dtype, tolerances in TOLERANCES.items():
        model.to(device=device, dtype=getattr(torch, dtype))
        here = ready(name, model)
        failures += same_norms(here.sites, reference.sites)
        with watched(here, len(prompt)) as seen:
            trace = capture(here, prompt)  # type: ignore[arg-type]
        rows = {
            "figures": largest(trace, seen, lambda site, told, exact: figures(told, exact)),
            "rebuilt": largest(trace, seen, lambda site, told, exact: exact.rebuilt),
            "cpu": against(trace, expected),
        }
        print(f"  {dtype} on {device.type}")
        for what, by_role in rows.items():
            for role, deviation in by_role.items():
                most = tolerances[what]
                if (dtype, what, role) == ("bfloat16", "cpu", "gated"):
                    most = GATED_TOLERANCE
                over = not deviation.value <= most
                failures += over
                print(
                    f"    {what:8} {role:16} {deviation.value:8.1e} of {most:7.1e}"
                    f" {'FAIL' if over else 'pass'}  at {deviation.site}"
                )
        costs(here, prompt, pairs)
    del model, here, reference
    gc.collect()
    return failures


def build(settings: dict[str, Any]) -> Any:
    """The model in float32 on the CPU, its weights rounded to bfloat16, its gains of every kind."""
    config = transformers.AutoConfig.for_model(**settings)
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval().requires_grad_(False)
    for module in model.modules():
        if "RMSNorm" in type(module).__name__:
            for weight in module.parameters():
                weight.normal_(0.0 if weight.abs().max() == 0 else 1.0, 0.3)
                weight[:3] = torch.tensor([0.0, -1.0, 1.0])
    for weight in model.parameters():
        weight.copy_(weight.bfloat16())
    return model


def narrowed(settings: dict[str, Any]) -> dict[str, Any]:
    """The same layers, in so small a width that a CPU runs them at once."""
    linear = NARROW_LINEAR if "layer_types" in settings else {}
    return settings | NARROW | linear


def ready(name: str, model: Any) -> Ready:
    """The model with its norms found, where it is."""
    weight = model.get_input_embeddings().weight
    info = CheckpointInfo(
        name=name,
        source="random weights",
        digest="",
        architecture=type(model).__name__,
        model_type=model.config.model_type,
        hidden_size=model.config.hidden_size,
        num_layers=model.config.num_hidden_layers,
        dtype=str(weight.dtype).removeprefix("torch."),
        device=weight.device.type,
        torch=torch.__version__,
        transformers=transformers.__version__,
        recorded_at="",
    )
    return Ready(info, model, Ids(weight.shape[0]), discover(model), threading.RLock())


def same_norms(sites: Sequence[NormSite], reference: Sequence[NormSite]) -> int:
    """1, with a line, where names, roles, conventions or gains are not those of the CPU in float32."""
    described = [[(s.name, s.role, s.gain_convention, s.gate) for s in each] for each in (sites, reference)]
    if described[0] != described[1]:
        print(f"    FAIL the norms differ: {set(described[0]) ^ set(described[1])}")
        return 1
    apart = {
        here.name: float(np.abs(here.known_gain - there.known_gain).max())
        for here, there in zip(sites, reference, strict=True)
    }
    worst = max(apart, key=lambda name: apart[name])
    if apart[worst] > GAIN_TOLERANCE:
        print(f"    FAIL the gain of {worst} is {apart[worst]:.1e} off")
        return 1
    return 0


@dataclass(frozen=True)
class Exact:
    """Of one norm call, in float64: by token, and how far its output is from what its input predicts."""

    input_l2: np.ndarray  # [tokens]
    output_l2: np.ndarray  # [tokens]
    input_std: np.ndarray  # [tokens]
    input_abs_max: np.ndarray  # [tokens]
    rebuilt: float


@contextmanager
def watched(here: Ready, tokens: int) -> Iterator[list[Exact]]:
    """What NumPy makes of each norm's input and output while the block runs, in the order of the calls."""
    seen: list[Exact] = []

    def watch(site: NormSite) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
            given = [v for v in (*args, *kwargs.values()) if isinstance(v, Tensor) and v.is_floating_point()]
            x, y, *gates = (t.double().cpu().numpy() for t in (given[0], output, *given[1:]))
            predicted = site.rebuild(x, *(gates if site.gate else ()))
            rebuilt = float(np.abs(y - predicted).max() / np.abs(predicted).max())
            a, b = by_token(x, site.layout, tokens), by_token(y, site.layout, tokens)
            seen.append(
                Exact(
                    input_l2=rms(np.linalg.norm(a, axis=2)),
                    output_l2=rms(np.linalg.norm(b, axis=2)),
                    input_std=rms(a.std(axis=2)),
                    input_abs_max=np.abs(a).max(axis=(1, 2)),
                    rebuilt=rebuilt,
                )
            )

        return hook

    handles = [
        here.model.get_submodule(site.module).register_forward_hook(watch(site), with_kwargs=True)
        for site in here.sites
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def by_token(x: np.ndarray, layout: str, tokens: int) -> np.ndarray:
    """[tokens, heads, size]"""
    return x[0].transpose(1, 0, 2) if layout == "head_token" else x.reshape(tokens, -1, x.shape[-1])


def rms(by_head: np.ndarray) -> np.ndarray:
    """[tokens, heads] → [tokens]"""
    return np.sqrt(np.mean(np.square(by_head), axis=1))


def figures(told: Any, exact: Exact) -> float:
    """The largest relative deviation of a site's figures."""
    pairs = (
        (told.input.l2, exact.input_l2),
        (told.output.l2, exact.output_l2),
        (told.input.std, exact.input_std),
        (told.input.abs_max, exact.input_abs_max),
    )
    return max(float(np.max(np.abs(a - b) / b)) for a, b in pairs)


def largest(
    trace: NormTrace, seen: Sequence[Exact], measure: Callable[[Any, Any, Exact], float]
) -> dict[str, Deviation]:
    """The largest of a measure by role."""
    return by_role(
        (site.role, site.name, measure(site, site, exact))
        for site, exact in zip(trace.sites, seen, strict=True)
    )


def against(trace: NormTrace, expected: NormTrace) -> dict[str, Deviation]:
    """The largest deviation of a token's L2, in and out, from the other trace's, by role."""
    rows = []
    for here, there in zip(trace.sites, expected.sites, strict=True):
        for a, b in ((here.input.l2, there.input.l2), (here.output.l2, there.output.l2)):
            rows.append((here.role, here.name, float(np.max(np.abs(a - b) / np.maximum(b, np.median(b))))))
    return by_role(rows)


def by_role(rows: Any) -> dict[str, Deviation]:
    """The largest value of each role; a NaN is larger than any."""
    found: dict[str, Deviation] = {}
    for role, site, value in rows:
        if role not in found or not value <= found[role].value:
            found[role] = Deviation(value, site)
    return found


def costs(here: Ready, prompt: str, pairs: int) -> None:
    """Print the time of a capture and of the bare pass, in pairs, and the peak memory of each."""
    ids = token_ids(here, prompt)  # type: ignore[arg-type]
    works: dict[str, Callable[[], object]] = {
        "bare pass": lambda: forward(here, ids),  # type: ignore[arg-type]
        "capture": lambda: capture(here, prompt),  # type: ignore[arg-type]
    }
    device = here.model.get_input_embeddings().weight.device
    times: dict[str, list[float]] = {name: [] for name in works}
    peaks = {}
    for name, work in works.items():
        work()
        peaks[name] = peak_memory(work, device)
    for pair in range(pairs):
        for name in list(works)[:: 1 if pair % 2 else -1]:
            times[name].append(milliseconds(works[name], device))
    ratios = [a / b for a, b in zip(times["capture"], times["bare pass"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    medians = {name: statistics.median(each) for name, each in times.items()}
    print(
        f"    time     capture {medians['capture']:.1f} ms / bare pass {medians['bare pass']:.1f} ms"
        f" = {middle:.2f} [{low:.2f}, {high:.2f}]"
    )
    if all(peaks.values()):
        ratio = peaks["capture"] / peaks["bare pass"]
        print(
            f"    memory   capture {peaks['capture'] / 1e6:.0f} MB / bare pass {peaks['bare pass'] / 1e6:.0f} MB"
            f" = {ratio:.3f} at the peak"
        )


def milliseconds(work: Callable[[], object], device: torch.device) -> float:
    """By the device's own events on CUDA, else by the clock once the device has caught up."""
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end))
    synchronize(device)
    began = time.perf_counter()
    work()
    synchronize(device)
    return 1000 * (time.perf_counter() - began)


def peak_memory(work: Callable[[], object], device: torch.device) -> int:
    """Bytes of device memory at the peak, weights included; 0 where the device does not tell."""
    if device.type != "cuda":
        return 0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_allocated())


def synchronize(device: torch.device) -> None:
    """Wait for what the device still has to do."""
    if device.type == "mps":
        torch.mps.synchronize()


def roles(sites: Sequence[NormSite]) -> str:
    """How many sites of each role."""
    names = [site.role for site in sites]
    return f"{len(sites)} norms: " + ", ".join(f"{names.count(r)} {r}" for r in dict.fromkeys(names))


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name() if device.type == "cuda" else device.type


if __name__ == "__main__":
    sys.exit(main())

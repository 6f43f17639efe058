"""What a capture needs of memory beside the bare forward pass of the same model (no cache, one logit).

Each pass has a process of its own, which opens the checkpoint and runs that pass once before, so that what
torch makes ready at its first pass does not count.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator

import psutil

from bench.peaks import extra, in_process
from bench.ratios import Ratio

TOKENS = 2048
BOUND = 1.05  # of the whole process: weights, torch and all
PAIRS = 5
GB = 1e9


def rows() -> Iterator[Ratio]:
    """The whole process at its peak, which is bounded, and what the pass took of it, which is not."""
    peaks: dict[str, list[float]] = {"capture": [], "bare": []}
    taken: dict[str, list[float]] = {"capture": [], "bare": []}
    for pair in range(PAIRS):
        for name in list(peaks)[:: 1 if pair % 2 else -1]:
            measured = in_process("bench.capture_memory", name)
            peaks[name].append(measured["peak"])
            taken[name].append(measured["extra"])
    for what, bound, figures in (("peak", BOUND, peaks), ("extra", None, taken)):
        ratios = tuple(a / b for a, b in zip(figures["capture"], figures["bare"], strict=True))
        base = statistics.median(figures["bare"]) / GB
        yield Ratio(f"capture / bare forward, {what} memory, {TOKENS} tokens", bound, ratios, base, unit="GB")


def measure(name: str) -> dict[str, int]:
    """Bytes that are resident at the peak of one pass, and how many of them the pass took."""
    from model_probe import capture, open_checkpoint
    from model_probe.capturing import forward, token_ids
    from model_probe.presets import PRESETS

    checkpoint = open_checkpoint("qwen2.5-coder-0.5b", device="cpu", dtype="float32")
    ids = token_ids(checkpoint, " ".join([PRESETS["paragraph"]] * 9))[:TOKENS]
    prompt = checkpoint.tokenizer.decode(ids)
    work: Callable[[], object] = {
        "capture": lambda: capture(checkpoint, prompt, max_tokens=TOKENS),
        "bare": lambda: forward(checkpoint, ids),
    }[name]
    work()
    before = psutil.Process().memory_info().rss
    took = extra(work)
    return {"peak": before + took, "extra": took}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))

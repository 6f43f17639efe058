"""What norms cost: every one against the floor of its bytes, and LayerNorm against RMSNorm; one thread, float32.

Nothing is faster than a copy of the same rows, so a ratio below 1 is a fault of the measurement. What LayerNorm
takes of RMSNorm's time has no bound: it is what it is.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench.ratios import Ratio
from model_probe import open_checkpoint
from model_probe.costs import NORMS, measure_costs

LEAST = 1.0


def rows() -> Iterator[Ratio]:
    costs = measure_costs(checkpoint=lambda _: open_checkpoint("qwen2.5-coder-0.5b", device="cpu"))
    for size in (copy.size for copy in costs.copies):
        where = f"{size.hidden_size} × {size.tokens} tokens"
        for variant in costs.variants:
            for norm in NORMS:
                floor = costs.floor(norm, size)
                over = tuple(taken / floor for taken in costs.timing(norm, variant, size).seconds)
                yield Ratio(f"{norm}, {variant} / floor, {where}", LEAST, over, floor, sense="at least")
            rms, layer = (costs.timing(norm, variant, size).seconds for norm in NORMS)
            ratios = tuple(theirs / ours for ours, theirs in zip(rms, layer, strict=True))
            yield Ratio(f"layer_norm / rms_norm, {variant}, {where}", None, ratios, statistics.median(rms))
    share = costs.share
    assert share is not None
    shares = tuple(inside / forward for inside, forward in zip(share.inside, share.forward, strict=True))
    what = f"{share.norms} norms / forward pass, {share.tokens} tokens"
    yield Ratio(what, None, shares, statistics.median(share.forward))

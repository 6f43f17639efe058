"""What a sweep costs on top of its forward passes alone (no cache, the logits of every position)."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bench.ratios import Ratio, compare
from model_probe import open_checkpoint
from model_probe.interventions import no_division
from model_probe.observing import Experiment
from model_probe.presets import PRESETS
from model_probe.sweeping import sweep

BOUND = 1.15  # at most
TOKENS = 20


def rows() -> Iterator[Ratio]:
    checkpoint = open_checkpoint("qwen2.5-coder-0.5b", device="cpu", dtype="float32")
    experiment = Experiment(checkpoint, PRESETS["fox"], max_tokens=TOKENS)
    assert len(experiment.ids) == TOKENS
    layers = range(checkpoint.info.num_layers)
    ids = torch.tensor([experiment.ids])

    def swept() -> None:
        brake = no_division(roles=("attention_input",))
        assert len(list(sweep(experiment, brake, layers=layers))) == len(layers)

    def passes() -> None:
        with torch.inference_mode():
            for _ in layers:
                checkpoint.model(input_ids=ids, use_cache=False)

    what = f"sweep over {len(layers)} layers, {TOKENS} tokens / passes"
    yield compare(what, BOUND, swept, passes)

"""What opening a converted GGUF costs on top of transformers' `from_pretrained` of the same folder.

Both sides map the weights from the disk's cache. The tokenizer of a converted checkpoint is read when it is
first asked for, so the opening is compared without it, and once more with it on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from bench.ratios import Ratio, compare
from model_probe import Checkpoint, open_checkpoint
from model_probe.catalog import find
from model_probe.loading import quiet

NAME = "qwen2.5-coder-0.5b"
BOUND = 1.25


def rows() -> Iterator[Ratio]:
    opened()  # the first opening of one that was converted earlier keeps its norms
    here = find(NAME)
    assert here is not None
    folder = here.folder

    def loaded() -> None:
        with quiet():
            AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def loaded_with_tokenizer() -> None:
        loaded()
        with quiet():
            AutoTokenizer.from_pretrained(folder)

    yield compare("opening a converted GGUF / from_pretrained", BOUND, opened, loaded)
    yield compare(
        "the same with the tokenizer", BOUND, lambda: len(opened().tokenizer), loaded_with_tokenizer
    )


def opened() -> Checkpoint:
    return open_checkpoint(NAME, device="cpu", dtype="float32")

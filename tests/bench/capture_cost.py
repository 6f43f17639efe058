"""What a capture costs on top of the bare forward pass of the same model (no cache, one logit)."""

from __future__ import annotations

from collections.abc import Iterator

from bench.ratios import Ratio, compare
from model_probe import capture, open_checkpoint
from model_probe.capturing import forward, token_ids
from model_probe.presets import PRESETS

BOUNDS = {20: 1.08, 512: 1.03, 2048: 1.03}  # tokens: at most


def rows() -> Iterator[Ratio]:
    checkpoint = open_checkpoint("qwen2.5-coder-0.5b", device="cpu", dtype="float32")
    text = " ".join([PRESETS["paragraph"]] * 9)
    for tokens, bound in BOUNDS.items():
        ids = token_ids(checkpoint, text)[:tokens]
        # the prompt of exactly these tokens, so that both sides tokenize and run the same
        prompt = checkpoint.tokenizer.decode(ids)

        def captured(prompt: str = prompt, tokens: int = tokens) -> None:
            assert len(capture(checkpoint, prompt, max_tokens=tokens).tokens) == tokens

        def bare(ids: list[int] = ids) -> None:
            forward(checkpoint, ids)

        yield compare(f"capture / bare forward, {tokens} tokens", bound, captured, bare)

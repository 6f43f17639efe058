"""What a capture takes beside other ways to look at the norms of the same model: time and extra peak memory.

    pip install -r tests/bench/requirements.txt    # in a virtual environment of its own
    python tests/bench/run.py peers
    PYTHONPATH=.:tests python -m bench.peers --tokens 20 --pairs 3    # a part of it

Each peer is used twice. As its documentation says: the prompt goes in, the logits of all positions and every
activation that the tool is asked for come out. At its best for this question: the norms alone (or the residual
alone, where the tool has nothing else), one logit, no key-value cache, reductions on the spot where it can. All
share one set of weights and one process; none of them builds a graph for gradients. Before anything is timed, what
each of them saw is held against the capture.

TransformerLens 4.3: the quick start of its README, and `names_filter`. nnsight 0.8: `TransformersModel`, which its
documentation names in place of `LanguageModel`, `.input` and `.output` in a `trace`. transformers:
`output_hidden_states=True`.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from bench.peaks import SPARE, extra, free, in_process
from bench.ratios import Ratio, compare
from model_probe import capture, open_checkpoint
from model_probe.capturing import token_ids
from model_probe.checkpoints import Checkpoint
from model_probe.presets import PRESETS

NAME = "qwen2.5-coder-0.5b"
SIZES = (20, 512, 2048)  # tokens
BOUNDS = {512: 0.75}  # of each as documented, at most
PAIRS = {2048: 5}
REPEATS = 3  # of a measurement of memory
CLOSE = 1e-3  # of an L2: an attention that is worked out in another order
MB = 1e6


@dataclass(frozen=True, slots=True)
class Use:
    """One way to use one tool."""

    what: str
    run: Callable[[str], Any]
    residual: Callable[
        [Any], list[Tensor]
    ]  # of what `run` gave: the L2 of each token at each layer's entrance
    documented: bool


def capture_itself(checkpoint: Checkpoint) -> list[Use]:
    def run(prompt: str) -> Any:
        return capture(checkpoint, prompt)

    def residual(trace: Any) -> list[Tensor]:
        sites = [site for site in trace.sites if site.role == "attention_input"]
        return [torch.from_numpy(site.input.l2) for site in sites]

    return [Use("capture", run, residual, documented=True)]


def transformer_lens(checkpoint: Checkpoint) -> list[Use]:
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_transformers(
        "Qwen/Qwen2.5-Coder-0.5B",  # a name for its records: model and tokenizer are given
        hf_model=_same_weights(checkpoint),
        tokenizer=checkpoint.tokenizer,
        device="cpu",
    )
    ends = tuple(f"{norm}.{end}" for norm in ("ln1", "ln2", "ln_final") for end in ("hook_in", "hook_out"))
    names = [name for name in bridge.hook_dict if name.endswith(ends)]

    def documented(prompt: str) -> Any:
        return bridge.run_with_cache(prompt)

    def best(prompt: str) -> Any:
        with torch.inference_mode():
            return bridge.run_with_cache(
                prompt, names_filter=names, logits_to_keep=1, use_cache=False, output_attentions=False
            )

    def residual(result: Any) -> list[Tensor]:
        _, cache = result
        return [_l2(cache[f"blocks.{layer}.ln1.hook_in"]) for layer in range(bridge.cfg.n_layers)]

    return [
        Use("TransformerLens run_with_cache", documented, residual, documented=True),
        Use("TransformerLens, norms and one logit", best, residual, documented=False),
    ]


def nnsight(checkpoint: Checkpoint) -> list[Use]:
    from nnsight import TransformersModel, save

    model = TransformersModel(
        _same_weights(checkpoint), tokenizer=checkpoint.tokenizer, task="text-generation"
    )

    def documented(prompt: str) -> Any:
        with model.trace(prompt):
            inputs, outputs = save([]), save([])
            for layer in model.model.layers:
                for norm in (layer.input_layernorm, layer.post_attention_layernorm):
                    inputs.append(norm.input)
                    outputs.append(norm.output)
            inputs.append(model.model.norm.input)
            outputs.append(model.model.norm.output)
            logits = model.output.logits.save()
        return inputs, outputs, logits

    def best(prompt: str) -> Any:
        with torch.inference_mode(), model.trace(prompt, logits_to_keep=1, use_cache=False):
            inputs, outputs = save([]), save([])
            for layer in model.model.layers:
                for norm in (layer.input_layernorm, layer.post_attention_layernorm):
                    inputs.append(_figures(norm.input))
                    outputs.append(_figures(norm.output))
            inputs.append(_figures(model.model.norm.input))
            outputs.append(_figures(model.model.norm.output))
        return inputs, outputs

    return [
        Use("nnsight trace", documented, lambda r: [_l2(x) for x in r[0][:-1:2]], documented=True),
        Use(
            "nnsight, figures and one logit", best, lambda r: [x[0, 0] for x in r[0][:-1:2]], documented=False
        ),
    ]


def hidden_states(checkpoint: Checkpoint) -> list[Use]:
    model, tokenizer = checkpoint.model, checkpoint.tokenizer

    def documented(prompt: str) -> Any:
        return model(**tokenizer(prompt, return_tensors="pt"), output_hidden_states=True)

    def best(prompt: str) -> Any:
        inputs = tokenizer(prompt, return_tensors="pt")
        with torch.inference_mode():
            return model(**inputs, output_hidden_states=True, logits_to_keep=1, use_cache=False)

    def residual(result: Any) -> list[Tensor]:
        return [_l2(x) for x in result.hidden_states[:-1]]  # the last one has been through the last norm

    return [
        Use("output_hidden_states", documented, residual, documented=True),
        Use("output_hidden_states, one logit", best, residual, documented=False),
    ]


TOOLS: Mapping[str, Callable[[Checkpoint], list[Use]]] = {
    "capture": capture_itself,
    "transformer_lens": transformer_lens,
    "nnsight": nnsight,
    "hidden_states": hidden_states,
}


def rows(sizes: Iterable[int] = SIZES, pairs: int | None = None) -> Iterator[Ratio]:
    """Memory, then time, of each size; `pairs` in place of the usual number."""
    if missing := [name for name in ("transformer_lens", "nnsight") if find_spec(name) is None]:
        raise SystemExit(
            f"peers: {' and '.join(missing)} not here: pip install -r tests/bench/requirements.txt"
        )
    checkpoint = _opened()
    uses = {(tool, index): use for tool in TOOLS for index, use in enumerate(TOOLS[tool](checkpoint))}
    _see_the_same(checkpoint, list(uses.values()))
    (_, ours), *peers = uses.items()
    for tokens in sizes:
        peaks = {key: _peaks(*key, tokens) for key in uses}
        own = peaks["capture", 0]
        assert own, "the capture itself has no room"
        for key, use in peers:
            if theirs := peaks[key]:
                what = f"memory, capture / {use.what}, {tokens} tokens"
                ratios = tuple(a / b for a, b in zip(own, theirs, strict=True))
                yield Ratio(what, None, ratios, statistics.median(theirs) / MB, unit="MB")
        prompt = _prompt(checkpoint, tokens)
        for key, use in peers:
            theirs = peaks[key]
            if not theirs or max(theirs) > free() * SPARE:
                print(f"not timed for want of memory: {use.what}, {tokens} tokens", flush=True)
                continue
            yield compare(
                f"capture / {use.what}, {tokens} tokens",
                BOUNDS.get(tokens) if use.documented else None,
                lambda prompt=prompt: ours.run(prompt),
                lambda prompt=prompt, use=use: use.run(prompt),
                pairs=pairs or PAIRS.get(tokens),
            )


def _opened() -> Checkpoint:
    return open_checkpoint(NAME, device="cpu", dtype="float32")


def _same_weights(checkpoint: Checkpoint) -> Any:
    """The model again, for a tool that changes its modules: new modules around the same tensors."""
    model = checkpoint.model
    return copy.deepcopy(model, {id(t): t for t in itertools.chain(model.parameters(), model.buffers())})


def _prompt(checkpoint: Checkpoint, tokens: int) -> str:
    """A text of so many tokens, for every tool."""
    text = " ".join([PRESETS["paragraph"]] * 9)
    prompt = checkpoint.tokenizer.decode(token_ids(checkpoint, text)[:tokens])
    assert len(token_ids(checkpoint, prompt)) == tokens
    return prompt


def _see_the_same(checkpoint: Checkpoint, uses: list[Use]) -> None:
    """Each of them found the residual stream that the capture found."""
    prompt = _prompt(checkpoint, min(SIZES))
    ours, *theirs = [torch.stack(list(map(torch.squeeze, use.residual(use.run(prompt))))) for use in uses]
    assert ours.shape == (checkpoint.info.num_layers, min(SIZES))
    for use, found in zip(uses[1:], theirs, strict=True):
        torch.testing.assert_close(
            found, ours, rtol=CLOSE, atol=0, msg=lambda text, use=use: f"{use.what}: {text}"
        )


def _peaks(tool: str, index: int, tokens: int) -> list[int] | None:
    """Bytes of extra peak memory in a process of its own, by repeat; None where the machine has not so much."""
    peaks: list[int] | None = in_process("bench.peers", "--peak", tool, str(index), "--tokens", str(tokens))
    return peaks


def _measure_peaks(tool: str, index: int, tokens: int) -> list[int] | None:
    """The same in this process."""
    checkpoint = _opened()
    use = TOOLS[tool](checkpoint)[index]
    use.run(_prompt(checkpoint, 2))  # reads the weights in, and what Python loads late
    prompt = _prompt(checkpoint, tokens)
    try:
        return [extra(lambda: use.run(prompt)) for _ in range(REPEATS)]
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        return None


def _l2(x: Tensor) -> Tensor:
    """[…, tokens, hidden size] → [tokens]"""
    return torch.linalg.vector_norm(x.reshape(-1, x.shape[-1]), dim=-1)


def _figures(x: Tensor) -> Tensor:
    """What a capture keeps of a norm's input or output: [1, tokens, hidden size] → [4, 1, tokens]."""
    l2 = torch.linalg.vector_norm(x, dim=-1)
    return torch.stack([l2, x.mean(-1), x.std(-1, correction=0), x.abs().amax(-1)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, action="append", help="a size; all of them without it")
    parser.add_argument("--pairs", type=int, help="how many, in place of the usual number")
    parser.add_argument(
        "--peak", nargs=2, metavar=("TOOL", "USE"), help="print the extra memory of one use, JSON"
    )
    options = parser.parse_args()
    sizes = options.tokens or SIZES
    if options.peak:
        tool, index = options.peak
        print(json.dumps(_measure_peaks(tool, int(index), sizes[0])))
        return
    for ratio in rows(sizes, options.pairs):
        print(ratio.line(), flush=True)


if __name__ == "__main__":
    main()

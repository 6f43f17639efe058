"""Runs the code lab: every comparison and every break, with the open checkpoint where there is one.

    run_code_lab(checkpoint)       its class, its residual, its prediction without the final norm
    run_code_lab(None)             what needs none; the residual is the recorded one

Without torch, and for what comes of it: `model_probe.code_results`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from model_probe.broken import run_breaks
from model_probe.capturing import forward, token_ids
from model_probe.code_results import Bias, CodeResults, Prediction, Provenance, load_code_results
from model_probe.errors import ProbeError
from model_probe.passes import input_device
from model_probe.presets import DEFAULT, PRESETS
from model_probe.progress import Progress, silent
from model_probe.sites import NormSite
from model_probe.tokens import readable_tokens
from model_probe.trace import depth_sites
from model_probe.variants import OpenNorm, compare_all, findings

if TYPE_CHECKING:
    from model_probe.checkpoints import Checkpoint

LAYER: Final = 4  # whose input is the real residual, or the last there is: the sink has grown by then
TOKENS: Final = 8  # of it, from the first on
PROMPT: Final = f"{PRESETS['river']} The capital of France is"
LIKELIEST: Final = 5  # tokens of a prediction


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """The residual that one norm of a checkpoint reads, on the first tokens of the preset prompt."""

    values: NDArray[np.float32]  # [tokens, hidden_size]
    site: NormSite
    tokens: tuple[str, ...]  # [tokens]


def run_code_lab(checkpoint: Checkpoint | None, progress: Progress | None = None) -> CodeResults:
    """Run everything; what needs a checkpoint is left out where none is given.

    Raises:
        ProbeError: `no_sites_ran` when the model bypassed its hooks.
    """
    progress = progress or silent
    progress("capture")
    recorded = None if checkpoint else load_code_results()
    residual = take_residual(checkpoint) if checkpoint else None
    if residual is not None:
        values, site, tokens = residual.values, residual.site.name, residual.tokens
    else:
        assert recorded is not None  # noqa: S101 - one of the two is there
        values, site, tokens = recorded.residual, recorded.residual_site, recorded.residual_tokens
    progress("compare")
    opened = open_norm(checkpoint, residual.site) if checkpoint and residual else None
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return CodeResults(
        made=Provenance(torch.__version__, "cpu", now),
        table=compare_all(values, opened),
        findings=findings(),
        outcomes={**run_breaks(values), "no_final_norm": ()},
        residual=values,
        residual_site=site,
        residual_tokens=tokens,
        source=checkpoint.info if checkpoint else recorded.source,  # type: ignore[union-attr]
        checkpoint=checkpoint.info if checkpoint else None,
        prediction=predict_without_final_norm(checkpoint) if checkpoint else None,
        bias=largest_key_bias(checkpoint) if checkpoint else None,
    )


def take_residual(checkpoint: Checkpoint, layer: int = LAYER, tokens: int = TOKENS) -> Residual:
    """The residual before a layer, through a hook on the norm that reads it: float32 [tokens, hidden_size].

    Raises:
        ProbeError: `no_sites_ran` when the model bypassed its hook.
    """
    sites = depth_sites(checkpoint.sites, checkpoint.info.hidden_size)
    numbered = [site for site in sites if site.layer is not None and site.layer <= layer]
    site = next((s for s in reversed(numbered) if s.role == "attention_input"), (numbered or list(sites))[-1])
    ids = token_ids(checkpoint, PRESETS[DEFAULT])
    taken: list[Tensor] = []

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        x = next(a for a in (*args, *kwargs.values()) if isinstance(a, Tensor) and a.is_floating_point())
        taken.append(x.detach().reshape(-1, x.shape[-1])[:tokens].float().cpu().clone())

    module = checkpoint.model.get_submodule(site.module)
    with checkpoint.lock:
        handle = module.register_forward_hook(hook, with_kwargs=True)
        try:
            forward(checkpoint, ids)
        finally:
            handle.remove()
    if not taken:
        raise ProbeError("no_sites_ran")
    texts = tuple(token.text for token in readable_tokens(checkpoint.tokenizer, ids[:tokens]))
    return Residual(taken[0].numpy(), site, texts)


def open_norm(checkpoint: Checkpoint, site: NormSite) -> OpenNorm | None:
    """The norm of a site, to be compared with ours; None where its class keeps its gain in another way."""
    module = checkpoint.model.get_submodule(site.module)
    eps = next(
        (
            v
            for v in vars(module).values()
            if isinstance(v, float) and math.isclose(v, site.eps, rel_tol=1e-3)
        ),
        site.eps,
    )
    norm = OpenNorm(module, site.class_name, site.gain_convention, eps)
    try:
        norm(torch.ones(1, 1, 4), torch.full((4,), 1.5))
    except Exception:  # noqa: BLE001 - a class that does not take another weight is left out of the table
        return None
    return norm


def predict_without_final_norm(checkpoint: Checkpoint, prompt: str = PROMPT) -> Prediction | None:
    """The next token of a prompt with the final norm and with the residual in its place; None without such a norm.

    Raises:
        ProbeError: `empty_prompt`, `bad_prompt`.
    """
    final = [site for site in checkpoint.sites if site.role == "final"]
    if not final:
        return None
    module = checkpoint.model.get_submodule(final[-1].module)
    ids = token_ids(checkpoint, prompt)
    rms: list[float] = []

    def watch(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        rms.extend(float(t.detach()[0, -1].double().square().mean().sqrt()) for t in (args[0], output))

    with checkpoint.lock:
        with _hooked(module, watch):
            logits = _logits(checkpoint, ids)
        with _hooked(module, lambda _, args, __: args[0]):
            without = _logits(checkpoint, ids)
    return Prediction(
        prompt=prompt,
        tokens=_likeliest(checkpoint, logits[-1]),
        tokens_without=_likeliest(checkpoint, without[-1]),
        perplexity=_perplexity(logits, ids),
        perplexity_without=_perplexity(without, ids),
        residual_rms=rms[0],
        normed_rms=rms[1],
    )


def largest_key_bias(checkpoint: Checkpoint) -> Bias | None:
    """The key bias with the largest entry, None where the keys have none."""
    biases = {
        name: parameter.detach().float().abs()
        for name, parameter in checkpoint.model.named_parameters()
        if name.endswith("k_proj.bias")
    }
    if not biases:
        return None
    name = max(biases, key=lambda each: float(biases[each].max()))
    return Bias(name, float(biases[name].max()), float(biases[name].median()))


@contextmanager
def _hooked(module: nn.Module, hook: Any) -> Iterator[None]:
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def _logits(checkpoint: Checkpoint, ids: list[int]) -> Tensor:
    """Of every position, float32 on the CPU: [tokens, vocabulary]."""
    device = input_device(checkpoint.model)
    with torch.inference_mode():
        told = checkpoint.model(input_ids=torch.tensor([ids], device=device), use_cache=False)
    return told.logits[0].float().cpu()


def _likeliest(checkpoint: Checkpoint, logits: Tensor) -> tuple[tuple[str, float], ...]:
    shares, ids = logits.softmax(-1).topk(min(LIKELIEST, logits.numel()))
    texts = readable_tokens(checkpoint.tokenizer, ids.tolist())
    return tuple((token.text, float(share)) for token, share in zip(texts, shares, strict=True))


def _perplexity(logits: Tensor, ids: list[int]) -> float:
    loss = nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]))
    return math.exp(min(float(loss), 700.0))  # e^709 is the last that a float holds

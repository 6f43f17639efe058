"""`capture`: one prompt through one checkpoint, a few numbers a token kept from every norm.

    trace = capture(checkpoint, "The river flows softly through the valley.")

Each norm's hook reduces its input and output to per-token figures on the spot and keeps no
activation, so the peak memory is that of the pass alone and a later in-place kernel changes nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from model_probe.errors import ProbeError
from model_probe.passes import input_device, plain, undisturbed
from model_probe.reduce import Reduced, Store, numbers_of, reduce_rows
from model_probe.sites import NormSite
from model_probe.spreading import whole_sites
from model_probe.tokens import readable_tokens
from model_probe.trace import NormTrace, SiteTrace, Statistics

if TYPE_CHECKING:
    from model_probe.checkpoints import Checkpoint
    from model_probe.progress import Progress

MAX_TOKENS: Final = 2048


def capture(
    checkpoint: Checkpoint,
    prompt: str,
    *,
    max_tokens: int = MAX_TOKENS,
    progress: Progress | None = None,
) -> NormTrace:
    """Run the prompt once and return what every norm site did to every token.

    The prompt is raw text with the tokenizer's own special tokens, no chat template; past
    `max_tokens` it is cut, and the trace's `tokens_cut` says by how many. One capture at a time on a
    checkpoint: a second one waits. The hooks are gone afterwards, after an error too. Of a checkpoint that
    several processes hold together, all have to run it, and all get the whole trace.

    Raises:
        ProbeError: `empty_prompt`, `bad_prompt`, `weights_gone` after the checkpoint was closed, or
            `no_sites_ran` when the model bypassed its hooks.
    """
    ids = token_ids(checkpoint, prompt)
    kept = ids[:max_tokens]
    if progress:
        progress("capture")
    with checkpoint.lock, record_sites(checkpoint, progress) as records:
        forward(checkpoint, kept)
    if not records:
        raise ProbeError("no_sites_ran")
    return NormTrace(
        checkpoint=replace(checkpoint.info, recorded_at=now()),
        prompt=prompt,
        tokens=readable_tokens(checkpoint.tokenizer, kept),
        sites=whole_sites(checkpoint.model, site_traces(records, len(kept))),
        tokens_cut=len(ids) - len(kept),
    )


def token_ids(checkpoint: Checkpoint, prompt: str) -> list[int]:
    """The prompt's tokens, uncut.

    Raises:
        ProbeError: `empty_prompt` for "" or what gives no token, `bad_prompt` for lone surrogates.
    """
    if not prompt:
        raise ProbeError("empty_prompt")
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ProbeError("bad_prompt", reason=f"a lone surrogate at position {error.start}") from None
    ids = checkpoint.tokenizer(prompt, verbose=False)["input_ids"]
    if not ids:
        raise ProbeError("empty_prompt")
    return list(ids)


def forward(checkpoint: Checkpoint, ids: list[int]) -> Any:
    """The bare pass that a capture rides on: no cache, and logits for the last position only."""
    device = input_device(checkpoint.model)
    with torch.inference_mode():
        return checkpoint.model(
            input_ids=torch.tensor([ids], device=device),  # [1, tokens]
            use_cache=False,
            logits_to_keep=1,  # one position; 0 would mean all
        )


@contextmanager
def record_sites(checkpoint: Checkpoint, progress: Progress | None = None) -> Iterator[list[SiteRecord]]:
    """Hooks on every norm site while the block runs; the list fills in the order of the calls.

    `progress` is told of each norm, and may end the pass there.

    A compiled model runs eagerly meanwhile, one in training in evaluation mode.

    with record_sites(checkpoint) as records:
        forward(checkpoint, ids)
    """
    by_name = {site.name: site for site in checkpoint.sites}
    records: list[SiteRecord] = []
    calls: dict[str, int] = {}
    expected = len(checkpoint.sites)
    store = Store(calls=expected)

    def on_norm(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
            calls[name] = calls.get(name, 0) + 1
            full = name if calls[name] == 1 else f"{name}#{calls[name]}"
            site = by_name.get(full) or replace(by_name[name], name=full)
            x = next(a for a in (*args, *kwargs.values()) if isinstance(a, Tensor) and a.is_floating_point())
            records.append(SiteRecord(site, reduce_rows(x, output, store=store)))
            if progress:
                progress("capture", len(records) / expected)

        return hook

    handles = []
    try:
        for name in dict.fromkeys(site.module for site in checkpoint.sites):
            module = plain(checkpoint.model.get_submodule(name))
            handles.append(module.register_forward_hook(on_norm(name), with_kwargs=True))
        with undisturbed(checkpoint.model):
            yield records
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True, slots=True, eq=False)
class SiteRecord:
    """What one norm call left: figures by row, still in the row order of its layout."""

    site: NormSite
    figures: Reduced  # of its input and its output


def site_traces(records: Sequence[SiteRecord], tokens: int) -> tuple[SiteTrace, ...]:
    """The figures by token, heads put together, in the order of the calls.

    Calls of one shape are worked out together: one by one, fifty of them take a percent of a short pass.
    """
    traces: list[SiteTrace | None] = [None] * len(records)
    shapes: dict[tuple[object, ...], list[int]] = {}
    for index, record in enumerate(records):
        shape = (record.site.layout, record.figures.size, record.figures.raw.shape, record.figures.raw.device)
        shapes.setdefault(shape, []).append(index)
    for indices in shapes.values():
        for index, trace in zip(indices, _alike([records[i] for i in indices], tokens), strict=True):
            traces[index] = trace
    return tuple(trace for trace in traces if trace is not None)


def _alike(records: Sequence[SiteRecord], tokens: int) -> Iterator[SiteTrace]:
    """The traces of calls of one shape."""
    first = records[0]
    order = _Order(first.site.layout, tokens)
    numbers = numbers_of([record.figures for record in records])  # [calls, 2, 5, rows]
    x, y = numbers[:, 0], numbers[:, 1]
    # L2 of x / rms follows from the L2 of x: no second pass over the activation.
    l2 = x[:, 0]
    eps = np.array([[record.site.eps] for record in records])
    with np.errstate(divide="ignore", invalid="ignore"):
        normalized = np.where(l2 == 0, 0.0, l2 / np.sqrt(np.square(l2) / first.site.size + eps))
    non_finite = numbers[:, :, 4].sum(axis=(1, 2)).astype(int).tolist()
    heads = None if first.site.layout == "token" else first.figures.rows // tokens
    inputs, outputs = order.statistics(x), order.statistics(y)
    normalized = order.root_mean_square(normalized)
    for index, record in enumerate(records):
        site = record.site
        yield SiteTrace(
            name=site.name,
            layer=site.layer,
            role=site.role,
            class_name=site.class_name,
            size=site.size,
            eps=site.eps,
            gain_convention=site.gain_convention,
            gain=site.summary,
            input=inputs[index],
            normalized_l2=normalized[index],
            output=outputs[index],
            non_finite=non_finite[index],
            heads=heads,
            why_no_gain=site.why_no_gain,
        )


@dataclass(frozen=True, slots=True)
class _Order:
    """Puts rows of a layout into tokens × heads and summarizes over the heads; [calls, rows] → [calls, tokens]."""

    layout: str
    tokens: int

    def _by_token(self, rows: np.ndarray) -> np.ndarray:
        """[calls, tokens, heads]"""
        if self.layout == "head_token":
            return rows.reshape(len(rows), -1, self.tokens).transpose(0, 2, 1)
        return rows.reshape(len(rows), self.tokens, -1)

    def root_mean_square(self, rows: np.ndarray) -> np.ndarray:
        if rows.shape[1] == self.tokens:
            return rows.astype(np.float32)
        return np.sqrt(np.mean(np.square(self._by_token(rows)), axis=2)).astype(np.float32)

    def statistics(self, numbers: np.ndarray) -> list[Statistics]:
        """Of [calls, 5, rows], one a call."""
        l2, mean, std, abs_max = numbers[:, :4].transpose(1, 0, 2)
        if l2.shape[1] == self.tokens:
            with np.errstate(over="ignore"):  # what float32 cannot hold is infinite there
                figures = numbers[:, :4].astype(np.float32)
        else:
            figures = np.stack(
                [
                    self.root_mean_square(l2),
                    self._by_token(mean).mean(axis=2).astype(np.float32),
                    self.root_mean_square(std),
                    self._by_token(abs_max).max(axis=2).astype(np.float32),
                ],
                axis=1,
            )
        return [Statistics(*each) for each in figures]


def now() -> str:
    """The time, ISO 8601 in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")

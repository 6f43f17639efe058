"""Whole activations of named modules, for tests to compare the probe's figures with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Call = tuple[str, tuple[Tensor, ...], Tensor]


@contextmanager
def watched_calls(model: nn.Module, names: Iterable[str]) -> Iterator[list[Call]]:
    """Every call of the modules while the block runs: name, floating inputs, output, all copied."""
    calls: list[Call] = []

    def watch(name: str):
        def hook(module, args, kwargs, output):
            tensors = [
                v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor) and v.is_floating_point()
            ]
            calls.append((name, tuple(t.detach().clone() for t in tensors), output.detach().clone()))

        return hook

    handles = [
        model.get_submodule(name).register_forward_hook(watch(name), with_kwargs=True)
        for name in dict.fromkeys(names)
    ]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()

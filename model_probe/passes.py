"""What has to hold while a model runs to be measured, whoever loaded it and however.

A model that was compiled, that is being trained, or whose weights are elsewhere between two calls is
run as it would be by itself, but so that hooks see what its modules see:

    with undisturbed(model):
        model(input_ids=ids)

Sources: torch.compiler.set_stance; accelerate.hooks.AlignDevicesHook;
transformers.modeling_layers.GradientCheckpointingLayer.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import nn

from model_probe.errors import ProbeError

_COMPILED: Final = "_orig_mod"  # where a compiled module keeps the one that it was made of
_DYNAMO: Final = "torch._dynamo"


def plain(module: nn.Module) -> nn.Module:
    """The module that was compiled, for what `torch.compile(module)` gave; any other is itself."""
    while (inner := module._modules.get(_COMPILED)) is not None:
        module = inner
    return module


def named_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The model's modules, by the names that they have where nothing is compiled."""
    for name, module in model.named_modules():
        if _COMPILED not in module._modules:
            yield ".".join(part for part in name.split(".") if part != _COMPILED), module


def input_device(model: nn.Module) -> torch.device:
    """Where token ids have to be; for weights that are offloaded between calls, where they are brought to.

    Raises:
        ProbeError: `weights_gone` when they are on the meta device and nothing brings them anywhere.
    """
    embedding = model.get_input_embeddings()  # type: ignore[operator]
    device = next(embedding.parameters()).device
    if device.type != "meta":
        return device
    for module in (embedding, *model.modules()):
        brought_to = _execution_device(getattr(module, "_hf_hook", None))
        if brought_to is not None:
            return brought_to
    raise ProbeError("weights_gone", architecture=type(model).__name__)


@contextmanager
def weights_at_hand(module: nn.Module) -> Iterator[None]:
    """The module's own weights in memory while the block runs, where they are offloaded between calls."""
    hook: Any = getattr(module, "_hf_hook", None)
    if hook is None or not any(p.device.type == "meta" for p in module.parameters(recurse=False)):
        yield
        return
    hook.pre_forward(module)
    try:
        yield
    finally:
        hook.post_forward(module, None)


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """The model runs eagerly and in evaluation mode while the block runs; afterwards all is as it was.

    Compiled code knows nothing of hooks that were set after it was compiled. In training mode dropout makes
    each pass another one, and checkpointed layers run again in a backward pass.
    """
    training = [module for module in model.modules() if module.training]
    with ExitStack() as undo:
        if _DYNAMO in sys.modules:  # else nothing can have been compiled
            undo.enter_context(_EAGER)
        for module in training:
            module.training = False
            undo.callback(setattr, module, "training", True)
        yield


def free_weights(model: nn.Module) -> None:
    """Leave the model without its weights, and give the memory that they took back to the system."""
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = nn.Parameter(weight.detach().to("meta"), requires_grad=False)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = buffer.to("meta")
        if hasattr(module, "_hf_hook"):  # it holds the weights that accelerate offloads
            module._hf_hook = None  # type: ignore[assignment]
    give_back_memory()


def give_back_memory() -> None:
    """Give back to the system what nothing uses any more.

    What a pass and the norms' discovery left in cycles goes. The C library keeps freed memory for itself
    unless it is asked; the accelerators' allocators do the same.
    """
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


class _Eager:
    """The stance `force_eager`, which is one for the whole process, for as long as any thread wants it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = 0
        self._stance: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._wanted:
                self._stance = torch.compiler.set_stance("force_eager")
                self._stance.__enter__()
            self._wanted += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._wanted -= 1
            if not self._wanted:
                self._stance.__exit__(None, None, None)


_EAGER: Final = _Eager()


def _execution_device(hook: Any) -> torch.device | None:
    for each in getattr(hook, "hooks", (hook,)):  # accelerate's SequentialHook has several
        device = getattr(each, "execution_device", None)
        if device is not None and getattr(each, "offload", False):
            return torch.device(device)
    return None

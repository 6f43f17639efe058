"""A model in which not every number is finite, made to pass while its norms' roles are found out.

    with mended(model):
        model(input_ids=ids)

What feeds what is read from gradients, and one infinity, in a weight or where a half-precision sum
overflows, makes every gradient after it a NaN. So zeros stand in for what is not finite, for the time
of that pass only; what is measured later is what the model really does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def mended(model: nn.Module) -> Iterator[None]:
    """Zeros for what is not finite in weights and in what modules return, while the block runs."""
    with ExitStack() as undo:
        for module in model.modules():
            for name, weight in module._parameters.items():
                if weight is not None and weight.device.type != "meta" and not _finite(weight):
                    undo.callback(module._parameters.__setitem__, name, weight)
                    module._parameters[name] = nn.Parameter(_without(weight.detach()), requires_grad=False)
            undo.callback(module.register_forward_hook(_mend).remove)
        yield


def _mend(module: nn.Module, args: Any, output: Any) -> Any:
    """The output with zeros where it is not finite; None, which leaves it as it is, where it is finite."""
    if isinstance(output, Tensor):
        return None if _finite(output) else _without(output)
    if isinstance(output, tuple) and any(isinstance(each, Tensor) and not _finite(each) for each in output):
        return tuple(_without(each) if isinstance(each, Tensor) else each for each in output)
    return None


def _finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def _without(tensor: Tensor) -> Tensor:
    return torch.nan_to_num(tensor, 0.0, 0.0, 0.0) if tensor.is_floating_point() else tensor

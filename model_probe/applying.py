"""Applies interventions to an open checkpoint, and takes them back, after an error and a stop too.

    with applied(checkpoint, no_division(layers=(3,), roles=("attention_input",))):
        trace = capture(checkpoint, "…")

Nothing of the model is written to: norms and projections are changed by hooks, the scale of the
logits through the attention module's own `scaling`, which is put back. While the block runs the
checkpoint is this thread's alone: another session's measurement waits for its lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from model_probe.errors import ProbeError
from model_probe.interventions import NORM_KINDS, Intervention
from model_probe.passes import plain, undisturbed, weights_at_hand
from model_probe.sites import NormSite

if TYPE_CHECKING:
    from model_probe.checkpoints import Checkpoint

_PROJECTIONS: Final = ("q_proj", "k_proj", "v_proj")
_GATES: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "silu": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
}


@contextmanager
def applied(checkpoint: Checkpoint, *interventions: Intervention) -> Iterator[None]:
    """The checkpoint changed while the block runs; the changes compose in the order given.

    Raises:
        ProbeError: one of the codes under "intervening" in `model_probe.errors`.
    """
    with checkpoint.lock, ExitStack() as undo:
        for intervention in interventions:
            if intervention.kind in NORM_KINDS:
                _change_norms(checkpoint, intervention, undo)
            else:
                _OTHERS[intervention.kind](checkpoint.model, intervention, undo)
        with undisturbed(checkpoint.model):
            yield


def chosen_sites(checkpoint: Checkpoint, intervention: Intervention) -> tuple[NormSite, ...]:
    """The norm sites that an intervention of a norm kind changes.

    Raises:
        ProbeError: `no_norm_chosen` when there are none.
    """
    chosen = tuple(
        site
        for site in checkpoint.sites
        if (intervention.layers is None or site.layer in intervention.layers)
        and (intervention.roles is None or site.role in intervention.roles)
    )
    if not chosen:
        raise ProbeError("no_norm_chosen")
    return chosen


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    """The decoder's layers, in order."""
    return model.get_decoder().layers  # type: ignore[operator, union-attr, return-value]


def softmax_attention(model: nn.Module) -> dict[int, nn.Module]:
    """By layer, the attention module whose logits go through a softmax; linear-attention layers have none."""
    found: dict[int, nn.Module] = {}
    for number, layer in enumerate(decoder_layers(model)):
        for child in layer.children():
            if isinstance(getattr(child, "scaling", None), float):
                found[number] = child
    return found


def _change_norms(checkpoint: Checkpoint, intervention: Intervention, undo: ExitStack) -> None:
    chosen = chosen_sites(checkpoint, intervention)
    names = {site.name for site in chosen}
    modules: dict[str, NormSite] = {}
    for site in chosen:
        apart = [other.name for other in checkpoint.sites if other.module == site.module]
        if not names.issuperset(apart):
            raise ProbeError("norm_runs_twice", name=site.module)
        modules.setdefault(site.module, site)
    if intervention.kind == "input_scale":
        _scale_inputs(checkpoint.model, modules, float(intervention.amount or 0.0), undo)
        return
    for name, site in modules.items():
        handle = plain(checkpoint.model.get_submodule(name)).register_forward_hook(
            _replacement(intervention, site), with_kwargs=True
        )
        undo.callback(handle.remove)


def _scale_inputs(model: nn.Module, modules: dict[str, NormSite], k: float, undo: ExitStack) -> None:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args and _is_activation(args[0]):
            return (args[0] * k, *args[1:]), kwargs
        name = next(name for name, value in kwargs.items() if _is_activation(value))
        return args, {**kwargs, name: kwargs[name] * k}

    for name in modules:
        handle = plain(model.get_submodule(name)).register_forward_pre_hook(hook, with_kwargs=True)
        undo.callback(handle.remove)


def _replacement(intervention: Intervention, site: NormSite) -> Callable[..., Tensor]:
    """A forward hook that gives another output [..., size], of the same dtype."""
    kind, amount = intervention.kind, intervention.amount
    if kind == "output_scale":
        return lambda _module, _args, _kwargs, output: output * amount
    if site.gain is None:
        raise ProbeError("norm_not_rebuilt", name=site.name)
    gain = torch.from_numpy(site.gain)
    fixed = dict(intervention.rms).get(site.name, amount) if kind == "fixed_rms" else None
    if kind == "fixed_rms" and fixed is None:
        raise ProbeError("no_rms_given", name=site.name)

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Tensor:
        activations = [value for value in (*args, *kwargs.values()) if _is_activation(value)]
        x = activations[0].float()
        here = gain.to(x.device)
        rms = torch.sqrt(x.square().mean(-1, keepdim=True) + site.eps)  # [..., 1]
        if kind == "no_division":
            changed = x * here
        elif kind == "fixed_rms":
            changed = x / fixed * here
        elif kind == "unit_gain":
            changed = x / rms
        elif kind == "layer_norm":
            centred = x - x.mean(-1, keepdim=True)
            changed = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + site.eps) * here
        else:
            changed = x
        if site.gate is not None:  # not the norm's: it stays
            changed = changed * _GATES[site.gate](activations[1].float())
        return changed.to(output.dtype)

    return hook


def _scale_residual(model: nn.Module, intervention: Intervention, undo: ExitStack) -> None:
    k = float(intervention.amount or 0.0)
    layers = decoder_layers(model)
    if intervention.layers is None:
        modules = [model.get_input_embeddings()]  # type: ignore[operator]
    else:
        if beyond := [number for number in intervention.layers if not 0 <= number < len(layers)]:
            raise ProbeError("no_such_layer", layer=beyond[0])
        modules = [layers[number] for number in intervention.layers]

    def hook(module: nn.Module, args: Any, output: Any) -> Any:
        return (output[0] * k, *output[1:]) if isinstance(output, tuple) else output * k

    for module in modules:
        undo.callback(module.register_forward_hook(hook).remove)


def _attention(model: nn.Module, intervention: Intervention) -> dict[int, nn.Module]:
    found = softmax_attention(model)
    if intervention.layers is not None:
        without = [number for number in intervention.layers if number not in found]
        if without:
            raise ProbeError("no_softmax", layer=without[0])
        found = {number: found[number] for number in intervention.layers}
    if not found:
        raise ProbeError("no_softmax", layer=0)
    return found


def _scale_logits(model: nn.Module, intervention: Intervention, undo: ExitStack) -> None:
    for attention in _attention(model, intervention).values():
        if getattr(attention, "attn_logit_softcapping", None):
            raise ProbeError("soft_cap")
        before = attention.scaling
        undo.callback(setattr, attention, "scaling", before)
        attention.scaling = before * intervention.amount  # type: ignore[operator, assignment]


def _scale_values(model: nn.Module, intervention: Intervention, undo: ExitStack) -> None:
    k = float(intervention.amount or 0.0)
    for number, attention in _attention(model, intervention).items():
        projection = getattr(attention, "v_proj", None)
        if projection is None:
            raise ProbeError("no_value_projection", layer=number)
        handle = projection.register_forward_hook(lambda _module, _args, output: output * k)
        undo.callback(handle.remove)


def _scale_biases(model: nn.Module, intervention: Intervention, undo: ExitStack) -> None:
    extra = float(intervention.amount or 0.0) - 1

    def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        with weights_at_hand(module):
            return output + extra * module.bias  # type: ignore[operator]

    for number, attention in _attention(model, intervention).items():
        projections = [getattr(attention, name, None) for name in _PROJECTIONS]
        with_bias = [p for p in projections if p is not None and getattr(p, "bias", None) is not None]
        if not with_bias:
            raise ProbeError("no_bias", layer=number)
        for projection in with_bias:
            undo.callback(projection.register_forward_hook(hook).remove)


_OTHERS: Final[dict[str, Callable[[nn.Module, Intervention, ExitStack], None]]] = {
    "residual_scale": _scale_residual,
    "attention_logit_scale": _scale_logits,
    "value_scale": _scale_values,
    "bias_scale": _scale_biases,
}


def _is_activation(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()

"""Finds the RMSNorms of a model, measures their gain and eps, and says what each feeds.

Nothing is looked up by name: one dry pass of a few tokens records every module that returns what
has the shape of its input; each is then run on vectors whose answer is known if it is an RMSNorm,
and kept only if its output can be rebuilt from its input. So a class with an unheard-of name or
another convention for its weight is found and measured right, and a LayerNorm falls out by itself.

    sites = discover(model)        # in the order in which they run

The roles come from the same pass: what a norm's output is handed to, which branches its input is
the sum of, and, inside attention, whether a later position's result answers to an earlier position of
it (a key) or not (a query). Roles are of a layer's two branches: norms of a third one are `other`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn

from model_probe.errors import ProbeError
from model_probe.fused import Seen, refuse_bypassed, refuse_hidden
from model_probe.measure_norm import CallForm, MeasuredNorm, measure_norm
from model_probe.mending import mended
from model_probe.passes import input_device, named_modules, plain, undisturbed
from model_probe.sites import NormSite
from model_probe.text_part import text_config

# Relative: a key's own position must not answer to it (softmax over one is constant), rounding may.
_ROUNDING: Final = 1e-3
_REASON_LENGTH: Final = 120
# Operations of torch that add up what they are given, and that only lay it out anew, as autograd names them.
_ADDS: Final = ("AddBackward",)
_LAYS_OUT: Final = ("ViewBackward", "ReshapeAlias", "CloneBackward", "SqueezeBackward", "ToCopy")


def discover(model: nn.Module) -> tuple[NormSite, ...]:
    """Every RMSNorm call of a causal language model, in order, measured, with its role.

    Runs one pass of a few tokens on the model's own device. Leaves no hook and no gradient behind.
    A compiled model's sites have the names of the model that was compiled.

    Raises:
        ProbeError: `no_rms_norm`, naming the norm classes that the model has instead; `fused_norm`,
            `bypassed_norm`, `in_place_norm` or `norm_not_measured`, naming a norm that cannot be measured
            from outside; `weights_gone`; `pass_failed` where the model wants more than token ids.
    """
    model = plain(model)
    with undisturbed(model):
        return _discover(model)


def _discover(model: nn.Module) -> tuple[NormSite, ...]:
    dry = _dry_pass(model)
    if not dry.finite:
        with mended(model):
            dry = _dry_pass(model)
    measured: dict[str, MeasuredNorm] = {}
    for call in dry.calls:
        if call.name not in measured:
            norm = measure_norm(plain(model.get_submodule(call.name)), call.form)
            if norm is not None:
                measured[call.name] = norm
    refuse_hidden(model, dry.leaves, measured)
    refuse_bypassed(model, dry.ran, measured, lambda: _run(model, dry.tokens))
    norms = [call for call in dry.calls if call.name in measured]
    if not norms:
        classes = sorted({type(m).__name__ for m in model.modules() if "norm" in type(m).__name__.lower()})
        raise ProbeError(
            "no_rms_norm", architecture=type(model).__name__, classes=", ".join(classes) or "none"
        )
    dry.norms.update({call.name: call for call in norms})
    sites = []
    for call in norms:
        norm = measured[call.name]
        sites.append(
            NormSite(
                name=call.name if call.number == 1 else f"{call.name}#{call.number}",
                layer=dry.layer_of(call.name),
                role=_role(call, dry, is_last=call is norms[-1]),
                class_name=norm.class_name,
                size=call.form.size,
                eps=norm.eps,
                gain_convention=norm.convention,
                gain=norm.gain,
                gate=norm.gate,
                layout=_layout(call, dry.tokens),
                why_no_gain=norm.why_no_gain,
            )
        )
    return tuple(sites)


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """One module call of the dry pass, its tensors kept so that identity can be asked."""

    name: str
    number: int  # 1 for the module's first call
    form: CallForm
    x: Tensor  # the input that is normed
    output: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class _Child:
    """One call of a direct child of a layer."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    projects: bool  # it is a Linear, so no branch but a part of one


@dataclass(frozen=True, slots=True, eq=False)
class _DryPass:
    tokens: int
    finite: bool  # the logits
    layers: str  # name of the ModuleList of layers, "" if there is none
    calls: list[_Call]  # modules that return their input's shape, in order
    ran: set[str]  # every module without parts of its own
    leaves: list[Seen]  # those that return their input's shape, by itself or among others
    children: list[_Child]
    linear_inputs: list[tuple[str, Tensor]]  # what each Linear was given
    makers: dict[Any, _Child]  # the node of autograd's graph that made a child's result → the child
    norms: dict[str, _Call] = field(default_factory=dict)  # the calls that are norms, the last one of each

    def layer_of(self, name: str) -> int | None:
        match = re.match(re.escape(self.layers) + r"\.(\d+)\.", name) if self.layers else None
        return int(match[1]) if match else None

    def child_holding(self, name: str) -> _Child | None:
        """The layer's direct child inside which the module lies, None for a direct child itself."""
        return next((child for child in self.children if name.startswith(child.name + ".")), None)


def _dry_pass(model: nn.Module) -> _DryPass:
    layers = _layer_list(model)
    layer_names = (
        {f"{layers}.{i}" for i, _ in model.get_submodule(layers).named_children()} if layers else set()
    )
    tokens = _token_count(model)
    calls: list[_Call] = []
    ran: set[str] = set()
    leaves: list[Seen] = []
    children: list[_Child] = []
    linear_inputs: list[tuple[str, Tensor]] = []
    makers: dict[Any, _Child] = {}
    counts: dict[str, int] = {}

    def on_leaf(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            ran.add(name)
            form = CallForm.of(args, kwargs)
            if isinstance(module, nn.Linear) and form is not None:
                linear_inputs.append((name, form.x))
            elif (seen := Seen.of(name, _tensors((args, kwargs)), output)) is not None:
                leaves.append(seen)
            if form is None or not isinstance(output, Tensor) or output.shape != form.x.shape:
                return
            counts[name] = counts.get(name, 0) + 1
            calls.append(_Call(name, counts[name], form, form.x, output))

        return hook

    def on_child(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            child = _Child(
                name, tuple(_tensors((args, kwargs))), tuple(_tensors(output)), isinstance(module, nn.Linear)
            )
            children.append(child)
            makers.update({tensor.grad_fn: child for tensor in child.outputs if tensor.grad_fn is not None})

        return hook

    def start_graph(module: nn.Module, args: Any, output: Any) -> Any:
        return output.detach().requires_grad_(True) if isinstance(output, Tensor) else output

    embedding = model.get_input_embeddings()  # type: ignore[operator]
    handles = [embedding.register_forward_hook(start_graph)]
    for name, module in named_modules(model):
        if name.rpartition(".")[0] in layer_names:
            handles.append(module.register_forward_hook(on_child(name), with_kwargs=True))
        if not any(True for child in module.children() for _ in child.parameters()):
            handles.append(module.register_forward_hook(on_leaf(name), with_kwargs=True))
    try:
        with torch.enable_grad():
            logits = _run(model, tokens)
    finally:
        for handle in handles:
            handle.remove()
    finite = bool(torch.isfinite(logits).all())
    return _DryPass(tokens, finite, layers, calls, ran, leaves, children, linear_inputs, makers)


def _run(model: nn.Module, tokens: int) -> Tensor:
    """Logits of so many tokens, [1, tokens, vocabulary].

    Raises:
        ProbeError: `pass_failed` with what the model says that wants more than token ids.
    """
    ids = torch.arange(1, tokens + 1, device=input_device(model)).unsqueeze(0)  # [1, tokens]
    ids = ids % model.get_input_embeddings().num_embeddings  # type: ignore[operator]
    try:
        return model(input_ids=ids, use_cache=False).logits
    except (ProbeError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        lines = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {lines[0] if lines else ''}"[:_REASON_LENGTH].strip().rstrip(".:")
        raise ProbeError("pass_failed", architecture=type(model).__name__, reason=reason) from error


def _token_count(model: nn.Module) -> int:
    """A small prime that divides none of the config's small numbers (head counts above all)."""
    config = text_config(model)
    numbers = (
        [v for v in vars(config).values() if type(v) is int and 1 < v <= 512] if config is not None else []
    )
    return next((p for p in (5, 7, 11, 13, 17, 19) if all(n % p for n in numbers)), 23)


def _layer_list(model: nn.Module) -> str:
    """Name of the ModuleList that holds the decoder layers: the outermost one of the config's length."""
    config = text_config(model)
    wanted = getattr(config, "num_hidden_layers", None)
    lists = [(name, m) for name, m in named_modules(model) if isinstance(m, nn.ModuleList) and len(m)]
    outermost = [
        (name, m) for name, m in lists if not any(name.startswith(other + ".") for other, _ in lists)
    ]
    fitting = [(name, m) for name, m in outermost if len(m) == wanted] or outermost
    if not fitting:
        return ""
    return max(fitting, key=lambda pair: sum(p.numel() for p in pair[1].parameters()))[0]


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists and mappings, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _layout(call: _Call, tokens: int) -> str:
    shape = call.x.shape
    if len(shape) == 2:
        return "rows"
    if len(shape) == 3:
        return "token"
    return "head_token" if shape[2] == tokens and shape[1] != tokens else "token_head"


def _by_token(x: Tensor, layout: str, tokens: int) -> Tensor:
    """The tensor as [tokens, everything else]."""
    if layout == "head_token":
        x = x.transpose(1, 2)
    return x.reshape(tokens, -1)


def _role(call: _Call, dry: _DryPass, *, is_last: bool) -> str:
    if call.form.z is not None:
        return "gated"
    if dry.layer_of(call.name) is None:
        return "final" if is_last else "other"
    holder = dry.child_holding(call.name)
    if holder is not None:
        return _role_inside(call, holder, dry)
    branch = _branch_before(call.x, dry)
    if branch is not None:  # placed on what a branch gives back
        return f"{branch}_output"
    fed = [
        _mixes_tokens(child, dry.tokens)
        for child in dry.children
        if child.name != call.name and any(tensor is call.output for tensor in child.inputs)
    ]
    if fed:  # in front of a branch, or of several
        return "attention_input" if any(fed) else "mlp_input"
    return "other"


def _branch_before(x: Tensor, dry: _DryPass) -> str | None:
    """The branch whose result x is, "attention" or "mlp"; None where the residual stream is in it.

    Several branches may have been added up (a dense MLP and experts), each normed before or not.
    """
    sources = list(_summands(x, dry))  # all of them first: gradients are dear
    if any(source is None or source.projects for source in sources):
        return None
    found = set()
    for source in (source for source in sources if source is not None):
        if source.name in dry.norms:
            found.add(_branch_before(dry.norms[source.name].x, dry))
        else:
            found.add("attention" if _mixes_tokens(source, dry.tokens) else "mlp")
    if None in found:
        return None
    return "attention" if "attention" in found else "mlp"


def _summands(x: Tensor, dry: _DryPass) -> Iterator[_Child | None]:
    """The direct children of layers whose results x is the sum of; None for anything else in the sum."""
    for node in _origins(x, dry.makers, (*_LAYS_OUT, *_ADDS)):
        yield None if node is None else dry.makers[node]


def _origins(x: Tensor, known: Container[Any], passing: Sequence[str]) -> Iterator[Any]:
    """The known nodes of autograd's graph that x comes from by the `passing` operations; None for others."""
    nodes = [x.grad_fn]
    while nodes:
        node = nodes.pop()
        if node in known:
            yield node
        elif node is not None and any(kind in node.name() for kind in passing):
            nodes.extend(previous for previous, _ in node.next_functions if previous is not None)
        else:
            yield None


def _mixes_tokens(child: _Child, tokens: int) -> bool:
    """Whether the child's result at the last position answers to anything it was given at an earlier one.

    Most are given the hidden state alone; attention may be given another layer's keys and values.
    """
    return bool(child.outputs) and any(
        _answers_to_earlier(child.outputs[0], given, tokens) for given in child.inputs if given.requires_grad
    )


def _answers_to_earlier(output: Tensor, given: Tensor, tokens: int) -> bool:
    gradient = _gradient(output, -1, given, tokens)
    if gradient is None or tokens not in given.shape:
        return False
    return bool((gradient.movedim(given.shape.index(tokens), 0)[:-1] != 0).any())


def _role_inside(call: _Call, holder: _Child, dry: _DryPass) -> str:
    """The role of a norm inside a branch: in front of a projection, on queries or on keys."""
    source = next((t for t in holder.inputs if t.requires_grad), None)
    if source is None or not _mixes_tokens(holder, dry.tokens):
        return "other"
    layout = _layout(call, dry.tokens)
    if layout == "token" and _answers_to_earlier(call.x, source, dry.tokens):
        return "other"  # behind the mixing, on what attention gives back
    projected = (x for name, x in dry.linear_inputs if name.startswith(holder.name + "."))
    if any(node is not None for x in projected for node in _origins(x, (call.output.grad_fn,), _LAYS_OUT)):
        return "latent"
    last = _gradient(holder.outputs[0], -1, call.output, dry.tokens)
    first = _gradient(holder.outputs[0], 0, call.output, dry.tokens)
    if last is None or first is None:
        return "other"
    at_last = _by_token(last, layout, dry.tokens).abs().amax(dim=1)  # [tokens]
    at_first = _by_token(first, layout, dry.tokens).abs().amax(dim=1)  # [tokens]
    if at_last[:-1].max() == 0:
        return "query" if at_last[-1] > 0 else "other"
    # A value answers at its own position too; a key does not, where it is the only one to be seen.
    return "key" if at_first[0] <= _ROUNDING * at_last.max() else "other"


def _gradient(output: Tensor, position: int, source: Tensor, tokens: int) -> Tensor | None:
    """d Σ output at a position / d source, None where the one does not answer to the other.

    The output is [1, tokens, …], or [tokens, …] as experts give it.
    """
    if not output.requires_grad or not source.requires_grad or tokens not in output.shape:
        return None
    at_position = output.select(output.shape.index(tokens), position)
    (gradient,) = torch.autograd.grad(at_position.float().sum(), source, retain_graph=True, allow_unused=True)
    return gradient

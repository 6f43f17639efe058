"""Any dtype, and any model that somebody has in memory: compiled, offloaded, fused, in training."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from accelerate import cpu_offload, disk_offload, dispatch_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from watch import watched_calls

from model_probe import Checkpoint, NormTrace, ProbeError, capture, discover, open_checkpoint, wrap_model
from model_probe.capturing import forward, record_sites, token_ids
from model_probe.interventions import bias_scale, input_scale
from model_probe.observing import Experiment

Folder = Callable[[str], Path]
PROMPT = "The river flows softly, the fox jumps."
REBUILT = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 2e-3}  # of the site's largest output


# any precision


@pytest.mark.parametrize("dtype", REBUILT)
@pytest.mark.parametrize(
    "architecture", ["qwen2", "qwen3", "qwen3_next", "qwen3_5", "llama", "gemma2", "gemma3", "olmo2"]
)
def test_every_figure_in_every_precision(tmp_path: Path, architecture: str, dtype: str) -> None:
    """Against NumPy in float64 of what the norms saw, and the outputs rebuilt from it."""
    opened = open_checkpoint(tiny.build(architecture, tmp_path / "m", dtype=dtype), device="cpu", dtype=dtype)
    trace = capture(opened, PROMPT)
    assert trace.checkpoint.dtype == dtype
    with watched_calls(opened.model, [site.module for site in opened.sites]) as calls:
        forward(opened, token_ids(opened, PROMPT))
    assert [site.name for site in trace.sites] == [name for name, _, _ in calls]
    for site, known, (name, inputs, output) in zip(trace.sites, opened.sites, calls, strict=True):
        assert output.dtype == getattr(torch, dtype)
        for told, tensor in ((site.input, inputs[0]), (site.output, output)):
            x = by_token(tensor, len(trace.tokens))
            l2 = np.sqrt(np.mean(np.square(x).sum(axis=2), axis=1))
            np.testing.assert_allclose(told.l2, l2, rtol=2e-6, err_msg=name)
            np.testing.assert_allclose(told.std, np.sqrt(x.var(axis=2).mean(axis=1)), rtol=1e-5)
            np.testing.assert_allclose(told.mean, x.mean(axis=(1, 2)), atol=2e-6 * np.abs(x).max())
            np.testing.assert_allclose(told.abs_max, np.abs(x).max(axis=(1, 2)), rtol=1e-6)
        rebuilt = known.rebuild(*(tensor.double().numpy() for tensor in inputs))
        error = np.abs(output.double().numpy() - rebuilt).max() / np.abs(rebuilt).max()
        assert error < REBUILT[dtype], name


def by_token(tensor: Tensor, tokens: int) -> np.ndarray:
    """[tokens, heads, size] float64."""
    if tensor.ndim == 4 and tensor.shape[1] != tokens:
        tensor = tensor.transpose(1, 2)
    return tensor.double().numpy().reshape(tokens, -1, tensor.shape[-1])


def test_a_norm_kept_in_float32_inside_a_bfloat16_model() -> None:
    model = tiny.model("qwen2", dtype="bfloat16")
    norm = model.model.norm
    weight = norm.weight.detach().float()
    norm.weight = nn.Parameter(weight, requires_grad=False)
    model.lm_head.float()
    wrapped = wrap_model(model, tiny.tokenizer())
    trace = capture(wrapped, PROMPT)
    np.testing.assert_allclose(wrapped.sites[-1].gain, weight.numpy(), atol=3e-7)
    assert np.isfinite(trace.sites[-1].output.l2).all()


# a model in memory


def traced(model: nn.Module, prompt: str = PROMPT) -> NormTrace:
    return capture(wrap_model(model, tiny.tokenizer()), prompt)


def assert_equal(trace: NormTrace, expected: NormTrace) -> None:
    assert [site.name for site in trace.sites] == [site.name for site in expected.sites]
    for one, other in zip(trace.sites, expected.sites, strict=True):
        assert (one.role, one.layer, one.class_name, one.gain_convention, one.eps) == (
            other.role, other.layer, other.class_name, other.gain_convention, other.eps,
        )  # fmt: skip
        np.testing.assert_allclose(one.input.l2, other.input.l2, rtol=1e-6, err_msg=one.name)
        np.testing.assert_allclose(one.output.l2, other.output.l2, rtol=1e-6, err_msg=one.name)
        assert one.gain == other.gain


def hooks(model: nn.Module) -> list[Any]:
    return [h for m in model.modules() for h in (*m._forward_hooks.values(), *m._forward_pre_hooks.values())]


def test_a_wrapped_model_is_what_opening_it_gives(tiny_folder: Folder) -> None:
    folder = tiny_folder("qwen3_5")
    opened = open_checkpoint(folder, device="cpu")
    model = AutoModelForCausalLM.from_pretrained(folder)
    wrapped = wrap_model(model, opened.tokenizer, source="somewhere")
    assert_equal(capture(wrapped, PROMPT), capture(opened, PROMPT))
    info = wrapped.info
    assert (info.name, info.source, info.architecture) == ("qwen3_5", "somewhere", "Qwen3_5ForCausalLM")
    assert (info.hidden_size, info.num_layers, info.dtype, info.device) == (32, 2, "float32", "cpu")
    assert wrap_model(model, opened.tokenizer, name="mine").info.source == "mine"


def test_the_digest_follows_what_a_training_changes() -> None:
    model, tokenizer = tiny.model("qwen2"), tiny.tokenizer()
    digest = wrap_model(model, tokenizer).info.digest
    assert wrap_model(model, tokenizer).info.digest == digest
    with torch.no_grad():
        model.model.norm.weight.mul_(1.01)
    assert wrap_model(model, tokenizer).info.digest != digest


def test_what_is_no_language_model_of_transformers_is_refused() -> None:
    with pytest.raises(ProbeError) as refusal:
        wrap_model(nn.Sequential(nn.RMSNorm(8)), tiny.tokenizer())
    assert refusal.value.code == "not_wrapped"
    assert "Sequential" in str(refusal.value)


def test_a_model_without_weights_is_refused() -> None:
    with pytest.raises(ProbeError) as refusal:
        wrap_model(tiny.model("qwen2").to("meta"), tiny.tokenizer())
    assert refusal.value.code == "weights_gone"


def test_a_closed_checkpoint_is_refused_and_a_wrapped_model_left_alone(tiny_folder: Folder) -> None:
    opened = open_checkpoint(tiny_folder("qwen3"), device="cpu")
    opened.close()
    opened.close()
    assert all(parameter.device.type == "meta" for parameter in opened.model.parameters())
    with pytest.raises(ProbeError) as refusal:
        capture(opened, PROMPT)
    assert refusal.value.code == "weights_gone"
    wrapped = wrap_model(tiny.model("qwen3"), tiny.tokenizer())
    wrapped.close()
    assert capture(wrapped, PROMPT).sites


def test_offloaded_weights_are_given_back_too(tmp_path: Path) -> None:
    wrapped = wrap_model(to_cpu(tiny.model("qwen3"), tmp_path), tiny.tokenizer())
    kept = weakref.ref(wrapped.model.model.norm._hf_hook.weights_map["weight"])
    assert kept() is not None
    replace(wrapped, owned=True).close()
    assert kept() is None
    with pytest.raises(ProbeError) as refusal:
        capture(wrapped, PROMPT)
    assert refusal.value.code == "weights_gone"


# compiled


class Counting:
    """A backend of torch.compile that runs the graph as it is and counts how often it ran."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            self.runs += 1
            return graph.forward(*args)

        return run


def whole(model: PreTrainedModel, backend: Counting) -> nn.Module:
    return torch.compile(model, backend=backend, fullgraph=True)


def in_place(model: PreTrainedModel, backend: Counting) -> nn.Module:
    model.compile(backend=backend)
    return model


def its_forward(model: PreTrainedModel, backend: Counting) -> nn.Module:
    model.forward = torch.compile(model.forward, backend=backend)
    return model


def each_layer(model: PreTrainedModel, backend: Counting) -> nn.Module:
    for number, layer in enumerate(model.model.layers):
        model.model.layers[number] = torch.compile(layer, backend=backend)
    return model


def each_norm(model: PreTrainedModel, backend: Counting) -> nn.Module:
    for layer in model.model.layers:
        layer.input_layernorm = torch.compile(layer.input_layernorm, backend=backend)
        layer.post_attention_layernorm.compile(backend=backend)
    return model


def layers_in_a_whole(model: PreTrainedModel, backend: Counting) -> nn.Module:
    return torch.compile(each_layer(model, backend), backend=backend)


@pytest.fixture
def dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def ids_of(prompt: str) -> Tensor:
    return torch.tensor([tiny.tokenizer()(prompt)["input_ids"]])


@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("compiled", [whole, in_place, its_forward, each_layer, each_norm, layers_in_a_whole])
def test_fault_07_hooks_set_after_compiling_run(compiled: Callable[..., nn.Module]) -> None:
    """Captured before, compiled and run, changed, captured again: the new numbers, and it stays compiled."""
    model, backend = tiny.model("qwen3"), Counting()
    before = wrap_model(model, tiny.tokenizer())
    first = capture(before, PROMPT)
    fast = compiled(model, backend)
    with torch.no_grad():
        fast(input_ids=ids_of(PROMPT), use_cache=False)
    assert backend.runs
    with torch.no_grad():
        model.get_submodule("model.layers.0.mlp.down_proj").weight.mul_(3)
    other = tiny.model("qwen3")
    with torch.no_grad():
        other.model.layers[0].mlp.down_proj.weight.mul_(3)
    expected, ran = traced(other), backend.runs
    assert_equal(capture(before, PROMPT), expected)
    assert_equal(traced(fast), expected)
    assert not np.allclose(expected.sites[-1].input.l2, first.sites[-1].input.l2)
    assert not any("_orig_mod" in site.name for site in discover(fast))
    assert backend.runs == ran
    with torch.no_grad():
        fast(input_ids=ids_of(PROMPT), use_cache=False)
    assert backend.runs > ran
    assert not hooks(fast)


@pytest.mark.usefixtures("dynamo")
def test_fault_07_an_intervention_reaches_a_compiled_model() -> None:
    model = tiny.model("qwen2")
    expected = Experiment(wrap_model(model, tiny.tokenizer()), PROMPT).run(input_scale(3.0, layers=(0,)))
    fast = each_norm(each_layer(model, Counting()), Counting())
    with torch.no_grad():
        fast(input_ids=ids_of(PROMPT), use_cache=False)
    outcome = Experiment(wrap_model(fast, tiny.tokenizer()), PROMPT).run(input_scale(3.0, layers=(0,)))
    np.testing.assert_allclose(outcome.kl, expected.kl, atol=1e-9)


@pytest.mark.usefixtures("dynamo")
def test_two_measurements_at_once_leave_compiling_as_it_was() -> None:
    """The stance is one for the process: the first to end must not take it from the other."""
    backend = Counting()
    fast = torch.compile(tiny.model("qwen2"), backend=backend)
    with torch.no_grad():
        fast(input_ids=ids_of(PROMPT), use_cache=False)
    one, two = (wrap_model(m, tiny.tokenizer()) for m in (fast, tiny.model("qwen2")))
    ran, ends = backend.runs, threading.Event()

    def other() -> None:
        with record_sites(two):
            ends.wait(60)

    thread = threading.Thread(target=other)
    with record_sites(one) as records:
        thread.start()
        while not hooks(two.model):
            pass
    ends.set()
    thread.join()
    assert not records
    with record_sites(one) as records, torch.no_grad():
        fast(input_ids=ids_of(PROMPT), use_cache=False)
    assert len(records) == len(one.sites)
    assert backend.runs == ran
    with torch.no_grad():
        fast(input_ids=ids_of(PROMPT), use_cache=False)
    assert backend.runs == ran + 1


# offloaded


def to_cpu(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    return cpu_offload(model, execution_device=torch.device("cpu"))


def to_disk(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    return disk_offload(model, folder / "offloaded", execution_device=torch.device("cpu"))


def dispatched(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    parts = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk"}
    parts |= {"model.norm": "disk", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    return dispatch_model(model, parts, main_device="cpu", offload_dir=folder / "offloaded", force_hooks=True)


@pytest.mark.parametrize("offloaded", [to_cpu, to_disk, dispatched])
@pytest.mark.parametrize("architecture", ["qwen2", "qwen3_5"])
def test_offloaded_weights(tmp_path: Path, architecture: str, offloaded: Callable[..., Any]) -> None:
    """accelerate brings each module's weights for the time of its call; between two they are nowhere."""
    expected = traced(tiny.model(architecture))
    model = offloaded(tiny.model(architecture), tmp_path)
    assert model.model.norm.weight.device.type == "meta"
    wrapped = wrap_model(model, tiny.tokenizer())
    assert wrapped.info.device == "cpu"
    assert_equal(capture(wrapped, PROMPT), expected)
    assert model.model.norm.weight.device.type == "meta"


def test_weights_that_from_pretrained_offloads(tiny_folder: Folder, tmp_path: Path) -> None:
    folder = tiny_folder("qwen3")
    parts = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk"}
    parts |= {"model.norm": "disk", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    model = AutoModelForCausalLM.from_pretrained(
        folder, device_map=parts, offload_folder=tmp_path / "offloaded"
    )
    assert model.model.norm.weight.device.type == "meta"
    assert_equal(traced(model), traced(tiny.model("qwen3")))


def test_an_intervention_on_offloaded_biases() -> None:
    model = tiny.model("qwen2")
    for layer in model.model.layers:
        layer.self_attn.q_proj.bias.data.fill_(0.3)
    change = bias_scale(2.0, layers=(1,))
    expected = Experiment(wrap_model(model, tiny.tokenizer()), PROMPT).run(change)
    wrapped = wrap_model(cpu_offload(model, execution_device=torch.device("cpu")), tiny.tokenizer())
    outcome = Experiment(wrapped, PROMPT).run(change)
    assert expected.kl.max() > 0
    np.testing.assert_allclose(outcome.kl, expected.kl, atol=1e-9)


# kernels


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return nn.functional.rms_norm(x, x.shape[-1:], weight.to(x.dtype), eps)


def kernelized(model: PreTrainedModel, forward: Callable[..., Tensor]) -> PreTrainedModel:
    """What `use_kernels=True` does: the classes stay, each norm's forward is another function."""
    for module in model.modules():
        if type(module).__name__ == "Qwen2RMSNorm":
            module.forward = MethodType(forward, module)
    return model


def test_a_norm_whose_forward_is_a_kernel() -> None:
    calls = []

    def kernel(self: Any, hidden_states: Tensor) -> Tensor:
        calls.append(hidden_states.shape)
        return rms_norm(hidden_states, self.weight, self.variance_epsilon)

    trace = traced(kernelized(tiny.model("qwen2"), kernel))
    assert calls
    assert_equal(trace, traced(tiny.model("qwen2")))


def test_a_kernel_that_takes_no_float32_is_refused_by_name() -> None:
    def kernel(self: Any, hidden_states: Tensor) -> Tensor:
        if hidden_states.dtype != torch.bfloat16:
            raise TypeError("expected scalar type BFloat16")
        return rms_norm(hidden_states, self.weight, self.variance_epsilon)

    error = refused(kernelized(tiny.model("qwen2", dtype="bfloat16"), kernel))
    assert error.code == "norm_not_measured"
    assert "model.layers.0.input_layernorm (Qwen2RMSNorm)" in str(error)
    assert "expected scalar type BFloat16" in str(error)


class AddNorm(nn.Module):
    """The residual's addition and the norm in one step: gives both."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight, self.eps = norm.weight, norm.variance_epsilon

    def forward(self, x: Tensor, residual: Tensor) -> Any:
        residual = x + residual
        return rms_norm(residual, self.weight, self.eps), residual


class AddNormOnly(AddNorm):
    """The same, but gives the normed alone."""

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return super().forward(x, residual)[0]


class AddNormInPlace(AddNorm):
    """The same, written over its two arguments, as vLLM's kernel does."""

    def forward(self, x: Tensor, residual: Tensor) -> Any:
        with torch.no_grad():
            residual.data.add_(x)
            x.data.copy_(rms_norm(residual, self.weight, self.eps))
        return x, residual


class FusedLayer(nn.Module):
    """A Qwen2 layer whose second norm is fused with the addition before it."""

    def __init__(self, layer: Any, fused: type[AddNorm]) -> None:
        super().__init__()
        self.input_layernorm, self.self_attn, self.mlp = layer.input_layernorm, layer.self_attn, layer.mlp
        self.fused = fused(layer.post_attention_layernorm)

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> Tensor:
        residual = hidden_states
        branch, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **kwargs)
        both = self.fused(branch, residual)
        normed, residual = both if isinstance(both, tuple) else (both, residual + branch)
        return residual + self.mlp(normed)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("fused", [AddNorm, AddNormOnly, AddNormInPlace])
def test_a_fused_add_and_norm_is_refused_by_name(fused: type[AddNorm], dtype: str) -> None:
    model = tiny.model("qwen2", dtype=dtype)
    expected = model(input_ids=ids_of(PROMPT)).logits
    for number, layer in enumerate(model.model.layers):
        model.model.layers[number] = FusedLayer(layer, fused)
    tolerance = {"float32": 1e-5, "bfloat16": 0.1}[dtype]
    with torch.no_grad():  # it computes the same
        logits = model(input_ids=ids_of(PROMPT)).logits
    torch.testing.assert_close(logits, expected, rtol=tolerance, atol=tolerance)
    error = refused(model)
    assert error.code == "fused_norm"
    assert f"model.layers.0.fused ({fused.__name__})" in str(error)


def test_a_norm_that_writes_over_its_input_is_refused_by_name() -> None:
    def kernel(self: Any, hidden_states: Tensor) -> Tensor:
        with torch.no_grad():
            normed = rms_norm(hidden_states, self.weight, self.variance_epsilon)
            return hidden_states.data.copy_(normed)

    model = tiny.model("qwen2")
    model.model.norm.forward = MethodType(kernel, model.model.norm)
    error = refused(model)
    assert error.code == "in_place_norm"
    assert "model.norm (Qwen2RMSNorm)" in str(error)


class BypassingLayer(nn.Module):
    """A Qwen2 layer that hands its second norm's weight to a function and never calls the module."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> Tensor:
        layer, norm = self.layer, self.layer.post_attention_layernorm
        branch, _ = layer.self_attn(hidden_states=layer.input_layernorm(hidden_states), **kwargs)
        stream = hidden_states + branch
        return stream + layer.mlp(rms_norm(stream, norm.weight, norm.variance_epsilon))


def test_a_norm_that_never_runs_but_takes_part_is_refused_by_name() -> None:
    model = tiny.model("qwen2")
    expected = model(input_ids=ids_of(PROMPT)).logits
    weight = model.model.layers[1].post_attention_layernorm.weight
    model.model.layers[1] = BypassingLayer(model.model.layers[1])
    with torch.no_grad():
        torch.testing.assert_close(model(input_ids=ids_of(PROMPT)).logits, expected)
    error = refused(model)
    assert error.code == "bypassed_norm"
    assert "model.layers.1.layer.post_attention_layernorm (Qwen2RMSNorm)" in str(error)
    assert model.model.layers[1].layer.post_attention_layernorm.weight is weight


def test_a_norm_that_is_not_used_is_left_out() -> None:
    model = tiny.model("qwen2")
    model.model.layers[1].spare = type(model.model.norm)(32)
    assert_equal(traced(model), traced(tiny.model("qwen2")))


def refused(model: nn.Module) -> ProbeError:
    with pytest.raises(ProbeError) as caught:
        wrap_model(model, tiny.tokenizer())
    assert not hooks(model)
    return caught.value


# in training


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_in_training(reentrant: bool) -> None:
    """Evaluation mode while it is measured, so that nothing drops out or runs again; then all as it was."""
    expected = traced(tiny.model("qwen3"))
    model = tiny.model("qwen3", attention_dropout=0.5)
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    model.train()
    model.model.norm.eval()  # a part that somebody froze
    wrapped = wrap_model(model, tiny.tokenizer())
    assert_equal(capture(wrapped, PROMPT), expected)
    assert model.training
    assert model.model.layers[0].self_attn.training
    assert not model.model.norm.training
    assert model.is_activation_checkpointing
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    ids = ids_of(PROMPT)
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    assert model.model.layers[0].mlp.down_proj.weight.grad is not None
    assert_equal(capture(wrapped, PROMPT), expected)


def test_a_trained_checkpoint_is_measured_in_evaluation_mode_too(tiny_folder: Folder) -> None:
    opened: Checkpoint = open_checkpoint(tiny_folder("qwen3"), device="cpu")
    expected = capture(opened, PROMPT)
    opened.model.activation_checkpointing_enable()
    opened.model.train()
    assert_equal(capture(opened, PROMPT), expected)
    assert opened.model.training

"""Norms found without names, measured right, and given the role of what they feed.

Every architecture is saved to disk with gains that are zero, negative and far from one, opened as a
real checkpoint is, and each site's output is rebuilt from its input.
"""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from torch import nn
from watch import watched_calls

from model_probe import ProbeError, capture, discover, discovery, open_checkpoint
from model_probe.measure_norm import CallForm, measure_norm
from model_probe.text_part import text_config

RNG = np.random.default_rng(3)
PER_LAYER = {"attention_input": 1, "mlp_input": 1}
SANDWICH = PER_LAYER | {"attention_output": 1, "mlp_output": 1}
QK = {"query": 1, "key": 1}
# Gemma 3n: its value norm, the router's (twice), Laurel's, and the per-layer input's; Gemma 4: the first and the last
GEMMA3N = SANDWICH | QK | {"other": 5}
GEMMA4 = SANDWICH | QK | {"other": 2}
# besides these the experts' own norms in front and behind, the one behind the dense MLP, and the router's
GEMMA4_MOE = GEMMA4 | {"mlp_input": 2, "mlp_output": 3, "other": 3}

# architecture: (roles of each of the two layers, gain convention of the ungated norms)
EXPECTED = {
    "qwen2": ([PER_LAYER, PER_LAYER], "weight"),
    "qwen3": ([PER_LAYER | QK, PER_LAYER | QK], "weight"),
    "qwen3_next": ([PER_LAYER | {"gated": 1}, PER_LAYER | QK], "one_plus_weight"),
    "qwen3_5": ([PER_LAYER | {"gated": 1}, PER_LAYER | QK], "one_plus_weight"),
    "qwen3_5_wrapper": ([PER_LAYER | {"gated": 1}, PER_LAYER | QK], "one_plus_weight"),
    "llama": ([PER_LAYER, PER_LAYER], "weight"),
    "gemma2": ([SANDWICH, SANDWICH], "one_plus_weight"),
    "gemma3": ([SANDWICH | QK, SANDWICH | QK], "one_plus_weight"),
    "gemma3_wrapper": ([SANDWICH | QK, SANDWICH | QK], "one_plus_weight"),
    "olmo2": ([{"attention_output": 1, "mlp_output": 1} | QK] * 2, "weight"),
    "qwen2_moe": ([PER_LAYER, PER_LAYER], "weight"),
    "qwen3_moe": ([PER_LAYER | QK, PER_LAYER | QK], "weight"),
    "qwen2_5_vl": ([PER_LAYER, PER_LAYER], "weight"),
    "qwen3_vl": ([PER_LAYER | QK, PER_LAYER | QK], "weight"),
    "mistral": ([PER_LAYER, PER_LAYER], "weight"),
    "phi3": ([PER_LAYER, PER_LAYER], "weight"),
    "glm4": ([SANDWICH, SANDWICH], "weight"),
    "deepseek_v3": ([PER_LAYER | {"latent": 2}] * 2, "weight"),
    "gpt_oss": ([PER_LAYER, PER_LAYER], "weight"),
    "granite": ([PER_LAYER, PER_LAYER], "weight"),
    "smollm3": ([PER_LAYER, PER_LAYER], "weight"),
    "gemma": ([PER_LAYER, PER_LAYER], "one_plus_weight"),
    "gemma3n": ([GEMMA3N, GEMMA3N], "weight"),
    "gemma4": ([GEMMA4, GEMMA4], "weight"),
    "gemma4_moe": ([GEMMA4_MOE, GEMMA4_MOE], "weight"),
    "gemma4_wrapper": ([GEMMA4, GEMMA4], "weight"),
    "llama4": ([PER_LAYER | QK, PER_LAYER], "weight"),
    "llama4_wrapper": ([PER_LAYER | QK, PER_LAYER], "weight"),
}
# outside the layers, where it is not the final norm alone, or not under this name
OUTSIDE = {
    "qwen2_5_vl": ["model.language_model.norm"],
    "qwen3_vl": ["model.language_model.norm"],
    "gemma3n": ["model.per_layer_projection_norm", "model.norm"],
    "gemma4": ["model.per_layer_projection_norm", "model.norm"],
    "gemma4_moe": ["model.per_layer_projection_norm", "model.norm"],
    "gemma4_wrapper": ["model.per_layer_projection_norm", "model.norm"],
}
# by the last part of their names
WITHOUT_PARAMETER = {"v_norm", "qk_norm", "router.norm"}
RUN_TWICE = {
    "gemma3n": "altup.router_norm",
    "llama4": "self_attn.qk_norm",
    "llama4_wrapper": "self_attn.qk_norm",
}


@pytest.fixture(scope="module", params=EXPECTED)
def opened(request, tmp_path_factory):
    folder = tiny.build(request.param, tmp_path_factory.mktemp("tiny") / request.param)
    return request.param, open_checkpoint(folder, device="cpu", dtype="float32")


def test_the_whole_inventory_with_roles(opened):
    architecture, checkpoint = opened
    layers, convention = EXPECTED[architecture]
    for index, roles in enumerate(layers):
        found = Counter(site.role for site in checkpoint.sites if site.layer == index)
        assert found == roles, f"layer {index} of {architecture}"
    outside = [site.name for site in checkpoint.sites if site.layer is None]
    assert outside == OUTSIDE.get(architecture, ["model.norm"])
    assert checkpoint.sites[-1].role == "final"
    eps = text_config(checkpoint.model).rms_norm_eps
    for site in checkpoint.sites:
        bare = site.module.endswith(tuple(WITHOUT_PARAMETER))
        due = "none" if bare else "weight" if site.role == "gated" else convention
        assert site.gain_convention == due, site.name
        assert site.eps == pytest.approx(eps, rel=1e-4)
        assert site.gate == ("silu" if site.role == "gated" else None)
    named = {p.rpartition(".")[0] for p, _ in tiny.norm_weights(checkpoint.model)}
    assert {site.module for site in checkpoint.sites if site.gain_convention != "none"} == named


def test_a_norm_that_an_architecture_runs_twice_has_a_number(opened):
    architecture, checkpoint = opened
    again = [site.name for site in checkpoint.sites if site.name != site.module]
    twice = RUN_TWICE.get(architecture)
    assert again == [f"{s.module}#2" for s in checkpoint.sites if twice and s.name.endswith(twice)]
    assert bool(again) == bool(twice)


def test_the_measured_gain_is_the_one_in_the_file(opened):
    _, checkpoint = opened
    weights = dict(tiny.norm_weights(checkpoint.model))
    for site in checkpoint.sites:
        if site.gain_convention == "none":
            np.testing.assert_allclose(site.gain, np.ones(site.size), rtol=0, atol=3e-7)
            continue
        stored = weights[f"{site.module}.weight"].numpy()
        plus = 1 if site.gain_convention == "one_plus_weight" else 0
        np.testing.assert_allclose(site.gain, stored + plus, rtol=0, atol=3e-7)
        assert (site.gain < 0).any()
        assert (np.abs(site.gain) < 1e-6).any()


def test_every_output_is_rebuilt_from_its_input(opened):
    _, checkpoint = opened
    ids = checkpoint.tokenizer("The river flows, naïve 我.", return_tensors="pt")["input_ids"]
    with watched_calls(checkpoint.model, [s.module for s in checkpoint.sites]) as calls, torch.no_grad():
        checkpoint.model(input_ids=ids, use_cache=False)
    assert len(calls) == len(checkpoint.sites)
    for site, (name, inputs, output) in zip(checkpoint.sites, calls, strict=True):
        assert name == site.module
        rebuilt = site.rebuild(*(t.numpy() for t in inputs))
        largest = np.abs(output.numpy()).max()
        np.testing.assert_allclose(output.numpy(), rebuilt, rtol=0, atol=1e-5 * largest, err_msg=site.name)


def test_discovery_leaves_nothing_behind(opened):
    _, checkpoint = opened
    for module in checkpoint.model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    assert all(p.grad is None for p in checkpoint.model.parameters())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gains_are_measured_in_float32_on_half_precision_modules_too(tmp_path, dtype):
    folder = tiny.build("qwen3", tmp_path / "half", dtype=dtype)
    checkpoint = open_checkpoint(folder, device="cpu", dtype=dtype)
    weights = dict(tiny.norm_weights(checkpoint.model))
    for site in checkpoint.sites:
        stored = weights[f"{site.module}.weight"].float().numpy()
        np.testing.assert_allclose(site.gain, stored, rtol=0, atol=3e-7)


@pytest.mark.parametrize("architecture", ["gemma3n", "gemma4"])
def test_layers_that_take_their_keys_from_another_layer(architecture, tmp_path):
    settings = {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2}
    if architecture == "gemma3n":
        settings |= {"intermediate_size": [48] * 4, "activation_sparsity_pattern": [0.5, 0.0] * 2}
    folder = tiny.build(architecture, tmp_path / "shared", num_kv_shared_layers=2, **settings)
    sites = open_checkpoint(folder, device="cpu", dtype="float32").sites
    for layer in range(4):
        roles = Counter(site.role for site in sites if site.layer == layer)
        own = EXPECTED[architecture][0][0]
        taken = Counter({"key": 1, "other": 1}) if layer >= 2 else Counter()  # with it goes the value norm
        assert roles == Counter(own) - taken, f"layer {layer}"


@pytest.mark.parametrize("architecture", ["qwen2_5_vl", "qwen3_vl"])
def test_the_text_part_of_a_wrapper_gives_the_wrappers_logits(architecture, tmp_path):
    whole = tiny.model(architecture)
    tiny.save(whole, tmp_path / "whole")
    checkpoint = open_checkpoint(tmp_path / "whole", device="cpu", dtype="float32")
    kept = {name for name, _ in checkpoint.model.named_parameters()}
    left_out = {name for name, _ in whole.named_parameters()} - kept
    assert left_out
    assert all(name.startswith("model.visual.") for name in left_out)
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        ours = checkpoint.model(input_ids=ids, use_cache=False).logits
        theirs = whole(input_ids=ids, use_cache=False).logits
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    trace = capture(checkpoint, "The river flows.")
    assert [site.name for site in trace.sites] == [site.name for site in checkpoint.sites]
    assert trace.checkpoint.model_type == architecture
    assert (trace.checkpoint.hidden_size, trace.checkpoint.num_layers) == (32, 2)


def test_gpt2_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(ProbeError) as refusal:
        open_checkpoint(tiny.build("gpt2", tmp_path / "gpt2"))
    assert refusal.value.code == "no_rms_norm"
    assert "LayerNorm" in str(refusal.value)


def test_the_shape_of_qwen3_5_0_8b(tmp_path: Path):
    layers = 24
    folder = tiny.build(
        "qwen3_5",
        tmp_path / "deep",
        num_hidden_layers=layers,
        layer_types=(["linear_attention"] * 3 + ["full_attention"]) * 6,
    )
    roles = Counter(site.role for site in open_checkpoint(folder, device="cpu", dtype="float32").sites)
    assert roles["attention_input"] + roles["mlp_input"] + roles["final"] == 49
    assert roles["query"] + roles["key"] == 12
    assert roles["gated"] == 18
    assert sum(roles.values()) == 79


def test_qwen2_5_vl_as_it_is_published(tmp_path):
    """The text model's settings beside the wrapper's, and one matrix for both embeddings."""
    whole = tiny.model("qwen2_5_vl", tie_word_embeddings=True)
    whole.config.tie_word_embeddings = True
    whole.tie_weights()
    folder = tmp_path / "published"
    tiny.save(whole, folder)
    assert "lm_head.weight" not in tiny.tensors(folder)
    config = json.loads((folder / "config.json").read_text())
    text = config.pop("text_config")
    flat = {key: value for key, value in text.items() if key not in ("model_type", "rope_parameters")}
    flat |= config | {"rope_theta": 10_000.0, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}}
    (folder / "config.json").write_text(json.dumps(flat))
    checkpoint = open_checkpoint(folder, device="cpu", dtype="float32")
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        torch.testing.assert_close(checkpoint.model(input_ids=ids).logits, whole(input_ids=ids).logits)
    assert [site.role for site in checkpoint.sites if site.layer == 0] == ["attention_input", "mlp_input"]


class Unheard(nn.Module):
    """An RMSNorm by another name, with other attributes, whose gain is exp(w)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.log_loudness = nn.Parameter(torch.linspace(-2, 2, size))
        self.floor = 3e-5

    def forward(self, stream: torch.Tensor) -> torch.Tensor:
        x = stream.float()
        size = torch.sqrt(x.square().mean(-1, keepdim=True) + self.floor)
        return (x / size * torch.exp(self.log_loudness.float())).to(stream.dtype)


def test_an_unheard_of_norm_is_found_measured_and_called_other():
    model = tiny.model("qwen2")
    for layer in model.model.layers:
        layer.input_layernorm = Unheard(32)
    sites = [site for site in discover(model) if site.class_name == "Unheard"]
    assert [site.role for site in sites] == ["attention_input", "attention_input"]
    for site in sites:
        assert site.gain_convention == "other"
        np.testing.assert_allclose(site.gain, np.exp(np.linspace(-2, 2, 32)), rtol=1e-6)
        assert site.eps == pytest.approx(3e-5, rel=1e-4)


def test_norms_inside_a_branch_that_are_neither_query_nor_key_nor_latent_are_called_other():
    model = tiny.model("qwen2")
    for layer in model.model.layers:  # as BitNet has them: on what attention mixed, and inside the MLP
        layer.self_attn.o_proj = nn.Sequential(nn.RMSNorm(32, eps=1e-6), layer.self_attn.o_proj)
        layer.mlp.down_proj = nn.Sequential(nn.RMSNorm(48, eps=1e-6), layer.mlp.down_proj)
    sites = {site.name: site.role for site in discover(model) if site.layer == 0}
    assert sites["model.layers.0.self_attn.o_proj.0"] == "other"
    assert sites["model.layers.0.mlp.down_proj.0"] == "other"
    assert sites["model.layers.0.input_layernorm"] == "attention_input"


def test_deep_models_are_not_asked_for_more_gradients_a_norm(monkeypatch):
    asked = []
    gradient = discovery._gradient
    monkeypatch.setattr(discovery, "_gradient", lambda *a: asked.append(a) or gradient(*a))
    sites = discover(tiny.model("qwen2", num_hidden_layers=12))
    assert len(sites) == 25
    assert len(asked) == 24  # one for each branch that a norm stands before


class WantsMore(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def forward(self, input_ids, use_cache, pictures=None):
        return self.embedding(input_ids) + pictures.mean()


def test_a_model_that_does_not_run_on_token_ids_is_refused_by_its_class():
    with pytest.raises(ProbeError) as refusal:
        discover(WantsMore())
    assert refusal.value.code == "pass_failed"
    assert "WantsMore" in str(refusal.value)
    assert "NoneType" in str(refusal.value)


class NoParameter(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, x.shape[-1:], eps=1e-12)


class GateFirst(nn.Module):
    """Gate multiplied in before the division: its output cannot be rebuilt from its input alone."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((size,), 0.7))

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x * nn.functional.silu(gate), x.shape[-1:], self.weight, 1e-6)


class SigmoidGate(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 2, size))

    def forward(self, x: torch.Tensor, *, gate: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, x.shape[-1:], self.weight, 1e-6) * torch.sigmoid(gate)


class Twice(nn.Module):
    """Multiplies first and norms afterwards: looks like an RMSNorm on a vector of ones."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 2, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x * self.weight, x.shape[-1:], None, 1e-6)


def form(*, gate: bool = False, keyword: bool = False, size: int = 16) -> CallForm:
    x, z = torch.randn(1, 3, size), torch.randn(1, 3, size)
    found = CallForm.of((x,) if keyword or not gate else (x, z), {"gate": z} if keyword else {})
    assert found is not None
    return found


def test_a_norm_without_parameters_has_the_convention_none():
    norm = measure_norm(NoParameter(), form())
    assert norm is not None
    assert norm.convention == "none"
    assert norm.eps == pytest.approx(1e-12, rel=0.1)
    np.testing.assert_allclose(norm.gain, 1, atol=1e-6)


def test_a_gate_before_the_norm_is_listed_without_a_gain_and_with_the_reason():
    norm = measure_norm(GateFirst(16), form(gate=True))
    assert norm is not None
    assert norm.gain is None
    assert "gate" in norm.why_no_gain


def test_a_sigmoid_gate_given_by_keyword():
    norm = measure_norm(SigmoidGate(16), form(gate=True, keyword=True))
    assert norm is not None
    assert norm.gate == "sigmoid"
    np.testing.assert_allclose(norm.gain, np.linspace(-1, 2, 16), atol=1e-6)


@pytest.mark.parametrize(
    "module",
    [
        nn.LayerNorm(16), nn.LayerNorm(16, elementwise_affine=False), nn.Dropout(0.1).eval(), nn.Identity(),
        nn.Linear(16, 16), nn.SiLU(), nn.Tanh(), nn.Softmax(dim=-1), Twice(16), nn.GroupNorm(1, 3),
    ],
    ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_what_is_no_rms_norm_is_left_out(module):
    assert measure_norm(module, form()) is None


def test_a_norm_that_runs_twice_is_two_sites():
    model = tiny.model("qwen3")
    for layer in model.model.layers:
        layer.self_attn.k_norm = layer.self_attn.q_norm
    sites = discover(model)
    inner = [
        (site.name.rpartition(".")[2], site.role) for site in sites if site.layer == 0 and site.size == 8
    ]
    assert inner == [("q_norm", "query"), ("q_norm#2", "key")]


def test_an_epsilon_of_none_reads_as_torchs():
    norm = measure_norm(nn.RMSNorm(16), form())
    assert norm is not None
    assert norm.eps == pytest.approx(torch.finfo(torch.float32).eps, rel=1e-3)

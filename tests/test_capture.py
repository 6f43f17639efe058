"""One pass, reduced in the hooks: against whole activations, on every kind of dtype and call."""

import threading

import numpy as np
import pytest
import tiny
import torch
from torch import nn
from watch import watched_calls

from model_probe import ProbeError, capture, open_checkpoint
from model_probe.capturing import forward, record_sites, token_ids
from model_probe.progress import Cancelled
from model_probe.reduce import Reduced, _reduce_there, reduce_rows
from model_probe.summaries import summarize
from model_probe.trace_files import read_trace, to_json

PROMPT = "The river flows softly, the fox jumps."


@pytest.fixture(scope="module", params=["qwen2", "qwen3", "qwen3_5", "gemma3", "olmo2"])
def checkpoint(request, tmp_path_factory):
    folder = tiny.build(request.param, tmp_path_factory.mktemp("tiny") / request.param)
    return open_checkpoint(folder, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    return open_checkpoint(tiny.build("qwen2", tmp_path_factory.mktemp("qwen") / "q"), dtype="float32")


def rms_over_heads(values):
    return np.sqrt(np.mean(np.square(values), axis=1))


def by_token(tensor: torch.Tensor, tokens: int) -> np.ndarray:
    """[tokens, heads, size]. Gemma 3 norms its queries and keys after turning heads to the front."""
    if tensor.ndim == 4 and tensor.shape[1] != tokens:
        tensor = tensor.transpose(1, 2)
    return tensor.double().numpy().reshape(tokens, -1, tensor.shape[-1])


def test_every_figure_is_that_of_the_whole_activation(checkpoint):
    trace = capture(checkpoint, PROMPT)
    with watched_calls(checkpoint.model, [s.module for s in checkpoint.sites]) as calls:
        forward(checkpoint, token_ids(checkpoint, PROMPT))
    assert len(calls) == len(trace.sites)
    for site, (name, inputs, output) in zip(trace.sites, calls, strict=True):
        assert site.name == name
        for statistics, tensor in ((site.input, inputs[0]), (site.output, output)):
            x = by_token(tensor, len(trace.tokens))
            np.testing.assert_allclose(statistics.l2, rms_over_heads(np.linalg.norm(x, axis=2)), rtol=2e-6)
            np.testing.assert_allclose(statistics.std, rms_over_heads(x.std(axis=2)), rtol=1e-5)
            np.testing.assert_allclose(statistics.mean, x.mean(axis=(1, 2)), atol=2e-6 * np.abs(x).max())
            np.testing.assert_allclose(statistics.abs_max, np.abs(x).max(axis=(1, 2)), rtol=1e-6)
        assert site.non_finite == 0
        assert site.heads == (
            x.shape[1] if site.role in ("gated", "query", "key") and x.shape[1] > 1 else None
        )


def test_fault_01_which_side_of_the_gain_a_number_is_on(checkpoint):
    trace = capture(checkpoint, PROMPT)
    for site in trace.sites:
        if site.heads is not None:
            continue
        mean_square = site.input.l2.astype(float) ** 2 / site.size
        expected = np.sqrt(site.size * mean_square / (mean_square + site.eps))
        np.testing.assert_allclose(site.normalized_l2, expected, rtol=1e-6)
        assert (site.normalized_l2 <= np.sqrt(site.size) * (1 + 1e-6)).all()
        assert not np.allclose(site.output.l2, site.normalized_l2, rtol=1e-2)  # the gains are not one


def test_fault_01_the_output_is_what_the_next_sub_layer_receives(qwen):
    layer = qwen.model.model.layers[1]
    received = []
    handle = layer.self_attn.q_proj.register_forward_pre_hook(
        lambda m, args: received.append(args[0].clone())
    )
    try:
        with watched_calls(qwen.model, ["model.layers.1.input_layernorm"]) as calls:
            forward(qwen, token_ids(qwen, PROMPT))
    finally:
        handle.remove()
    assert torch.equal(received[0], calls[0][2])
    site = capture(qwen, PROMPT).site("model.layers.1.input_layernorm")
    np.testing.assert_array_equal(site.output.l2, capture(qwen, PROMPT).site(site.name).output.l2)
    np.testing.assert_allclose(site.output.l2, received[0][0].norm(dim=-1).numpy(), rtol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 1e-2)])
@pytest.mark.parametrize("architecture", ["qwen3_5", "gemma3", "olmo2"])
def test_fault_02_stored_weight_is_not_taken_for_the_gain(tmp_path, architecture, dtype, tolerance):
    folder = tiny.build(architecture, tmp_path / "m", dtype=dtype)
    opened = open_checkpoint(folder, device="cpu", dtype=dtype)
    with watched_calls(opened.model, [s.module for s in opened.sites]) as calls:
        forward(opened, token_ids(opened, PROMPT))
    for site, (_, inputs, output) in zip(opened.sites, calls, strict=True):
        rebuilt = site.rebuild(*(t.double().numpy() for t in inputs))
        error = np.abs(output.double().numpy() - rebuilt).max() / np.abs(rebuilt).max()
        assert error < tolerance, site.name


def test_fault_05_a_later_in_place_kernel_changes_nothing(qwen):
    before = capture(qwen, PROMPT)
    name = "model.layers.0.post_attention_layernorm"
    mlp = qwen.model.model.layers[0].mlp
    untouched = mlp.forward

    def spoil(x):
        y = untouched(x)
        x.mul_(0)  # what a fused kernel does to the norm's output once it has been read
        return y

    mlp.forward = spoil
    try:
        after = capture(qwen, PROMPT)
    finally:
        del mlp.forward
    np.testing.assert_array_equal(before.site(name).output.l2, after.site(name).output.l2)
    assert (after.site(name).output.l2 > 0).all()


def test_fault_06_the_last_hidden_state_is_already_normed(checkpoint):
    ids = torch.tensor([token_ids(checkpoint, PROMPT)])
    with torch.no_grad():
        last = checkpoint.model(input_ids=ids, output_hidden_states=True).hidden_states[-1][0]
    final = capture(checkpoint, PROMPT).sites[-1]
    with watched_calls(checkpoint.model, ["model.norm"]) as calls:
        forward(checkpoint, ids[0].tolist())
    np.testing.assert_allclose(final.input.l2, calls[0][1][0][0].norm(dim=-1).numpy(), rtol=1e-6)
    np.testing.assert_allclose(final.output.l2, last.norm(dim=-1).numpy(), rtol=1e-5)
    assert not np.allclose(final.input.l2, last.norm(dim=-1).numpy(), rtol=1e-2)


def test_residual_out_of_one_half_layer_is_residual_into_the_next(qwen):
    trace = capture(qwen, PROMPT)
    with watched_calls(qwen.model, [s.module for s in qwen.sites]) as calls:
        forward(qwen, token_ids(qwen, PROMPT))
    branch = []
    handle = qwen.model.model.layers[0].self_attn.register_forward_hook(
        lambda m, a, out: branch.append(out[0])
    )
    try:
        forward(qwen, token_ids(qwen, PROMPT))
    finally:
        handle.remove()
    np.testing.assert_array_equal(calls[0][1][0] + branch[0], calls[1][1][0])
    assert trace.sites[1].role == "mlp_input"


def test_fault_08_captured_numbers_work_in_a_gradient(qwen):
    l2 = capture(qwen, PROMPT).sites[0].input.l2
    assert isinstance(l2, np.ndarray)
    weight = torch.ones(len(l2), requires_grad=True)
    (torch.from_numpy(l2) * weight).sum().backward()
    np.testing.assert_array_equal(weight.grad.numpy(), l2)


def test_fault_09_an_input_that_goes_by_keyword(qwen):
    layer = qwen.model.model.layers[0]
    norm, plain = layer.input_layernorm, capture(qwen, PROMPT)

    class ByKeyword(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = norm

        def forward(self, x):
            return self.inner(hidden_states=x)

    layer.input_layernorm = ByKeyword()
    try:
        from dataclasses import replace

        from model_probe import discover

        again = capture(replace(qwen, sites=discover(qwen.model)), PROMPT)
    finally:
        layer.input_layernorm = norm
    assert again.sites[0].name == "model.layers.0.input_layernorm.inner"
    np.testing.assert_array_equal(again.sites[0].input.l2, plain.sites[0].input.l2)


@pytest.mark.parametrize(("value", "l2"), [(300.0, 9600.0), (3000.0, 96000.0)])
@pytest.mark.parametrize(
    "reduce", [lambda x: reduce_rows(x).numbers()[0], lambda x: _reduce_there(x.float()).double().numpy()]
)
def test_fault_10_float16_does_not_overflow_when_squared(value, l2, reduce):
    x = torch.full((1, 2, 1024), value, dtype=torch.float16)
    x[0, 1, 0] = -value
    numbers = reduce(x.reshape(-1, 1024))
    np.testing.assert_allclose(numbers[0], l2)
    np.testing.assert_allclose(numbers[3], value)
    assert numbers[2, 0] == pytest.approx(0, abs=1e-3 * value)


@pytest.mark.parametrize("reduce", [reduce_rows, lambda x: Reduced(x.shape[1], _reduce_there(x)[None])])
def test_rows_that_float32_sums_cannot_hold(reduce):
    x = torch.zeros(5, 64)
    x[0] = 1e25
    x[1] = 1e-25
    x[2] = 1000 + torch.linspace(-1e-2, 1e-2, 64)  # the std drowns in the mean
    x[3, 7] = torch.nan
    x[4, 3] = -torch.inf
    reduced = reduce(x)
    numbers = reduced.numbers()[0]
    exact = x.double().numpy()[:3]
    np.testing.assert_allclose(numbers[0, :3], np.linalg.norm(exact, axis=1), rtol=1e-6)
    np.testing.assert_allclose(numbers[2, 2], exact[2].std(), rtol=2e-2)
    assert numbers[4].sum() == 2
    assert not np.isfinite(numbers[0, 3:]).any()


def test_non_finite_values_are_counted_and_named(qwen):
    weight = qwen.model.model.layers[0].mlp.down_proj.weight
    kept = weight.detach().clone()
    weight.data[3, 5] = torch.inf
    try:
        trace = capture(qwen, PROMPT)
    finally:
        weight.data.copy_(kept)
    bad = trace.non_finite_sites()
    assert bad[0].name == "model.layers.1.input_layernorm"
    assert bad[-1].name == "model.norm"
    assert bad[0].non_finite > 0
    assert np.isnan(summarize(bad[0].input.l2))
    again = read_trace(to_json(trace).encode(), "t.json")
    assert [s.non_finite for s in again.sites] == [s.non_finite for s in trace.sites]


def hooks(model):
    return [h for m in model.modules() for h in (*m._forward_hooks.values(), *m._forward_pre_hooks.values())]


def test_no_hook_is_left_after_an_error_either(qwen):
    capture(qwen, PROMPT)
    assert not hooks(qwen.model)
    with pytest.raises(RuntimeError, match="stop"), record_sites(qwen):
        assert hooks(qwen.model)
        raise RuntimeError("stop")
    assert not hooks(qwen.model)


def test_a_pass_tells_of_each_norm_and_can_be_ended_there(qwen):
    told = []

    def tell(stage, done=None, detail=""):
        told.append((stage, done))
        if done == 1.0:
            raise Cancelled

    with pytest.raises(Cancelled):
        capture(qwen, PROMPT, progress=tell)
    assert [done for _, done in told] == [None, *((i + 1) / len(qwen.sites) for i in range(len(qwen.sites)))]
    assert not hooks(qwen.model)
    assert capture(qwen, PROMPT).sites  # usable as before


def test_two_captures_at_once_wait_for_each_other(qwen):
    prompts = ["The river.", "jumps over the lazy dog", "我爱", "fox fox fox fox"] * 3
    alone = [capture(qwen, prompt).sites[-1].input.l2 for prompt in prompts]
    together = [None] * len(prompts)

    def run(i):
        together[i] = capture(qwen, prompts[i]).sites[-1].input.l2

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not hooks(qwen.model)


@pytest.mark.parametrize("prompt", [""])
def test_fault_16_an_empty_prompt_is_told_in_a_sentence(checkpoint, prompt):
    with pytest.raises(ProbeError) as refusal:
        capture(checkpoint, prompt)
    assert refusal.value.code == "empty_prompt"


@pytest.mark.parametrize("prompt", [" ", "\n", "   \n\t "])
def test_fault_16_blanks_are_real_tokens_and_run(checkpoint, prompt):
    trace = capture(checkpoint, prompt)
    assert "".join(token.text for token in trace.tokens if not token.special) == prompt
    assert np.isfinite(trace.sites[-1].output.l2).all()


def test_a_lone_surrogate_is_told_in_a_sentence(qwen):
    with pytest.raises(ProbeError, match="surrogate"):
        capture(qwen, "a\ud800b")


def test_past_the_cap_the_prompt_is_cut_and_the_trace_says_so(qwen):
    whole = capture(qwen, PROMPT)
    cut = capture(qwen, PROMPT, max_tokens=5)
    assert cut.tokens == whole.tokens[:5]
    assert cut.tokens_cut == len(whole.tokens) - 5
    np.testing.assert_allclose(cut.sites[-1].input.l2, whole.sites[-1].input.l2[:5], rtol=1e-4)


def test_one_token_is_enough(checkpoint):
    ids = token_ids(checkpoint, "a")
    trace = capture(checkpoint, "a", max_tokens=1)
    assert len(trace.tokens) == 1
    assert trace.tokens[0].id == ids[0]


def test_a_model_of_one_layer(tmp_path):
    folder = tiny.build("qwen3", tmp_path / "one", num_hidden_layers=1)
    trace = capture(open_checkpoint(folder, dtype="float32"), PROMPT)
    assert [s.role for s in trace.sites] == ["attention_input", "query", "key", "mlp_input", "final"]

"""Faults 3, 4, 14, 19 and 23 of products like this one, on tiny checkpoints."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import tiny
import torch
from torch import Tensor, nn
from watch import watched_calls

from model_probe import Checkpoint, NormTrace, ProbeError, capture, open_checkpoint
from model_probe.capturing import MAX_TOKENS, token_ids
from model_probe.summaries import summarize
from model_probe.trace_files import read_trace, to_csv, to_json
from viz.figures.depth import DepthView, depth_figure, depth_title
from viz.figures.heatmap import HeatmapView, heatmap_figure, heatmap_title
from viz.figures.tokens import TokensView, tokens_figure
from viz.reading import LINES, MEDIAN, Reading, sink_tokens
from viz.tables import site_table
from viz.text import Words
from viz.theme import LIGHT

Folder = Callable[[str], Path]
PROMPT = "The river flows softly, the fox jumps."
EN = Words("en")


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return open_checkpoint(tiny.build("qwen3", tmp_path_factory.mktemp("qwen") / "q"), device="cpu")


def hooks(model: nn.Module) -> list[Any]:
    return [h for m in model.modules() for h in (*m._forward_hooks.values(), *m._forward_pre_hooks.values())]


# 3: padding


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3_5", "gemma3", "olmo2"])
def test_fault_03_a_padding_tokenizer_changes_nothing(tiny_folder: Folder, architecture: str) -> None:
    """One prompt at a time, never padded, however the tokenizer was left by somebody else."""
    opened = open_checkpoint(tiny_folder(architecture), device="cpu")
    expected = capture(opened, PROMPT)
    tokenizer = opened.tokenizer
    tokenizer.pad_token = tokenizer.eos_token
    for side in ("left", "right"):
        tokenizer.padding_side = tokenizer.truncation_side = side
        tokenizer.backend_tokenizer.enable_padding(direction=side, length=64)
        tokenizer.backend_tokenizer.enable_truncation(5, direction=side)
        tokenizer.model_max_length = 5
        trace = capture(opened, PROMPT)
        assert trace.tokens == expected.tokens
        for one, other in zip(trace.sites, expected.sites, strict=True):
            np.testing.assert_array_equal(one.input.l2, other.input.l2)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("architecture", ["qwen2", "llama", "gemma3", "olmo2"])
def test_fault_03_real_tokens_agree_with_those_of_a_padded_batch(
    tiny_folder: Folder, architecture: str, side: str
) -> None:
    """Beside a longer prompt, with its mask, the model does to these tokens what the trace says."""
    opened = open_checkpoint(tiny_folder(architecture), device="cpu")
    trace = capture(opened, PROMPT)
    tokenizer = opened.tokenizer
    tokenizer.pad_token, tokenizer.padding_side = tokenizer.eos_token, side
    batch = tokenizer([PROMPT, f"{PROMPT} {PROMPT}"], padding=True, return_tensors="pt")
    here = slice(-len(trace.tokens), None) if side == "left" else slice(len(trace.tokens))
    assert batch["attention_mask"][0].sum() == len(trace.tokens) < batch["input_ids"].shape[1]
    depth = [site.name for site in trace.depth()]
    positions = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    with watched_calls(opened.model, depth) as calls, torch.inference_mode():
        opened.model(**batch, position_ids=positions, use_cache=False)
    for name, inputs, output in calls:
        site = trace.site(name)
        np.testing.assert_allclose(site.input.l2, inputs[0][0, here].norm(dim=-1), rtol=1e-4)
        np.testing.assert_allclose(site.output.l2, output[0, here].norm(dim=-1), rtol=1e-4)


# 4: an outlier sets no average


def test_fault_04_one_loud_token_sets_no_number_and_is_named(tmp_path: Path) -> None:
    folder = tiny.build("qwen2", tmp_path / "m")
    word = tiny.tokenizer()("q")["input_ids"]
    (loud,) = word
    embeddings = tiny.tensors(folder)["model.embed_tokens.weight"]
    embeddings[loud] *= 300
    tiny.add_tensors(folder, {"model.embed_tokens.weight": embeddings})
    opened = open_checkpoint(folder, device="cpu")
    prompt = "q" + "the fox jumps over the dog " * 30
    ids = token_ids(opened, prompt)[:50]
    trace = capture(opened, opened.tokenizer.decode(ids))
    assert len(trace.tokens) == 50
    assert [token.text for token in sink_tokens(trace)] == ["q"]
    first = trace.sites[0]
    quiet = summarize(first.input.l2[1:])
    assert Reading() == MEDIAN
    assert MEDIAN.value(first, "input_l2") == pytest.approx(quiet, rel=0.05)
    assert Reading("mean").value(first, "input_l2") > 3 * quiet
    assert Reading("mean", sinks="left_out").value(first, "input_l2") < 2 * quiet
    assert DepthView().reading == MEDIAN
    figure = depth_figure(trace, EN, LIGHT, DepthView(lines=(*LINES, "sink")))
    assert "<br>q<br>" in named(figure, EN.t("common.series.sink")).text[0]
    assert "“q”" in heatmap_title(trace, EN, "residual")


# 14: what is not finite


def broken_weight(folder: Path) -> Checkpoint:
    name = "model.layers.0.mlp.down_proj.weight"
    weights = tiny.tensors(folder)
    weights[name][3, 5] = torch.inf
    tiny.write_tensors(folder, weights)
    return open_checkpoint(folder, device="cpu")


def overflow(folder: Path) -> Checkpoint:
    """Nothing in the files is broken, but float16 ends at 65,504."""
    weights = tiny.tensors(folder)
    for part in ("gate", "up", "down"):
        weights[f"model.layers.0.mlp.{part}_proj.weight"] *= 100
    tiny.write_tensors(folder, weights)
    assert not capture(open_checkpoint(folder, device="cpu", dtype="bfloat16"), PROMPT).non_finite_sites()
    return open_checkpoint(folder, device="cpu", dtype="float16")


@pytest.mark.parametrize("spoil", [broken_weight, overflow])
@pytest.mark.parametrize("architecture", ["qwen3", "qwen3_5", "gemma3"])
def test_fault_14_sites_that_are_not_finite_are_named_and_nothing_is_drawn_as_0(
    own_tiny: Folder, tiny_folder: Folder, architecture: str, spoil: Callable[[Path], Checkpoint]
) -> None:
    opened = spoil(own_tiny(architecture))
    sound = open_checkpoint(tiny_folder(architecture), device="cpu")
    assert [(s.name, s.role, s.layer) for s in opened.sites] == [
        (s.name, s.role, s.layer) for s in sound.sites
    ]
    trace = capture(opened, PROMPT)
    broken = {site.name for site in trace.non_finite_sites()}
    assert "model.norm" in broken
    assert not any(name.startswith("model.layers.0.input") for name in broken)
    for site in trace.sites:
        numbers = np.stack([site.series(name) for name in ("input_l2", "output_l2", "normalized_l2")])
        assert np.isfinite(numbers).all() == (site.name not in broken), site.name
        assert not (numbers == 0).any()
        assert np.isnan(MEDIAN.value(site, "output_l2")) == (site.name in broken)
    again = read_trace(to_json(trace).encode(), "t.json")
    assert [site.non_finite for site in again.sites] == [site.non_finite for site in trace.sites]
    assert drawn_broken(again) == drawn_broken(trace)
    assert ",,," in to_csv(trace)  # no number rather than a 0


def drawn_broken(trace: NormTrace) -> set[str]:
    """The sites of the depth that the figures mark; asserts that none of their numbers is drawn."""
    depth = [site.name for site in trace.depth()]
    bad = [i for i, site in enumerate(trace.depth()) if site.non_finite]
    marked = EN.t("figures.non_finite")
    for axis in ("log", "linear"):
        figure = depth_figure(trace, EN, LIGHT, DepthView(axis=axis))
        for line in LINES:
            values = np.asarray(named(figure, EN.t(f"common.series.{line}")).y, dtype=float)
            assert not (values == 0).any()
        assert list(named(figure, marked).x) == bad
    assert trace.non_finite_sites()[0].name.split(".")[-1] in depth_title(trace, EN).replace("\u200b", "")
    cells = np.asarray(heatmap_figure(trace, EN, LIGHT, HeatmapView()).data[0].z, dtype=float)
    for row, site in enumerate(trace.depth()):
        np.testing.assert_array_equal(np.isfinite(cells[row]), np.isfinite(site.input.l2))
        if site.non_finite:
            bars = tokens_figure(trace, site, EN, LIGHT, TokensView())
            lengths = np.asarray(bars.data[0].x, dtype=float)
            np.testing.assert_array_equal(np.isfinite(lengths), np.isfinite(site.input.l2))
            assert str(site.non_finite) in site_table(trace, [site], EN, MEDIAN)
    return {depth[i] for i in bad}


def named(figure: go.Figure, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name == name)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_fault_14_what_to_do_depends_on_what_is_broken(lang: str) -> None:
    """float16 overflows where the others do not; where those are not finite, a weight is broken."""
    told = Words(lang).t("probe.non_finite", n=2, names="x", dtype="float16")
    assert "bfloat16" in told
    assert "float32" in told
    assert "float16" not in Words(lang).t("probe.non_finite_weights", n=2, names="x", dtype="float32")


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_fault_14_a_norm_with_a_broken_weight_stays_listed(own_tiny: Folder, value: float) -> None:
    folder = own_tiny("qwen3")
    name = "model.layers.1.post_attention_layernorm"
    weights = tiny.tensors(folder)
    weights[f"{name}.weight"][[2, 7]] = value
    tiny.write_tensors(folder, weights)
    opened = open_checkpoint(folder, device="cpu")
    site = next(site for site in opened.sites if site.name == name)
    assert (site.role, site.gain) == ("mlp_input", None)
    assert "not finite in 2 of 32 features" in str(site.why_no_gain)
    trace = capture(opened, PROMPT)
    assert trace.non_finite_sites()[0].name == name
    assert np.isfinite(trace.site(name).input.l2).all()


# 19: many tokens


def test_fault_19_the_logits_are_those_of_one_position(tmp_path: Path) -> None:
    opened = many_tokens(tmp_path)
    shapes = []
    handle = opened.model.lm_head.register_forward_hook(lambda m, a, out: shapes.append(out.shape))
    try:
        trace = capture(opened, LONG, max_tokens=8000)
    finally:
        handle.remove()
    assert len(trace.tokens) == 8000
    assert shapes == [(1, 1, tiny.VOCABULARY)]
    assert np.isfinite(trace.sites[-1].output.l2).all()


def test_fault_19_no_activation_is_kept(tmp_path: Path) -> None:
    """What is alive at the last norm, with the hooks and without: a few numbers a token and site more."""
    opened = many_tokens(tmp_path)
    ids = token_ids(opened, LONG)[:8000]
    bare = alive_at_the_end(opened, lambda: run_bare(opened, ids))
    measured = alive_at_the_end(opened, lambda: capture(opened, LONG, max_tokens=8000))
    activation = len(ids) * opened.info.hidden_size * 4  # bytes; one site keeps two of these elsewhere
    assert bare > activation  # there is something to see
    assert measured - bare < 0.05 * 2 * activation * len(opened.sites)


def test_fault_19_over_the_cap_it_is_cut_and_says_so(tmp_path: Path) -> None:
    opened = many_tokens(tmp_path)
    trace = capture(opened, LONG)
    assert len(trace.tokens) == MAX_TOKENS == 2048
    assert trace.tokens_cut == len(token_ids(opened, LONG)) - MAX_TOKENS
    for lang in ("en", "zh"):
        told = Words(lang).t("probe.cut_tokens", kept=len(trace.tokens), n=trace.tokens_cut)
        assert "2048" in told.replace(",", "").replace("\u202f", "").replace(" ", "")


LONG = "the fox jumps over the dog " * 3000


def many_tokens(folder: Path) -> Checkpoint:
    wide = {"hidden_size": 256, "max_position_embeddings": 16384}
    return open_checkpoint(tiny.build("qwen2", folder / "long", **wide), device="cpu")


def run_bare(opened: Checkpoint, ids: list[int]) -> None:
    from model_probe.capturing import forward

    forward(opened, ids)


def alive_at_the_end(opened: Checkpoint, run: Callable[[], object]) -> int:
    """Bytes of all tensors alive when the last norm has run, of storages counted once."""
    seen: list[int] = []

    def count(module: nn.Module, args: Any, output: Tensor) -> None:
        gc.collect()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some objects warn when they are asked for their class
            tensors = [o for o in gc.get_objects() if isinstance(o, Tensor) and o.device.type == "cpu"]
        stores = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
        seen.append(sum(stores.values()))

    handle = opened.model.model.norm.register_forward_hook(count)
    try:
        run()
    finally:
        handle.remove()
    return seen[0]


# 23: one person's result is nobody else's


def test_fault_23_two_sessions_of_fifty_runs_each_get_their_own(qwen: Checkpoint) -> None:
    """Beside them a third whose work breaks off now and then in the middle of a pass."""
    prompts = {"one": "The river flows.", "two": "fox fox fox jumps over"}
    alone = {who: to_json(_undated(capture(qwen, prompt))) for who, prompt in prompts.items()}
    wrong: list[str] = []
    ran: list[str] = []
    stop = threading.Event()

    def session(who: str) -> None:
        for _ in range(50):
            trace = capture(qwen, prompts[who])
            ran.append(who)
            if to_json(_undated(trace)) != alone[who]:
                wrong.append(who)

    def breaking() -> None:
        while not stop.is_set():
            with pytest.raises(RuntimeError, match="broke off"), broken_in_the_middle(qwen):
                capture(qwen, "the dog")

    spoiler = threading.Thread(target=breaking)
    sessions = [threading.Thread(target=session, args=(who,)) for who in prompts]
    for thread in (*sessions, spoiler):
        thread.start()
    for thread in sessions:
        thread.join()
    stop.set()
    spoiler.join()
    assert not wrong
    assert {who: ran.count(who) for who in prompts} == dict.fromkeys(prompts, 50)
    assert not hooks(qwen.model)


@contextmanager
def broken_in_the_middle(opened: Checkpoint) -> Iterator[None]:
    """The second layer's attention fails, for this thread alone."""
    mine = threading.get_ident()

    def fail(module: nn.Module, args: Any) -> None:
        if threading.get_ident() == mine:
            raise RuntimeError("broke off")

    with opened.lock:
        handle = opened.model.model.layers[1].mlp.register_forward_pre_hook(fail)
        try:
            yield
        finally:
            handle.remove()


def _undated(trace: NormTrace) -> NormTrace:
    from dataclasses import replace

    return replace(trace, checkpoint=replace(trace.checkpoint, recorded_at=""))


def test_fault_23_no_hook_is_left_after_an_error(qwen: Checkpoint) -> None:
    before = to_json(_undated(capture(qwen, PROMPT)))
    with pytest.raises(RuntimeError, match="broke off"), broken_in_the_middle(qwen):
        capture(qwen, PROMPT)
    with pytest.raises(ProbeError):
        capture(qwen, "")
    assert not hooks(qwen.model)
    assert to_json(_undated(capture(qwen, PROMPT))) == before

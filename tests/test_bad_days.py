"""Bad days while a checkpoint is open: deleted, cut short, written over, exchanged, no more memory; and the next try.

A full disk, a cache that cannot be written and two programs over one cache: tests/test_storage.py,
tests/test_faults_loading.py. Too little memory before anything is begun: tests/test_memory.py.
"""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from model_probe import ProbeError, capture, open_checkpoint
from model_probe.catalog import CHECKPOINT_VARIABLE
from viz import measure
from viz.measure import Bench
from viz.offers import Offer, offers
from viz.text import words

PROMPT = "alpha beta"


def quiet(stage: str, done: float | None = None, detail: str = "") -> None:
    pass


@pytest.fixture
def open_bench(own_tiny: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> tuple[Bench, Offer, Path]:
    """A bench whose checkpoint has run once, what it is offered as, and its folder."""
    folder = own_tiny("qwen3")
    monkeypatch.setenv(CHECKPOINT_VARIABLE, str(folder))
    (offer,) = offers()
    bench = Bench()
    measure._measure(bench, offer, PROMPT, quiet)
    return bench, offer, folder


def run(bench: Bench, offer: Offer, prompt: str) -> np.ndarray:
    return measure._measure(bench, offer, prompt, quiet).trace.sites[-1].output.l2


def weights(folder: Path) -> Path:
    (file,) = folder.glob("*.safetensors")
    return file


def test_deleted_it_runs_on(open_bench: tuple[Bench, Offer, Path]) -> None:
    bench, offer, folder = open_bench
    checkpoint = bench.checkpoint
    assert checkpoint is not None
    before = capture(checkpoint, "another").sites[-1].output.l2
    shutil.rmtree(folder)
    np.testing.assert_array_equal(run(bench, offer, "another"), before)
    assert bench.checkpoint is checkpoint


def test_cut_short_it_is_refused_in_a_sentence_and_runs_once_it_is_whole(
    open_bench: tuple[Bench, Offer, Path],
) -> None:
    bench, offer, folder = open_bench
    whole = weights(folder).read_bytes()
    os.truncate(weights(folder), len(whole) // 2)  # in place: what is mapped of it is gone
    for _ in range(2):
        with pytest.raises(ProbeError) as refusal:
            run(bench, offer, "another")
        assert refusal.value.code == "load_failed"
        assert bench.checkpoint is None
    weights(folder).write_bytes(whole)
    alone = capture(open_checkpoint(folder, device="cpu", dtype="float32"), "another")
    np.testing.assert_array_equal(run(bench, offer, "another"), alone.sites[-1].output.l2)


@pytest.mark.parametrize("in_place", [True, False])
def test_exchanged_the_new_one_is_run(
    open_bench: tuple[Bench, Offer, Path], tmp_path: Path, in_place: bool
) -> None:
    bench, offer, folder = open_bench
    before = run(bench, offer, PROMPT)
    other = tiny.build("qwen3", tmp_path / "other")
    changed = {key: value * 1.5 for key, value in tiny.tensors(other).items()}
    tiny.write_tensors(other, changed)
    if in_place:
        weights(folder).write_bytes(weights(other).read_bytes())
    else:
        weights(other).replace(weights(folder))
    after = run(bench, offer, "another")
    alone = capture(open_checkpoint(folder, device="cpu", dtype="float32"), "another")
    np.testing.assert_array_equal(after, alone.sites[-1].output.l2)
    fresh = run(bench, offer, PROMPT)  # not what was kept of the other one
    assert not np.array_equal(fresh, before)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_out_of_memory_in_the_middle_of_a_run_is_a_sentence_and_a_shorter_prompt_runs(tmp_path: Path) -> None:
    """The limit is a real one of a process of its own, set for the pass alone: the tokenizer's own code, in Rust, ends
    a process that it cannot have memory from."""
    folder = tiny.build("qwen3", tmp_path / "tiny")
    code = f"""
import os, resource
os.environ["{CHECKPOINT_VARIABLE}"] = {str(folder)!r}
import psutil
from model_probe import capturing
from viz import measure
from viz.offers import offers
from viz.text import words

bench, (offer,) = measure.Bench(), offers()
run = lambda prompt: measure._measure(bench, offer, prompt, lambda *_: None).trace
run("alpha beta " * 20)
opened, forward = bench.checkpoint, capturing.forward

def limited(*given):
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + 2_000_000, -1))
    try:
        return forward(*given)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))

capturing.forward = limited
try:
    run("alpha beta " * 1500)
except Exception as error:
    print(measure.sentence(error, words("en")))
print(len(run("alpha beta gamma").tokens) > 1, len(bench.turns), bench.checkpoint is opened)
capturing.forward = forward
print(len(run("alpha beta " * 1500).tokens) > 1000)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [words("en").t("errors.out_of_memory"), "True 0 True", "True"]


@pytest.mark.parametrize(
    "ask", [lambda: torch.empty(2**48), lambda: np.empty(2**48), lambda: mmap.mmap(-1, 2**48)]
)
def test_whoever_has_no_memory_the_sentence_is_the_same(ask: Callable[[], object]) -> None:
    with pytest.raises((MemoryError, RuntimeError, OSError)) as refusal:
        ask()
    assert measure.sentence(refusal.value, words("en")) == words("en").t("errors.out_of_memory")

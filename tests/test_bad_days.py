"""Bad days while a checkpoint is open: deleted, cut short, written over, exchanged; and the next try.

A full disk, a cache that cannot be written and two programs over one cache: tests/test_storage.py,
tests/test_faults_loading.py. Too little memory: tests/test_memory.py.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny

from model_probe import ProbeError, capture, open_checkpoint
from model_probe.catalog import CHECKPOINT_VARIABLE
from viz import measure
from viz.measure import Bench
from viz.offers import Offer, offers

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

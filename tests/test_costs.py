"""What norms cost: the arithmetic of floors and ratios, the ways are the same norm, no compiler is no failure.

That nothing falls below the floor is a measurement: tests/bench.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from model_probe import costs as module
from model_probe.costs import (
    EAGER,
    FUSED,
    NORMS,
    CopyTiming,
    Costs,
    Size,
    Spread,
    Timing,
    cpp_compiler,
    measure_costs,
    norm_share,
)
from model_probe.norms import layer_norm, rms_norm
from model_probe.profiles import Provenance
from model_probe.progress import Cancelled

ROOT = Path(__file__).resolve().parent.parent
SMALL = Size(32, 4)
MADE = Provenance("2", "float32", "cpu", "2026-01-01T00:00:00+00:00")


def made(rms: tuple[float, ...], layer: tuple[float, ...], copy: tuple[float, ...]) -> Costs:
    timings = tuple(
        Timing(norm, "fused", SMALL, taken) for norm, taken in zip(NORMS, (rms, layer), strict=True)
    )
    return Costs(timings, (CopyTiming(SMALL, copy),), "no_compiler", None, {}, MADE)


def test_the_floor_is_the_bytes_at_the_fastest_copys_bandwidth() -> None:
    costs = made((4.0, 6.0, 5.0), (8.0, 6.0, 20.0), (2.0, 3.0, 4.0))
    assert SMALL.copied == 2 * 32 * 4 * 4
    assert SMALL.moved("rms_norm") == SMALL.copied + 32 * 4
    assert SMALL.moved("layer_norm") == SMALL.copied + 2 * 32 * 4
    assert costs.copy(SMALL).bandwidth == SMALL.copied / 2.0
    floor = 2.0 * (1 + 1 / 8)
    assert costs.floor("rms_norm", SMALL) == pytest.approx(floor)
    assert costs.over_floor("rms_norm", "fused", SMALL).median == pytest.approx(5.0 / floor)
    assert costs.ratio("fused", SMALL) == Spread.of([2.0, 1.0, 4.0])  # round by round
    with pytest.raises(KeyError):
        costs.timing("rms_norm", "compiled", SMALL)
    with pytest.raises(KeyError):
        costs.copy(Size(1, 1))


def test_every_way_is_the_same_norm() -> None:
    import torch

    x, gain, bias = module._given(SMALL)
    expected = {
        "rms_norm": rms_norm(x.double().numpy(), gain.numpy(), module.EPS),
        "layer_norm": layer_norm(x.double().numpy(), gain.numpy(), bias.numpy(), module.EPS),
    }
    for ways in (EAGER, FUSED):
        for norm, way in ways.items():
            torch.testing.assert_close(
                way(x, gain, bias).double(), torch.from_numpy(expected[norm]), rtol=1e-5, atol=1e-5
            )


def test_the_operations_of_a_norm_are_counted() -> None:
    assert module._operations(EAGER["rms_norm"]) == 6  # square, mean, + ε, rsqrt, × x, × gain
    assert module._operations(FUSED["layer_norm"]) == 1
    assert module._operations(FUSED["rms_norm"]) >= 1


def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cpp_compiler", lambda: None)


def test_without_a_compiler_the_rest_is_measured_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    without_compiler(monkeypatch)
    costs = measure_costs(sizes=[SMALL, Size(16, 1)], rounds=3)
    assert costs.not_compiled == "no_compiler"
    assert costs.variants == ("eager", "fused")
    assert len(costs.timings) == 2 * 2 * 2
    assert all(len(timing.seconds) == 3 and min(timing.seconds) > 0 for timing in costs.timings)
    assert costs.share is None


def test_a_compiler_that_fails_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def broken(*_: object, **__: object) -> Callable[..., object]:
        def call(*_: object) -> object:
            raise RuntimeError("InvalidCxxCompiler")

        return call

    monkeypatch.setattr(module, "cpp_compiler", lambda: "g++")
    monkeypatch.setattr(torch, "compile", broken)
    assert measure_costs(sizes=[SMALL], rounds=2).not_compiled == "failed"


def test_a_compiler_is_looked_for_where_torch_looks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert cpp_compiler() is None
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    assert cpp_compiler() == str(compiler)
    monkeypatch.setenv("CXX", "another")
    assert cpp_compiler() is None


def test_it_stops_and_gives_every_turn_back(monkeypatch: pytest.MonkeyPatch) -> None:
    without_compiler(monkeypatch)
    turns, words = [], []

    @contextmanager
    def turn():
        turns.append(1)
        try:
            yield
        finally:
            turns.append(-1)

    def progress(stage: str, done: float | None = None, detail: str = "") -> None:
        words.append(stage)
        if len(words) > 3:
            raise Cancelled

    with pytest.raises(Cancelled):
        measure_costs(sizes=[SMALL], rounds=9, progress=progress, turn=turn)
    assert turns == [1, -1] * 2
    assert words[0] == "compile"


def test_the_share_of_a_forward_pass_counts_every_norm(tiny_folder: Callable[[str], Path]) -> None:
    from model_probe import open_checkpoint

    checkpoint = open_checkpoint(str(tiny_folder("qwen2")), device="cpu", dtype="float32")
    told = norm_share(checkpoint, tokens=7, rounds=3)
    assert told.norms == len(checkpoint.sites)
    assert told.tokens == 7
    assert 0 < told.share.low <= told.share.median <= told.share.high < 1
    for module_ in checkpoint.model.modules():
        assert not module_._forward_hooks
        assert not module_._forward_pre_hooks


def test_a_spread_is_median_and_quartiles() -> None:
    spread = Spread.of([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (spread.low, spread.median, spread.high) == (2.0, 3.0, 4.0)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0)
    assert np.isfinite(spread.median)


def test_the_page_needs_no_torch_for_it() -> None:
    code = "import sys, viz.costs, viz.laboratory; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip().endswith("False")

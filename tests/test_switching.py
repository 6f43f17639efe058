"""Checkpoint A, then B, then A, five times over: the memory of the first A is enough for the last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

ROOT = Path(__file__).resolve().parent.parent
SIZES = {
    "hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 4,
    "head_dim": 64,
}  # fmt: skip


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """95 and 127 MB of weights."""
    folder = tmp_path_factory.mktemp("two")
    return (
        tiny.build("qwen3", folder / "a", num_hidden_layers=6, **SIZES),
        tiny.build("llama", folder / "b", num_hidden_layers=8, **SIZES),
    )


def test_switching_five_times_takes_no_more_memory_than_once(two: tuple[Path, Path]) -> None:
    """Although a session still holds every closed checkpoint. What Python and torch take is not counted."""
    ran = subprocess.run(
        [sys.executable, ROOT / "tests" / "switching.py", *two],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    first, *_, last = (resident - told["before"] for resident in told["while_open"][::2])
    weights = (two[0] / "model.safetensors").stat().st_size
    assert first > 0.8 * weights  # its own weights are there
    assert last < 1.1 * first

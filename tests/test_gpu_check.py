"""tests/gpu/check.py is known to work, and to fail, where no accelerator is: in small widths on the CPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

CHECK = Path(__file__).resolve().parent / "gpu" / "check.py"


def ran(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=600, check=False, env=environment
    )


def test_small_widths_pass_on_the_cpu() -> None:
    """By itself, with nothing but its own file and this repository."""
    done = ran(CHECK, "--small", "--device", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("pass")
    assert "79 norms: 24 attention_input, 18 gated, 24 mlp_input, 6 query, 6 key, 1 final" in done.stdout
    assert "113 norms: 28 attention_input, 28 query, 28 key, 28 mlp_input, 1 final" in done.stdout
    rows = re.findall(r"^    (figures|rebuilt|cpu) +\w+ +([\d.e+-]+) of", done.stdout, re.MULTILINE)
    assert len(rows) == 2 * 3 * (6 + 5)  # dtypes × comparisons × roles
    rounded = [float(value) for what, value in rows if what == "rebuilt"]
    assert max(rounded) > 1e-4  # bfloat16 was really bfloat16
    assert done.stdout.count("bare pass") == 4


def test_a_wrong_gain_is_told_and_fails() -> None:
    """As if the accelerator's norm multiplied by another gain than the one that was measured."""
    wrong = (
        "import check\n"
        "from dataclasses import replace\n"
        "measured = check.discover\n"
        "check.discover = lambda model: tuple(replace(s, gain=s.gain * 1.01) for s in measured(model))\n"
        "check.MODELS.pop('Qwen3.5-0.8B')\n"
        "raise SystemExit(check.main(['--small', '--device', 'cpu']))\n"
    )
    done = ran("-c", f"import sys; sys.path.insert(0, {str(CHECK.parent)!r})\n{wrong}")
    assert done.returncode == 1
    assert re.search(r"rebuilt  attention_input +\S+ of +1.0e-05 FAIL", done.stdout), done.stdout

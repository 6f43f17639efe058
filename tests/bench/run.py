"""Prints the speed table: `python tests/bench/run.py [capture] …`, everything without a name.

Nothing else should run on the machine meanwhile. A row's verdict is of the median of its pairs; the
brackets are the quartiles. Exit status 1 when a row fails.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

TABLES = {
    "capture": "capture_cost",
    "memory": "capture_memory",
    "opening": "opening",
    "first_chart": "first_chart",
    "costs": "norm_costs",
    "sweep": "sweep_cost",
    "peers": "peers",  # wants tests/bench/requirements.txt
}


def main(names: list[str]) -> int:
    failed = 0
    for name in names or TABLES:
        for ratio in importlib.import_module(f"bench.{TABLES[name]}").rows():
            print(ratio.line(), flush=True)
            failed |= not ratio.passes
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Prints the speed table: `python tests/bench/run.py [--first] [capture] …`, everything without a name.

`--first`: of each table the first row only.

Nothing else should run on the machine meanwhile. A row's verdict is of the median of its pairs; the
brackets are the quartiles. Exit status 1 when a row fails.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

TABLES = {
    "capture": "capture_cost",
    "memory": "capture_memory",
    "opening": "opening",
    "first_chart": "first_chart",
    "drag": "live_drag",
    "costs": "norm_costs",
    "sweep": "sweep_cost",
    "classroom": "classroom",
    "peers": "peers",  # wants tests/bench/requirements.txt
}


def main(arguments: list[str]) -> int:
    failed = 0
    names = [argument for argument in arguments if argument != "--first"]
    rows_of_each = 1 if "--first" in arguments else None
    for name in names or TABLES:
        rows = importlib.import_module(f"bench.{TABLES[name]}").rows()
        for ratio in itertools.islice(rows, rows_of_each):
            print(ratio.line(), flush=True)
            failed |= not ratio.passes
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

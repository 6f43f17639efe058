"""A class of thirty before one server: how long a page turn takes beside one who is alone, and what memory stays.

The same class as in tests/load comes, CLASSES times; before each somebody alone turns all pages. The server has opened
the checkpoint before, and what it holds then is what its memory is held against.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from bench.ratios import Ratio
from tests.browser.server import running_app

CLASSES = 3
TURN_BOUND = 5.0  # 95th percentile of a page turn in the class / the median of one who is alone
MEMORY_BOUND = 1.10  # resident after / before
NAME = "qwen2.5-coder-0.5b"
GB = 1e9


def rows() -> Iterator[Ratio]:
    from load.classroom import SESSIONS, classroom, expected_of, page_turns, warmed

    from model_probe import open_checkpoint

    expected = expected_of(open_checkpoint(NAME, device="cpu", dtype="float32"))
    turns, whole, memory, idle = [], [], [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        running_app(Path(folder) / "log.txt", {"RMSNORM_LAB_CHECKPOINT": NAME}) as server,
    ):
        warmed(server)
        resident = psutil.Process(server.pid).memory_info
        before = resident().rss
        for _ in range(CLASSES):
            alone = page_turns(server)
            of_page = {page: statistics.median(s for p, s in alone if p == page) for page, _ in alone}
            idle.append(statistics.median(seconds for _, seconds in alone))
            told = classroom(server, expected)
            if told.errors or told.wrong:
                raise RuntimeError(f"errors: {told.errors}\nwrong: {told.wrong}")
            seconds = [taken for _, taken in told.turns]
            whole.append(_slowest(seconds) / idle[-1])
            turns.append(_slowest([taken / of_page[page] for page, taken in told.turns]))
            memory.append(resident().rss / before)
            print(
                f"{SESSIONS} sessions: {told.results} results, 0 wrong, 0 errors; {len(told.turns)} page turns, "
                f"median {statistics.median(seconds):.3f} s, 95 % {_slowest(seconds):.3f} s, alone {idle[-1]:.3f} s",
                flush=True,
            )
    what = f"page turn, 95 % of a class of {SESSIONS} / the same page alone"
    yield Ratio(what, TURN_BOUND, tuple(turns), statistics.median(idle))
    what = f"page turn, 95 % of a class of {SESSIONS} / the median page alone"
    yield Ratio(what, TURN_BOUND, tuple(whole), statistics.median(idle))
    what = f"resident memory, after a class of {SESSIONS} / before"
    yield Ratio(what, MEMORY_BOUND, tuple(memory), before / GB, unit="GB")


def _slowest(figures: list[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(figures, n=20)[-1]

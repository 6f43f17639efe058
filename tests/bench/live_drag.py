"""A live slider while the pointer is held down: what is painted of the moves, and what is sent to the server.

A drag is 40 moves, 25 ms apart. Possible is a new picture for each move, or for each of the slider's own stops on the
way where those are fewer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from browser.drag import Drag, drag
from browser.test_live import WIDGETS, shown

from bench.chromium import chromium
from bench.ratios import Ratio
from tests.browser.server import running_app

DRAGS = 5  # of a slider
PAINTED = 0.9  # of what is possible: the pointer may move twice within a frame
LAG_MS = 50  # from the last move to the last paint


def rows() -> Iterator[Ratio]:
    with (
        tempfile.TemporaryDirectory() as folder,
        running_app(Path(folder) / "log.txt") as app,
        chromium() as browser,
    ):
        for name, widget in WIDGETS.items():
            drags: list[Drag] = []
            for _ in range(DRAGS):
                context = browser.new_context(viewport={"width": 1200, "height": 1000})
                try:
                    page = context.new_page()
                    page.goto(app.url + widget.address("en"))
                    drags.append(drag(shown(page, name), name))
                finally:
                    context.close()
            possible = drags[0].moves
            share = tuple(one.painted / one.moves for one in drags)
            yield Ratio(f"drag of {name}, painted / possible", PAINTED, share, possible, "at least", "moves")
            lag = tuple(one.lag_ms / LAG_MS for one in drags)
            yield Ratio(f"drag of {name}, last move to last paint / {LAG_MS} ms", 1.0, lag, LAG_MS, unit="ms")
            sent = tuple(float(one.messages) for one in drags)
            yield Ratio(f"drag of {name}, messages to the server", 0.0, sent, 0, unit="messages")

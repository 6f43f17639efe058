"""What is drawn is made once: the same for every visitor, another for every other look, within bounds, and never changed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from cachetools import LRUCache
from streamlit.testing.v1 import AppTest

from model_probe.presets import DEFAULT, PRESETS
from model_probe.recording import load_recording
from viz import kept as keeping
from viz.figures.depth import DepthView, depth_figure
from viz.kept import kept
from viz.reading import Reading
from viz.text import words
from viz.theme import DARK, LIGHT

PAGES = Path(__file__).resolve().parents[2] / "pages"
KINDS = ("start", "gain", "scale", "train", "probe")  # pages that draw what is kept


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], LRUCache]:
    """Begins with nothing kept, in so many bytes."""

    def begin(size: int) -> LRUCache:
        empty: LRUCache = LRUCache(size, getsizeof=lambda one: one.size)
        monkeypatch.setattr(keeping, "_room", empty)
        monkeypatch.setattr(keeping, "KEPT_BYTES", size)
        return empty

    return begin


def test_one_figure_for_one_look(room: Callable[[int], LRUCache]) -> None:
    room(64_000_000)
    traces = load_recording().traces
    other = next(preset for preset in PRESETS if preset != DEFAULT)
    looks = [
        (traces[preset], words(lang), palette, DepthView(layer=layer))
        for preset in (DEFAULT, other)
        for lang in ("en", "zh")
        for palette in (LIGHT, DARK)
        for layer in (None, "3")
    ]
    first, again = ([depth_figure(*look) for look in looks] for _ in range(2))
    assert all(a is b for a, b in zip(first, again, strict=True))
    assert len({figure.to_json() for figure in first}) == len(looks)


def test_the_least_used_goes_first(room: Callable[[int], LRUCache]) -> None:
    made = []

    @kept
    def draw(size: int) -> bytes:
        made.append(size)
        return bytes(size)

    full = room(10_000)
    for size in (4_000, 4_001, 4_000, 4_002, 4_000):  # 4 001 is the least used when 4 002 comes
        assert len(draw(size)) == size
    assert made == [4_000, 4_001, 4_002]
    draw(4_001)
    assert made[3:] == [4_001]
    assert full.currsize <= 10_000


def test_what_it_was_made_of_counts_and_what_is_too_large_is_not_kept(
    room: Callable[[int], LRUCache],
) -> None:
    @kept
    def length(of: bytes) -> int:
        return len(of)

    full = room(10_000)
    assert length(bytes(9_000)) == 9_000
    assert 9_000 < full.currsize < 10_000
    assert length(bytes(20_000)) == 20_000
    assert len(full) == 1


def test_a_trace_weighs_what_it_holds(room: Callable[[int], LRUCache]) -> None:
    full = room(64_000_000)
    trace = load_recording().traces[DEFAULT]
    Reading().line(trace, "residual")
    assert len(pickle.dumps(trace)) < full.currsize < 2 * len(pickle.dumps(trace))


@pytest.mark.parametrize("stem", KINDS)
def test_no_page_changes_what_is_kept(stem: str, room: Callable[[int], LRUCache]) -> None:
    full = room(64_000_000)
    app = AppTest.from_file(str(PAGES / f"{stem}.py"), default_timeout=60)
    app.query_params["lang"] = "en"
    for _ in range(3):
        app.run()
        assert not app.exception
    drawn = 0
    for (draw, args, kwargs), one in list(full.items()):
        fresh = draw(*args, **dict(kwargs))
        if isinstance(fresh, go.Figure):
            drawn += 1
            assert one.drawn.to_json() == fresh.to_json(), draw.__name__
        elif isinstance(fresh, np.ndarray):
            np.testing.assert_array_equal(one.drawn, fresh)
        else:
            assert one.drawn == fresh, draw.__name__
    assert drawn

"""What AppTest lacks: a browser that says when a chart is drawn."""

from __future__ import annotations

import pytest

from viz import measure, painted


@pytest.fixture(autouse=True)
def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would answer: do not wait."""
    monkeypatch.setattr(painted, "PATIENCE", 0.0)


@pytest.fixture(autouse=True)
def own_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    """No checkpoint is open from another test, and nobody waits."""
    monkeypatch.setattr(measure, "_the_bench", measure.Bench())

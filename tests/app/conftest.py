"""What AppTest lacks: a browser that says when a chart is drawn."""

from __future__ import annotations

import pytest

from viz import painted


@pytest.fixture(autouse=True)
def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would answer: do not wait."""
    monkeypatch.setattr(painted, "PATIENCE", 0.0)

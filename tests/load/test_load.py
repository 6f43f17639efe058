"""Thirty at once: everybody gets their own results, nobody an error, and one model is loaded for all."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser.server import running_app
from load.classroom import HASTE, SESSIONS, TRAINERS, TURNS, classroom, expected_of

from model_probe import Checkpoint

# The server's modules tell what they do in the log: that a model was opened, among others.
TELLS = "import logging\n\nlogging.basicConfig(level=logging.INFO)\n"


@pytest.mark.timeout(1800)
def test_thirty_read_run_and_train(real_checkpoint: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(TELLS, encoding="utf-8")
    expected = expected_of(real_checkpoint)
    environment = {"PYTHONPATH": str(tmp_path), "RMSNORM_LAB_CHECKPOINT": real_checkpoint.info.name}
    with running_app(tmp_path / "log.txt", environment) as server:
        told = classroom(server, expected, reads=HASTE)
        log = server.log()
    assert told.errors == []
    assert told.wrong == []
    assert told.results == 2 * SESSIONS + TRAINERS
    assert len(told.turns) == TURNS * SESSIONS
    assert log.count("viz.measure:opened") == 1, log
    assert "Traceback" not in log

"""What the tests of fetching share: one checkpoint that the table of the test knows, and a dead address."""

from __future__ import annotations

import pytest

from model_probe import fetch
from model_probe.catalog import NamedCheckpoint
from model_probe.errors import ProbeError

TINY = NamedCheckpoint("tiny", "owner/tiny", "a tiny Qwen3", "Apache-2.0", 100_000, 30_000)
DEAD = "http://127.0.0.1:9"


def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ModelScope's client, which would try for half a minute, go on once with what was broken off."""
    from modelscope_hub import _download

    monkeypatch.setattr(_download, "DOWNLOAD_RETRY_TIMES", 1)


def refused(name: str | None = "tiny") -> str:
    """The sentence with which fetching fails."""
    with pytest.raises(ProbeError) as caught:
        fetch(name)
    assert caught.value.code == "fetch_failed"
    return str(caught.value)

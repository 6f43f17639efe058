"""Measures what RMSNorm does inside a language model.

    from model_probe import open_checkpoint, capture, NormTrace

    checkpoint = open_checkpoint("auto")
    trace = capture(checkpoint, "The river flows softly through the valley.")
    trace.save("trace.json")

Names are imported when first used, so that opening a recording or a trace never loads torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model_probe.batch_files import read_batch
    from model_probe.capturing import capture
    from model_probe.checkpoints import Checkpoint, fetch, local_checkpoints, open_checkpoint
    from model_probe.discovery import discover
    from model_probe.errors import ProbeError
    from model_probe.recording import Recording, load_recording, record
    from model_probe.sites import NormSite
    from model_probe.trace import CheckpointInfo, NormTrace, SiteTrace, Statistics, Token
    from model_probe.wrapping import wrap_model

_HOMES = {
    "read_batch": "batch_files",
    "capture": "capturing",
    "Checkpoint": "checkpoints",
    "fetch": "checkpoints",
    "local_checkpoints": "checkpoints",
    "open_checkpoint": "checkpoints",
    "discover": "discovery",
    "ProbeError": "errors",
    "Recording": "recording",
    "load_recording": "recording",
    "record": "recording",
    "NormSite": "sites",
    "CheckpointInfo": "trace",
    "NormTrace": "trace",
    "SiteTrace": "trace",
    "Statistics": "trace",
    "Token": "trace",
    "wrap_model": "wrapping",
}
__all__ = [
    "Checkpoint",
    "CheckpointInfo",
    "NormSite",
    "NormTrace",
    "ProbeError",
    "Recording",
    "SiteTrace",
    "Statistics",
    "Token",
    "capture",
    "discover",
    "fetch",
    "load_recording",
    "local_checkpoints",
    "open_checkpoint",
    "read_batch",
    "record",
    "wrap_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__

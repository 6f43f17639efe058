"""A model that somebody loaded becomes a checkpoint that can be measured.

    model = AutoModelForCausalLM.from_pretrained(…, device_map="auto")
    checkpoint = wrap_model(torch.compile(model), tokenizer)
    trace = capture(checkpoint, "The river flows softly through the valley.")

Its weights, hooks, training mode and compiled code stay as they are; only while it is measured does it
run eagerly and in evaluation mode (model_probe.passes).
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING

import torch
import transformers

from model_probe.checkpoints import Checkpoint
from model_probe.discovery import discover
from model_probe.errors import ProbeError
from model_probe.loading import quiet
from model_probe.passes import input_device, plain
from model_probe.trace import CheckpointInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn
    from transformers import PreTrainedTokenizerBase

    from model_probe.progress import Progress
    from model_probe.sites import NormSite


def wrap_model(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    *,
    name: str | None = None,
    source: str | None = None,
    progress: Progress | None = None,
) -> Checkpoint:
    """Find the norms of a causal language model of transformers that is in memory already.

    Any dtype and device; compiled whole or in parts, with weights that accelerate offloads to the CPU or
    to disk, with gradient checkpointing, in training or evaluation mode.

    Args:
        model: as `from_pretrained` gave it, or what `torch.compile` made of that.
        tokenizer: its own; a prompt is given to it as it is.
        name: what the trace calls it; else what it was loaded as, else its class.
        source: where it is from; else its name.
        progress: told of the stage `discover`.

    Raises:
        ProbeError: `not_wrapped`, `no_rms_norm`, `weights_gone`, and `fused_norm`, `bypassed_norm`,
            `in_place_norm` or `norm_not_measured` for a norm that a kernel hides.
    """
    model = plain(model)
    config = getattr(model, "config", None)
    if not isinstance(model, transformers.PreTrainedModel) or config is None:
        raise ProbeError("not_wrapped", class_name=type(model).__name__)
    text = config.get_text_config(decoder=True)
    device = input_device(model)
    if progress:
        progress("discover")
    with quiet():
        sites = discover(model)
    # a path of this machine is nobody's business: its last part names it as well
    called = name or PurePath(model.name_or_path or "").name or type(model).__name__
    info = CheckpointInfo(
        name=called,
        source=source or called,
        digest=_digest(model, sites),
        architecture=type(model).__name__,
        model_type=config.model_type,
        hidden_size=text.hidden_size,
        num_layers=text.num_hidden_layers,
        dtype=str(model.dtype).removeprefix("torch."),
        device=device.type,
        torch=torch.__version__,
        transformers=transformers.__version__,
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return Checkpoint(info, model, lambda: tokenizer, sites, owned=False)


def _digest(model: nn.Module, sites: Sequence[NormSite]) -> str:
    """sha256 over the weights' names, dtypes and shapes, and the measured gains, which a training changes."""
    listed = [(name, str(p.dtype), list(p.shape)) for name, p in model.named_parameters()]
    digest = hashlib.sha256(json.dumps(sorted(listed)).encode())
    for site in sites:
        digest.update(site.name.encode())
        digest.update(b"" if site.gain is None else site.gain.tobytes())
    return digest.hexdigest()

"""A checked folder becomes a model and a tokenizer in memory, through transformers.

Safetensors only, no code from the checkpoint, no network, and nothing left at random: a weight
that the files lack is an error. What transformers has to say beside that is kept off the terminal.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from model_probe.errors import ProbeError
from model_probe.folders import read_header, read_json, stored_dtype
from model_probe.progress import Progress, silent
from model_probe.spreading import refuse_uneven
from model_probe.text_part import text_part

DEVICES: Final = ("auto", "cpu", "cuda", "mps")
DTYPES: Final = ("auto", "float32", "bfloat16", "float16")
_STORED: Final = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_NAMES_SHOWN: Final = 5
_REASON_LENGTH: Final = 200


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A model in evaluation mode, without gradients."""

    model: PreTrainedModel
    model_type: str  # of config.json; a multimodal wrapper's own, where only its text model is open


def load(
    folder: Path,
    files: Iterable[Path],
    *,
    device: torch.device,
    dtype: torch.dtype,
    spread: Mapping[str, Any] | None = None,
    progress: Progress = silent,
) -> Loaded:
    """Load the causal language model of a folder that `check_folder` passed.

    A multimodal wrapper's text model is opened alone, with the wrapper's keys renamed for it, or as
    the wrapper without its towers (`model_probe.text_part`). With the arguments of `model_probe.spreading` it
    lies where they say, and not on `device`.

    Raises:
        ProbeError: `unknown_architecture`, `missing_weights`, or `load_failed` with what
            transformers says.
    """
    progress("load")
    with quiet(), translated(folder):
        config, model_type, model_class = _config(folder)
        if "distributed_config" in (spread or {}):
            refuse_uneven(config.get_text_config(decoder=True))
        pair: Any = model_class.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # the report names them, the error it would raise does not
            key_mapping=_key_mapping(config, model_type, files),
            **(spread or {}),
        )
        model, report = pair
        refuse_missing(folder, report)
        if not spread:
            model.to(device)
        model.eval().requires_grad_(False)
    return Loaded(model, model_type)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder that `check_folder` passed.

    Raises:
        ProbeError: `load_failed` with what transformers says.
    """
    with quiet(), translated(folder):
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def choose_device(name: str) -> torch.device:
    """`auto` is CUDA, then MPS, then the CPU; another name is taken if this machine has it.

    Raises:
        ProbeError: `unknown_device`.
    """
    available = [
        device
        for device, here in (
            ("cuda", torch.cuda.is_available()),
            ("mps", torch.backends.mps.is_available()),
            ("cpu", True),
        )
        if here
    ]
    if name == "auto":
        return torch.device(available[0])
    if name not in available:
        raise ProbeError("unknown_device", device=name, available=", ".join(available))
    return torch.device(name)


def choose_dtype(
    name: str,
    device: torch.device,
    files: Iterable[Path],
    *,
    dequantized: bool,
    progress: Progress = silent,
) -> torch.dtype:
    """`auto` is float32 on the CPU, elsewhere the checkpoint's own; another name is taken as it is.

    The own dtype of a `dequantized` GGUF is bfloat16: its float32 only keeps the file exact on
    disk. Where a device lacks bfloat16 it is float32, and `progress` is told so (`fallback`).

    Raises:
        ProbeError: `unknown_dtype`.
    """
    if name not in DTYPES:
        raise ProbeError("unknown_dtype", dtype=name)
    if name != "auto":
        return getattr(torch, name)
    if device.type == "cpu":
        return torch.float32
    own = torch.bfloat16 if dequantized else _STORED.get(stored_dtype(files), torch.bfloat16)
    if own is torch.bfloat16 and not _has_bfloat16(device):
        progress("fallback", detail=device.type)
        return torch.float32
    return own


def refuse_missing(path: Path, report: Mapping[str, Any]) -> None:
    """Raise ProbeError `missing_weights` where transformers filled a weight with random numbers.

    `report` is what `from_pretrained(output_loading_info=True)` gives; tied weights are not in it.
    """
    names = sorted(report["missing_keys"])
    names += (
        f"{key} (of shape {list(here)}, not {list(due)})" for key, here, due in report["mismatched_keys"]
    )
    # a norm's name tells a reader of this program most
    names.sort(key=lambda name: "norm" not in name)
    if names:
        shown = ", ".join(names[:_NAMES_SHOWN])
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        raise ProbeError("missing_weights", path=path, names=shown + more)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' log lines, warnings and progress bars off the terminal meanwhile."""
    verbosity = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    hub_bars = not are_progress_bars_disabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()
        if hub_bars:
            enable_progress_bars()


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn whatever transformers throws while it reads `path` into ProbeError `load_failed`.

    It has no class of its own for a checkpoint it cannot read: KeyError, ValueError, OSError,
    ImportError, RuntimeError and safetensors' errors have all been seen, so all are taken.
    """
    try:
        yield
    except ProbeError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines()
        reason = lines[0].strip().rstrip(".") if lines else ""
        named = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        raise ProbeError("load_failed", path=path, reason=named[:_REASON_LENGTH]) from error


def _config(folder: Path) -> tuple[PreTrainedConfig, str, Any]:
    """The configuration to load with, the model_type that config.json begins with, and the class."""
    raw = read_json(folder, "config.json")
    model_type = str(raw.get("model_type", ""))
    if model_type not in CONFIG_MAPPING:
        raise ProbeError("unknown_architecture", path=folder, architecture=_class_name(raw))
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    text = config.get_text_config(decoder=True)
    if type(text) in AutoModelForCausalLM._model_mapping:
        return text, model_type, AutoModelForCausalLM
    wrapper = text_part(config)
    if wrapper is None:
        raise ProbeError("not_causal", path=folder, architecture=_class_name(raw))
    return config, model_type, wrapper


def _class_name(raw: Mapping[str, Any]) -> str:
    """The class that config.json names, else its model_type."""
    return str(next(iter(raw.get("architectures") or ()), raw.get("model_type") or "unnamed"))


def _key_mapping(config: PreTrainedConfig, model_type: str, files: Iterable[Path]) -> dict[str, str] | None:
    """How a wrapper's keys are renamed for its text model; None where the keys are its own.

    The prefix before the text model's names is found in the files rather than looked up: it is
    the one under which most of the expected names stand ("model.language_model.",
    "language_model.model."), so a vision tower with layers of its own does not matter.
    """
    if config.model_type == model_type:
        return None
    with torch.device("meta"):
        skeleton: nn.Module = AutoModelForCausalLM.from_config(config)
    base = f"{skeleton.base_model_prefix}."
    expected = {name for name, _ in skeleton.named_parameters(remove_duplicate=False)}
    inner = {name.removeprefix(base) for name in expected if name.startswith(base)}
    heads = expected - {base + name for name in inner}
    stored = [name for file in files for name in read_header(file) if name != "__metadata__"]
    votes: Counter[str] = Counter()
    mapping = {}
    for name in stored:
        parts = name.split(".")
        tails = ((".".join([*parts[:i], ""]), ".".join(parts[i:])) for i in range(len(parts)))
        for prefix, tail in tails:
            votes[prefix] += tail in inner
            if prefix and tail in heads:
                mapping[f"^{re.escape(name)}$"] = tail
    prefix = max(votes, key=lambda key: votes[key], default=base)
    return ({} if prefix in (base, "") else {f"^{re.escape(prefix)}": base}) | mapping or None


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    try:
        torch.ones(1, dtype=torch.bfloat16, device=device).sum().item()
    except (RuntimeError, TypeError):
        return False
    return True

"""What an operator sets, in environment variables; the table in the README explains each of them.

    RMSNORM_LAB_PRESET=public RMSNORM_LAB_CHECKPOINTS=qwen3-0.6b streamlit run app.py

Without any, all is right for one person at a laptop. The preset `public` is safe on the internet; a variable of its
own beside it changes one thing of it. Two more are read where they are needed: RMSNORM_LAB_CACHE
(`model_probe.storage`) and RMSNORM_LAB_CHECKPOINT (`model_probe.catalog`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from model_probe.errors import ProbeError

PREFIX: Final = "RMSNORM_LAB_"
TOKENS: Final = (1, 8192)  # what a prompt's limit may be
_SWITCH: Final = {"on": True, "off": False}


@dataclass(frozen=True, slots=True)
class Settings:
    """What visitors may do on this server. Each field is the variable RMSNORM_LAB_<FIELD>."""

    checkpoints: tuple[str, ...] = ()  # names, comma-separated; empty: whatever is on this machine
    device: str = "auto"  # that runs use
    prompt_tokens: int = 2048  # a longer prompt is cut
    queue: int = 40  # who may wait for their turn; the next one is asked to come back
    run_seconds: float = 600.0  # a run is stopped after so long; opening the checkpoint is not counted
    live: bool = True  # visitors may run a checkpoint
    fetching: bool = True  # visitors may have one fetched
    training: bool = True  # visitors may train small decoders and measure stacks and costs


PRESETS: Final = {
    "laptop": Settings(),
    "public": Settings(prompt_tokens=512, queue=60, run_seconds=60.0, fetching=False, training=False),
}


def settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings that the environment names, read anew at each call.

    Raises:
        ProbeError: `bad_setting`, naming the variable and what it may be.
    """
    preset = environment.get(f"{PREFIX}PRESET") or "laptop"
    if preset not in PRESETS:
        raise _bad("PRESET", preset, " or ".join(PRESETS))
    chosen = PRESETS[preset]
    given: dict[str, Any] = {}
    for field in fields(Settings):
        text = environment.get(f"{PREFIX}{field.name.upper()}", "").strip()
        if text:
            given[field.name] = _value(field.name, text, getattr(chosen, field.name))
    return replace(chosen, **given)


def _value(name: str, text: str, default: object) -> object:
    """The value of one field, of the type that its default has."""
    if isinstance(default, bool):
        if text.lower() not in _SWITCH:
            raise _bad(name, text, "on or off")
        return _SWITCH[text.lower()]
    if isinstance(default, tuple):
        return tuple(part for part in (p.strip() for p in text.split(",")) if part)
    if isinstance(default, str):
        if text not in ("auto", "cpu", "cuda", "mps"):
            raise _bad(name, text, "auto, cpu, cuda or mps")
        return text
    least, most = TOKENS if name == "prompt_tokens" else (1, 100_000)
    try:
        number = int(text) if isinstance(default, int) else float(text)
    except ValueError:
        number = 0
    if not least <= number <= most:
        raise _bad(name, text, f"a number from {least} to {most}")
    return number


def _bad(name: str, value: str, allowed: str) -> ProbeError:
    return ProbeError("bad_setting", name=f"{PREFIX}{name.upper()}", value=value, allowed=allowed)

"""The checkpoints that a visitor may choose from, under codes that can stand in an address.

A visitor's browser names one of these codes and nothing else: no path, hub id or address comes from it. Where the
operator has named a checkpoint (RMSNORM_LAB_CHECKPOINT), it is the only one; a list of names
(RMSNORM_LAB_CHECKPOINTS) leaves the others out.

Neither Streamlit nor torch is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from model_probe.catalog import (
    CHECKPOINT_VARIABLE,
    NAMED,
    LocalCheckpoint,
    NamedCheckpoint,
    local_checkpoints,
)
from model_probe.settings import settings

OPERATORS: Final = "operator"  # code of a checkpoint that has no name of ours
_DIGEST: Final = 12  # of a converted file's sha256, enough to tell those on one machine apart


@dataclass(frozen=True, slots=True)
class Offer:
    """One checkpoint that may be run, or fetched first."""

    code: str
    name: str  # as it is shown; never a path
    where: str  # what `open_checkpoint` is given
    known: NamedCheckpoint | None = None  # of the table, where it is one of it
    local: LocalCheckpoint | None = None  # where it lies, if it is on this machine and its size is known
    is_here: bool = True  # whether a run needs nothing to be fetched


def offers() -> tuple[Offer, ...]:
    """The operator's one; else those of the table in their order, here or not, then other converted files."""
    operators = os.environ.get(CHECKPOINT_VARIABLE)
    local = {checkpoint.name: checkpoint for checkpoint in local_checkpoints()}
    if operators:
        if operators in NAMED:  # fetched when it is first run, if it is not here
            return (Offer(operators, operators, operators, NAMED[operators], local.get(operators)),)
        path = Path(operators).expanduser()
        name = path.name if path.is_absolute() or path.exists() else operators
        return (Offer(OPERATORS, name, operators),)
    allowed = settings()
    named = [
        Offer(name, name, name, known, local.get(name), is_here=name in local)
        for name, known in NAMED.items()
        if name in local or allowed.fetching
    ]
    others = [
        Offer(found.folder.name[:_DIGEST], Path(found.source).stem, str(found.folder), None, found)
        for name, found in local.items()
        if name not in NAMED
    ]
    return tuple(
        offer for offer in (*named, *others) if not allowed.checkpoints or offer.name in allowed.checkpoints
    )


def here(offered: Sequence[Offer]) -> tuple[Offer, ...]:
    """Those that can be run now."""
    return tuple(offer for offer in offered if offer.is_here)

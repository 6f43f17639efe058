"""Many prompts through one checkpoint, into one Parquet dataset that a killed run goes on with.

    prompts = read_prompts(Path("prompts.jsonl"))
    result = run_batch(prompts, Path("out"), here(Opening("qwen2.5-coder-0.5b")))

The folder says what is done: a part of the dataset is there whole or not at all (model_probe.batch_files), and
what stands in one is not run again, in whatever way the batch is run the next time: in this process (`here`), on a
Ray cluster (`model_probe.ray_batch`), or in processes that hold the checkpoint together (`Together`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol

from model_probe.batch_files import BatchFolder, Measured, Settings
from model_probe.errors import ProbeError
from model_probe.progress import Progress, silent
from model_probe.prompt_files import Prompt
from model_probe.spreading import leave, spoken
from model_probe.trace import CheckpointInfo, NormTrace

if TYPE_CHECKING:
    from model_probe.checkpoints import Checkpoint

PART_ROWS: Final = 1_000_000  # about 50 MB in memory, a few on disk
PART_SECONDS: Final = 60.0  # so much work is lost by a power cut, at most
# What is wrong with one prompt; any other error ends the batch.
OF_A_PROMPT: Final = ("empty_prompt", "bad_prompt", "worker_died")

Outcome = NormTrace | ProbeError


@dataclass(frozen=True, slots=True)
class Opening:
    """How the checkpoint is opened: the arguments of `open_checkpoint`, and the cap of tokens."""

    where: str
    device: str = "auto"
    dtype: str = "auto"
    device_map: str | None = None
    tp_plan: str | None = None
    max_tokens: int = 2048

    @property
    def spread(self) -> dict[str, str]:
        """How the checkpoint is laid out; empty for one device."""
        chosen = {"device_map": self.device_map, "tp_plan": self.tp_plan}
        return {name: value for name, value in chosen.items() if value is not None}

    def open(self, progress: Progress | None = None) -> Checkpoint:
        """Open it here."""
        from model_probe.checkpoints import open_checkpoint

        return open_checkpoint(
            self.where,
            device=self.device,
            dtype=self.dtype,
            device_map=self.device_map,
            tp_plan=self.tp_plan,
            progress=progress,
        )


class Measurer(Protocol):
    """What runs the prompts of a batch."""

    @property
    def info(self) -> CheckpointInfo:
        """Of the checkpoint that is measured."""

    @property
    def max_tokens(self) -> int:
        """Past it a prompt is cut."""

    @property
    def spread(self) -> Mapping[str, str]:
        """How the checkpoint is laid out; empty for one device."""

    def measure(self, texts: Sequence[str]) -> Iterator[tuple[int, Outcome]]:
        """The place of each text in the sequence, with its trace or what is wrong with it, in any order."""


class Here:
    """Runs prompts one after the other in this process."""

    def __init__(self, checkpoint: Checkpoint, opening: Opening) -> None:
        self.checkpoint = checkpoint
        self.info = checkpoint.info
        self.max_tokens, self.spread = opening.max_tokens, opening.spread

    def measure(self, texts: Sequence[str]) -> Iterator[tuple[int, Outcome]]:
        for place, text in enumerate(texts):
            yield place, measured(self.checkpoint, text, self.max_tokens)


class Together(Here):
    """Runs each prompt in all processes at once; they `follow` this one. Use it in a `with`."""

    def __init__(self, checkpoint: Checkpoint, opening: Opening) -> None:
        super().__init__(checkpoint, opening)
        self._in_pass = False

    def measure(self, texts: Sequence[str]) -> Iterator[tuple[int, Outcome]]:
        for place, text in enumerate(texts):
            spoken(text)
            self._in_pass = True
            outcome = measured(self.checkpoint, text, self.max_tokens)
            self._in_pass = False
            yield place, outcome

    def __enter__(self) -> Together:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._in_pass:  # else the others wait inside it, and torchrun ends them
            spoken(None)
            leave()


def follow(opening: Opening) -> None:
    """Run what the first process runs until it has no more."""
    checkpoint = opening.open()
    while (text := spoken(None)) is not None:
        measured(checkpoint, text, opening.max_tokens)
    leave()


@contextmanager
def here(opening: Opening, progress: Progress | None = None) -> Iterator[Here]:
    """The checkpoint opened in this process, or in all that torchrun started, of which this is the first."""
    checkpoint = opening.open(progress)
    if opening.tp_plan is None:
        yield Here(checkpoint, opening)
        return
    with Together(checkpoint, opening) as together:
        yield together


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of the prompts of a file."""

    total: int
    before: int  # stood in the folder already
    measured: int
    cut: int  # of the measured ones, those past the cap
    failed: int
    removed: Sequence[str]  # parts that were not whole, and whose prompts were measured again


def measured(checkpoint: Checkpoint, text: str, max_tokens: int) -> Outcome:
    """The trace of a prompt, or the error that is the prompt's own."""
    from model_probe.capturing import capture

    try:
        return capture(checkpoint, text, max_tokens=max_tokens)
    except ProbeError as error:
        if error.code not in OF_A_PROMPT:
            raise
        return error


def run_batch(
    prompts: Sequence[Prompt],
    out: Path,
    runner: AbstractContextManager[Measurer],
    *,
    part_rows: int = PART_ROWS,
    part_seconds: float = PART_SECONDS,
    progress: Progress | None = None,
) -> BatchResult:
    """Measure the prompts that do not stand in the folder yet, each text once, and write them there.

    What is measured is written when the batch is stopped, too, by an error or by Cancelled; what is killed loses a
    part at most.

    Args:
        runner: what measures, opened when the folder has been looked at: `here(…)`, `RayWorkers(…)`.
        part_rows: a part is written when it has so many rows.
        part_seconds: … or when so much time has passed since the one before.
        progress: told of the stage `batch` with the share that is done, and of `batch_part` for each part.

    Raises:
        ProbeError: those of `BatchFolder.opened`; `other_batch` where the folder's traces are of other prompts, of
            another checkpoint or dtype, or cut otherwise; what ends a capture, or the workers.
    """
    progress = progress or silent
    with BatchFolder.opened(out) as folder, runner as measurer:
        settings = Settings(measurer.info, measurer.max_tokens, measurer.spread)
        if folder.settings is not None:
            settings.refuse_other(out, folder.settings)
        todo = remaining(prompts, folder)
        before = len(prompts) - sum(map(len, todo))
        writer = _Writer(folder, settings, len(prompts), (part_rows, part_seconds), progress)
        if before:
            writer.tell()
        try:
            for place, outcome in measurer.measure([same[0].text for same in todo]):
                writer.add(todo[place], outcome)
        finally:
            writer.flush()
            folder.write_errors(writer.errors)
    return BatchResult(
        len(prompts), before, writer.measured, writer.cut, len(writer.errors), tuple(folder.removed)
    )


def remaining(prompts: Sequence[Prompt], folder: BatchFolder) -> list[list[Prompt]]:
    """The prompts that the folder lacks, equal texts together, in the order of their first.

    Raises:
        ProbeError: `other_batch` where an index stands in the folder with another text.
    """
    missing = folder.done.keys() - {prompt.index for prompt in prompts}
    if missing:
        raise ProbeError(
            "other_batch", path=folder.folder, reason=f"the list of prompts has no prompt {min(missing)}"
        )
    groups: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        done = folder.done.get(prompt.index)
        if done is None:
            groups.setdefault(prompt.text, []).append(prompt)
        elif done != prompt.digest:
            raise ProbeError(
                "other_batch", path=folder.folder, reason=f"prompt {prompt.index} is another text there"
            )
    return list(groups.values())


class _Writer:
    """Gathers outcomes until they are a part."""

    def __init__(
        self,
        folder: BatchFolder,
        settings: Settings,
        total: int,
        limits: tuple[int, float],
        progress: Progress,
    ) -> None:
        self.folder, self.settings, self.total = folder, settings, total
        self.part_rows, self.part_seconds = limits
        self.progress = progress
        self.errors: list[tuple[Prompt, ProbeError]] = []
        self.measured = self.cut = 0
        self._waiting: list[Measured] = []
        self._rows = 0
        self._since = time.monotonic()

    def add(self, prompts: Sequence[Prompt], outcome: Outcome) -> None:
        if isinstance(outcome, ProbeError):
            self.errors += [(prompt, outcome) for prompt in prompts]
        else:
            self._waiting.append(Measured(prompts, outcome))
            self._rows += self._waiting[-1].rows
            self.measured += len(prompts)
            self.cut += len(prompts) * bool(outcome.tokens_cut)
        if self._rows >= self.part_rows or time.monotonic() - self._since >= self.part_seconds:
            self.flush()
        waiting = sum(len(each.prompts) for each in self._waiting)
        self.progress("batch", min((len(self.folder.done) + len(self.errors) + waiting) / self.total, 1.0))

    def flush(self) -> None:
        """Write what is there as a part."""
        waiting, self._waiting, self._rows = self._waiting, [], 0
        self._since = time.monotonic()
        if waiting:
            self.folder.write(self.settings, waiting)
            self.tell()

    def tell(self) -> None:
        """Say how much stands in the folder."""
        self.progress("batch_part", detail=f"{len(self.folder.done)} of {self.total}")

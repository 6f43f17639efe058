"""Progress on standard error: bars on a terminal, else one line a stage."""

from __future__ import annotations

import shutil
import sys
from types import TracebackType
from typing import Any, Final

import click

STAGE_TEXTS: Final = {
    "look": "Asking",
    "unreachable": "Given up:",
    "wait": "Waiting for another process that is making the same",
    "download": "Downloading",
    "verify": "Verifying",
    "convert_tokenizer": "Converting the tokenizer",
    "convert_weights": "Converting the weights",
    "save": "Saving",
    "fallback": "Computing in float32, for want of bfloat16 on",
    "load": "Loading",
    "discover": "Finding the norms",
    "capture": "Measuring",
    "stacks": "Measuring the stacks",
    "compile": "Compiling the norms",
    "costs": "Timing the norms",
    "compare": "Comparing the norms",
    "intervene": "Intervening",
    "train": "Training",
    "batch": "Measuring the prompts",
    "batch_part": "Written:",
    "workers": "Starting the workers",
}
_WIDEST: Final = 100  # columns of a bar
_WITH_DETAIL: Final = ("look", "unreachable", "batch_part")  # said once for each detail, not once


class Report:
    """A `model_probe.progress.Progress` that writes for a person. Use it in a `with`."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.said: set[tuple[str, str]] = set()
        self.stage = ""
        self.bar: Any = None  # tqdm's, while the current stage has one

    def __call__(self, stage: str, done: float | None = None, detail: str = "") -> None:
        """Say a stage once; on a terminal, move its bar."""
        key = (stage, detail if stage in _WITH_DETAIL else "")
        text = STAGE_TEXTS[stage] + (f" {detail}" if detail else "")
        if stage != self.stage:
            self._close_bar()
            self.stage = stage
        if self.terminal and done is not None:
            self._move_bar(STAGE_TEXTS[stage], done)
        elif key not in self.said:
            click.echo(text, err=True)
        self.said.add(key)

    def _move_bar(self, text: str, done: float) -> None:
        if self.bar is None:
            from tqdm import tqdm  # type: ignore[import-untyped]

            form = "{desc} {percentage:3.0f} % |{bar}| {elapsed}"
            # tqdm shows nothing on a terminal that does not tell its size; this has a fallback
            size = shutil.get_terminal_size()
            self.bar = tqdm(
                desc=text,
                total=1.0,
                bar_format=form,
                file=sys.stderr,
                ncols=min(size.columns, _WIDEST),
                nrows=size.lines,
            )
        self.bar.update(done - self.bar.n)

    def _close_bar(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def __enter__(self) -> Report:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_bar()

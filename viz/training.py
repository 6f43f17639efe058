"""What a visitor trains: up to four runs in one job, in the one queue, stopped and taken up again at will.

A job gives up its turn after TURN_SECONDS and stands in the queue again, so that nobody waits for another
visitor's minutes. Runs take steps by turns too, so that their curves grow side by side. A visitor who is gone
does not train on: the job ends when nobody has looked at it for ABANDONED_SECONDS, and can be taken up like one
that was stopped. torch is imported when the first run begins, not before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from model_probe.progress import Cancelled, Progress
from model_probe.runs import RunSettings
from viz.jobs import Job, Turns
from viz.outcomes import Shown

if TYPE_CHECKING:
    from model_probe.training import Run

MOST_RUNS: Final = 4
TURN_SECONDS: Final = 15.0
ABANDONED_SECONDS: Final = 300.0
_CHUNK: Final = 2  # steps of a run before the next run's
_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class Track:
    """One run of a visitor; written in the job's thread, read by the page."""

    settings: RunSettings
    run: Run | None = None  # None until it has its first turn
    sample: str | None = None  # None until the run is over

    @property
    def shown(self) -> Shown:
        """The run as far as it has gone."""
        if self.run is None:
            return Shown(self.settings, ())
        return Shown(self.settings, tuple(self.run.steps), self.run.diverged_at)

    @property
    def step(self) -> int:
        """Steps made so far."""
        return 0 if self.run is None else self.run.step

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""
        return self.sample is not None

    @property
    def seconds_left(self) -> float | None:
        """What its remaining steps would take at the pace so far; None before there is a pace."""
        if self.run is not None and self.run.done:
            return 0.0
        if self.run is None or self.run.step < 2:
            return None
        return self.run.seconds / self.run.step * (self.settings.steps - self.run.step)


class Training:
    """The runs of one visitor.

    training = Training()
    training.start([RunSettings(), RunSettings(norm="none")], turns)
    training.stop(); …; training.resume(turns)
    """

    def __init__(self) -> None:
        self.tracks: list[Track] = []
        self.error: Exception | None = None  # what the last job failed with
        self.began = datetime.now(UTC)  # when the runs were started
        self._job: Job[None] | None = None
        self._looked = 0.0

    def start(self, settings: Sequence[RunSettings], turns: Turns) -> None:
        """Begin these runs, at most MOST_RUNS, in place of the ones before; nothing while a job is at work."""
        if self.running:
            return
        self.tracks = [Track(one) for one in settings[:MOST_RUNS]]
        self.began = datetime.now(UTC)
        self.resume(turns)

    def resume(self, turns: Turns) -> None:
        """Go on where the runs were stopped; nothing while a job is at work or nothing is left to do."""
        if self.running or all(track.over for track in self.tracks):
            return
        self.error = None
        self.look()
        tracks = self.tracks
        self._job = Job(lambda progress: _train(tracks, turns, self._watched(progress)))

    def stop(self) -> None:
        """Ask the job to end after the step it is at; `settled` says when it has."""
        if self._job is not None:
            self._job.stop()

    def look(self) -> None:
        """Somebody looks at the runs: they are not abandoned."""
        self._looked = time.monotonic()

    @property
    def torch(self) -> str:
        """The version of torch, once the runs have brought it."""
        return version("torch")

    @property
    def running(self) -> bool:
        """Whether a job is at work or in the queue."""
        return self._job is not None and not self._job.wait(0)

    @property
    def stopping(self) -> bool:
        """Whether the job was asked to end and has not yet."""
        return self.running and self._job is not None and self._job.stopping

    @property
    def place(self) -> int | None:
        """How many others are before this visitor in the queue; None when it is their turn."""
        if not self.running or self._job is None or self._job.told.stage != "queue":
            return None
        return int(self._job.told.detail)

    @property
    def stage(self) -> str:
        """What the job last told: "begin", "queue", "train" or "sample"."""
        return "begin" if self._job is None else self._job.told.stage

    def wait(self, seconds: float) -> bool:
        """Whether no job is at work, after waiting for its end at most so long."""
        return self._job is None or self._job.wait(seconds)

    def settled(self) -> bool:
        """Whether a job has ended since the last call; what it failed with is then in `error`."""
        if self._job is None or not self._job.wait(0):
            return False
        job, self._job = self._job, None
        try:
            job.result()
        except Cancelled:
            pass
        except Exception as error:  # noqa: BLE001 - the reader gets a sentence, the log the traceback
            _LOG.error("a training failed", exc_info=error)
            self.error = error
        return True

    @property
    def left(self) -> list[Track]:
        """The runs that are not over."""
        return [track for track in self.tracks if not track.over]

    @property
    def done(self) -> float:
        """Share of all steps that are made, 0 to 1; a run that ended early counts as whole."""
        steps = sum(track.settings.steps for track in self.tracks)
        made = sum(track.settings.steps if track.over else track.step for track in self.tracks)
        return made / steps if steps else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds of computing that are left at the pace so far; None before every run has a pace."""
        left = [track.seconds_left for track in self.left]
        known = [seconds for seconds in left if seconds is not None]
        return sum(known) if known and len(known) == len(left) else None

    def _watched(self, progress: Progress) -> Progress:
        def tell(stage: str, done: float | None = None, detail: str = "") -> None:
            if time.monotonic() - self._looked > ABANDONED_SECONDS:
                raise Cancelled
            progress(stage, done, detail)

        return tell


def _train(tracks: Sequence[Track], turns: Turns, progress: Progress) -> None:
    while not all(track.over for track in tracks):
        with turns.take(progress):
            _one_turn(tracks, progress)


def _one_turn(tracks: Sequence[Track], progress: Progress) -> None:
    from model_probe.training import Run

    until = time.monotonic() + TURN_SECONDS
    for track in tracks:
        progress("train")
        if track.run is None:
            track.run = Run(track.settings)
    runs = [track.run for track in tracks if track.run is not None]
    while time.monotonic() < until and (going := [run for run in runs if not run.done]):
        for run in going:
            for _ in run.advance(run.step + _CHUNK):
                progress("train")
    for track in tracks:
        if track.run is not None and track.run.done and track.sample is None and time.monotonic() < until:
            progress("sample")
            track.sample = track.run.sample()

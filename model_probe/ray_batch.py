"""A batch on a Ray cluster that runs already: one checkpoint a worker, and what a worker drops is run by another.

    run_batch(prompts, Path("out"), RayWorkers("auto", Opening("qwen2.5-coder-0.5b"), workers=2))

The workers are sent this package; torch, transformers and the checkpoint have to be where they run: a name or a
hub id is fetched by each node, a path has to exist on each. The traces come back to this process, which alone
writes. Ray is imported here and nowhere else, and only when it is asked for.

Source: https://docs.ray.io/en/latest/ray-core/fault_tolerance/actors.html
"""

from __future__ import annotations

import os
import re
import socket
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from model_probe.batch import OF_A_PROMPT, Opening, Outcome, measured
from model_probe.errors import ProbeError
from model_probe.progress import Progress, silent
from model_probe.trace import CheckpointInfo

TRIES: Final = 3  # workers that may die on one prompt
_DEATHS: Final = 12  # a worker's, with no prompt measured in between, until the batch is given up
_AT_ONCE: Final = 8  # prompts in one call of a worker, at most
_LOOK_SECONDS: Final = 1.0  # how often the driver says that it lives
_ANSWER_SECONDS: Final = 5.0
_REASON_LENGTH: Final = 200
_PLACE: Final = re.compile(r"(?:ray://)?(?P<host>[^/]+):(?P<port>\d{1,5})")


class Worker:
    """What runs on the cluster: opens the checkpoint once and measures what it is given.

    Errors that have a code are returned, not raised: Ray would wrap them.
    """

    def __init__(self, opening: Opening) -> None:
        self.opening = opening
        self.checkpoint: Any = None

    def open(self) -> CheckpointInfo | tuple[str, Mapping[str, object]]:
        """The checkpoint's provenance, or code and facts of why it does not open."""
        try:
            self.checkpoint = self.opening.open()
        except ProbeError as error:
            return error.code, _plain(error)
        return self.checkpoint.info

    def process(self) -> int:
        """The worker's process id on its node."""
        return os.getpid()

    def measure(self, texts: Sequence[str]) -> list[Any]:
        """A trace for each text, or code and facts of what is wrong."""
        results: list[Any] = []
        for text in texts:
            try:
                outcome = measured(self.checkpoint, text, self.opening.max_tokens)
            except ProbeError as error:
                outcome = error
            results.append((outcome.code, _plain(outcome)) if isinstance(outcome, ProbeError) else outcome)
        return results


def _plain(error: ProbeError) -> dict[str, object]:
    return {name: str(value) for name, value in error.fields.items()}


class RayWorkers:
    """A `model_probe.batch.Measurer` on a Ray cluster. Use it in a `with`."""

    def __init__(
        self, address: str, opening: Opening, *, workers: int | None = None, progress: Progress | None = None
    ) -> None:
        """Connects when it is entered.

        Args:
            address: of the cluster, as `ray.init` takes it: `auto`, `host:6379`, `ray://host:10001`.
            workers: how many; without it one for each GPU of the cluster, else one for each node.
        """
        self.wanted = workers
        self.address, self.opening = address, opening
        self.progress = progress or silent
        self.replaced = 0  # workers that died and for which another was started
        self._starting: dict[Any, Any] = {}  # reference to its opening → worker
        self._idle: list[Any] = []
        self._busy: dict[Any, tuple[Any, list[int]]] = {}  # reference to its traces → worker, places
        self._info: CheckpointInfo | None = None
        self._deaths_in_a_row = 0

    @property
    def info(self) -> CheckpointInfo:
        assert self._info is not None  # noqa: S101 - __enter__ waits for it
        return self._info

    @property
    def max_tokens(self) -> int:
        return self.opening.max_tokens

    @property
    def spread(self) -> Mapping[str, str]:
        return self.opening.spread

    def processes(self) -> list[int]:
        """The process ids of the workers that have opened the checkpoint."""
        ready = [*self._idle, *(worker for worker, _ in self._busy.values())]
        return self.ray.get([worker.process.remote() for worker in ready])

    def measure(self, texts: Sequence[str]) -> Iterator[tuple[int, Outcome]]:
        """As a `Measurer`; a prompt on which `TRIES` workers died is given up as `worker_died`."""
        at_once = max(1, min(_AT_ONCE, len(texts) // (4 * self._most)))
        queue = deque(
            list(range(first, min(first + at_once, len(texts)))) for first in range(0, len(texts), at_once)
        )
        deaths: dict[int, int] = {}
        while queue or self._busy:
            while queue and self._idle:
                worker, places = self._idle.pop(), queue.popleft()
                self._busy[worker.measure.remote([texts[place] for place in places])] = worker, places
            for places, results in self._wait():
                if results is not None:
                    yield from (
                        (place, self._outcome(result)) for place, result in zip(places, results, strict=True)
                    )
                    continue
                for place in places:
                    deaths[place] = deaths.get(place, 0) + (len(places) == 1)
                    if deaths[place] >= TRIES:
                        yield place, ProbeError("worker_died", count=deaths[place])
                    else:
                        queue.append([place])  # by itself, so that it is known which one was the last

    def _wait(self) -> list[tuple[list[int], list[Any] | None]]:
        """The calls that have come back since: their places, and their results or None where the worker died."""
        errors = self.ray.exceptions
        waiting = [*self._starting, *self._busy]
        ready, _ = self.ray.wait(waiting, num_returns=1, timeout=_LOOK_SECONDS)
        back: list[tuple[list[int], list[Any] | None]] = []
        for reference in ready:
            worker, places = self._busy.pop(reference, (None, []))
            worker = worker or self._starting.pop(reference)
            try:
                result = self.ray.get(reference)
            except (errors.RayActorError, errors.WorkerCrashedError, errors.NodeDiedError) as error:
                self._replace(str(error))
                result = None
            except errors.RayError as error:
                raise self._failed(error) from None
            else:
                self._idle.append(worker)
            if places:
                self._deaths_in_a_row *= result is None
                back.append((places, result))
            elif result is not None:
                self._opened(result)
        return back

    def _opened(self, info: Any) -> None:
        if not isinstance(info, CheckpointInfo):
            raise _error(info)
        if self._info is None:
            self._info = info
        elif (info.digest, info.dtype) != (self._info.digest, self._info.dtype):
            raise ProbeError(
                "ray_failed", address=self.address, reason="its workers open different checkpoints or dtypes"
            )

    def _outcome(self, result: Any) -> Outcome:
        if not isinstance(result, tuple):
            return result
        error = _error(result)
        if error.code not in OF_A_PROMPT:
            raise error
        return error

    def _replace(self, reason: str) -> None:
        """Start a worker for one that died; when none does anything but die, give up."""
        self._deaths_in_a_row += 1
        if self._deaths_in_a_row > _DEATHS * self._most:
            raise ProbeError("workers_lost", address=self.address, reason=_first_line(reason))
        self.replaced += 1
        self._start()

    def _start(self) -> None:
        worker = self._actor.options(max_restarts=0, max_task_retries=0, **self._resources).remote(
            self.opening
        )
        self._starting[worker.open.remote()] = worker

    def _connect(self) -> None:
        place = _PLACE.fullmatch(self.address)
        try:
            if place is not None:  # Ray would ask a dead address for minutes
                socket.create_connection(
                    (place["host"].strip("[]"), int(place["port"])), _ANSWER_SECONDS
                ).close()
            self.ray.init(
                address=self.address,
                log_to_driver=False,
                logging_level="ERROR",
                runtime_env={"py_modules": [str(Path(__file__).parent)], "excludes": ["data"]},
            )
        except Exception as error:  # noqa: BLE001 - it raises what its transports raise
            raise self._failed(error) from None
        self._actor = self.ray.remote(Worker)

    def _shares(self, workers: int | None) -> tuple[dict[str, float], int]:
        """What a worker takes of the cluster, and how many there are."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        gpus = (
            int(sum(node.get("GPU", 0) for node in nodes)) if self.opening.device in ("auto", "cuda") else 0
        )
        cpus = int(sum(node.get("CPU", 0) for node in nodes))
        if not cpus:
            raise ProbeError("ray_failed", address=self.address, reason="it has no CPU to give")
        count = workers or gpus or len(nodes)
        share = {"num_cpus": float(max(1, cpus // count))}
        return share | ({"num_gpus": gpus / count if count > gpus else 1.0} if gpus else {}), count

    def _failed(self, error: BaseException) -> ProbeError:
        return ProbeError("ray_failed", address=self.address, reason=_first_line(str(error)))

    def __enter__(self) -> RayWorkers:
        """Connect, and open the checkpoint in the first worker; the others go on starting meanwhile.

        Raises:
            ProbeError: `no_ray`, `ray_failed`, `workers_lost`, or whatever opening the checkpoint raises there.
        """
        try:
            import ray
        except ImportError:
            raise ProbeError("no_ray") from None
        self.ray: Any = ray
        self._connect()
        try:
            self._resources, self._most = self._shares(self.wanted)
            for _ in range(self._most):
                self._start()
            while self._info is None:
                self.progress("workers")
                self._wait()
        except BaseException:
            ray.shutdown()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ray.shutdown()  # the workers end with their driver


def _error(result: tuple[str, Mapping[str, object]]) -> ProbeError:
    code, facts = result
    return ProbeError(code, **facts)


def _first_line(text: str) -> str:
    lines = text.strip().splitlines() or [""]
    return lines[0].strip().rstrip(".")[:_REASON_LENGTH] or "it says nothing"

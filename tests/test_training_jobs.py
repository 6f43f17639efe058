"""Training in a thread: stopped without a trace, taken up exactly, in turn with other visitors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as options
from hypothesis import strategies as st

from model_probe.progress import Progress
from model_probe.runs import (
    LAYER_RANGE,
    LEARNING_RATE_RANGE,
    NORMS,
    PLACEMENTS,
    STEP_RANGE,
    TEXTS,
    WARMUP_RANGE,
    WIDTHS,
    RunSettings,
)
from viz import training
from viz.jobs import Job, Turns
from viz.training import Training

SMALL = RunSettings(layers=1, steps=20)
LONG = RunSettings(layers=4, width=128, steps=1000)
PATIENCE = 60


def until(what: Callable[[], object]) -> None:
    """Waits for something that another thread does."""
    give_up = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def at_work() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "rmsnorm-lab-job"}


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = at_work()
    yield
    until(lambda: at_work() <= before)


def losses(lab: Training) -> list[list[float]]:
    return [[step.loss for step in track.shown.steps] for track in lab.tracks]


def trained(*runs: RunSettings) -> Training:
    lab = Training()
    lab.start(runs, Turns())
    assert lab.wait(PATIENCE)
    assert lab.settled()
    assert lab.error is None
    return lab


def test_runs_go_to_their_end_and_write() -> None:
    lab = trained(SMALL, replace(SMALL, norm="none"))
    assert [track.step for track in lab.tracks] == [20, 20]
    assert all(track.over and len(track.sample or "") > 50 for track in lab.tracks)
    assert lab.done == 1.0
    assert lab.left == []
    assert not lab.settled()  # told once


def test_same_seed_same_losses_and_another_seed_others() -> None:
    first = losses(trained(SMALL, replace(SMALL, seed=1)))
    assert first == losses(trained(SMALL, replace(SMALL, seed=1)))
    assert first[0] != first[1]


def test_a_stopped_run_leaves_no_thread_and_goes_on_as_if_nothing_had_been() -> None:
    before = at_work()
    lab, turns = Training(), Turns()
    runs = (replace(SMALL, steps=120), replace(SMALL, steps=120, norm="layer"))
    lab.start(runs, turns)
    until(lambda: lab.tracks[0].step > 5)
    lab.stop()
    assert lab.wait(PATIENCE)
    assert at_work() <= before
    assert lab.settled()
    assert lab.error is None
    made = [track.step for track in lab.tracks]
    assert 0 < made[0] < 120
    assert lab.tracks[0].sample is None
    lab.resume(turns)
    assert lab.wait(PATIENCE)
    assert losses(lab) == losses(trained(*runs))


def test_a_second_visitor_is_told_their_place_and_may_leave_the_queue() -> None:
    turns, first, second, third = Turns(), Training(), Training(), Training()
    first.start([LONG], turns)
    until(lambda: first.tracks[0].step > 1)
    assert first.place is None
    second.start([SMALL], turns)
    until(lambda: second.place == 1)
    third.start([SMALL], turns)
    until(lambda: third.place == 2)
    second.stop()
    assert second.wait(PATIENCE)
    assert second.tracks[0].step == 0
    until(lambda: third.place == 1)
    first.stop()
    assert third.wait(PATIENCE)
    assert third.tracks[0].over


def test_a_long_training_lets_others_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "TURN_SECONDS", 0.2)
    turns, first, second = Turns(), Training(), Training()
    first.start([LONG], turns)
    until(lambda: first.tracks[0].step > 1)
    second.start([SMALL], turns)
    assert second.wait(PATIENCE)
    assert second.tracks[0].over
    assert first.running
    first.stop()
    assert first.wait(PATIENCE)


def test_other_work_of_the_queue_counts_too() -> None:
    """The queue before a training is the one before a measurement."""
    turns, lab, leave = Turns(), Training(), threading.Event()

    def hold(progress: Progress) -> None:
        with turns.take(progress):
            assert leave.wait(PATIENCE)

    other = Job(hold)
    lab.start([SMALL], turns)
    until(lambda: lab.place == 1)
    leave.set()
    assert other.wait(PATIENCE)
    assert lab.wait(PATIENCE)
    assert lab.tracks[0].over


def test_nobody_trains_for_a_visitor_who_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "ABANDONED_SECONDS", 0.3)
    lab, turns = Training(), Turns()
    lab.start([LONG], turns)
    assert lab.wait(PATIENCE)
    assert lab.settled()
    assert lab.error is None
    assert not lab.tracks[0].over
    monkeypatch.setattr(training, "ABANDONED_SECONDS", 300.0)
    step = lab.tracks[0].step
    lab.resume(turns)
    until(lambda: lab.tracks[0].step > step)
    lab.stop()


def test_a_start_while_a_job_is_at_work_is_no_second_job() -> None:
    lab, turns = Training(), Turns()
    lab.start([LONG], turns)
    tracks = lab.tracks
    lab.start([SMALL], turns)
    lab.resume(turns)
    assert lab.tracks is tracks
    assert len(at_work()) == 1
    lab.stop()


def test_a_failure_is_kept_for_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def burst(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(training, "_one_turn", burst)
    lab = Training()
    lab.start([SMALL], Turns())
    assert lab.wait(PATIENCE)
    assert lab.settled()
    assert isinstance(lab.error, MemoryError)


def test_how_far_and_how_long() -> None:
    lab, turns = Training(), Turns()
    assert (lab.done, lab.seconds_left) == (0.0, None)
    lab.start([LONG, LONG], turns)
    until(lambda: all(track.step > 3 for track in lab.tracks))
    assert 0 < lab.done < 1
    assert lab.seconds_left is not None
    assert lab.seconds_left > 0
    lab.stop()
    assert lab.wait(PATIENCE)


EXTREME = st.builds(
    RunSettings,
    norm=st.sampled_from(NORMS),
    placement=st.sampled_from(PLACEMENTS),
    layers=st.sampled_from(LAYER_RANGE),
    width=st.sampled_from((WIDTHS[0], WIDTHS[-1])),
    learning_rate=st.sampled_from(LEARNING_RATE_RANGE),
    warmup=st.sampled_from(WARMUP_RANGE),
    steps=st.sampled_from(STEP_RANGE),
    text=st.sampled_from(TEXTS),
)


@options(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EXTREME)
def test_every_extreme_trains_or_diverges_without_an_error(run: RunSettings) -> None:
    lab, turns = Training(), Turns()
    lab.start([run], turns)
    until(lambda: not lab.running or all(track.step >= 2 for track in lab.tracks))
    lab.stop()
    assert lab.wait(PATIENCE)
    assert lab.settled() or not lab.running
    assert lab.error is None
    assert all(track.step for track in lab.tracks)

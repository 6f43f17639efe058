"""A class before one server: sessions over the WebSocket that read, turn pages, measure prompts and train.

told = classroom(server, expected_of(real_checkpoint))
told.turns, told.wrong, told.errors

What each does is drawn by its number, so that two runs do the same; how long it reads before it goes on, too. A visitor
has no browser: the time of a page turn is the server's, from the request to the last message of the page.
"""

from __future__ import annotations

import html
import math
import random
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from browser.server import Server
from streamlit.proto.WidgetStates_pb2 import WidgetState
from visitor import Client, client

from model_probe import Checkpoint, NormTrace, capture
from model_probe.runs import RunSettings
from model_probe.training import Run
from viz.book import DEFAULT, open_pages
from viz.outcomes import Shown, encode, outcome_table
from viz.probe_controls import norm_choice, norm_codes
from viz.reading import Reading, layer_code, sites_of
from viz.tables import site_table
from viz.text import THIN_SPACE, words

SESSIONS: Final = 30
READS: Final = (10.0, 30.0)  # seconds that a visitor reads between two things
HASTE: Final = (4.0, 12.0)  # the same of a class that leaves the server no rest
TURNS: Final = 5  # pages that each of them turns to
TRAINERS: Final = 3  # of them, who train beside it
TRAINED: Final = RunSettings(layers=1, steps=20)
LONG: Final = RunSettings(layers=16, width=128, steps=1000)  # stopped in the middle
SHARED: Final = "All of the class measures this sentence."
CLOSE: Final = 2e-3  # of a figure of four digits: the last digit, and another order of sums
PATIENCE: Final = 300.0  # seconds for a result

_EN: Final = words("en")
_PAGES: Final = tuple(entry.stem for entry in open_pages())
_FIGURE: Final = re.compile(r'data-figure="([^"]+)">([^<]*)<')
_OUTCOME: Final = re.compile(r'data-figure="run1">([^<]*)<')


@dataclass
class Told:
    """What came of it."""

    turns: list[tuple[str, float]] = field(default_factory=list)  # page, seconds
    results: int = 0  # that were held against what they should be
    wrong: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Expected:
    """What each visitor should get: of a prompt the figures of the layer table, of a training its outcome."""

    figures: Mapping[str, Mapping[str, list[float]]]
    outcomes: Mapping[int, tuple[str, ...]]


def prompt_of(number: int) -> str:
    """The sentence that only this visitor measures; its length tells it from the others'."""
    return f"Visitor {number} counts: " + ", ".join(str(number * k) for k in range(1, 3 + number % 7)) + "."


def expected_of(checkpoint: Checkpoint, sessions: int = SESSIONS) -> Expected:
    """The same prompts and trainings, one after the other, in this process.

    Raises:
        AssertionError: two visitors would see the same, so that one could not be taken for the other.
    """
    prompts = [SHARED, *map(prompt_of, range(sessions))]
    figures = {prompt: _figures_of(capture(checkpoint, prompt)) for prompt in prompts}
    for i, prompt in enumerate(prompts):
        assert not any(_same(figures[prompt], figures[other]) for other in prompts[:i]), prompt
    outcomes = {}
    for number in range(TRAINERS):
        run = Run(_settings(number))
        for _ in run.advance(TRAINED.steps):
            pass
        shown = Shown(run.settings, tuple(run.steps), run.diverged_at)
        outcomes[number] = _outcome(outcome_table([shown], _EN))
    assert len(set(outcomes.values())) == TRAINERS
    return Expected(figures, outcomes)


def warmed(server: Server) -> None:
    """Have the checkpoint opened, a prompt measured and a run trained by one visitor, as a class finds it."""
    with client(server) as visitor:
        _arrive(visitor)
        _press_run(visitor, SHARED)
        visitor.run(f"lang=en&run1={encode(TRAINED)}&run2=off", "train")
        visitor.press("train-run")
        _until(visitor, "train-run")


def page_turns(server: Server, rounds: int = 3) -> list[tuple[str, float]]:
    """Every page's turns by a visitor who is alone: page, seconds."""
    told = Told()
    with client(server) as visitor:
        _arrive(visitor)
        for page in _PAGES * (rounds + 1):
            _turn(visitor, page, told)
    return told.turns[len(_PAGES) :]  # the first round brings what the pages import


def classroom(
    server: Server, expected: Expected, sessions: int = SESSIONS, reads: tuple[float, float] = READS
) -> Told:
    """All of them at once, from coming to leaving."""
    told = Told()

    def visit(number: int) -> None:
        try:
            _visit(server, number, expected, told, reads)
        except Exception as error:  # noqa: BLE001 - whatever a visitor meets is counted
            told.errors.append(f"visitor {number}: {error!r}")

    threads = [threading.Thread(target=visit, args=(number,)) for number in range(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


def _visit(server: Server, number: int, expected: Expected, told: Told, reads: tuple[float, float]) -> None:
    chance = random.Random(number)
    todo = ["turn"] * TURNS + ["own", "shared"] + ["train"] * (number < TRAINERS)
    chance.shuffle(todo)
    with client(server) as visitor:
        time.sleep(chance.uniform(0, reads[1]))
        _arrive(visitor)
        for what in todo:
            time.sleep(chance.uniform(*reads))
            if what == "turn":
                _turn(visitor, chance.choice(_PAGES), told)
            elif what == "train":
                _train(visitor, number, expected, told)
            else:
                _measure(visitor, SHARED if what == "shared" else prompt_of(number), expected, told)
            if visitor.failed or visitor.complaints():
                told.errors.append(f"visitor {number}, {what}: {visitor.complaints()}")


def _arrive(visitor: Client) -> None:
    """Open the first page, and one whose chart goes ahead of the rest: once in a session it waits for a browser's answer
    (viz.painted), which never comes here."""
    visitor.run("lang=en")
    visitor.run("lang=en", "gain")


def _turn(visitor: Client, page: str, told: Told) -> None:
    start = time.perf_counter()
    if page == DEFAULT:  # its address has no name
        visitor.page, page_name = "", ""
    else:
        page_name = page
    visitor.run("lang=en", page_name)
    told.turns.append((page, time.perf_counter() - start))
    if not visitor.has(_EN.t(f"{page}.title")):
        told.errors.append(f"{page} is not the page that was asked for")


def _press_run(visitor: Client, prompt: str) -> None:
    """Type the prompt, press Run, and stay on the page until the result is there."""
    visitor.run("lang=en", "probe")
    box = WidgetState(id=visitor.widgets["probe.text"], string_value=prompt)
    visitor.run("", "", box)
    visitor.press("probe-run", box)


def _measure(visitor: Client, prompt: str, expected: Expected, told: Told) -> None:
    _press_run(visitor, prompt)
    found = _figures(visitor.html())
    told.results += 1
    if not _same(found, expected.figures[prompt]):
        told.wrong.append(f"{prompt}: {found}")


def _train(visitor: Client, number: int, expected: Expected, told: Told) -> None:
    visitor.run(f"lang=en&run1={encode(LONG)}&run2=off", "train")
    visitor.press("train-run")
    if not visitor.shows("train-stop"):
        told.errors.append(f"visitor {number}: the training does not begin")
    time.sleep(HASTE[0])
    visitor.run()
    visitor.press("train-stop")
    _until(visitor, "train-resume")
    visitor.run(f"lang=en&run1={encode(_settings(number))}&run2=off", "train")
    visitor.press("train-run")
    _until(visitor, "train-run")
    told.results += 1
    found = _outcome(visitor.html())
    if found != expected.outcomes[number]:
        told.wrong.append(f"visitor {number}: {found} in place of {expected.outcomes[number]}")


def _until(visitor: Client, key: str) -> None:
    """Look again until the page has this button."""
    give_up = time.monotonic() + PATIENCE
    while not visitor.shows(key):
        if time.monotonic() > give_up:
            raise TimeoutError(key)
        time.sleep(1.0)
        visitor.run()


def _settings(number: int) -> RunSettings:
    return RunSettings(layers=TRAINED.layers, steps=TRAINED.steps, seed=number)


def _figures_of(trace: NormTrace) -> dict[str, list[float]]:
    """What the layer table shows of it when nothing was chosen."""
    site = norm_codes(trace)[norm_choice(trace).default]
    return _figures(
        site_table(trace, sites_of(trace, layer_code(site)), _EN, Reading("median", 0, "counted"))
    )


def _outcome(page: str) -> tuple[str, ...]:
    """The row of the only run in the last table of outcomes."""
    return tuple(_OUTCOME.findall(page)[-4:])


def _figures(page: str) -> dict[str, list[float]]:
    """The lengths in the layer table by what they are of, one a norm."""
    found: dict[str, list[float]] = {}
    for name, shown in _FIGURE.findall(page):
        if name in ("input.l2", "output.l2"):
            found.setdefault(name, []).append(float(html.unescape(shown).replace(THIN_SPACE, "")))
    return found


def _same(first: Mapping[str, list[float]], second: Mapping[str, list[float]]) -> bool:
    return bool(first) and all(
        len(first.get(name, [])) == len(wanted)
        and all(math.isclose(a, b, rel_tol=CLOSE) for a, b in zip(first[name], wanted, strict=True))
        for name, wanted in second.items()
    )

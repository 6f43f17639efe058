"""A hostile visit to a page: what must not be opened, begun twice, grown without end or drawn as markup."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from hostile import HUB_IDS, NASTY, PATHS
from streamlit.testing.v1 import AppTest
from test_trace import make_trace

from model_probe import laboratory, runs
from model_probe.capturing import MAX_TOKENS
from model_probe.catalog import CHECKPOINT_VARIABLE
from model_probe.errors import ProbeError
from model_probe.trace import NormTrace
from model_probe.trace_files import to_json
from viz import compare_controls, measure
from viz.effects import decode as decode_change
from viz.outcomes import decode as decode_run
from viz.release_bench import MAX_CHARS
from viz.text import END_OF_ISOLATE, ISOLATE, inked, words

ROOT = Path(__file__).resolve().parents[2]
MARK = "hostile-visitor"  # in every name that must never be opened
NAMES = [*(f"{path}/{MARK}" for path in PATHS if "\0" not in path), *(f"{name}-{MARK}" for name in HUB_IDS)]

WATCHED = (
    "open",
    "os",
    "socket",
    "subprocess",
    "urllib",
    "shutil",
    "glob",
)  # the first part of an event's name
_touched: list[str] = []  # what this process opens, asks for and connects to
_watching: list[bool] = []  # not empty while a test watches


def _note(event: str, args: tuple[Any, ...]) -> None:
    if _watching and event.partition(".")[0] in WATCHED:
        _touched.append(f"{event} {args!r}")


sys.addaudithook(_note)  # cannot be taken back


@pytest.fixture
def touched() -> Iterator[list[str]]:
    """All that is opened, listed or connected to while the test runs."""
    _touched.clear()
    _watching.append(True)
    yield _touched
    _watching.clear()


@pytest.fixture
def tiny_here(tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The operator offers a tiny checkpoint."""
    folder = tiny_folder("qwen2")
    monkeypatch.setenv(CHECKPOINT_VARIABLE, str(folder))
    return folder


def opened(stem: str, **parameters: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / f"{stem}.py"), default_timeout=60)
    app.query_params["lang"] = "en"
    for name, value in parameters.items():
        app.query_params[name] = value
    return working(app.run())


def working(app: AppTest) -> AppTest:
    assert not app.exception
    return app


def test_the_watch_sees_what_is_opened(touched: list[str], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        (tmp_path / MARK).open()
    assert any(MARK in each for each in touched)


def test_no_path_and_no_hub_id_of_a_visitor_is_opened(tiny_here: Path, touched: list[str]) -> None:
    """In the address, in a menu's place and as a prompt; then Run is pressed."""
    for name in NAMES:
        app = opened("probe", checkpoint=name, prompt=name, norm=name, compare=name, token=name)
        app.session_state["choice.checkpoint"] = name
        app.text_area(key="probe.text").set_value(name).run()
        working(app.button(key="probe-run").click().run())
        (trace,) = measured(app)
        assert trace.prompt == name
        assert trace.checkpoint.name == tiny_here.name
    for stem in ("release", "code", "gain", "train"):
        opened(stem, checkpoint=NAMES[0], layer=NAMES[0], text=NAMES[0], preset=NAMES[0], source=NAMES[0])
    assert not [each for each in touched if MARK in each]
    assert not [
        each for each in touched if each.startswith(("socket.connect", "socket.getaddrinfo", "subprocess"))
    ]


def measured(app: AppTest) -> list[NormTrace]:
    return list(app.session_state["measure.results"].values())


def test_whoever_presses_without_end_has_one_work_of_a_kind(
    tiny_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Disabled or not: a client can press any button that was drawn."""
    bench = measure.Bench()
    monkeypatch.setattr(measure, "_the_bench", bench)
    with bench.turns.take(lambda *_: None):  # somebody is at work
        begun = []
        for stem, key in (("placement", "placement-lab-run"), ("train", "train-run")):
            app = AppTest.from_file(str(ROOT / "pages" / f"{stem}.py"), default_timeout=60)
            app.session_state["predictions"] = Shown()
            working(app.run())
            button = app.button(key=key)
            for _ in range(5):
                working(button.click().run())
            begun.append(app)
        waiting = len(bench.turns) - 1
        assert waiting == 2  # one a kind
        for app in begun:
            for key in ("placement-lab-stop", "train-stop"):
                if key in [each.key for each in app.button]:
                    app.button(key=key).click().run()


def test_one_visitor_has_two_things_at_once(tiny_here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On whatever pages: a third is refused in a sentence until one of them has ended."""
    bench = measure.Bench()
    monkeypatch.setattr(measure, "_the_bench", bench)
    held: list[object] = []  # what one session keeps from page to page

    def begun(stem: str, key: str) -> AppTest:
        app = AppTest.from_file(str(ROOT / "pages" / f"{stem}.py"), default_timeout=60)
        app.session_state["predictions"] = Shown()
        app.session_state["admission.held"] = list(held)
        working(working(app.run()).button(key=key).click().run())
        held[:] = app.session_state["admission.held"]
        return app

    with bench.turns.take(lambda *_: None):  # somebody is at work
        lab, trained = begun("placement", "placement-lab-run"), begun("train", "train-run")
        time.sleep(0.5)
        assert len(bench.turns) == 3
        for stem, key in (("probe", "probe-run"), ("code", "code.run"), ("release", "release-bench-run")):
            refused = begun(stem, key)
            assert [box.value for box in refused.error] == [words("en").t("errors.own_work", n=2)], stem
        assert len(bench.turns) == 3
        lab.button(key="placement-lab-stop").click().run()
        wait_until(lambda: len(bench.turns) == 2)
        other = begun("placement", "placement-lab-run")
        assert not other.error
        for app, key in ((other, "placement-lab-stop"), (trained, "train-stop")):
            app.button(key=key).click().run()


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.05)


class Shown(dict):
    """Every question's answer: to be shown."""

    def get(self, key: object, default: object = None) -> object:
        from viz.predict import Prediction

        return Prediction(None)


def test_a_full_queue_is_a_sentence(tiny_here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMSNORM_LAB_QUEUE", "1")
    bench = measure.Bench()
    monkeypatch.setattr(measure, "_the_bench", bench)
    with bench.turns.take(lambda *_: None):
        app = working(opened("probe").button(key="probe-run").click().run())
        assert app.error[0].value == words("en").t("errors.queue_full", n=1)
        assert len(bench.turns) == 1


def test_emptying_streamlits_caches_loads_no_second_model(
    tiny_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any browser can have Streamlit's caches emptied, for all visitors."""
    import model_probe

    loads: list[object] = []
    real = model_probe.open_checkpoint

    def counted(*args: Any, **kwargs: Any) -> Any:
        loads.append(args)
        return real(*args, **kwargs)

    monkeypatch.setattr(model_probe, "open_checkpoint", counted, raising=False)
    app = opened("probe")
    for prompt in ("alpha", "beta"):
        st.cache_resource.clear()
        st.cache_data.clear()
        app.text_area(key="probe.text").set_value(prompt).run()
        working(app.button(key="probe-run").click().run())
    assert len(measured(app)) == 2
    assert len(loads) == 1


BEYOND = [0, -1, 10**9, 2**63, float("nan"), float("inf"), "6", None, True, [6]]


@pytest.mark.parametrize("value", BEYOND, ids=repr)
@pytest.mark.parametrize("name", ["hidden_size", "layers", "seeds"])
def test_no_stack_is_larger_than_it_may_be(name: str, value: Any) -> None:
    try:
        settings = laboratory.LabSettings(**{name: value})
    except (ProbeError, TypeError, ValueError):
        return
    assert settings.hidden_size**2 * settings.layers <= laboratory.SIZE_LIMIT
    assert settings.seeds <= laboratory.MOST_SEEDS


@pytest.mark.parametrize("value", BEYOND, ids=repr)
@pytest.mark.parametrize("name", ["layers", "width", "steps", "warmup", "seed", "learning_rate"])
def test_no_training_is_longer_than_it_may_be(name: str, value: Any) -> None:
    try:
        settings = runs.RunSettings(**{name: value})
    except (TypeError, ValueError):
        return
    assert settings.layers <= runs.LAYER_RANGE[1]
    assert settings.steps <= runs.STEP_RANGE[1]
    assert settings.width <= max(runs.WIDTHS)


def test_codes_of_an_address_keep_within_the_limits() -> None:
    digits = "9" * 5000
    for steps in (digits, "1001", "-5", "0", "300.5", "nan"):
        run = decode_run(f"rms_pre_6_32_0.001_0_{steps}_0_en")
        assert run is None or run.steps <= runs.STEP_RANGE[1]
    for layers in (digits, "33", "-1"):
        run = decode_run(f"rms_pre_{layers}_32_0.001_0_300_0_en")
        assert run is None or run.layers <= runs.LAYER_RANGE[1]
    for code in (f"unit_gain~~0-{digits}~", "unit_gain~~0-512~", "unit_gain~~9-3~", "output_scale~nan~~"):
        assert decode_change(code) is None


def test_a_bench_sent_past_its_limits_runs_within_them(tiny_here: Path) -> None:
    """Layers that the checkpoint has not, factors beyond float32, and a prompt as long as a message may be."""
    app = opened("release", change1="output_scale~1e+300~0-511~", change2="residual_scale~-1e+30~~")
    app.text_area(key="release.prompt").set_value("a" * 900_000).run()
    app.button(key="release-bench-run").click()
    give_up = time.monotonic() + 120
    while not (app.error or "release.bench" in app.session_state):
        assert time.monotonic() < give_up
        working(app.run())
    if "release.bench" in app.session_state:
        assert len(app.session_state["release.bench"].prompt) <= MAX_CHARS
        assert len(app.session_state["release.bench"].tokens) <= MAX_TOKENS


@pytest.mark.parametrize(
    "what", ["script", "bidi override", "right to left", "ANSI", "plotly template", "markup 1"]
)
def test_a_saved_trace_that_means_harm_is_drawn_letter_for_letter(
    what: str, tiny_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its names, its prompt and its tokens; a file that is no trace: test_trace_hostile.py."""
    text = NASTY[what]
    trace = make_trace()
    harmful = replace(
        trace,
        prompt=text,
        tokens=tuple(replace(token, text=text) for token in trace.tokens),
        checkpoint=replace(trace.checkpoint, name=text, source=text, device=text),
    )
    file = compare_controls.opened(to_json(harmful).encode(), f"{text}.json")
    assert file.trace is not None
    app = AppTest.from_file(str(ROOT / "pages" / "probe.py"), default_timeout=60)
    app.query_params.update({"lang": "en", "compare": "file", "map": "second"})
    app.session_state["compare.opened"] = file
    working(app.run())
    drawn = [e.value for e in (*app.markdown, *app.caption, *app.info)]
    drawn += [e.proto.body for e in app.get("html")] + [
        json.dumps(json.loads(e.proto.spec), ensure_ascii=False) for e in app.get("plotly_chart")
    ]
    everything = "\n".join(drawn)
    for harm in ("<script", "<img", "%{x} %{customdata}", "$\\frac"):
        assert not re.search(rf"(?<!\\){re.escape(harm)}", everything), harm
    for mark in ("\u202e", "\x1b"):
        assert mark not in everything
    for option in (option for box in app.selectbox for option in box.options):
        seen = option.replace(ISOLATE, "").replace(END_OF_ISOLATE, "")
        assert inked(seen) == seen

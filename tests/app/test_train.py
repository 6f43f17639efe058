"""The page `train` in both languages: recorded runs after a prediction, then runs of the reader's own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from streamlit.testing.v1 import AppTest

from model_probe.runs import (
    LAYER_RANGE,
    NORMS,
    PLACEMENTS,
    PRESETS,
    SEED_RANGE,
    STEP_RANGE,
    TEXTS,
    WARMUP_RANGE,
    WIDTHS,
    RunSettings,
    load_recorded,
)
from viz import measure
from viz.outcomes import Shown, decode, encode, finding, names, nats
from viz.text import LANGUAGES, plain, words
from viz.training import MOST_RUNS, Training
from viz.training_controls import OFF, RATES

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
PRESET = pytest.mark.parametrize("preset", PRESETS)
ANSWERS = {"norms": "same", "depth": "pre", "no_norm": "small"}
QUICK = encode(RunSettings(layers=1, steps=10))
SLOW = encode(RunSettings(layers=4, width=128, steps=1000))
PATIENCE = 60


@pytest.fixture(autouse=True)
def nobody_trains() -> Iterator[None]:
    """No training is left behind."""
    yield
    give_up = time.monotonic() + PATIENCE
    while any(thread.name == "rmsnorm-lab-job" for thread in threading.enumerate()):
        assert time.monotonic() < give_up
        time.sleep(0.01)


def opened(lang: str = "en", **address: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / "train.py"), default_timeout=60)
    app.query_params["lang"] = lang
    for name, value in address.items():
        app.query_params[name] = value
    return working(app.run())


def working(app: AppTest) -> AppTest:
    assert not app.exception
    assert not app.error
    return app


def press(app: AppTest, key: str) -> AppTest:
    return working(app.button(key=key).click().run())


def has(app: AppTest, key: str) -> bool:
    return key in [button.key for button in app.button]


def said(app: AppTest) -> str:
    return plain("\n".join(element.value for element in (*app.markdown, *app.caption, *app.header)))


def charts(app: AppTest) -> dict[str, dict]:
    return {
        element.proto.id.rsplit("-train-", 1)[-1]: json.loads(element.proto.spec)
        for element in app.get("plotly_chart")
    }


def title(figure: dict) -> str:
    return figure["layout"]["meta"]["title"]


def drawn(figure: dict) -> list[bool]:
    """Whether each run has a loss curve."""
    return [bool(t["x"]) for t in figure["data"] if t["yaxis"] == "y" and t["mode"] == "lines"]


def lab(app: AppTest) -> Training:
    return app.session_state["train.training"]


def until(what: Callable[[], object]) -> None:
    give_up = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def at_its_end(app: AppTest) -> AppTest:
    assert lab(app).wait(PATIENCE)
    return working(app.run())


def address(app: AppTest) -> dict[str, str]:
    return {name: value[0] if isinstance(value, list) else value for name, value in app.query_params.items()}


# recorded


@LANGUAGE
@PRESET
def test_it_opens_with_a_question_and_hides_what_answers_it(lang: str, preset: str) -> None:
    app, text = opened(lang, preset=preset), words(lang)
    assert app.title[0].value == text.t("train.title")
    figure = charts(app)[preset]
    assert title(figure) == text.t("train.veiled")
    assert any(drawn(figure))
    assert not all(drawn(figure))
    results = load_recorded(preset, text=lang)
    assert results[0].recorded_at[:4] in said(app)
    assert results[0].torch in said(app)
    assert finding([Shown.of(r) for r in results], text) not in json.dumps(figure, ensure_ascii=False)
    assert len(app.code) == 1  # the link of the footer: no sample is shown yet


@LANGUAGE
@PRESET
def test_an_answer_is_shown_beside_what_was_recorded(lang: str, preset: str) -> None:
    text, results = words(lang), load_recorded(preset, text=lang)
    truth = text.t(f"train.{preset}.guess.{ANSWERS[preset]}")
    for code in (ANSWERS[preset], "neither" if preset != "norms" else "rms"):
        app = press(opened(lang, preset=preset), f"train.{preset}.{code}")
        verdict = "right" if code == ANSWERS[preset] else "other"
        guess = text.t(f"train.{preset}.guess.{code}")
        assert text.t(f"train.verdict.{verdict}", truth=truth, guess=guess) in said(app)
    figure = charts(app)[preset]
    assert all(drawn(figure))
    assert title(figure) == finding([Shown.of(r) for r in results], text)
    for result in results:
        assert nats(result.final_loss) in said(app) + "".join(e.proto.body for e in app.get("html"))
    assert [code.value for code in app.code][:-1] == [r.sample for r in results if r.sample]


@PRESET
@pytest.mark.parametrize("text", TEXTS)
def test_the_recorded_text_is_chosen(preset: str, text: str) -> None:
    app = press(opened("en", preset=preset, text=text), f"train.{preset}.show")
    assert [code.value for code in app.code][:-1] == [
        r.sample for r in load_recorded(preset, text=text) if r.sample
    ]


def test_the_start_page_and_placement_lead_here() -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.query_params["lang"] = "en"
    app.run()
    (markup,) = [
        json.loads(element.proto.json)["markup"]
        for element in app.get("bidi_component")
        if element.proto.component_name == "rmsnorm_lab_drawing"
    ]
    assert 'href="train?lang=en"' in markup
    app.switch_page("pages/placement.py").run()
    links = [(link.proto.label, link.proto.page) for link in app.get("page_link")]
    assert (words("en").t("placement.link.train"), "train") in links


# the controls


@LANGUAGE
def test_own_runs_are_with_and_without_a_norm_on_the_text_of_the_language(lang: str) -> None:
    app = opened(lang)
    assert address(app) == {"lang": lang}
    assert has(app, "train-run")
    assert not has(app, "train-stop")
    own = [RunSettings(text=lang), RunSettings(norm="none", text=lang)]
    options = app.segmented_control(key="train.edited").options
    assert options == [
        words(lang).t("train.numbered", n=i, name=n) for i, n in enumerate(names(own, words(lang)), 1)
    ]


def test_a_link_holds_the_runs_and_changes_go_into_it() -> None:
    runs = [
        RunSettings(placement="post", layers=24, learning_rate=0.002),
        RunSettings(seed=7),
        RunSettings(text="zh"),
    ]
    app = opened(**{f"run{i}": encode(run) for i, run in enumerate(runs, 1)})
    assert len(app.segmented_control(key="train.edited").options) == 3
    assert app.slider(key="train.field.layers").value == 24
    assert app.select_slider(key="train.field.learning_rate").value == 0.002
    app.segmented_control(key="train.edited").set_value(2).run()
    assert app.number_input(key="train.field.seed").value == 7
    working(app.slider(key="train.field.steps").set_value(50).run())
    assert decode(address(app)["run2"]) == RunSettings(seed=7, steps=50)
    assert decode(address(app)["run1"]) == runs[0]
    press(app, "train-add")
    assert decode(address(app)["run4"]) == RunSettings(seed=7, steps=50)
    assert app.button(key="train-add").disabled
    app.segmented_control(key="train.edited").set_value(1).run()
    press(app, "train-remove")
    assert decode(address(app)["run2"]) == RunSettings(text="zh")
    for _ in range(2):
        press(app, "train-remove")
    assert app.button(key="train-remove").disabled
    assert address(app)["run2"] == OFF
    app.query_params["run2"] = encode(RunSettings(norm="layer"))  # what the browser sends after Back
    app.run()
    assert len(app.segmented_control(key="train.edited").options) == 2


@pytest.mark.parametrize("code", ["<script>", "rms_pre_99_32_9_0_0_-4_en", "off", "_________", "é" * 300])
def test_a_link_that_was_tampered_with_opens_the_page(code: str) -> None:
    app = opened(run1=code, run2=code, run3=code, preset=code, text=code)
    assert 1 <= len(app.segmented_control(key="train.edited").options) <= MOST_RUNS


ENDS: dict[str, tuple[object, object]] = {
    "norm": (NORMS[0], NORMS[-1]),
    "placement": (PLACEMENTS[0], PLACEMENTS[-1]),
    "text": (TEXTS[0], TEXTS[-1]),
    "layers": LAYER_RANGE,
    "width": (WIDTHS[0], WIDTHS[-1]),
    "learning_rate": (RATES[0], RATES[-1]),
    "warmup": WARMUP_RANGE,
    "steps": STEP_RANGE,
    "seed": SEED_RANGE,
}
WIDGETS = {
    "layers": "slider", "warmup": "slider", "steps": "slider", "learning_rate": "select_slider", "seed": "number_input"
}  # fmt: skip


@settings(max_examples=5, deadline=None)
@given(some.fixed_dictionaries({name: some.sampled_from(ends) for name, ends in ENDS.items()}))
def test_every_control_goes_to_its_ends(ends: dict[str, object]) -> None:
    app = opened()
    for name, end in ends.items():
        if name == "placement" and ends["norm"] == "none":
            continue  # switched off
        widget = getattr(app, WIDGETS.get(name, "segmented_control"))(key=f"train.field.{name}")
        working(widget.set_value(end).run())
    chosen = decode(address(app).get("run1", encode(RunSettings())))
    assert chosen is not None
    for name, end in ends.items():
        if name != "placement" or ends["norm"] != "none":
            assert getattr(chosen, name) == end


# at work


@LANGUAGE
def test_runs_are_trained_and_shown(lang: str) -> None:
    app, text = (
        opened(lang, run1=QUICK, run2=encode(RunSettings(norm="none", layers=1, steps=10))),
        words(lang),
    )
    press(app, "train-run")
    at_its_end(app)
    figure = charts(app)["own"]
    shown = [track.shown for track in lab(app).tracks]
    assert title(figure) == finding(shown, text)
    assert drawn(figure) == [True, True]
    assert figure["data"][0]["y"] == [step.loss for step in shown[0].steps]
    assert [code.value for code in app.code][:-1] == [track.sample for track in lab(app).tracks]
    assert has(app, "train-run")
    assert not has(app, "train-resume")


@LANGUAGE
def test_stop_and_go_on(lang: str) -> None:
    app, text = opened(lang, run1=SLOW, run2=OFF), words(lang)
    press(app, "train-run")
    until(lambda: lab(app).tracks[0].step > 3)
    working(app.run())
    assert has(app, "train-stop")
    assert not has(app, "train-run")
    assert app.button(key="train-take").disabled
    made = len(charts(app)["own"]["data"][0]["x"])
    assert 0 < made <= 1000
    press(app, "train-stop")
    at_its_end(app)
    step = lab(app).tracks[0].step
    assert text.t("train.stopped", made=step, steps=1000) in said(app)
    press(app, "train-resume")
    until(lambda: lab(app).tracks[0].step > step)
    press(working(app.run()), "train-stop")
    at_its_end(app)


def test_a_second_visitor_is_told_their_place() -> None:
    first, second = opened("en", run1=SLOW, run2=OFF), opened("zh", run1=SLOW, run2=OFF)
    press(first, "train-run")
    until(lambda: lab(first).tracks[0].step > 1)
    press(second, "train-run")
    until(lambda: lab(second).place == 1)
    working(second.run())
    assert words("zh").t("train.queue", n=1) in said(second)
    working(first.run())
    assert words("en").t("train.queue", n=1) not in said(first)
    press(second, "train-stop")
    at_its_end(second)
    assert lab(second).tracks[0].step == 0
    press(first, "train-stop")
    at_its_end(first)


def test_the_queue_is_the_one_of_the_measurements() -> None:
    assert measure.turns() is measure.turns()


@PRESET
def test_recorded_runs_are_taken_over(preset: str) -> None:
    app = opened("en", preset=preset)
    press(app, "train-take")
    assert [track.settings for track in lab(app).tracks] == list(PRESETS[preset].runs)
    lab(app).stop()
    at_its_end(app)
    assert decode(address(app)["run1"]) == PRESETS[preset].runs[0]


@LANGUAGE
def test_what_nobody_expected_is_a_sentence(lang: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from viz import training

    def burst(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(training, "_one_turn", burst)
    app = opened(lang, run1=QUICK)
    app.button(key="train-run").click().run()
    assert lab(app).wait(PATIENCE)
    app.run()
    assert not app.exception
    assert app.error[0].value == words(lang).t("errors.unexpected")
    assert "secret" not in said(app)


def test_opening_the_page_imports_no_torch() -> None:
    script = (
        "import sys; from streamlit.testing.v1 import AppTest; "
        "app = AppTest.from_file('pages/train.py', default_timeout=60).run(); assert not app.exception; "
        "app.button(key='train.norms.show').click().run(); assert not app.exception; "
        "app.segmented_control(key='choice.preset').set_value('depth').run(); assert not app.exception; "
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stderr

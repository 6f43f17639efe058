"""The laboratory on the page `placement`: measured on demand, in the queue, stopped, whatever its controls say."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies
from streamlit.testing.v1 import AppTest

from model_probe.errors import ProbeError
from model_probe.laboratory import LAB_SERIES, LAYERS, STACK_PLACEMENTS, LabResult, LabSettings, LabStack
from model_probe.profiles import INITIALISATIONS, Provenance
from viz import laboratory, measure
from viz.laboratory import CHOICES, scale_free
from viz.text import LANGUAGES, number, words

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
STATE = "demand.placement.lab"
SMALL = {"width": "64", "layers": "4", "seeds": "2"}


def opened(lang: str = "en", **address: str) -> AppTest:
    """The page with its two questions answered."""
    app = AppTest.from_file(str(ROOT / "pages" / "placement.py"), default_timeout=60)
    app.query_params["lang"] = lang
    for name, value in address.items():
        app.query_params[name] = value
    app.run()
    app.button(key="placement.deeper.show").click().run()
    return working(app.button(key="placement.scale_free.show").click().run())


def working(app: AppTest) -> AppTest:
    assert not app.exception
    return app


def job(app: AppTest):
    return app.session_state[STATE].job


def ended(app: AppTest) -> AppTest:
    """The page when the work is over."""
    if job(app) is not None:
        assert job(app).wait(60)
    return working(app.run())


def ran(app: AppTest) -> AppTest:
    return ended(app.button(key="placement-lab-run").click().run())


def said(app: AppTest) -> str:
    every = (*app.markdown, *app.caption, *app.info, *app.warning, *app.error)
    tables = [element.proto.body for element in app.get("html") if "lab-table" in element.proto.body]
    return "\n".join([*(element.value for element in every), *tables]).replace("\\", "")


def figure_of(app: AppTest) -> list[str]:
    return [element.proto.id for element in app.get("plotly_chart")]


@LANGUAGE
def test_it_measures_what_the_controls_say_and_shows_the_band(lang: str) -> None:
    app = opened(lang, **SMALL)
    assert words(lang).t("placement.lab.empty") in said(app)
    assert not figure_of(app)
    ran(app)
    assert len(figure_of(app)) == 1
    result = app.session_state["lab.results"][LabSettings(64, 4, seeds=2)]
    text = said(app)
    for start in INITIALISATIONS:
        for placement in STACK_PLACEMENTS:
            stack = result.stack(start, placement)
            assert number(stack.mean("weight_gradient")[-1]) in text
    truth = words(lang).t(f"placement.scale_free.guess.{scale_free(result)}")
    assert truth in text
    assert scale_free(result) == "sandwich_norm"
    for start in INITIALISATIONS:  # that the picture depends on the initial weights is said with its numbers
        assert number(result.stack(start, "pre_norm").first_over_last("weight_gradient")) in text


def test_other_settings_are_told_from_what_is_shown_and_come_back() -> None:
    app = ran(opened(**SMALL))
    app.session_state["choice.norm"] = "layer_norm"
    app.run()
    assert "measured on another stack" in said(working(app))
    app.session_state["choice.norm"] = "rms_norm"
    assert "measured on another stack" not in said(working(app.run()))


def test_too_much_is_a_sentence_and_cannot_be_run() -> None:
    app = opened(width="512", layers="96")
    assert app.button(key="placement-lab-run").disabled
    assert words("en").t("errors.stack_too_large", layers=96, hidden_size=512, most=24) in said(app)


def test_one_visitor_waits_for_another_and_is_told_the_place() -> None:
    app = opened(**SMALL)
    begun, go_on = threading.Event(), threading.Event()

    def other() -> None:
        with measure.turns().take(lambda *_: None):
            begun.set()
            go_on.wait(60)

    before = threading.Thread(target=other)
    before.start()
    try:
        assert begun.wait(10)
        app.button(key="placement-lab-run").click().run()
        while job(app).told.stage != "queue":
            job(app).wait(0.01)
        place = words("en").t("progress.queue", detail="1")
        assert place in str([element.proto for element in working(app.run()).get("progress")])
        app.button(key="placement-lab-stop").click().run()
        assert ended(app).info[-1].value == words("en").t("common.stopped")  # though the other still works
        assert app.button(key="placement-lab-run")
    finally:
        go_on.set()
        before.join()


def test_a_stop_shows_the_seeds_that_are_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    partly = made(LabSettings(64, 4, seeds=2), seeds=1)
    monkeypatch.setattr(laboratory, "measure", lambda *_, **__: partly)
    app = ran(opened(**SMALL))
    assert words("en").t("placement.lab.stopped", n=1, asked=2) in said(app)


@pytest.mark.parametrize(
    ("error", "label"),
    [(MemoryError(), "errors.out_of_memory"), (RuntimeError("?"), "errors.unexpected")],
)
def test_a_failure_is_a_sentence(monkeypatch: pytest.MonkeyPatch, error: Exception, label: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(laboratory, "measure", fail)
    assert words("en").t(label) in said(ran(opened(**SMALL)))


def made(asked: LabSettings, seeds: int = 1, value: float = 1.0) -> LabResult:
    """A result of these settings without measuring."""
    figures = np.full((seeds, len(LAB_SERIES), asked.layers), value)
    stacks = tuple(LabStack(s, p, figures) for s in INITIALISATIONS for p in STACK_PLACEMENTS)
    return LabResult(asked, Provenance("2", "float32", "cpu", "2026-01-01T00:00:00+00:00"), seeds, stacks)


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, 1e300, 5e-324])
def test_what_is_not_finite_or_not_positive_is_counted_and_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    monkeypatch.setattr(laboratory, "measure", lambda asked, **_: made(asked, value=value))
    app = ran(opened(**SMALL))
    assert len(figure_of(app)) == 1
    if not np.isfinite(value) or value == 0:
        name = words("en").t("placement.lab.placement.pre_norm")
        assert words("en").t("placement.lab.not_drawn", name=name, n=4) in said(app)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    ends=strategies.fixed_dictionaries(
        {choice.name: strategies.sampled_from((choice.codes[0], choice.codes[-1])) for choice in CHOICES}
    ),
    lang=strategies.sampled_from(LANGUAGES),
)
def test_the_ends_of_every_control_leave_no_traceback(ends: dict[str, str], lang: str) -> None:
    """Measured for real where the stack is small; the refusal is a sentence where it is too large."""
    app = opened(lang, **ends)
    if app.button(key="placement-lab-run").disabled:
        with pytest.raises(ProbeError):
            LabSettings(int(ends["width"]), int(ends["layers"]))
        return
    if (ends["width"], ends["layers"]) == (CHOICES[3].codes[0], str(LAYERS[0])):
        assert len(figure_of(ran(app))) == 1


@pytest.mark.parametrize("value", ["", "0", "9" * 40, "<b>", "-1", "NaN", "zh"])
def test_an_address_with_nonsense_opens_on_the_defaults(value: str) -> None:
    app = opened(**{choice.name: value for choice in CHOICES})
    assert not app.button(key="placement-lab-run").disabled

"""The first page in both languages: the question before the reveal, and numbers that are the recording's."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from model_probe.recording import load_recording
from viz.text import LANGUAGES, number, words

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)


def opened(lang: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    app.query_params["lang"] = lang
    return app.run()


def measured_factor() -> float:
    """By what factor the median token grows, straight from the recorded arrays."""
    sites = load_recording().traces["fox"].depth()
    return float(np.median(sites[-1].input.l2) / np.median(sites[0].input.l2))


def said(app: AppTest) -> str:
    """All the prose of the page."""
    assert not app.exception
    return "\n".join(element.value for element in (*app.markdown, *app.caption, *app.header))


def figure(app: AppTest) -> dict[str, object]:
    return json.loads(app.get("plotly_chart")[0].proto.spec)


def lines(app: AppTest) -> list[str]:
    return [trace["name"] for trace in figure(app)["data"]]  # type: ignore[index, attr-defined]


def press(app: AppTest, code: str) -> AppTest:
    return app.button(key=f"start.growth.{code}").click().run()


@LANGUAGE
def test_the_page_opens_with_its_question_open(lang: str) -> None:
    app, text = opened(lang), words(lang)
    assert app.title[0].value == text.t("start.title")
    assert lines(app) == [text.t("common.series.normalized")]
    everything = said(app) + json.dumps(figure(app), ensure_ascii=False)
    assert number(measured_factor()) not in everything  # nothing gives the answer away
    assert all(not button.disabled for button in app.button)


@LANGUAGE
@pytest.mark.parametrize("code", ["1", "10", "100", "1000"])
def test_an_answer_is_shown_beside_the_measured_one(lang: str, code: str) -> None:
    app, text = press(opened(lang), code), words(lang)
    factor = measured_factor()
    nearest = min((1, 10, 100, 1000), key=lambda guess: abs(math.log(guess / factor)))
    verdict = text.t(
        "start.growth.right" if code == str(nearest) else "start.growth.other",
        guess=text.t(f"start.growth.guess.{code}"),
        factor=number(factor),
        nearest=text.t(f"start.growth.guess.{nearest}"),
    )
    assert verdict in said(app)
    assert lines(app) == [text.t(f"common.series.{line}") for line in ("residual", "normalized", "output")]


@LANGUAGE
def test_whoever_only_looks_sees_everything_in_one_click(lang: str) -> None:
    app, text = press(opened(lang), "show"), words(lang)
    assert text.t("start.growth.shown", factor=number(measured_factor())) in said(app)
    assert len(lines(app)) == 3


def test_an_answer_is_given_once_and_kept_with_the_session_and_its_language() -> None:
    app = press(opened("en"), "10")
    assert all(button.disabled for button in app.button if button.key.startswith("start.growth"))
    app.query_params["lang"] = "zh"
    app.run()
    assert words("zh").t("start.growth.guess.10") in said(app)


def test_answers_outlive_a_change_of_page() -> None:
    """Fault 24."""
    app = press(opened("en"), "1000")
    app.switch_page("pages/probe.py").run()
    assert app.title[0].value == words("en").t("probe.title")
    app.switch_page("pages/start.py").run()
    assert words("en").t("start.growth.guess.1000") in said(app)
    assert len(lines(app)) == 3


@LANGUAGE
def test_the_prose_takes_its_numbers_from_the_recording(lang: str) -> None:
    trace = load_recording().traces["fox"]
    sites = trace.depth()
    text = said(press(opened(lang), "show"))
    assert number(float(np.median(sites[0].input.l2))) in text
    assert number(float(np.median(sites[-1].input.l2))) in text
    assert number(max(float(site.input.l2[0]) for site in sites)) in text  # the sink
    assert str(len(sites)) in text


@LANGUAGE
def test_the_picture_says_where_its_numbers_come_from(lang: str) -> None:
    info = load_recording().checkpoint
    caption = "\n".join(element.value for element in opened(lang).caption).replace("\\", "")
    assert info.name in caption
    assert info.source.rsplit("/", 1)[-1] in caption
    assert info.dtype in caption
    assert info.device in caption
    assert info.recorded_at[:4] in caption


def test_a_page_that_is_started_without_the_router_still_opens() -> None:
    app = AppTest.from_file(str(ROOT / "pages" / "start.py"), default_timeout=30).run()
    assert not app.exception
    assert app.title[0].value == words("en").t("start.title")


def test_no_torch_is_imported() -> None:
    script = (
        "import sys; from streamlit.testing.v1 import AppTest; app = AppTest.from_file('app.py').run(); "
        "assert not app.exception; app.button(key='start.growth.show').click().run(); "
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stderr

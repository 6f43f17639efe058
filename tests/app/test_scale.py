"""The page `scale` in both languages: its slider, the question before the answer, numbers from what was computed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from model_probe.properties import respond
from model_probe.recording import load_recording
from model_probe.scaling import common_shift, scaled
from viz.sources import NUMBERS
from viz.text import LANGUAGES, number, words

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
CODES = ("rms_norm", "layer_norm", "both", "neither")


def opened(lang: str, **address: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.query_params["lang"] = lang
    app.run().switch_page("pages/scale.py")
    for name, value in address.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def told(app: AppTest) -> dict[str, Any]:
    """What the slider's component was given."""
    assert not app.exception
    (proto,) = [e.proto for e in app.get("bidi_component") if e.proto.component_name == "rmsnorm_lab_live"]
    return json.loads(proto.json)


def prose(app: AppTest) -> str:
    return "\n".join(element.value for element in (*app.markdown, *app.caption))


def figures(app: AppTest) -> list[dict[str, Any]]:
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def traces(app: AppTest) -> list[str]:
    """The types of what the figure of the two norms holds."""
    return [trace["type"] for trace in figures(app)[0]["data"]]


@LANGUAGE
def test_it_opens_at_times_one_with_its_question_open(lang: str) -> None:
    app, text = opened(lang), words(lang)
    assert app.title[0].value == text.t("scale.title")
    assert told(app)["stop"] == "1"
    assert told(app)["label"] == text.t("scale.slider")
    assert text.t("scale.change.question") in prose(app)
    assert traces(app) == ["scatter", "scatter"]  # the output before, and no bar of the output after
    assert not app.get("button_group")
    assert dict(app.query_params) in ({"lang": [lang]}, {"lang": lang})


@pytest.mark.parametrize(
    ("factor", "code"), [("0.001", "0.001"), ("0.00101", "0.001"), ("1e9", "10"), ("<b>", "1")]
)
def test_a_link_opens_it_at_a_factor(factor: str, code: str) -> None:
    assert told(opened("en", factor=factor))["stop"] == code


@LANGUAGE
@pytest.mark.parametrize("code", CODES)
def test_an_answer_is_shown_beside_the_result(lang: str, code: str) -> None:
    app, text = opened(lang), words(lang)
    app.button(key=f"scale.change.{code}").click().run()
    outcome = "right" if code == "layer_norm" else "other"
    assert text.t(f"scale.change.{outcome}", guess=text.t(f"scale.change.guess.{code}")) in prose(app)
    assert traces(app) == ["bar", "scatter"] * 2


@LANGUAGE
@pytest.mark.parametrize("change", ["times_7", "plus_5", "replace_others", "permute_others"])
def test_every_change_shows_what_it_does(lang: str, change: str) -> None:
    app, text = opened(lang, change=change), words(lang)
    app.button(key="scale.change.show").click().run()
    name = text.t(f"scale.change.name.{change}")
    title = figures(app)[0]["layout"]["meta"]["title"]
    assert name.replace(" ", "") in title.replace(" ", "")
    table = "".join(element.proto.body for element in app.get("html"))
    for norm in ("rms_norm", "layer_norm"):
        assert number(respond(change, norm).largest_change, 2) in table


def test_the_change_is_chosen_by_the_control_and_kept_in_the_address() -> None:
    app = opened("en")
    app.button(key="scale.change.show").click().run()
    app.session_state["choice.change"] = "times_7"
    app.run()
    assert dict(app.query_params)["change"] in ("times_7", ["times_7"])
    assert words("en").t("scale.change.name.times_7") in json.dumps(figures(app)[0], ensure_ascii=False)


@LANGUAGE
def test_the_prose_takes_its_numbers_from_what_was_computed(lang: str) -> None:
    app = opened(lang)
    app.button(key="scale.change.show").click().run()
    text, trace = prose(app), load_recording().traces["fox"]
    for rms in (0.02, 0.001, 0.0001):
        assert f"{scaled(rms).percent:.1f} %" in text
    first = trace.depth()[0]
    assert number(float(np.median(first.normalized_l2)), 4) in text
    assert number(float(np.sqrt(first.size)), 4) in text
    shifts = [common_shift(each) for each in load_recording().traces.values()]
    assert number(max(float(np.median(shift)) for shift in shifts), 2) in text
    assert number(max(float(shift.max()) for shift in shifts), 2) in text
    for cited in ("llama2_perplexity_eps_1e_6", "llama2_perplexity_eps_1e_5"):
        assert number(NUMBERS[cited].value, NUMBERS[cited].digits) in text


@LANGUAGE
def test_measured_pictures_say_where_their_numbers_come_from(lang: str) -> None:
    captions = [caption.value.replace("\\", "") for caption in opened(lang).caption]
    info = load_recording().checkpoint
    assert sum(info.name in caption and info.recorded_at[:4] in caption for caption in captions) == 2
    assert words(lang).t("scale.illustration") in captions


def test_no_torch_is_imported() -> None:
    script = (
        "import sys; from streamlit.testing.v1 import AppTest; app = AppTest.from_file('app.py', default_timeout=60).run(); "
        "app.switch_page('pages/scale.py').run(); assert not app.exception and app.title; "
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stderr

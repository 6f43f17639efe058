"""The page `saturation` in both languages: its slider, its address, its prose from computed numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from model_probe.illustrations import attention_at, most_responsive_l2, zone_limits
from viz.live.saturation import saturation_slider
from viz.text import LANGUAGES, number, words

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
CHOICE = saturation_slider(words("en")).choice


def opened(lang: str, **address: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    app.query_params["lang"] = lang
    app.run().switch_page("pages/saturation.py")
    for name, value in address.items():
        app.query_params[name] = value
    return app.run()


def told(app: AppTest) -> dict[str, Any]:
    """What the slider's component was given."""
    assert not app.exception
    (proto,) = [e.proto for e in app.get("bidi_component") if e.proto.component_name == "rmsnorm_lab_live"]
    return json.loads(proto.json)


def address(app: AppTest) -> dict[str, str]:
    return {name: value[0] if isinstance(value, list) else value for name, value in app.query_params.items()}


@LANGUAGE
def test_it_opens_at_times_one(lang: str) -> None:
    app = opened(lang)
    assert app.title[0].value == words(lang).t("saturation.title")
    assert told(app)["stop"] == "32"
    assert told(app)["label"] == words(lang).t("saturation.slider")
    assert address(app) == {"lang": lang}


@LANGUAGE
def test_nothing_tells_the_answer_before_it_is_given(lang: str) -> None:
    app, text = opened(lang), words(lang)
    most = number(attention_at(most_responsive_l2()).jacobian)
    assert list(told(app)["still"]["curves"]) == ["entropy"]
    assert most not in "\n".join(element.value for element in app.markdown)
    assert text.t("saturation.heading.large") not in [element.value for element in app.header]
    app.button(key="saturation.response.show").click().run()
    assert list(told(app)["still"]["curves"]) == ["entropy", "jacobian"]
    assert text.t("saturation.heading.large") in [element.value for element in app.header]


@pytest.mark.parametrize(
    ("l2", "code"), [("192", "192"), ("1", "1"), ("190", "192"), ("9999", "512"), ("<b>", "32")]
)
def test_a_link_opens_it_at_a_length(l2: str, code: str) -> None:
    assert told(opened("en", l2=l2))["stop"] == code


def test_what_the_reader_lets_go_of_goes_into_the_address_and_back_takes_it_out() -> None:
    app = opened("en")
    app.session_state[CHOICE.key] = "192"
    assert told(app.run())["stop"] == "192"
    assert address(app) == {"lang": "en", "l2": "192"}
    app.session_state[CHOICE.key] = "32"
    assert told(app.run())["stop"] == "32"
    assert address(app) == {"lang": "en"}
    app.query_params["l2"] = "192"  # what the browser sends after Back
    assert told(app.run())["stop"] == "192"


@LANGUAGE
def test_the_prose_takes_its_numbers_from_the_illustration(lang: str) -> None:
    app = opened(lang)
    app.button(key="saturation.response.show").click().run()
    prose = "\n".join(element.value for element in app.markdown)
    assert number(attention_at(32.0).jacobian) in prose
    assert number(attention_at(most_responsive_l2()).jacobian) in prose
    assert number(attention_at(192.0).jacobian) in prose
    for limit in zone_limits():
        assert number(limit) in prose


@LANGUAGE
@pytest.mark.parametrize("code", ["falls", "hump", "rises", "show"])
def test_an_answer_is_shown_beside_the_computed_one(lang: str, code: str) -> None:
    app, text = opened(lang), words(lang)
    app.button(key=f"saturation.response.{code}").click().run()
    said = "\n".join(element.value for element in app.markdown)
    verdict = {"hump": "right", "show": "shown"}.get(code, "other")
    values = {} if code == "show" else {"guess": text.t(f"saturation.response.guess.{code}")}
    assert text.t(f"saturation.response.{verdict}", **values) in said


@LANGUAGE
def test_it_says_that_it_is_an_illustration(lang: str) -> None:
    scores = "1.6, 1.2, 0.9, 0.7, 0.4, 0.0"
    assert opened(lang).caption[-3].value == words(lang).t("saturation.illustration", scores=scores)


def test_no_torch_is_imported() -> None:
    script = (
        "import sys; from streamlit.testing.v1 import AppTest; app = AppTest.from_file('app.py').run(); "
        "app.switch_page('pages/saturation.py').run(); assert not app.exception; "
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stderr

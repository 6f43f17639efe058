"""The page `placement` in both languages: the question before the curves, and numbers that are the profiles'."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from model_probe.profiles import INITIALISATIONS, PLACEMENTS, SERIES, load_profiles
from viz.live.depth import VEILED, DepthView, depth_slider
from viz.text import LANGUAGES, number, words

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
CHOICE = depth_slider(words("en"), DepthView()).choice
FEW, MANY = 6, 24


def opened(lang: str, **address: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    app.query_params["lang"] = lang
    app.run().switch_page("pages/placement.py")
    for name, value in address.items():
        app.query_params[name] = value
    return app.run()


def answered(app: AppTest, code: str = "show") -> AppTest:
    return app.button(key=f"placement.deeper.{code}").click().run()


def given(app: AppTest, component: str) -> list[dict[str, Any]]:
    """What the components of this kind were given."""
    assert not app.exception
    protos = [element.proto for element in app.get("bidi_component")]
    return [json.loads(proto.json) for proto in protos if proto.component_name == component]


def told(app: AppTest) -> dict[str, Any]:
    (slider,) = given(app, "rmsnorm_lab_live")
    return slider


def drawn(app: AppTest) -> list[str]:
    return [curve["role"] for curve in told(app)["still"]["curves"] if curve["shown"]]


def said(app: AppTest) -> str:
    assert not app.exception
    return "\n".join(element.value for element in (*app.markdown, *app.caption, *app.header))


def address(app: AppTest) -> dict[str, str]:
    return {name: value[0] if isinstance(value, list) else value for name, value in app.query_params.items()}


def last(placement: str, depth: int, start: str = "xavier") -> float:
    return float(load_profiles().stack(start, placement, depth).weight_gradient[-1])


@LANGUAGE
def test_it_opens_with_its_question_open(lang: str) -> None:
    app = opened(lang)
    assert app.title[0].value == words(lang).t("placement.title")
    assert drawn(app) == list(VEILED)
    everything = said(app) + json.dumps(told(app), ensure_ascii=False)
    for placement in ("pre_norm", "post_norm"):  # nothing gives the answer away
        assert number(last(placement, MANY)) not in said(app)
        assert not any(what.startswith(placement) for what in told(app)["readouts"])
    assert words(lang).t("placement.heading.vanish") not in everything
    assert address(app) == {"lang": lang}


@LANGUAGE
@pytest.mark.parametrize("code", ["pre", "post", "both", "neither", "show"])
def test_an_answer_is_shown_beside_the_measured_one(lang: str, code: str) -> None:
    app, text = answered(opened(lang), code), words(lang)
    truth = text.t("placement.deeper.guess.pre")
    verdict = {"pre": "right", "show": "shown"}.get(code, "other")
    values = {} if code == "show" else {"guess": text.t(f"placement.deeper.guess.{code}")}
    assert text.t(f"placement.deeper.{verdict}", truth=truth, **values) in said(app)
    assert drawn(app) == list(PLACEMENTS)


def test_the_right_answer_is_what_was_measured_at_every_initialisation() -> None:
    """And what the prose says of all three: pre-norm's last gradient falls with every depth, post-norm's never."""
    depths = load_profiles().depths
    for start in INITIALISATIONS:
        pre = [last("pre_norm", depth, start) for depth in depths]
        post = [last("post_norm", depth, start) for depth in depths]
        assert all(deeper < shallower for shallower, deeper in itertools.pairwise(pre))
        assert post[-1] > post[0]
        assert last("post_norm", MANY, start) > last("post_norm", FEW, start)
    assert last("no_norm", depths[-1], "fan_in") > last("no_norm", depths[-1], "xavier")  # it explodes sooner


@LANGUAGE
def test_the_prose_takes_its_numbers_from_the_profiles(lang: str) -> None:
    text = said(answered(opened(lang)))
    for placement in ("pre_norm", "post_norm"):
        for depth in (FEW, MANY):
            assert number(last(placement, depth)) in text
    profiles = load_profiles()
    most = profiles.depths[-1]
    assert number(last("no_norm", most, "fixed")) in text
    assert number(float(profiles.stack("xavier", "pre_norm", most).activation[-1])) in text
    ratio = profiles.stack("xavier", "post_norm", MANY).first_over_last("weight_gradient")
    assert number(ratio, 2) in text


def test_the_question_speaks_of_depths_that_were_measured() -> None:
    assert {FEW, MANY} <= set(load_profiles().depths)
    for lang in LANGUAGES:
        spoken_of = re.findall(r"\d+", words(lang).t("placement.deeper.question"))
        assert spoken_of == [str(FEW), str(MANY)]


@pytest.mark.parametrize(
    ("depth", "code"), [("24", "24"), ("25", "24"), ("999", "48"), ("1", "2"), ("<b>", "6")]
)
def test_a_link_opens_it_at_a_depth(depth: str, code: str) -> None:
    assert told(opened("en", depth=depth))["stop"] == code


def test_what_the_reader_lets_go_of_goes_into_the_address_and_back_takes_it_out() -> None:
    app = opened("en")
    app.session_state[CHOICE.key] = "24"
    assert told(app.run())["stop"] == "24"
    assert address(app) == {"lang": "en", "depth": "24"}
    app.session_state[CHOICE.key] = "6"
    app.run()
    assert address(app) == {"lang": "en"}
    app.query_params["depth"] = "48"  # what the browser sends after Back
    assert told(app.run())["stop"] == "48"


@LANGUAGE
@pytest.mark.parametrize("series", SERIES)
@pytest.mark.parametrize("start", INITIALISATIONS)
def test_a_shared_link_shows_these_profiles(lang: str, series: str, start: str) -> None:
    app = answered(opened(lang, series=series, init=start, depth="24"))
    given_now = told(app)
    at = given_now["codes"].index("24")
    for curve, placement in zip(given_now["frames"][at], PLACEMENTS, strict=True):
        expected = load_profiles().stack(start, placement, 24).series(series)
        assert curve == pytest.approx(list(expected), rel=1e-3)
        assert given_now["readouts"][f"{placement}.last"][at] == number(float(expected[-1]))
    assert words(lang).t(f"placement.axis.{series}") in given_now["still"]["words"]["y"]
    assert address(app).get("series", SERIES[0]) == series


def test_a_picture_is_chosen_by_the_reader() -> None:
    app = answered(opened("en"))
    app.session_state["choice.series"] = "activation"
    app.run()
    assert address(app) == {"lang": "en", "series": "activation"}
    assert told(app)["still"]["words"]["y"] == words("en").t("placement.axis.activation")


@LANGUAGE
def test_both_drawings_are_there_with_their_description(lang: str) -> None:
    markups = [drawing["markup"] for drawing in given(opened(lang), "rmsnorm_lab_drawing")]
    assert len(markups) == 2
    for markup, placement in zip(markups, ("post_norm", "pre_norm"), strict=True):
        assert words(lang).t(f"drawings.{placement}.description") in markup


@LANGUAGE
def test_the_picture_says_what_was_measured_and_when(lang: str) -> None:
    made = load_profiles().provenance
    (caption,) = [c.value for c in opened(lang).caption if made.recorded_at[:4] in c.value]
    plain = caption.replace("\\", "")
    for fact in (made.torch, made.dtype, made.device, str(load_profiles().settings.seeds)):
        assert fact in plain


def test_answers_outlive_a_change_of_page() -> None:
    app = answered(opened("en"), "both")
    app.switch_page("pages/start.py").run()
    app.switch_page("pages/placement.py").run()
    assert words("en").t("placement.deeper.guess.both") in said(app)
    assert drawn(app) == list(PLACEMENTS)


def test_no_torch_is_imported() -> None:
    script = (
        "import sys; from streamlit.testing.v1 import AppTest; app = AppTest.from_file('app.py').run(); "
        "app.switch_page('pages/placement.py').run(); assert not app.exception; "
        "app.button(key='placement.deeper.show').click().run(); assert not app.exception; "
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stderr

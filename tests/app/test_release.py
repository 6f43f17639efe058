"""The page `release` in both languages: a question before each result, numbers that are the recording's, a live run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from model_probe.catalog import CHECKPOINT_VARIABLE
from model_probe.experiments import EXPERIMENTS, LOGIT_FACTORS, load_recorded
from viz.effects import truth
from viz.release import case_choice
from viz.release_bench import CHANGES, OFF
from viz.text import LANGUAGES, number, words

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
EXPERIMENT = pytest.mark.parametrize("experiment", EXPERIMENTS)
RECORDED = load_recorded()


def opened(lang: str, **address: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.query_params["lang"] = lang
    app.run().switch_page("pages/release.py")
    for name, value in address.items():
        app.query_params[name] = value
    return working(app.run())


def working(app: AppTest) -> AppTest:
    assert not app.exception
    return app


def answered(app: AppTest, experiment: str, code: str = "show") -> AppTest:
    return working(app.button(key=f"release.{experiment}.{code}").click().run())


def said(app: AppTest) -> str:
    every = (*app.markdown, *app.caption, *app.header, *app.info, *app.warning, *app.error)
    tables = [element.proto.body for element in app.get("html") if "lab-t" in element.proto.body]
    return "\n".join([*(element.value for element in every), *tables]).replace("\\", "")


def charts(app: AppTest) -> int:
    return len(app.get("plotly_chart"))


def address(app: AppTest) -> dict[str, str]:
    return {
        name: values if isinstance(values, str) else values[0] for name, values in app.query_params.items()
    }


@LANGUAGE
@EXPERIMENT
def test_a_question_stands_before_each_result(lang: str, experiment: str) -> None:
    app = opened(lang, experiment=experiment)
    assert charts(app) == 0
    assert words(lang).t("common.after_answer") in said(app)
    text = said(answered(app, experiment))
    assert charts(app) >= 1
    right = truth(experiment, RECORDED)
    assert words(lang).t(f"release.{experiment}.guess.{right}") in text
    assert charts(app) == (3 if experiment == "sharpness" else 1)


@EXPERIMENT
def test_every_answer_is_marked(experiment: str) -> None:
    lang = LANGUAGES[EXPERIMENTS.index(experiment) % len(LANGUAGES)]
    reader = words(lang)
    codes = [
        label.rsplit(".", 1)[-1]
        for label in reader.templates()
        if label.startswith(f"release.{experiment}.option.")
    ]
    assert len(codes) >= 3
    right = truth(experiment, RECORDED)
    assert right in codes
    for code in codes:
        guess = reader.t(f"release.{experiment}.guess.{code}")
        kind = "right" if code == right else "other"
        verdict = reader.t(
            f"release.verdict.{kind}", guess=guess, truth=reader.t(f"release.{experiment}.guess.{right}")
        )
        assert verdict in said(answered(opened(lang, experiment=experiment), experiment, code))


@EXPERIMENT
def test_every_case_of_an_experiment_shows_its_own_numbers(experiment: str) -> None:
    choice = case_choice(experiment, RECORDED.checkpoint.num_layers)
    app = answered(opened("en", experiment=experiment), experiment)
    for code in (choice.codes[0], choice.codes[-1]):
        app.query_params[choice.name] = code
        text = said(working(app.run()))
        case = f"attention_input.{code}" if experiment == "one_brake" else code
        outcome = RECORDED.by_case[experiment][case]
        assert f'data-figure="perplexity">{number(outcome.perplexity)}<' in text
        assert f'data-figure="kl">{number(outcome.mean_kl)}<' in text


def test_the_control_goes_into_the_address_and_the_default_stays_out() -> None:
    app = answered(opened("en", experiment="sharpness"), "sharpness")
    assert address(app) == {"lang": "en", "experiment": "sharpness"}
    app.session_state["choice.k"] = "x16"
    assert address(working(app.run()))["k"] == "x16"
    app.session_state["choice.k"] = "x4"
    assert "k" not in address(working(app.run()))


def test_the_next_experiment_is_one_press_away() -> None:
    app = answered(opened("en"), "invariance")
    working(app.button(key="release-next").click().run())
    assert address(app)["experiment"] == "sharpness"


def test_an_address_that_names_nothing_opens_the_default() -> None:
    app = opened("en", experiment="<b>", k="x99", head="999", change1="rm -rf", change2="output_scale~nan~~")
    assert app.session_state["choice.experiment"] == "invariance"
    assert app.session_state[CHANGES[0].key] == CHANGES[0].default
    assert app.session_state[CHANGES[1].key] == OFF


def test_no_torch_until_something_is_run() -> None:
    code = f"""
import sys
from streamlit.testing.v1 import AppTest
app = AppTest.from_file({str(ROOT / "app.py")!r}, default_timeout=60)
app.query_params["lang"] = "en"
app.run().switch_page("pages/release.py").run()
for experiment in {EXPERIMENTS!r}:
    app.query_params["experiment"] = experiment
    app.run()
    app.button(key=f"release.{{experiment}}.show").click().run()
    assert not app.exception
assert "torch" not in sys.modules and "transformers" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120, capture_output=True)


def finished(app: AppTest, name: str) -> AppTest:
    job = app.session_state[f"demand.release.{name}"].job
    assert job is None or job.wait(120)
    return working(app.run())


def test_an_experiment_runs_live_on_the_checkpoint_that_is_here(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHECKPOINT_VARIABLE, str(tiny_folder("qwen2")))
    app = answered(opened("en", experiment="sharpness"), "sharpness")
    working(app.button(key="release-live-run").click().run())
    text = said(finished(app, "live"))
    measured = app.session_state["release.live"]["sharpness"]
    assert set(measured.by_code) == {f"x{k:g}" for k in LOGIT_FACTORS}
    assert f'data-figure="perplexity">{number(measured.by_code["x4"].perplexity)}<' in text
    assert "Measured here on" in text
    app.query_params["source"] = "recording"
    recorded = RECORDED.by_case["sharpness"]["x4"].perplexity
    assert f'data-figure="perplexity">{number(recorded)}<' in said(working(app.run()))


@LANGUAGE
def test_the_bench_composes_changes_and_runs_them(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, lang: str
) -> None:
    monkeypatch.setenv(CHECKPOINT_VARIABLE, str(tiny_folder("qwen2")))
    app = opened(lang, change1="value_scale~2~~", change2="output_scale~4~0-0~mlp_input")
    app.text_area(key="release.prompt").set_value("<b>two</b> $x$ tokens").run()
    working(app.button(key="release-bench-run").click().run())
    text = said(finished(app, "bench"))
    result = app.session_state["release.bench"]
    assert [each.kind for each in result.changed.interventions] == ["value_scale", "output_scale"]
    assert result.changed.interventions[1].layers == (0,)
    assert f'data-figure="perplexity">{number(result.changed.perplexity)}<' in text
    assert "<b>two" not in "".join(element.proto.body for element in app.get("html"))
    for view in ("positions", "map", "depth"):
        app.query_params["view"] = view
        assert charts(working(app.run())) == (2 if view == "map" else 1)


def test_what_cannot_be_done_is_a_sentence(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHECKPOINT_VARIABLE, str(tiny_folder("qwen3")))
    app = opened("en", change1="bias_scale~2~~")
    working(app.button(key="release-bench-run").click().run())
    finished(app, "bench")
    assert app.error
    assert "Something went wrong" not in app.error[0].value


def test_changes_are_added_edited_and_taken_away() -> None:
    app = opened("en")
    working(app.button(key="release-add").click().run())
    assert app.session_state[CHANGES[1].key] == CHANGES[0].default
    working(app.selectbox(key="release.field.kind.en").set_value("value_scale").run())
    assert app.session_state[CHANGES[1].key] == "value_scale~2~6-6~"
    assert address(app)["change2"] == "value_scale~2~6-6~"
    working(app.button(key="release-remove").click().run())
    assert app.session_state[CHANGES[1].key] == OFF


@LANGUAGE
def test_saturation_shows_the_measured_curve_beside_the_illustration(lang: str) -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.query_params["lang"] = lang
    app.run().switch_page("pages/saturation.py").run()
    assert charts(working(app)) == 0
    working(app.button(key="saturation.response.show").click().run())
    assert charts(app) == 1
    assert words(lang).t("release.beside.heading") in said(app)

"""The probe in both languages: opens on the recording, measures a typed prompt live, survives every fault."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest
from term_html import without_notes

from model_probe import errors
from model_probe.catalog import CHECKPOINT_VARIABLE
from model_probe.errors import ProbeError
from model_probe.presets import PRESETS
from model_probe.progress import STAGES, Progress
from model_probe.recording import load_recording
from model_probe.trace import NormTrace
from viz import measure, probe_controls
from viz.figures.base import visible
from viz.jobs import Job, Turns
from viz.probe_controls import MAX_CHARS
from viz.text import LANGUAGES, number, words

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
CHARTS = ("probe-depth", "probe-tokens", "probe-heatmap", "probe-published")


@pytest.fixture
def tiny_here(tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The operator offers a tiny checkpoint."""
    folder = tiny_folder("qwen2")
    monkeypatch.setenv(CHECKPOINT_VARIABLE, str(folder))
    return folder


def opened(lang: str = "en", **choices: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / "probe.py"), default_timeout=60)
    app.query_params["lang"] = lang
    for name, code in choices.items():
        app.query_params[name] = code
    return working(app.run())


def look_at(app: AppTest, norm: str) -> None:
    """Let the slider over the norms go at one of them."""
    app.session_state["choice.norm"] = norm
    working(app.run())


def working(app: AppTest) -> AppTest:
    assert not app.exception
    return app


def charts(app: AppTest) -> dict[str, dict]:
    """The page's figures by key."""
    drawn = {element.proto.id.rsplit("-probe-", 1)[-1]: element.proto for element in app.get("plotly_chart")}
    return {f"probe-{name}": json.loads(proto.spec) for name, proto in drawn.items()}


def title(figure: dict) -> str:
    return figure["layout"]["meta"]["title"]


def notices(app: AppTest) -> str:
    return "\n".join(element.value for element in (*app.info, *app.warning, *app.error))


def captions(app: AppTest) -> str:
    return "\n".join(element.value for element in app.caption).replace("\\", "")


def tables(app: AppTest) -> str:
    return "\n".join(element.proto.body for element in app.get("html") if "lab-table" in element.proto.body)


def address(app: AppTest, name: str) -> str:
    """A choice as the address holds it; AppTest gives what it was told as text and what the app wrote as a list."""
    value = app.query_params[name]
    return value if isinstance(value, str) else value[-1]


def results(app: AppTest) -> dict[str, NormTrace]:
    """What the session has measured, by prompt."""
    return {prompt: trace for (_, prompt), trace in app.session_state["measure.results"].items()}


def run_button(app: AppTest):
    return app.button(key="probe-run")


def token_menu(app: AppTest):
    """The menu of tokens, each prompt's a widget of its own."""
    return next(menu for menu in app.selectbox if menu.key.startswith("choice.token."))


def type_prompt(app: AppTest, text: str) -> AppTest:
    return working(app.text_area(key="probe.text").set_value(text).run())


def measure_prompt(app: AppTest, text: str) -> AppTest:
    return working(run_button(type_prompt(app, text)).click().run())


# on the recording


@LANGUAGE
def test_the_page_opens_on_the_recording(lang: str, empty_caches: Path) -> None:
    app, text = opened(lang), words(lang)
    assert app.title[0].value == text.t("probe.title")
    assert set(charts(app)) == set(CHARTS)
    info = load_recording().checkpoint
    assert captions(app).count(info.recorded_at[:4]) >= 4
    assert text.t("checkpoints.fetch", size=text.t("checkpoints.megabytes", n=491)) in [
        b.label for b in app.button
    ]
    sites = load_recording().traces["fox"].depth()
    residual = charts(app)["probe-depth"]["data"][0]
    assert residual["name"] == text.t("common.series.residual")
    prose = "\n".join(m.value for m in app.markdown)
    for site in (sites[0], sites[-1]):
        assert number(float(np.median(site.input.l2))) in prose


@LANGUAGE
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_shows_its_recording(lang: str, preset: str) -> None:
    app = opened(lang, prompt=preset)
    assert app.text_area(key="probe.text").value == PRESETS[preset]
    assert len(token_menu(app).options) == len(load_recording().traces[preset].tokens)
    assert not run_button(app).disabled  # a run would measure it here, live
    assert words(lang).t("probe.not_measured", run=words(lang).t("probe.run")) not in notices(app)


@LANGUAGE
def test_an_address_opens_in_its_state_and_every_choice_is_a_code(lang: str) -> None:
    state = {
        "prompt": "river", "norm": "22.post_attention_layernorm", "lines": "residual-sink",
        "axis": "linear", "statistic": "mean", "sinks": "left_out", "token": "3", "series": "output",
    }  # fmt: skip
    app = opened(lang, **state)
    assert {name: address(app, name) for name in state} == state
    depth, bars = charts(app)["probe-depth"], charts(app)["probe-tokens"]
    text = words(lang)
    assert depth["layout"]["yaxis"]["type"] == "linear"
    assert [d["name"] for d in depth["data"]] == [
        text.t("common.series.residual"),
        text.t("common.series.sink"),
    ]
    assert text.t("common.statistic.mean") in depth["layout"]["yaxis"]["title"]["text"]
    assert "model.layers.22.post_attention_layernorm" in tables(app).replace("<wbr>", "")
    assert "22" in title(bars)
    assert app.code[0].value.count("prompt=river") == 1
    assert f"lang={lang}" in app.code[0].value


def test_the_tokens_to_choose_from_are_those_of_the_prompt_shown() -> None:
    app = opened(token="1")
    keys = set()
    for preset in ("fox", "river", "fox"):
        app.pills(key="choice.prompt").set_value(preset).run()
        tokens = load_recording().traces[preset].tokens
        assert token_menu(app).options[1].endswith(visible(tokens[1].text))
        assert token_menu(app).value == "1"
        keys.add(token_menu(app).key)
    assert len(keys) == 2  # a widget that stayed would keep the label it had in the browser


def test_an_unknown_code_in_the_address_is_the_default() -> None:
    app = opened(norm="99", prompt="<script>", statistic="maximum", token="-1", lines="all")
    assert app.text_area(key="probe.text").value == PRESETS["fox"]
    assert set(charts(app)) == set(CHARTS)


def test_controls_change_the_pictures_and_the_address() -> None:
    app = opened()
    app.segmented_control(key="choice.axis").set_value("linear").run()
    assert charts(app)["probe-depth"]["layout"]["yaxis"]["type"] == "linear"
    assert address(app, "axis") == "linear"
    app.segmented_control(key="choice.statistic").set_value("token").run()
    token_menu(app).set_value("2").run()
    assert "position 2" in title(charts(app)["probe-depth"])
    app.pills(key="choice.lines.several").set_value(["output"]).run()
    assert [d["name"] for d in charts(app)["probe-depth"]["data"]] == ["output"]
    assert address(app, "lines") == "output"
    app.pills(key="choice.lines.several").set_value([]).run()
    assert charts(app)["probe-depth"]["data"] == []
    app.toggle(key="choice.sinks.switch").set_value(True).run()
    assert address(app, "sinks") == "left_out"
    look_at(app, "final.norm")
    assert "model.norm" in tables(app).replace("<wbr>", "")
    working(app)


def test_a_change_that_does_not_concern_a_chart_leaves_it_as_it_was() -> None:
    """Fault 26."""
    app = opened()
    before = charts(app)
    app.segmented_control(key="choice.statistic").set_value("mean").run()
    after = charts(app)
    assert before["probe-depth"] != after["probe-depth"]
    assert before["probe-tokens"] == after["probe-tokens"]  # bars and map show every token for itself
    assert before["probe-heatmap"] == after["probe-heatmap"]


def test_equal_charts_do_not_collide() -> None:
    """Fault 25: layers with equal data, as a prompt of equal tokens gives, are shown all the same."""
    app = opened(norm="0")
    for layer in ("1", "2", "1"):
        look_at(app, f"{layer}.input_layernorm")
    ids = [element.proto.id for element in app.get("plotly_chart")]
    assert len(set(ids)) == len(ids) == len(CHARTS)


@LANGUAGE
def test_the_exercise_reveals_after_the_prediction(lang: str) -> None:
    app, text = opened(lang), words(lang)
    assert "76.5" not in tables(app)
    app.button(key="probe.stays.residual").click().run()
    assert text.t("probe.stays.other") in "\n".join(m.value for m in app.markdown)
    assert "76.5" in tables(app)
    assert "29.88" in tables(app)


def test_a_click_in_the_map_chooses_layer_norm_and_token(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = load_recording().traces["fox"]

    class Chosen:
        class selection:
            points = ({"x": 7.0, "y": 21.0},)

    state: dict[str, object] = {probe_controls.HEATMAP: Chosen}
    monkeypatch.setattr(probe_controls.st, "session_state", state)
    probe_controls.take_click(trace)
    assert state["choice.norm"] == "10.post_attention_layernorm"
    assert state["choice.token"] == "7"


# live


@LANGUAGE
def test_a_typed_prompt_is_measured_live(lang: str, tiny_here: Path) -> None:
    app, text = opened(lang), words(lang)
    prompt = "RMSNorm 归一化 🙂"
    type_prompt(app, prompt)
    assert text.t("probe.not_measured", run=text.t("probe.run")) in notices(app)
    assert not run_button(app).disabled
    working(run_button(app).click().run())
    assert prompt in captions(app)
    assert tiny_here.name in captions(app)
    assert notices(app) == ""
    assert run_button(app).disabled  # nothing has changed since
    assert address(app, "prompt") == "own"
    assert prompt not in app.code[0].value  # a typed prompt never goes into a link
    trace = results(app)[prompt]
    depth = charts(app)["probe-depth"]["data"][0]
    want = [float(np.median(site.input.l2)) for site in trace.depth()]
    got = depth["y"] if isinstance(depth["y"], list) else np.frombuffer(_decoded(depth["y"]["bdata"]), "f8")
    np.testing.assert_allclose(got, want, rtol=1e-6)


def _decoded(data: str) -> bytes:
    import base64

    return base64.b64decode(data)


@LANGUAGE
def test_run_sleeps_until_something_changes(lang: str, tiny_here: Path) -> None:
    app = working(run_button(opened(lang)).click().run())
    assert run_button(app).disabled
    working(app.segmented_control(key="choice.axis").set_value("linear").run())
    assert run_button(app).disabled
    type_prompt(app, "another")
    assert not run_button(app).disabled
    type_prompt(app, PRESETS["fox"])
    assert app.pills(key="choice.prompt").value == "fox"
    assert run_button(app).disabled  # measured already, and shown


@LANGUAGE
def test_nothing_to_run_gets_a_friendly_line_and_blanks_run(lang: str, tiny_here: Path) -> None:
    """Fault 16."""
    app = type_prompt(opened(lang), "")
    assert words(lang).t("errors.empty_prompt") in notices(app)
    assert run_button(app).disabled
    assert set(charts(app)) == set(CHARTS)
    for blank in (" ", "\n", "  \t"):
        measure_prompt(app, blank)
        assert notices(app) == ""
        assert results(app)[blank].tokens


@pytest.mark.parametrize("lang", ["en"])
def test_hostile_prompts_are_shown_letter_for_letter(lang: str, tiny_here: Path) -> None:
    """Fault 20."""
    prompt = "<b>x</b><img src=x onerror=alert(1)>$\\frac12$ [a](javascript:alert(1)) ` | :red[x]"
    app = measure_prompt(opened(lang), prompt)
    assert "<b>x" not in tables(app)
    for element in (*app.markdown, *app.caption, *app.info):
        own = ("<br>", "`hidden_states[-1]`")  # of the page's prose
        shown = without_notes(element.value)
        for mark in own:
            shown = shown.replace(mark, "")
        assert not re.search(r"(?<!\\)(<|\$|`|\[a\])", shown)
    drawn = "".join(element.proto.spec for element in app.get("plotly_chart"))
    assert "<img" not in drawn
    assert "$" not in drawn.replace("\\u0024", "$")


def test_a_typed_control_token_is_marked(tiny_here: Path) -> None:
    """Fault 18."""
    app = measure_prompt(opened(), "a<|im_end|>b")
    assert words("en").t("probe.control_tokens") in notices(app)
    assert any("⟦<|im_end|>⟧" in option for option in token_menu(app).options)


def test_a_prompt_over_the_limits_is_cut_with_a_notice(tiny_here: Path) -> None:
    """Fault 19."""
    app = measure_prompt(opened(), "a " * (MAX_CHARS // 2) + "and more")
    shown = notices(app)
    assert words("en").t("probe.cut_characters", n=MAX_CHARS) in shown
    (trace,) = results(app).values()
    assert len(trace.tokens) == 2048
    assert words("en").t("probe.cut_tokens", kept=2048, n=trace.tokens_cut) in shown
    assert set(charts(app)) == set(CHARTS)


@LANGUAGE
def test_without_a_checkpoint_run_says_so_and_offers_one(lang: str, empty_caches: Path) -> None:
    app = working(run_button(opened(lang)).click().run())
    assert app.error[0].value == words(lang).t("errors.no_checkpoint")
    assert app.button(key="fetch-qwen2.5-coder-0.5b")
    assert set(charts(app)) == set(CHARTS)
    working(app.segmented_control(key="choice.axis").set_value("linear").run())


@LANGUAGE
def test_a_failed_fetch_is_a_sentence(lang: str, empty_caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, progress: Progress) -> Path:
        progress("unreachable", detail="http://127.0.0.1:9 refused")
        raise ProbeError("fetch_failed", name=name, reasons="<b>all</b> dead.")

    monkeypatch.setattr(measure, "_fetch", refuse)
    app = working(opened(lang).button(key="fetch-qwen2.5-coder-0.5b").click().run())
    assert "\\<b\\>all" in app.error[0].value
    assert not app.button(key="fetch-qwen2.5-coder-0.5b").disabled


FAULTY: dict[str, Callable[[Path], object]] = {
    "not_found": lambda folder: folder.rename(folder.parent / "elsewhere"),
    "no_config": lambda folder: (folder / "config.json").unlink(),
    "no_tokenizer": lambda folder: [p.unlink() for p in folder.glob("*token*")],
    "no_weights": lambda folder: [p.unlink() for p in folder.glob("*.safetensors")],
}


@LANGUAGE
@pytest.mark.parametrize("code", FAULTY)
def test_a_checkpoint_that_will_not_open_is_a_sentence_and_the_page_stays(
    lang: str, code: str, own_tiny: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = own_tiny("qwen2")
    monkeypatch.setenv(CHECKPOINT_VARIABLE, str(folder))
    FAULTY[code](folder)
    app = working(run_button(opened(lang)).click().run())
    wanted = words(lang).t(f"errors.{code}", path="\0").split("\0")[-1]
    assert app.error[0].value.endswith(wanted)
    assert set(charts(app)) == set(CHARTS)
    working(app.pills(key="choice.prompt").set_value("river").run())
    assert not app.error


@LANGUAGE
def test_what_nobody_expected_is_logged_and_told_plainly(
    lang: str, tiny_here: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def burst(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(measure, "_measure", burst)
    app = working(run_button(opened(lang)).click().run())
    assert app.error[0].value == words(lang).t("errors.unexpected")
    assert "secret detail" not in "".join(e.value for e in (*app.error, *app.markdown, *app.caption))
    assert "secret detail" in caplog.text


def test_every_error_and_stage_has_its_words() -> None:
    for lang in LANGUAGES:
        known = words(lang).templates()
        for code, sentence in errors.SENTENCES.items():
            fields = dict.fromkeys(_fields(sentence), "x")
            assert words(lang).t(f"errors.{code}", **fields), code
        for stage in (*STAGES, "begin", "queue"):
            assert f"progress.{stage}" in known


def _fields(template: str) -> list[str]:
    import string

    return [name for _, name, _, _ in string.Formatter().parse(template) if name]


def test_two_sessions_keep_their_own_results_and_share_one_load(
    tiny_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faults 22 and 23."""
    import model_probe

    loads: list[object] = []
    real = model_probe.open_checkpoint

    def counted(*args: object, **kwargs: object) -> object:
        loads.append(args)
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(model_probe, "open_checkpoint", counted, raising=False)
    first, second = opened("en"), opened("zh")
    for prompt in ("alpha", "alpha beta"):
        measure_prompt(first, prompt)
        measure_prompt(second, prompt + " gamma")
    assert len(loads) == 1
    assert set(results(first)) == {"alpha", "alpha beta"}
    assert set(results(second)) == {"alpha gamma", "alpha beta gamma"}


def test_those_who_wait_are_told_their_place() -> None:
    turns, told = Turns(), []
    inside, leave = threading.Event(), threading.Event()

    def hold(progress: Progress) -> None:
        with turns.take(progress):
            inside.set()
            assert leave.wait(10)

    first = Job(hold)
    assert inside.wait(10)

    def note(stage: str, done: float | None = None, detail: str = "") -> None:
        told.append((stage, detail))
        leave.set()

    with turns.take(note):
        assert first.wait(10)
    assert told[0] == ("queue", "1")
    with turns.take(note), pytest.raises(ZeroDivisionError):  # one who fails leaves the queue too
        raise ZeroDivisionError
    with turns.take(note):
        pass
    assert len(told) == 1


def test_opening_the_page_imports_no_torch() -> None:
    script = (
        "import sys; from streamlit.testing.v1 import AppTest; "
        "app = AppTest.from_file('pages/probe.py', default_timeout=60).run(); assert not app.exception; "
        "app.segmented_control(key='choice.axis').set_value('linear').run(); "
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stderr

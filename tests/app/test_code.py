"""The page `code` in both languages: opens on the recording without torch, runs here on a click, survives every control."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from model_probe.catalog import CHECKPOINT_VARIABLE
from model_probe.code_results import BREAKS, CHECKPOINT, DTYPES, EXACT, INPUTS, VARIANTS, load_code_results
from viz.code_tables import happened
from viz.text import LANGUAGES, words

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
CONTROLS = {"variant": VARIANTS, "against": VARIANTS, "input": INPUTS, "dtype": DTYPES, "break": BREAKS}


def opened(lang: str = "en", **address: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / "code.py"), default_timeout=60)
    app.query_params["lang"] = lang
    for name, code in address.items():
        app.query_params[name] = code
    return working(app.run())


def working(app: AppTest) -> AppTest:
    assert not app.exception
    return app


def answered(app: AppTest) -> AppTest:
    """Both questions put aside."""
    for name in ("order", "loud"):
        working(app.button(key=f"code.{name}.show").click().run())
    return app


def prose(app: AppTest) -> str:
    return "\n".join(element.value for element in (*app.markdown, *app.caption))


def drawn(app: AppTest) -> list[str]:
    """The page's own HTML in order: lines of code and tables, no style sheets."""
    return [e.proto.body for e in app.get("html") if e.proto.body.startswith(("<pre", "<div"))]


def html(app: AppTest) -> str:
    return "\n".join(drawn(app))


def figure(app: AppTest) -> dict[str, Any]:
    (chart,) = app.get("plotly_chart")
    return json.loads(chart.proto.spec)


@LANGUAGE
def test_it_opens_with_its_questions_open(lang: str) -> None:
    app, text = opened(lang), words(lang)
    assert app.title[0].value == text.t("code.title")
    for name in ("order", "loud"):
        assert text.t(f"code.{name}.question") in prose(app)
    assert not app.get("plotly_chart")
    assert "lab-code-table" not in html(app)  # no result before the answer
    assert "<ins>" in html(app)  # but the lines, and what differs


@LANGUAGE
@pytest.mark.parametrize("code", ["none", "few", "quarter", "all"])
def test_an_answer_stands_beside_the_result(lang: str, code: str) -> None:
    app, text = opened(lang), words(lang)
    working(app.button(key=f"code.order.{code}").click().run())
    guess = text.t(f"code.order.guess.{code}")
    said = text.t(f"code.order.{'right' if code == 'none' else 'other'}", guess=guess, differ="0", all="576")
    assert said in prose(app)
    assert figure(app)["data"][0]["x"][:3] == [0, 0, 0]


@LANGUAGE
def test_the_answer_to_the_second_question_is_what_the_recording_holds(lang: str) -> None:
    loud = [name for name, each in load_code_results().outcomes.items() if any(o.error for o in each)]
    assert len(loud) == 1
    app, text = opened(lang), words(lang)
    working(app.button(key="code.loud.one").click().run())
    assert text.t("code.loud.right", guess=text.t("code.loud.guess.one")) in prose(app)


@LANGUAGE
@pytest.mark.parametrize("name", BREAKS)
def test_every_break_shows_its_line_what_is_expected_and_what_happened(lang: str, name: str) -> None:
    app, text = answered(opened(lang, **{"break": name})), words(lang)
    assert text.t(f"code.break.{name}.expected") in prose(app)
    assert happened(load_code_results(), name, text) in prose(app)
    *_, lines, table = drawn(app)
    assert "<del>" in lines
    assert lines.count("<ins>") + lines.count("<del>") <= 2
    assert "<table>" in table


def test_the_table_counts_as_the_recording_does() -> None:
    app = answered(opened(dtype="bfloat16", input="shifted"))
    told = load_code_results().table.comparison(
        "shifted", "bfloat16", "zero_centred", against="cast_then_gain"
    )
    assert f">{told.differ} / 8" in html(app).replace("\u202f", "")
    assert 'data-figure="zero_centred"' in html(app)


def test_the_choices_are_kept_in_the_address() -> None:
    app = answered(opened())
    app.session_state["choice.dtype"] = "float16"
    app.session_state["choice.break"] = "no_upcast"
    working(app.run())
    kept = {name: value if isinstance(value, str) else value[-1] for name, value in app.query_params.items()}
    assert (kept["dtype"], kept["break"]) == ("float16", "no_upcast")


def test_no_control_at_any_of_its_values_ends_in_a_traceback() -> None:
    app = answered(opened("zh"))
    for name, codes in CONTROLS.items():
        for code in codes:
            app.session_state[f"choice.{name}"] = code
            working(app.run())


@settings(max_examples=12, deadline=None)
@given(
    lang=st.sampled_from(LANGUAGES),
    address=st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(codes) | st.text(max_size=8) for name, codes in CONTROLS.items()}
    ),
)
def test_no_address_ends_in_a_traceback(lang: str, address: dict[str, str]) -> None:
    answered(opened(lang, **address))


@LANGUAGE
def test_a_run_without_a_checkpoint(lang: str, empty_caches: Path) -> None:
    app, text = answered(opened(lang)), words(lang)
    assert text.t("code.run.without") in prose(app)
    working(app.button(key="code.run").click().run())
    assert text.t("code.provenance.live", date="").split()[0] in prose(app)
    assert "Qwen2RMSNorm" not in html(app)
    for name, code in (("variant", CHECKPOINT), ("against", CHECKPOINT), ("break", "no_final_norm")):
        app.session_state[f"choice.{name}"] = code
        working(app.run())
    assert text.t("code.figure.nothing") in figure(app)["layout"]["meta"]["title"]
    assert happened(load_code_results(), "no_final_norm", text) in prose(app)  # from the recording


def test_a_run_on_the_checkpoint_that_is_here(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHECKPOINT_VARIABLE, str(tiny_folder("gemma3")))
    app = answered(opened("en"))
    working(app.button(key="code.run").click().run())
    assert "Gemma3RMSNorm" in html(app)
    app.session_state["choice.against"] = EXACT
    for name in BREAKS:
        app.session_state["choice.break"] = name
        working(app.run())


def test_a_run_that_fails_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CHECKPOINT_VARIABLE, str(tmp_path / "nothing"))
    app = answered(opened("en"))
    working(app.button(key="code.run").click().run())
    assert [str(tmp_path / "nothing") in each.value.replace("\\", "") for each in app.error] == [True]
    assert words("en").t("code.provenance.recording", date="").split()[0] in prose(app)


def test_no_torch_is_imported() -> None:
    script = (
        "import sys; from streamlit.testing.v1 import AppTest; "
        "app = AppTest.from_file('pages/code.py', default_timeout=60).run(); "
        "app.button(key='code.order.show').click().run(); app.button(key='code.loud.show').click().run(); "
        "assert not app.exception and app.title; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stderr

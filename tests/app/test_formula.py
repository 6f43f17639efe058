"""The formula page in both languages: cells from the address, and numbers that come from the maths."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from model_probe.recording import load_recording
from model_probe.worked import COMPARED, layer_norm_steps, rms_norm_steps
from viz.cells import LARGEST, MOST, VECTOR, decoded, encoded, shown
from viz.formula_tables import SHAPES, SYMBOLS, fixed
from viz.text import LANGUAGES, number, words

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)


def opened(lang: str, **query: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    app.query_params["lang"] = lang
    for name, code in query.items():
        app.query_params[name] = code
    app.switch_page("pages/formula.py").run()
    assert not app.exception
    return app


def cells(app: AppTest) -> dict[str, object]:
    """What the cells were told."""
    (component,) = (
        each for each in app.get("bidi_component") if each.proto.component_name == "rmsnorm_lab_cells"
    )
    return json.loads(component.proto.json)


def said(app: AppTest) -> str:
    return "\n".join(element.value for element in (*app.markdown, *app.caption))


def tables(app: AppTest) -> list[str]:
    return [each.proto.body for each in app.get("html") if "lab-formula" in each.proto.body]


def texts(table: str) -> list[list[str]]:
    """The cells of an HTML table, by row."""
    rows = re.findall(r"<tr.*?</tr>", table)
    return [[re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<t[dh].*?</t[dh]>", row)] for row in rows]


@LANGUAGE
def test_it_opens_on_the_example(lang: str) -> None:
    app = opened(lang)
    assert app.title[0].value == words(lang).t("formula.title")
    assert cells(app)["code"] == cells(app)["standard"] == "2_-1_3_0"
    assert "√4 = 2" in said(app)


@LANGUAGE
@pytest.mark.parametrize(
    ("code", "heard"),
    [
        ("1_-2.5", "1_-2.5"),
        ("1,2,3,4,5", "1_2_3_4_5"),
        ("0_0_0", "0_0_0"),
        ("2.50_-0_.5", "2.5_0_0.5"),
        ("1", None),
        ("1_2_3_4_5_6_7_8_9", None),
        ("1_x", None),
        ("1_nan", None),
        ("1_1e400", None),
        ("1_2000000", None),
        ("", None),
        ("<b>_1", None),
    ],
)
def test_a_link_brings_its_numbers_or_the_example(lang: str, code: str, heard: str | None) -> None:
    app = opened(lang, x=code)
    assert cells(app)["code"] == (heard or VECTOR.default)
    n = (heard or VECTOR.default).count("_") + 1
    assert f"√{n} = {shown(math.sqrt(n))}" in said(app)


def test_what_is_entered_goes_into_the_address() -> None:
    app = opened("en")
    app.session_state[VECTOR.key] = "5_6_7"
    app.run()
    assert app.query_params["x"] == "5_6_7"
    assert cells(app)["code"] == "5_6_7"
    assert "√3 = 1.732" in said(app)
    app.session_state[VECTOR.key] = VECTOR.default
    app.run()
    assert "x" not in app.query_params


@LANGUAGE
def test_beside_layer_norm(lang: str) -> None:
    app = opened(lang)
    layer, root = layer_norm_steps(COMPARED), rms_norm_steps(COMPARED)
    rows = texts(tables(app)[0])
    assert rows[0][1:] == ["x", "x − μ", "LayerNorm", "RMSNorm"]
    assert [row[3] for row in rows[1:5]] == ["0.65", "−0.22", "−1.53", "1.09"]
    assert [row[4] for row in rows[1:5]] == ["1.10", "0.37", "−0.73", "1.46"]
    assert rows[5][1:] == ["6.00", "0.00", "0.00", "2.19"]
    text = said(app)
    for value in (layer.mean, layer.std, root.rms, root.mean_square, layer.std**2, layer.mean**2):
        assert fixed(value) in text


@LANGUAGE
def test_the_symbols_say_what_stays(lang: str) -> None:
    rows = {row[0]: row for row in texts(tables(opened(lang))[1])[1:]}
    kept = words(lang).t("formula.symbols.kept")
    assert set(rows) == {symbol for symbol, _ in SYMBOLS.values()}
    assert {symbol for symbol, row in rows.items() if row[-1] == kept} == {"ε", "γ"}


@LANGUAGE
def test_the_shapes_are_those_of_the_recorded_prompt(lang: str) -> None:
    rows = texts(tables(opened(lang))[2])[1:]
    trace = load_recording().traces["fox"]
    assert len(rows) == len(SHAPES)
    for _, letters, here in rows:
        last = trace.checkpoint.hidden_size if letters.endswith("d]") else 1
        assert here == f"[1, {len(trace.tokens)}, {last}]"
    assert [letters for _, letters, _ in rows].count("[B, S, 1]") == 3


@LANGUAGE
def test_parameters_are_counted(lang: str) -> None:
    text = said(opened(lang))
    gains = sum(len(site.gain) for site in load_recording().sites if site.gain is not None)
    assert number(gains) in text
    assert number(2 * gains) in text


@given(st.lists(st.floats(-LARGEST, LARGEST), min_size=2, max_size=MOST))
def test_a_code_brings_back_its_vector(vector: list[float]) -> None:
    code = encoded(vector)
    again = decoded(code)
    assert again is not None
    assert all(math.isclose(a, b, abs_tol=1e-6) for a, b in zip(vector, again, strict=True))
    assert encoded(again) == VECTOR.valid(code) == code
    assert re.fullmatch(r"[-_.0-9]+", code)  # an address leaves it alone


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.5, "3.5"), (10, "10"), (100.0, "100"), (0.25, "0.25"), (1e-6, "10⁻⁶"), (0, "0"), (math.nan, "—")],
)
def test_numbers_have_no_idle_zeros(value: float, text: str) -> None:
    assert shown(value) == text


def test_no_torch_is_imported() -> None:
    script = (
        "import sys; from streamlit.testing.v1 import AppTest; app = AppTest.from_file('app.py', default_timeout=60); "
        "app.switch_page('pages/formula.py').run(); assert not app.exception; "
        "app.switch_page('pages/glossary.py').run(); assert not app.exception; "
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stderr

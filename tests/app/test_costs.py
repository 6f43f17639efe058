"""What it costs, on the page `code`: timed on demand, with and without a compiler and a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from model_probe.catalog import CHECKPOINT_VARIABLE
from model_probe.costs import HIDDEN_SIZES, NORMS, TOKENS, CopyTiming, Costs, NormShare, Size, Timing
from model_probe.profiles import Provenance
from model_probe.recording import load_recording
from viz import costs as section
from viz.costs import ANSWERS, ASKED, answer
from viz.text import LANGUAGES, number, words

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
STATE = "demand.code.costs"


def made(layer: float = 1.5, variants: tuple[str, ...] = ("eager", "fused")) -> Costs:
    """Costs with LayerNorm this many times as slow as RMSNorm."""
    sizes = [Size(hidden_size, tokens) for hidden_size in HIDDEN_SIZES for tokens in TOKENS]
    timings = tuple(
        Timing(norm, variant, size, tuple(1e-6 * size.tokens * times * t for t in (4, 5, 6)))
        for size in sizes
        for variant in variants
        for norm, times in zip(NORMS, (1.0, layer), strict=True)
    )
    copies = tuple(CopyTiming(size, (1e-6 * size.tokens, 2e-6 * size.tokens)) for size in sizes)
    share = NormShare(load_recording().checkpoint, 49, 64, (2.0, 2.0, 2.0), (0.1, 0.2, 0.3))
    missing = None if "compiled" in variants else "no_compiler"
    made_at = Provenance("2", "float32", "cpu", "2026-01-01T00:00:00+00:00")
    return Costs(timings, copies, missing, share, {"rms_norm": 6, "layer_norm": 1}, made_at)


def opened(lang: str, guess: str = "show", **address: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / "code.py"), default_timeout=60)
    app.query_params["lang"] = lang
    for name, value in address.items():
        app.query_params[name] = value
    return working(app.run().button(key=f"code.faster.{guess}").click().run())


def working(app: AppTest) -> AppTest:
    assert not app.exception
    return app


def ran(app: AppTest) -> AppTest:
    working(app.button(key="code-costs-run").click().run())
    job = app.session_state[STATE].job
    assert job is None or job.wait(120)
    return working(app.run())


def said(app: AppTest) -> str:
    every = (*app.markdown, *app.caption, *app.info, *app.warning, *app.error)
    tables = [element.proto.body for element in app.get("html") if "lab-table" in element.proto.body]
    return "\n".join([*(element.value for element in every), *tables]).replace("\\", "")


def test_it_is_measured_for_real(tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but the compiler, which takes its time."""
    monkeypatch.setenv(CHECKPOINT_VARIABLE, str(tiny_folder("qwen2")))
    monkeypatch.setattr("model_probe.costs.cpp_compiler", lambda: None)
    app = opened("en")
    assert words("en").t("code.costs.empty") in said(app)
    text = said(ran(app))
    costs = app.session_state["costs.result"]
    assert words("en").t("code.costs.no_compiler") in text
    assert costs.share is not None
    assert number(100 * costs.share.share.median) in text
    assert answer(costs) in ANSWERS


@LANGUAGE
@pytest.mark.parametrize(("layer", "truth"), [(3.0, "double"), (1.3, "some"), (1.0, "same"), (0.5, "slower")])
@pytest.mark.parametrize("guess", ["show", "slower"])
def test_the_guess_stands_beside_what_was_timed(
    monkeypatch: pytest.MonkeyPatch, lang: str, layer: float, truth: str, guess: str
) -> None:
    costs = made(layer)
    assert answer(costs) == truth
    monkeypatch.setattr(section, "measure_costs", lambda **_: costs)
    text = said(ran(opened(lang, guess)))
    assert words(lang).t(f"code.faster.guess.{truth}") in text
    assert number(costs.ratio("fused", ASKED).median) in text


@LANGUAGE
@pytest.mark.parametrize("width", [str(HIDDEN_SIZES[0]), str(HIDDEN_SIZES[-1]), "7"])
@pytest.mark.parametrize("tokens", [str(TOKENS[0]), str(TOKENS[-1]), "<b>"])
def test_the_ends_of_every_control_are_drawn(
    monkeypatch: pytest.MonkeyPatch, lang: str, width: str, tokens: str
) -> None:
    costs = made(variants=("eager", "fused", "compiled"))
    monkeypatch.setattr(section, "measure_costs", lambda **_: costs)
    app = ran(opened(lang, width=width, tokens=tokens))
    assert words(lang).t("code.costs.no_compiler") not in said(app)
    assert any("code-costs" in element.proto.id for element in app.get("plotly_chart"))


def test_without_a_checkpoint_and_after_a_failing_compiler_it_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = replace(made(), share=None, not_compiled="failed")
    monkeypatch.setattr(section, "measure_costs", lambda **_: costs)
    text = said(ran(opened("en")))
    assert words("en").t("code.costs.no_checkpoint") in text
    assert words("en").t("code.costs.failed") in text

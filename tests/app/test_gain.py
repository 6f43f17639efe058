"""The page `gain` in both languages: the question, the chosen norm, the recording's gains or the open checkpoint's."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from model_probe.blending import blend, share_near_one
from model_probe.catalog import CHECKPOINT_VARIABLE
from model_probe.presets import PRESETS
from model_probe.recording import load_recording
from model_probe.sites import NormSite
from viz import gains, measure
from viz.figures.base import title_of
from viz.figures.gain import gain_figure
from viz.offers import OPERATORS
from viz.text import LANGUAGES, number, words
from viz.theme import LIGHT

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
MIDDLE = "model.layers.11.input_layernorm"


def opened(lang: str, **address: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.query_params["lang"] = lang
    app.run().switch_page("pages/gain.py")
    for name, value in address.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def shown(app: AppTest) -> AppTest:
    app.button(key="gain.near_one.show").click().run()
    assert not app.exception
    return app


def told(app: AppTest) -> dict[str, Any]:
    """What the slider's component was given."""
    (proto,) = [e.proto for e in app.get("bidi_component") if e.proto.component_name == "rmsnorm_lab_live"]
    return json.loads(proto.json)


def prose(app: AppTest) -> str:
    return "\n".join(element.value for element in (*app.markdown, *app.caption))


def histogram(app: AppTest) -> dict[str, Any]:
    return json.loads(app.get("plotly_chart")[0].proto.spec)


def title(figure: dict[str, Any]) -> str:
    return figure["layout"]["meta"]["title"]


def near_one() -> float:
    return share_near_one([site.known_gain for site in load_recording().sites])


@LANGUAGE
def test_it_opens_with_its_question_open(lang: str) -> None:
    app, text = opened(lang), words(lang)
    assert app.title[0].value == text.t("gain.title")
    assert text.t("gain.near_one.question") in prose(app)
    assert histogram(app)["data"][0]["x"] == [1.0]  # before training, and nothing that tells the answer
    assert f"{number(100 * near_one(), 2)} %" not in prose(app)
    assert told(app)["still"]["gains"] is None
    assert len(app.get("plotly_chart")) == 1
    assert f"{number(100 * (1 - near_one()), 2)} %" not in prose(app)
    assert len(told(shown(app))["still"]["gains"]) == 48


@LANGUAGE
@pytest.mark.parametrize("code", ["most", "half", "few", "none"])
def test_an_answer_is_shown_beside_the_measured_one(lang: str, code: str) -> None:
    app, text = opened(lang), words(lang)
    app.button(key=f"gain.near_one.{code}").click().run()
    claims = {"most": 1.0, "half": 0.5, "few": 0.05, "none": 0.0}
    nearest = min(claims, key=lambda each: abs(claims[each] - near_one()))
    verdict = text.t(
        f"gain.near_one.{'right' if code == nearest else 'other'}",
        guess=text.t(f"gain.near_one.guess.{code}"),
        nearest=text.t(f"gain.near_one.guess.{nearest}"),
        share=number(100 * near_one(), 2),
        n=number(49 * 896),
    )
    assert verdict in prose(app)


@LANGUAGE
@pytest.mark.parametrize(
    ("address", "name"),
    [
        ({}, MIDDLE),
        ({"layer": "0"}, "model.layers.0.input_layernorm"),
        ({"layer": "0", "site": "post_attention_layernorm"}, "model.layers.0.post_attention_layernorm"),
        ({"layer": "final"}, "model.norm"),
        ({"layer": "99", "site": "<b>"}, MIDDLE),
    ],
)
def test_a_link_opens_it_at_a_norm(lang: str, address: dict[str, str], name: str) -> None:
    app = shown(opened(lang, **address))
    site = load_recording().site(name)
    assert title(histogram(app)) == title_of(gain_figure(site, words(lang), LIGHT))
    assert name in prose(app).replace("\\", "")
    assert told(app)["readouts"]["max"][-1] == number(float(site.known_gain.max()))


def test_the_selectors_go_into_the_address() -> None:
    app = shown(opened("en"))
    app.select_slider(key="choice.layer").set_value("3").run()
    app.session_state["choice.site"] = "post_attention_layernorm"
    app.run()
    address = {
        name: value[0] if isinstance(value, list) else value for name, value in app.query_params.items()
    }
    assert address == {"lang": "en", "layer": "3", "site": "post_attention_layernorm"}
    assert title(histogram(app)).startswith("Layer 3, MLP input")


@pytest.mark.parametrize(
    ("given", "code"), [("0", "0"), ("37", "37"), ("36.6", "37"), ("500", "100"), ("x", "100")]
)
def test_a_link_opens_the_slider_at_a_share(given: str, code: str) -> None:
    assert told(opened("en", blend=given))["stop"] == code


@LANGUAGE
def test_the_prose_takes_its_numbers_from_the_gains(lang: str) -> None:
    text = prose(shown(opened(lang)))
    recording = load_recording()
    trace, site = recording.traces["fox"], recording.site(MIDDLE)
    assert number(site.summary.rms) in text  # type: ignore[union-attr]
    assert number(float(np.median(trace.depth()[0].output.l2))) in text
    assert number(float(np.median(trace.depth()[-1].output.l2))) in text
    cosines = [blend(each.known_gain, 1.0).cosine for each in recording.sites]
    for cosine in (min(cosines), max(cosines), blend(site.known_gain, 1.0).cosine):
        assert number(cosine, 2) in text
    assert words(lang).t("gain.convention.weight", **{"class": "Qwen2RMSNorm"}) in text


@pytest.fixture
def open_checkpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A checkpoint that somebody has opened on this machine: two layers and a final norm, gain stored less one."""
    rng = np.random.default_rng(8)
    roles = [
        (0, "attention_input"),
        (0, "mlp_input"),
        (1, "attention_input"),
        (1, "mlp_input"),
        (None, "final"),
    ]
    sites = tuple(
        NormSite(
            name="model.norm" if layer is None else f"model.layers.{layer}.{role}",
            layer=layer,
            role=role,
            class_name="Qwen3_5RMSNorm",
            size=32,
            eps=1e-6,
            gain_convention="one_plus_weight",
            gain=(1 + rng.normal(size=32)).astype(np.float32),
        )
        for layer, role in roles
    )
    gated = dataclasses.replace(
        sites[0], name="model.layers.0.gated", role="gated", gain=None, why_no_gain="a gate"
    )
    info = dataclasses.replace(
        load_recording().checkpoint,
        name="tiny-open",
        source="tiny-open",
        digest="0" * 64,
        hidden_size=32,
        num_layers=2,
    )
    opened = SimpleNamespace(info=info, sites=(*sites, gated))
    monkeypatch.setenv(CHECKPOINT_VARIABLE, "tiny-open")
    bench = measure._bench()
    bench.checkpoint, bench.code = opened, OPERATORS  # type: ignore[assignment]
    yield opened
    bench.checkpoint = bench.code = None


@LANGUAGE
def test_the_open_checkpoints_gains_are_shown(lang: str, open_checkpoint: SimpleNamespace) -> None:
    app, text = shown(opened(lang)), words(lang)
    everything = prose(app).replace("\\", "")
    assert "tiny-open" in everything
    assert load_recording().checkpoint.name not in everything
    assert text.t("common.provenance.live", date="").strip(" ,，") in everything
    assert text.t("gain.convention.one_plus_weight", **{"class": "Qwen3_5RMSNorm"}) in everything.replace(
        "\\", ""
    )
    assert text.t("gain.left_out", n=1) in everything
    assert len(app.get("plotly_chart")) == 3
    assert told(app)["readouts"]["max"][-1] == number(float(open_checkpoint.sites[0].known_gain.max()))


def test_a_pass_of_another_checkpoint_is_not_mixed_in(open_checkpoint: SimpleNamespace) -> None:
    assert gains.current().trace is None
    loudness = json.loads(shown(opened("en")).get("plotly_chart")[1].proto.spec)
    assert [trace["name"] for trace in loudness["data"]] == [words("en").t("gain.loudness.even")]
    open_checkpoint.info = load_recording().checkpoint
    open_checkpoint.sites = load_recording().sites
    assert gains.current().trace is load_recording().traces["fox"]
    assert gains.current().origin == "live"
    assert gains.current().trace_origin == "recording"


def test_without_an_open_checkpoint_the_recording_is_shown() -> None:
    told = gains.current()
    assert (told.origin, told.checkpoint) == ("recording", load_recording().checkpoint)
    assert told.trace is not None
    assert told.trace.prompt == PRESETS["fox"]


def test_no_torch_is_imported() -> None:
    script = (
        "import sys; from streamlit.testing.v1 import AppTest; app = AppTest.from_file('app.py', default_timeout=60).run(); "
        "app.switch_page('pages/gain.py').run(); assert not app.exception and app.title; "
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stderr

"""The real Qwen that `fetch` brings: against figures measured independently, and against what ships.

Without the checkpoint these tests fail; they are never skipped.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from model_probe import NormTrace, capture, load_recording
from model_probe.presets import PRESETS
from model_probe.recording import SHIPPED
from model_probe.sites import count_gain
from model_probe.summaries import sinks
from model_probe.trace import SERIES

REFERENCE = json.loads((Path(__file__).parent / "data" / "reference-qwen2.5-coder-0.5b.json").read_text())


@pytest.fixture(scope="module")
def traces(real_checkpoint):
    return {prompt: capture(real_checkpoint, prompt) for prompt in PRESETS.values()}


def test_the_checkpoint_is_the_published_file(real_checkpoint):
    info = real_checkpoint.info
    assert info.digest == REFERENCE["sha256"]
    assert (info.hidden_size, info.num_layers, info.dtype, info.device) == (896, 24, "float32", "cpu")
    assert [site.role for site in real_checkpoint.sites] == ["attention_input", "mlp_input"] * 24 + ["final"]
    assert {site.eps for site in real_checkpoint.sites} == {1e-6}
    assert {site.gain_convention for site in real_checkpoint.sites} == {"weight"}


@pytest.mark.parametrize("index", [0, 1], ids=["fox", "river"])
def test_every_figure_agrees_with_the_independent_measurement(traces, index):
    reference = REFERENCE["traces"][index]
    trace = traces[reference["prompt"]]
    assert [token.id for token in trace.tokens] == reference["token_ids"]
    assert len(reference["sites"]) == len(trace.sites)
    for expected in reference["sites"]:
        site = trace.site(expected["name"])
        tolerance = np.where(sinks(expected["input_l2"]), 1e-2, 1e-3)
        for name in ("input_l2", "normalized_l2", "output_l2", "input_abs_max", "input_std"):
            error = np.abs(site.series(name) / np.array(expected[name]) - 1)
            assert (error <= tolerance).all(), f"{site.name} {name}: {error.max():.1e}"
        error = np.abs(site.input.mean - expected["input_mean"]) / np.array(expected["input_std"])
        assert (error <= tolerance).all(), f"{site.name} input_mean: {error.max():.1e}"


def test_every_gain_agrees_with_the_independent_measurement(real_checkpoint):
    assert len(REFERENCE["gains"]) == 49
    for site in real_checkpoint.sites:
        expected = REFERENCE["gains"][site.name]
        summary, gain = site.summary, site.gain
        for name in ("mean", "rms", "min", "max"):
            assert getattr(summary, name) == pytest.approx(expected[name], rel=1e-5, abs=1e-7), site.name
        # the reference counts γ > 1 and γ < 1 with their signs; the app's |γ| > 1 takes γ < −1 in as well
        assert np.sum(gain > 1) == expected["above_1"], site.name
        assert np.sum(gain < 1) == expected["below_1"], site.name
        counts = count_gain(gain)
        assert counts.negative == expected["negative"], site.name
        assert counts.amplified == expected["above_1"] + np.sum(gain < -1), site.name
        assert counts.damped == expected["below_1"] - np.sum(gain <= -1), site.name


def test_the_recording_is_what_the_checkpoint_gives_today(real_checkpoint, traces):
    recording = load_recording()
    assert recording.checkpoint.digest == real_checkpoint.info.digest
    assert list(recording.traces) == list(PRESETS)
    for preset, recorded in recording.traces.items():
        live = traces[PRESETS[preset]]
        assert recorded.prompt == PRESETS[preset]
        assert recorded.tokens == live.tokens
        for site, site_live in zip(recorded.sites, live.sites, strict=True):
            assert (site.name, site.role, site.eps) == (site_live.name, site_live.role, site_live.eps)
            scale = {"input_mean": site_live.input.std, "output_mean": site_live.output.std}
            tolerance = np.where(sinks(site_live.input.l2), 1e-2, 1e-3)
            for name in SERIES:
                error = np.abs(site.series(name) - site_live.series(name))
                relative = error / scale.get(name, np.abs(site_live.series(name)))
                assert (relative <= tolerance).all(), f"{preset} {site.name} {name}: {relative.max():.1e}"
    for site, site_live in zip(recording.sites, real_checkpoint.sites, strict=True):
        np.testing.assert_allclose(site.gain, site_live.gain, rtol=1e-6)


def test_the_recording_is_small_and_holds_what_the_app_offers():
    assert SHIPPED.stat().st_size < 1.5e6
    recording = load_recording()
    assert len(recording.sites) == 49
    assert 200 <= len(recording.traces["paragraph"].tokens) <= 400
    assert any(token.text.startswith("<0x") for token in recording.traces["chinese"].tokens)
    assert recording.checkpoint.source.endswith("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")
    for trace in recording.traces.values():
        assert trace.checkpoint.recorded_at[:4].isdigit()


@pytest.mark.parametrize("ending", ["json", "csv", "npz"])
def test_a_real_trace_comes_back_from_each_format(traces, tmp_path, ending):
    trace = traces[PRESETS["chinese"]]
    trace.save(tmp_path / f"t.{ending}")
    again = NormTrace.load(tmp_path / f"t.{ending}")
    assert again.tokens == trace.tokens
    for site, site_again in zip(trace.sites, again.sites, strict=True):
        for name in SERIES:
            np.testing.assert_array_equal(site.series(name), site_again.series(name))

"""The line under a picture: where its numbers come from, in either language, safely."""

from __future__ import annotations

from dataclasses import replace

import pytest

from model_probe.recording import load_recording
from viz.provenance import provenance
from viz.text import LANGUAGES, literal, words

TRACE = load_recording().traces["river"]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_everything_that_decides_a_number_is_named(lang: str) -> None:
    line = provenance(words(lang), TRACE).replace("\\", "")
    info = TRACE.checkpoint
    for part in (info.name, info.source.rsplit("/", 1)[-1], info.dtype, info.device, TRACE.prompt, "2026"):
        assert part in line
    assert words(lang).t("common.statistic.median") in line
    assert str(len(TRACE.tokens)) in line


def test_recorded_and_live_are_told_apart() -> None:
    english = words("en")
    assert provenance(english, TRACE) != provenance(english, TRACE, origin="live")


def test_only_a_gguf_is_called_dequantized() -> None:
    folder = replace(TRACE, checkpoint=replace(TRACE.checkpoint, source="Qwen/Qwen3-0.6B"))
    assert "dequantized" in provenance(words("en"), TRACE)
    assert "dequantized" not in provenance(words("en"), folder)


def test_no_statistic_is_named_where_every_token_is_shown() -> None:
    assert "median" not in provenance(words("en"), TRACE, statistic=None)


def test_a_prompt_is_data() -> None:
    """Fault 20."""
    prompt = "<b>x</b> $y$ | `"
    assert literal(prompt) in provenance(words("en"), replace(TRACE, prompt=prompt))


@pytest.mark.parametrize("prompt", ["word " * 100, "x" * 500])
def test_a_long_prompt_is_cut_and_says_so(prompt: str) -> None:
    line = provenance(words("en"), replace(TRACE, prompt=prompt))
    assert "…”" in line
    assert len(line) < 300

"""What an operator sets: every variable, the preset, and a sentence for what it cannot be."""

from dataclasses import fields
from pathlib import Path

import pytest

from model_probe import ProbeError
from model_probe.settings import PREFIX, PRESETS, Settings, settings

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")


def test_without_any_all_is_on():
    assert settings({}) == Settings()
    assert settings({"RMSNORM_LAB_LIVE": " "}) == Settings()


def test_each_variable_sets_its_field():
    given = {
        "RMSNORM_LAB_CHECKPOINTS": "qwen3-0.6b, qwen2.5-0.5b,",
        "RMSNORM_LAB_DEVICE": "cpu",
        "RMSNORM_LAB_PROMPT_TOKENS": "8192",
        "RMSNORM_LAB_QUEUE": "3",
        "RMSNORM_LAB_RUN_SECONDS": "2.5",
        "RMSNORM_LAB_LIVE": "off",
        "RMSNORM_LAB_FETCHING": "OFF",
        "RMSNORM_LAB_TRAINING": "off",
    }
    assert {f"{PREFIX}{field.name.upper()}" for field in fields(Settings)} == set(given)
    chosen = settings(given)
    assert chosen == Settings(("qwen3-0.6b", "qwen2.5-0.5b"), "cpu", 8192, 3, 2.5, False, False, False)


def test_one_thing_of_a_preset_can_be_changed():
    public = settings({"RMSNORM_LAB_PRESET": "public"})
    assert public == PRESETS["public"]
    assert not public.fetching
    assert not public.training
    assert public.prompt_tokens < Settings().prompt_tokens
    chosen = settings({"RMSNORM_LAB_PRESET": "public", "RMSNORM_LAB_TRAINING": "on"})
    assert chosen.training
    assert not chosen.fetching


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PRESET", "internet"),
        ("DEVICE", "gpu"),
        ("PROMPT_TOKENS", "8193"),
        ("PROMPT_TOKENS", "many"),
        ("QUEUE", "0"),
        ("QUEUE", "1.5"),
        ("RUN_SECONDS", "nan"),
        ("RUN_SECONDS", "inf"),
        ("LIVE", "maybe"),
    ],
)
def test_what_cannot_be_is_a_sentence(name, value):
    with pytest.raises(ProbeError) as refusal:
        settings({f"{PREFIX}{name}": value})
    assert refusal.value.code == "bad_setting"
    assert f"{PREFIX}{name}" in str(refusal.value)
    assert value in str(refusal.value)


def test_the_readme_explains_each():
    names = [field.name.upper() for field in fields(Settings)]
    for name in (*names, "PRESET", "CHECKPOINT", "CACHE"):
        assert f"| `{PREFIX}{name}` |" in README

"""What Python's search for garbage leaves out while a checkpoint is open, and that it lets go of one that is left."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import tiny

from model_probe.catalog import CHECKPOINT_VARIABLE

ROOT = Path(__file__).resolve().parent.parent


def test_what_is_loaded_is_left_out_and_goes_when_another_is_opened(tmp_path: Path) -> None:
    first, second = (str(tiny.build(name, tmp_path / name)) for name in ("qwen2", "qwen3"))
    code = f"""
import gc, os, weakref
from dataclasses import replace
from model_probe.presets import DEFAULT
from model_probe.recording import load_recording
from viz import measure
from viz.figures.depth import depth_figure
from viz.offers import offers
from viz.text import words
from viz.theme import LIGHT

def run(folder):
    os.environ["{CHECKPOINT_VARIABLE}"] = folder
    (offer,) = offers()
    measure._measure(bench, replace(offer, code=folder), "alpha beta", lambda *_: None)

bench = measure.Bench()
run({first!r})
print(gc.get_freeze_count() > len(gc.get_objects()))
left = weakref.ref(bench.checkpoint.model)
drawn = weakref.ref(depth_figure(load_recording().traces[DEFAULT], words("en"), LIGHT))
gc.collect()
print(drawn() is not None)  # it is kept
run({second!r})
print(drawn() is None)
print(gc.get_freeze_count() > len(gc.get_objects()))
held = gc.get_freeze_count()
for _ in range(3):
    run({first!r})
    run({second!r})
print(gc.get_freeze_count() < held + 500)
print(left() is None)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["True"] * 6, ran.stderr


def test_streamlit_does_not_look_after_every_run_of_a_page() -> None:
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert config["runner"] == {"postScriptGC": False}

"""The quiz's questions: what is asked, which answer is right, and where each answer can be tried.

Texts are `quiz.<question>.ask`, and `quiz.<question>.<option>.text` and `.why`. What a question says in numbers
is computed from the recording and the profiles, and where the right answer itself is a number, so is the answer.
Neither Streamlit nor torch is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from urllib.parse import urlencode

import numpy as np

from model_probe.illustrations import LARGEST_L2, SMALLEST_L2, attention_at
from model_probe.presets import DEFAULT
from model_probe.profiles import load_profiles
from model_probe.recording import Recording, load_recording
from model_probe.sites import count_gain
from model_probe.summaries import summarize
from viz.text import number

GROWTH: Final = {"one": 1.0, "ten": 10.0, "hundred": 100.0, "thousand": 1000.0}
SINK_LAYER: Final = 4  # where the recorded prompt's mean and median are furthest apart
FLOAT16_MAX: Final = float(np.finfo(np.float16).max)


@dataclass(frozen=True, slots=True)
class Option:
    """One answer, and the page, in a state, that shows why it is right or wrong."""

    code: str
    page: str
    choices: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """The page and its state, as prose names them after `page:`."""
        return f"{self.page}?{urlencode(self.choices)}" if self.choices else self.page


@dataclass(frozen=True, slots=True)
class Question:
    """One question: its answers in the order shown, and the code of the right one or how to find it."""

    key: str
    options: tuple[Option, ...]
    answer: str | Callable[[Recording], str]
    facts: Callable[[Recording], Mapping[str, str]] = field(default=lambda _: {})

    def option(self, code: str) -> Option:
        """The answer of this code. Raises KeyError when there is none."""
        for option in self.options:
            if option.code == code:
                return option
        raise KeyError(code)

    @property
    def right(self) -> str:
        """The code of the right answer."""
        return self.answer if isinstance(self.answer, str) else self.answer(load_recording())

    @property
    def values(self) -> Mapping[str, str]:
        """What its texts have in braces, as text."""
        return self.facts(load_recording())


def _residual(recording: Recording) -> np.ndarray:
    return np.array([summarize(site.input.l2) for site in recording.traces[DEFAULT].depth()])


def _growth_factor(recording: Recording) -> float:
    line = _residual(recording)
    return float(line[-1] / line[0])


def _growth(recording: Recording) -> str:
    factor = _growth_factor(recording)
    return min(GROWTH, key=lambda code: abs(math.log(factor / GROWTH[code])))


def _growth_facts(recording: Recording) -> Mapping[str, str]:
    line = _residual(recording)
    return {"factor": number(_growth_factor(recording)), "first": number(line[0]), "last": number(line[-1])}


def _size_facts(recording: Recording) -> Mapping[str, str]:
    root = math.sqrt(recording.checkpoint.hidden_size)
    outputs = [summarize(site.output.l2) / root for site in recording.traces[DEFAULT].depth()]
    return {
        "size": str(recording.checkpoint.hidden_size),
        "root": number(root, 4),
        "least": number(min(outputs), 2),
        "most": number(max(outputs), 2),
    }


def _count_facts(recording: Recording) -> Mapping[str, str]:
    layers = recording.checkpoint.num_layers
    return {
        "layers": str(layers),
        "one_each": str(layers + 1),
        "two_each": str(2 * layers),
        "two_and_final": str(2 * layers + 1),
        "found": str(len(recording.traces[DEFAULT].depth())),
    }


def _count(recording: Recording) -> str:
    facts = _count_facts(recording)
    return next(
        code for code in ("layers", "one_each", "two_each", "two_and_final") if facts[code] == facts["found"]
    )


def _first_gain_facts(recording: Recording) -> Mapping[str, str]:
    gain = recording.traces[DEFAULT].depth()[0]
    measured = recording.site(gain.name).gain
    if measured is None:
        raise ValueError(f"{gain.name} has no gain")
    counts = count_gain(measured)
    return {
        "size": str(len(measured)),
        "amplified": str(counts.amplified),
        "negative": str(counts.negative),
        "rms": number(float(np.sqrt(np.mean(measured.astype(float) ** 2)))),
    }


def _first_gain(recording: Recording) -> str:
    facts = _first_gain_facts(recording)
    share = int(facts["amplified"]) / int(facts["size"])
    return "none" if share < 0.1 else "half" if share < 0.9 else "most"


def _typical_facts(recording: Recording) -> Mapping[str, str]:
    trace = recording.traces[DEFAULT]
    l2 = trace.site(f"model.layers.{SINK_LAYER}.input_layernorm").input.l2
    return {
        "layer": str(SINK_LAYER),
        "mean": number(summarize(l2, "mean"), 2),
        "median": number(summarize(l2), 2),
        "largest": number(float(l2.max())),
    }


def _upcast_facts(recording: Recording) -> Mapping[str, str]:
    largest = max(float(site.input.abs_max.max()) for site in recording.traces[DEFAULT].sites)
    return {"limit": number(math.sqrt(FLOAT16_MAX)), "largest": number(largest), "max": number(FLOAT16_MAX)}


def _saturation_facts(_: Recording) -> Mapping[str, str]:
    return {
        "top": number(100 * attention_at(LARGEST_L2).top, 3),
        "jacobian": number(attention_at(LARGEST_L2).jacobian, 1),
        "longest": number(LARGEST_L2),
        "shortest": number(SMALLEST_L2, 1),
        "even": number(100 * attention_at(SMALLEST_L2).entropy_share, 4),
    }


def _post_norm_ratio() -> float:
    stack = load_profiles().stack("xavier", "post_norm", int(_DEEP["depth"]))
    return stack.first_over_last("weight_gradient")


def _post_norm(_: Recording) -> str:
    ratio = _post_norm_ratio()
    return "vanish" if ratio < 0.5 else "stay" if ratio < 2 else "explode"


def _post_norm_facts(_: Recording) -> Mapping[str, str]:
    return {"layers": _DEEP["depth"], "ratio": number(_post_norm_ratio(), 2)}


_PROBE: Final = "probe"
_DEEP: Final = {"depth": "24"}
_SATURATED: Final = {"l2": f"{LARGEST_L2:g}"}
_FLAT: Final = {"l2": f"{SMALLEST_L2:g}"}
_MEAN: Final = {"statistic": "mean", "norm": str(SINK_LAYER)}
_FIRST_NORM: Final = {"layer": "0", "site": "input_layernorm"}

QUESTIONS: Final[tuple[Question, ...]] = (
    Question(
        "lacks",
        (
            Option("gain", "formula"),
            Option("mean", "formula"),
            Option("division", "formula"),
            Option("shape", "formula"),
        ),
        "mean",
    ),
    Question(
        "size",
        (
            Option("unit", "formula"),
            Option("same", _PROBE),
            Option("root_then_gain", _PROBE),
            Option("root_both", "gain"),
        ),
        "root_then_gain",
        _size_facts,
    ),
    Question("growth", tuple(Option(code, _PROBE) for code in GROWTH), _growth, _growth_facts),
    Question(
        "times_seven",
        (Option("seven", "scale"), Option("same", "scale"), Option("root", "scale")),
        "same",
    ),
    Question(
        "plus_five",
        (Option("changes", "scale"), Option("same", "scale"), Option("zero", "scale")),
        "changes",
    ),
    Question(
        "neighbours",
        (Option("rescaled", "scale"), Option("position", "scale"), Option("nothing", "scale")),
        "nothing",
    ),
    Question(
        "epsilon",
        (
            Option("never", "scale", {"factor": "0.0001"}),
            Option("small", "scale", {"factor": "0.0001"}),
            Option("large", "scale", {"factor": "10"}),
        ),
        "small",
    ),
    Question(
        "count",
        (
            Option("layers", _PROBE),
            Option("one_each", _PROBE),
            Option("two_each", _PROBE, {"norm": "final"}),
            Option("two_and_final", _PROBE, {"norm": "final"}),
        ),
        _count,
        _count_facts,
    ),
    Question(
        "pre_norm",
        (
            Option("parameters", "placement"),
            Option("path", "placement"),
            Option("residual", "placement"),
            Option("unit", _PROBE),
        ),
        "path",
    ),
    Question(
        "post_norm",
        tuple(Option(code, "placement", _DEEP) for code in ("vanish", "stay", "explode")),
        _post_norm,
        _post_norm_facts,
    ),
    Question(
        "first_gain",
        (
            Option("none", "gain", _FIRST_NORM),
            Option("half", "gain", _FIRST_NORM),
            Option("most", "gain", _FIRST_NORM),
        ),
        _first_gain,
        _first_gain_facts,
    ),
    Question(
        "stored_zero",
        (Option("one", "gain"), Option("silent", "gain"), Option("random", "gain")),
        "one",
    ),
    Question(
        "direction",
        (
            Option("kept", "gain", {"blend": "100"}),
            Option("divided", "gain", {"blend": "0"}),
            Option("turned", "gain", {"blend": "100"}),
            Option("flattened", "gain", {"blend": "100"}),
        ),
        "turned",
    ),
    Question(
        "typical",
        (
            Option("error", _PROBE, _MEAN),
            Option("gain", _PROBE, _MEAN),
            Option("sink", _PROBE, _MEAN),
        ),
        "sink",
        _typical_facts,
    ),
    Question(
        "drift",
        (
            Option("directly", "saturation", _SATURATED),
            Option("normed", _PROBE),
            Option("last", _PROBE, {"norm": "final"}),
        ),
        "normed",
    ),
    Question(
        "saturated",
        (
            Option("sensitivity", "saturation", _SATURATED),
            Option("inexact", "saturation", _SATURATED),
            Option("useless", "saturation", _SATURATED),
        ),
        "sensitivity",
        _saturation_facts,
    ),
    Question(
        "small",
        (
            Option("even", "saturation", _FLAT),
            Option("winner", "saturation", _FLAT),
            Option("best", "saturation", _FLAT),
        ),
        "even",
        _saturation_facts,
    ),
    Question(
        "hidden_states",
        (
            Option("residual", _PROBE, {"norm": "final"}),
            Option("normed", _PROBE, {"norm": "final"}),
            Option("logits", _PROBE, {"norm": "final"}),
        ),
        "normed",
    ),
    Question(
        "upcast",
        (
            Option("speed", "formula"),
            Option("squares", _PROBE, {"norm": str(SINK_LAYER)}),
            Option("gain", "formula"),
        ),
        "squares",
        _upcast_facts,
    ),
)


@lru_cache(maxsize=1)
def rights() -> Mapping[str, str]:
    """The code of the right answer of every question."""
    return {question.key: question.right for question in QUESTIONS}

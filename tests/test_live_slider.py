"""Live sliders, Python's side: stops, sentences, addresses, and that each has its drawing."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import viz.live
from viz.address import Choice
from viz.live import LiveSlider, Stop, phrase, slot
from viz.live.saturation import lengths, saturation_slider
from viz.live.slider import NumberChoice, parts
from viz.text import LANGUAGES, words

HERE = Path(viz.live.__file__).parent
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)


def stop(code: str, value: float | None = None, **readouts: str) -> Stop:
    return Stop(code, f"at {code}", readouts, frame=[1, 2], value=value)


def slider(*stops: Stop, default: str = "a", sentence: str = "", role: str = "accent") -> LiveSlider:
    return LiveSlider("blend", "b", stops, default, "Blend", sentence, "A picture", role=role)


def test_a_sentence_in_pieces() -> None:
    sentence = f"{slot('top')} of all, {phrase('meaning')}. {slot('l2')}"
    assert list(parts(sentence)) == [
        ("number", "top"),
        ("text", " of all, "),
        ("phrase", "meaning"),
        ("text", ". "),
        ("number", "l2"),
    ]
    assert list(parts("plain {braces}")) == [("text", "plain {braces}")]
    assert list(parts("")) == []


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: slider(stop("a")),
        lambda: slider(stop("a"), stop("a")),
        lambda: slider(stop("a"), stop("b"), default="c"),
        lambda: slider(stop("a", x="1"), stop("b")),
        lambda: slider(Stop("a", "a", {"value": "1"}), Stop("b", "b", {"value": "2"})),
        lambda: slider(stop("a", x="1"), stop("b", x="2"), sentence=slot("y")),
        lambda: slider(stop("a"), stop("b"), role="orange"),
    ],
)
def test_what_does_not_fit_together_is_refused(wrong) -> None:
    with pytest.raises(ValueError, match="blend"):
        wrong()


def test_what_the_browser_is_told() -> None:
    made = slider(stop("a", x="1"), stop("b", x="2"), sentence=f"x is {slot('x')}, at {slot('value')}")
    told = made.told()
    assert told["codes"] == ["a", "b"]
    assert told["readouts"] == {"value": ["at a", "at b"], "x": ["1", "2"]}
    assert told["frames"] == [[1, 2], [1, 2]]
    assert told["sentence"][1] == ("number", "x")
    assert told["drawing"] == "blend"


def test_the_version_changes_with_any_text_and_with_nothing_else() -> None:
    made = slider(stop("a", x="1"), stop("b", x="2"))
    assert made.told()["version"] == slider(stop("a", x="1"), stop("b", x="2")).told()["version"]
    for changed in (
        slider(stop("a", x="1"), stop("b", x="3")),
        dataclasses.replace(made, label="Mix"),
        dataclasses.replace(made, still={"axis": "feature"}),
    ):
        assert changed.told()["version"] != made.told()["version"]


def test_an_unknown_stop() -> None:
    with pytest.raises(KeyError):
        slider(stop("a"), stop("b")).at("c")


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("10", "10"),
        ("11", "10"),
        ("54.9", "10"),
        ("55.1", "100"),
        ("-3", "1"),
        ("9e9", "100"),
        ("nan", "1"),
        ("inf", "1"),
        ("", "1"),
        ("<b>", "1"),
        (None, "1"),
        (7, "1"),
    ],
)
def test_a_number_in_an_address_finds_the_nearest_stop(address: object, code: str) -> None:
    choice = slider(*(stop(f"{v:g}", value=v) for v in (1.0, 10.0, 100.0)), default="1").choice
    assert isinstance(choice, NumberChoice)
    assert choice.valid(address) == code


def test_stops_that_are_no_numbers_have_a_plain_choice() -> None:
    choice = slider(stop("a"), stop("b", value=2.0)).choice
    assert type(choice) is Choice
    assert choice.valid("1") == "a"


@pytest.mark.parametrize("file", sorted((HERE / "drawings").glob("*.js")), ids=lambda file: file.stem)
def test_a_drawing_is_called_as_its_file(file: Path) -> None:
    assert re.findall(r"^drawings\.(\w+) =", file.read_text(encoding="utf-8"), re.MULTILINE) == [file.stem]


@LANGUAGE
def test_saturation_has_the_promised_readouts_and_stops(lang: str) -> None:
    made = saturation_slider(words(lang))
    names = set(made.stops[0].readouts)
    assert names >= {*(f"share.{t}" for t in "ABCDEF"), "top", "entropy", "jacobian", "zone"}
    assert len(made.stops) >= 100
    assert (made.stops[0].value, made.stops[-1].value) == (1.0, 512.0)
    assert made.default == "32"
    assert (HERE / "drawings" / f"{made.name}.js").is_file()


def test_saturation_stops_are_evenly_spaced_and_say_what_they_are() -> None:
    steps = np.diff(np.log(lengths()))
    assert steps == pytest.approx(np.log(512) / (len(lengths()) - 1), rel=0.4)
    for each in saturation_slider(words("en")).stops:
        assert each.value is not None
        assert float(each.code) == each.value
        assert 192.0 in lengths()


def test_saturation_shows_the_same_numbers_in_both_languages() -> None:
    chinese, english = (saturation_slider(words(lang)) for lang in LANGUAGES)
    for ours, theirs in zip(chinese.stops, english.stops, strict=True):
        assert ours.code == theirs.code
        assert ours.frame == theirs.frame
        same = set(ours.readouts) - {"zone", "meaning"}
        assert {what: ours.readouts[what] for what in same} == {what: theirs.readouts[what] for what in same}


@pytest.mark.parametrize(
    ("code", "what", "text"),
    [
        ("32", "share.A", "0.325"),
        ("32", "share.F", "0.066"),
        ("32", "entropy", "1.665"),
        ("32", "zone", "informative"),
        ("1", "evenness", "99.99 %"),
        ("1", "zone", "flat"),
        ("192", "top", "0.900"),
        ("192", "jacobian", "0.158"),
        ("512", "zone", "saturated"),
        ("512", "share.F", "0.000"),
    ],
)
def test_saturation_in_worked_numbers(code: str, what: str, text: str) -> None:
    assert saturation_slider(words("en")).at(code).readouts[what] == text


@LANGUAGE
def test_every_zone_begins_at_its_band(lang: str) -> None:
    made = saturation_slider(words(lang))
    for i, each in enumerate(made.stops):
        band = next(
            band for band in made.bands if band.start <= i <= band.end and each.readouts["zone"] == band.label
        )
        assert band.end > band.start

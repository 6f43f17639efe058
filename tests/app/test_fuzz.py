"""Whatever an address or a browser says, every page stays whole: no exception, its title, its charts, its way on.

The parameters of a page are those that it binds, and its widgets those that it draws: nothing is listed here.
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from hostile import GIANT, HUB_IDS, NASTY, PATHS, random_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from streamlit.proto.WidgetStates_pb2 import WidgetState, WidgetStates
from streamlit.testing.v1 import AppTest

from model_probe.progress import Cancelled
from viz import address, predict
from viz.address import LANGUAGE, Choice
from viz.book import BOOK
from viz.jobs import Job
from viz.text import LANGUAGES, words

ROOT = Path(__file__).resolve().parents[2]
STEMS = [entry.stem for entry in BOOK]
PAGE = pytest.mark.parametrize("stem", STEMS)


@pytest.fixture(autouse=True)
def nothing_here(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No checkpoint is here or open, every question is answered, so that all of a page is
    shown, and no work goes on."""
    monkeypatch.setenv("RMSNORM_LAB_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("RMSNORM_LAB_CHECKPOINT", raising=False)
    monkeypatch.setattr(predict, "prediction", lambda question: predict.Prediction(None))
    monkeypatch.setattr(Job, "_run", _cancelled)


def _cancelled(job: Job[Any]) -> None:
    """Work that is stopped at its first word."""
    job._error = Cancelled()


def opened(stem: str, **parameters: str | list[str]) -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / f"{stem}.py"), default_timeout=60)
    for name, value in parameters.items():
        app.query_params[name] = value
    return whole(app.run(), stem)


def whole(app: AppTest, stem: str) -> AppTest:
    """The page without an exception, from its title to its last link."""
    assert not app.exception, [f"{e.message}\n{''.join(e.stack_trace)}" for e in app.exception]
    titles = {lang: words(lang).t(f"{stem}.title") for lang in LANGUAGES}
    assert app.title[0].value in titles.values()
    (lang,) = (lang for lang, title in titles.items() if title == app.title[0].value)
    at = STEMS.index(stem)
    neighbour = STEMS[at + 1] if at + 1 < len(STEMS) else STEMS[at - 1]
    last = app.get("page_link")[-1].proto.label
    assert words(lang).t(f"common.page.{neighbour}") in last
    return app


@pytest.fixture(scope="module")
def parameters() -> Mapping[str, Mapping[str, Choice]]:
    """What each page reads from its address: page → name → choice, as the pages themselves bind them."""
    bound: dict[str, dict[str, Choice]] = {stem: {} for stem in STEMS}
    with pytest.MonkeyPatch.context() as patch:
        remember = address._remember

        def noted(choices: tuple[Choice, ...], chosen: Mapping[str, str]) -> None:
            stem = st.session_state[address._PAGE]
            bound[stem].update({choice.name: choice for choice in choices})
            remember(choices, chosen)

        patch.setattr(address, "_remember", noted)
        patch.setattr(predict, "prediction", lambda question: predict.Prediction(None))
        for stem in STEMS:
            opened(stem)
    return bound


def test_only_one_module_reads_the_address() -> None:
    """So that no parameter escapes `parameters` above: the shell only copies the address into a link."""
    readers = {
        path.relative_to(ROOT).as_posix()
        for folder in ("viz", "pages")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "query_params"
    }
    assert readers == {"viz/address.py", "viz/shell.py"}


def test_the_parameters_are_found(parameters: Mapping[str, Mapping[str, Choice]]) -> None:
    assert {"prompt", "norm", "token", "lines"} <= set(parameters["probe"])
    assert {"run1", "run4", "preset"} <= set(parameters["train"])
    assert {"change1", "change3", "view"} <= set(parameters["release"])
    assert sum(map(len, parameters.values())) >= 40


@PAGE
def test_an_address_that_says_anything_opens_the_page(
    stem: str, parameters: Mapping[str, Mapping[str, Choice]]
) -> None:
    """In a session of its own, and, as after Back and Forward, one after another in the same session."""
    names = [LANGUAGE, *parameters[stem], "embed", "unknown"]
    giant = ["a" * GIANT, "9" * GIANT, "-1_" * (GIANT // 3), "~" * GIANT, "\u202e" * 10_000]
    foreign = {
        c for choices in parameters.values() for choice in choices.values() for c in codes_of(choice)[:2]
    }
    values = random.Random(stem).sample([*NASTY.values(), *giant, *foreign], k=len(NASTY) + 30)
    app = opened(stem, **dict(zip(names, values, strict=False)))
    for turn in range(min(-(-len(values) // len(names)), 12)):
        for i, name in enumerate(names):
            app.query_params[name] = values[(turn * len(names) + i) % len(values)]
        whole(app.run(), stem)


def codes_of(choice: Choice) -> tuple[str, ...]:
    return choice.codes or (choice.default,)


def mangled(choice: Choice) -> some.SearchStrategy[str]:
    """A code of the choice, cut, doubled, or with something put into it."""

    def put(code: str, at: int, what: str) -> str:
        at %= len(code) + 1
        return code[:at] + what + code[at:]

    codes = some.sampled_from(codes_of(choice))
    what = some.sampled_from([*NASTY.values(), "-", "_", "~", ".", "0", "9" * 20, "-1", "e9", "\u0663"])
    return (
        codes
        | some.builds(put, codes, some.integers(0, 40), what)
        | some.builds(lambda code, end: code[:end], codes, some.integers(0, 20))
        | some.builds(lambda code, n: code * n, codes, some.integers(2, 400))
    )


@PAGE
def test_any_address_opens_the_page(stem: str, parameters: Mapping[str, Mapping[str, Choice]]) -> None:
    anything = some.text(some.characters(exclude_categories=["Cs"]), max_size=30) | some.sampled_from(
        list(NASTY.values())
    )
    by_name = {name: mangled(choice) | anything for name, choice in parameters[stem].items()}
    by_name |= {LANGUAGE: some.sampled_from(["zh", "en", "ZH-hant"]) | anything}
    values = {name: value | some.lists(value, min_size=2, max_size=3) for name, value in by_name.items()}

    @settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(some.fixed_dictionaries({}, optional=values))
    def opens(chosen: dict[str, str | list[str]]) -> None:
        opened(stem, **chosen)

    opens()


# what a browser says of a widget


def hostile_states(proto: Any, rng: random.Random) -> WidgetState | None:
    """What a client of its own making says of one widget: past its limits, or nothing that it offers."""
    if not isinstance(getattr(proto, "id", None), str):
        return None
    kind, state = type(proto).__name__, WidgetState(id=proto.id)
    text = rng.choice([*NASTY.values(), *PATHS, *HUB_IDS])
    beyond = rng.choice([1e300, -1e300, float("inf"), float("nan"), -1.0, 10.0**9])
    if kind == "Slider" and proto.options:
        state.string_array_value.data.extend(rng.choice([[text], [text, text], [], [text] * 100]))
    elif kind == "Slider":
        low, high = proto.min, proto.max
        state.double_array_value.data.extend(
            rng.choice([[beyond], [high, low], [beyond, beyond], [], [low] * 9])
        )
    elif kind == "NumberInput":
        state.double_value = rng.choice([1e300, -5.0, 2.0**63, 0.5])
    elif kind == "Selectbox":
        state.string_value = text
    elif kind == "ButtonGroup":
        state.string_array_value.data.extend(
            rng.choice([[text], [], [text] * 100, list(map(str, proto.default))[:1] * 50])
        )
    elif kind == "Checkbox":
        state.bool_value = rng.random() < 0.5
    elif kind == "TextArea":
        state.string_value = random_text(rng)
    elif kind == "BidiComponent":
        state.json_value = json.dumps(component_state(rng))
    elif kind == "PlotlyChart":
        place = rng.choice([1e999, -1, "x", None, {}, [], 10**40, True])
        points = rng.choice([[{"x": place, "y": place}], [place], [{}], []])
        state.string_value = json.dumps(
            {"selection": {"points": points, "point_indices": [0], "box": [], "lasso": []}}
        )
    elif kind == "Button":
        state.trigger_value = True  # whether it is drawn as disabled or not
        return state if rng.random() < 0.2 else None
    else:
        return None
    return state


def component_state(rng: random.Random) -> dict[str, Any]:
    """State of any of our components: a live slider's, the cells', the shell's, the typing's, the wait's."""
    text = rng.choice([*NASTY.values(), "\ud800", "a" * 5000])
    anything: Any = rng.choice(
        [text, None, True, 10**400, float("nan"), [], [text], {}, {text: text}, [[[]]] * 50]
    )
    stem = rng.choice([*STEMS, text, anything])
    return {
        "released": rng.choice([anything, {"stop": anything, "turn": anything}]),
        "entered": rng.choice([anything, {"code": anything, "turn": anything}]),
        "theme": anything,
        "visit": rng.choice(
            [anything, {"page": stem, "choices": rng.choice([anything, {"lang": anything}])}]
        ),
        "painted": anything,
        "typed": anything,
    }


@PAGE
def test_a_browser_that_says_anything_of_the_widgets_gets_the_page(stem: str) -> None:
    rng, app = random.Random(7), opened(stem)
    for turn in range(10):
        said = WidgetStates()
        for element in app._tree:
            state = hostile_states(getattr(element, "proto", None), rng)
            if state is not None and (turn == 0 or rng.random() < 0.5):
                said.widgets.append(state)
        assert said.widgets or turn > 0
        app._run(said)
        assert not app.exception, [f"{e.message}\n{''.join(e.stack_trace)}" for e in app.exception]
        if not app.title:  # a link was followed: the script that AppTest runs is still this page's
            app = opened(stem)
        whole(app, stem)

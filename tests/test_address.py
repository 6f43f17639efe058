"""Choices in the address: read from a link, written by Python alone, remembered per page."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from viz.address import Choice


def bench() -> None:
    import streamlit as st

    from viz import address
    from viz.address import Choice

    layer = Choice("layer", codes=("0", "1", "2"), default="0")
    kind = Choice("kind", codes=("median", "mean"), default="median")
    address.enter(st.session_state.get("stem", "probe"))
    chosen = address.bind(layer, kind)
    st.selectbox("layer", layer.codes, key=layer.key)
    st.segmented_control("kind", kind.codes, key=kind.key)
    st.text(f"{chosen['layer']} {chosen['kind']}")
    st.text(str(dict(address.remembered("probe"))))


def opened(**params: str) -> AppTest:
    app = AppTest.from_function(bench)
    for name, value in params.items():
        app.query_params[name] = value
    return app.run()


def chosen(app: AppTest) -> str:
    assert not app.exception
    layer, kind = app.selectbox[0].value, app.segmented_control[0].value
    assert app.text[0].value == f"{layer} {kind}"
    return app.text[0].value


def address(app: AppTest) -> dict[str, str]:
    return {name: value[0] if isinstance(value, list) else value for name, value in app.query_params.items()}


def test_nothing_in_the_address_is_the_default_and_writes_nothing() -> None:
    app = opened(lang="zh")
    assert chosen(app) == "0 median"
    assert address(app) == {"lang": "zh"}


def test_a_link_sets_the_widgets() -> None:
    app = opened(layer="2", kind="mean")
    assert chosen(app) == "2 mean"
    assert address(app) == {"layer": "2", "kind": "mean"}


@pytest.mark.parametrize("nonsense", ["7", "", "<b>", "中"])
def test_nonsense_in_a_link_is_the_default(nonsense: str) -> None:
    assert chosen(opened(layer=nonsense)) == "0 median"


def test_a_widget_writes_its_code_and_its_default_nothing() -> None:
    app = opened(lang="en")
    app.selectbox[0].set_value("1").run()
    assert chosen(app) == "1 median"
    assert address(app) == {"lang": "en", "layer": "1"}
    app.selectbox[0].set_value("0").run()
    assert chosen(app) == "0 median"
    assert address(app) == {"lang": "en"}


def test_back_moves_the_widget() -> None:
    app = opened()
    app.selectbox[0].set_value("1").run()
    app.selectbox[0].set_value("2").run()
    app.query_params["layer"] = "1"  # what the browser sends after Back
    assert chosen(app.run()) == "1 median"
    del app.query_params["layer"]
    assert chosen(app.run()) == "0 median"


def test_the_reader_wins_over_an_address_that_changed_in_the_same_moment() -> None:
    app = opened(layer="1")
    app.query_params["layer"] = "2"
    app.segmented_control[0].set_value("mean").run()
    assert chosen(app) == "2 mean"
    app.query_params["layer"] = "1"
    app.selectbox[0].set_value("0").run()
    assert chosen(app) == "0 mean"


def test_a_choice_cannot_be_emptied() -> None:
    app = opened(kind="mean")
    app.segmented_control[0].set_value(None).run()
    assert chosen(app) == "0 mean"


def test_the_choices_of_a_page_are_remembered_for_its_links() -> None:
    app = opened(layer="2")
    assert app.text[1].value == "{'layer': '2'}"
    app.session_state["stem"] = "gain"
    app.query_params.clear()
    app.run()
    assert chosen(app) == "0 median"  # the same name on another page is another choice
    assert app.text[1].value == "{'layer': '2'}"


def languages() -> None:
    import streamlit as st

    from viz import address

    st.text(address.language(st.session_state.get("locale")))


@pytest.mark.parametrize(
    ("parameter", "locale", "expected"),
    [
        (None, None, "en"),
        (None, "zh-CN", "zh"),
        (None, "zh_TW", "zh"),
        (None, "zh", "zh"),
        (None, "de-DE", "en"),
        ("en", "zh-CN", "en"),
        ("zh", "en-GB", "zh"),
        ("ZH", "en-GB", "zh"),
        ("fr", "zh-CN", "zh"),
        ("", "zh-CN", "zh"),
    ],
)
def test_language(parameter: str | None, locale: str | None, expected: str) -> None:
    app = AppTest.from_function(languages)
    app.session_state["locale"] = locale
    if parameter is not None:
        app.query_params["lang"] = parameter
    assert app.run().text[0].value == expected


def test_valid() -> None:
    choice = Choice("layer", codes=("0", "1"), default="0")
    assert [choice.valid(value) for value in ("1", "2", None, 1)] == ["1", "0", "0", "0"]


def test_a_widget_is_told_its_value_until_the_reader_has_used_it() -> None:
    """A browser that loads the widget's code late sees only the last run."""
    app = opened(layer="2", kind="mean")
    for _ in range(2):
        app.run()
        assert app.selectbox[0].proto.set_value
        assert app.segmented_control[0].proto.set_value
    app.selectbox[0].set_value("1").run()
    app.run()
    assert not app.selectbox[0].proto.set_value  # the browser's own: nothing is said against a later move
    assert app.segmented_control[0].proto.set_value
    assert chosen(app) == "1 mean"

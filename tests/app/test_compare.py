"""Compare on the probe, in both languages: every choice, a file opened or refused, a link that opens in the state."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from model_probe.catalog import CHECKPOINT_VARIABLE
from model_probe.presets import PRESETS
from model_probe.recording import load_recording
from model_probe.trace import NormTrace
from model_probe.trace_files import to_csv, to_json, to_npz
from viz.compare import Pair
from viz.compare_controls import MEGABYTES
from viz.text import LANGUAGES, number, plain, words

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
FOX, RIVER = load_recording().traces["fox"], load_recording().traces["river"]


def working(app: AppTest) -> AppTest:
    assert not app.exception
    return app


def opened(lang: str = "en", **choices: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / "probe.py"), default_timeout=60)
    app.query_params["lang"] = lang
    for name, code in choices.items():
        app.query_params[name] = code
    return working(app.run())


def charts(app: AppTest) -> dict[str, dict]:
    drawn = {element.proto.id.rsplit("-probe-", 1)[-1]: element.proto for element in app.get("plotly_chart")}
    return {name: json.loads(proto.spec) for name, proto in drawn.items()}


def lines(app: AppTest) -> list[str]:
    return [line["name"] for line in charts(app)["depth"]["data"]]


def title(figure: dict) -> str:
    return html.unescape(figure["layout"]["meta"]["title"])


def said(app: AppTest) -> str:
    """All text on the page, as it is read."""
    elements = (*app.markdown, *app.caption, *app.info, *app.warning, *app.error)
    return plain("\n".join(element.value for element in elements))


def table(app: AppTest) -> str:
    return next(e.proto.body for e in app.get("html") if 'data-figure="input.l2"' in e.proto.body)


def menu(app: AppTest):
    return next(box for box in app.selectbox if box.key.startswith("choice.compare."))


def choose(app: AppTest, code: str) -> AppTest:
    return working(menu(app).set_value(code).run())


def address(app: AppTest, name: str) -> str | None:
    value = app.query_params.get(name)
    return value if value is None or isinstance(value, str) else value[-1]


def open_file(app: AppTest, content: bytes | str, name: str) -> AppTest:
    data = content.encode() if isinstance(content, str) else content
    app.file_uploader[0].set_value((name, data, "application/octet-stream"))
    return working(app.run())


def renamed(trace: NormTrace, **facts: object) -> NormTrace:
    return dataclasses.replace(trace, checkpoint=dataclasses.replace(trace.checkpoint, **facts))


@LANGUAGE
def test_without_a_comparison_the_page_is_as_before(lang: str) -> None:
    app, text = opened(lang), words(lang)
    assert menu(app).value == "none"
    assert menu(app).options[0] == text.t("compare.none")
    assert lines(app) == [text.t(f"common.series.{line}") for line in ("residual", "normalized", "output")]
    assert not app.file_uploader
    assert ".second" not in table(app)
    assert not [control for control in app.segmented_control if control.key == "choice.map"]


@LANGUAGE
@pytest.mark.parametrize("preset", PRESETS)
def test_a_recording_is_laid_over(lang: str, preset: str) -> None:
    text = words(lang)
    app = choose(opened(lang, prompt="river"), preset)
    assert address(app, "compare") == preset
    residual = text.t("common.series.residual")
    assert {f"{residual} A", f"{residual} B"} <= set(lines(app))
    assert 'data-figure="input.l2.second"' in table(app)
    second = load_recording().traces[preset]
    if preset == "river":
        assert text.t("compare.same") in said(app)
        return
    a, b = Pair(RIVER, second).names(text)
    assert a in said(app)
    assert b in said(app)
    assert text.t("common.provenance.recording", date="").strip() in said(app)
    middle = float(np.median(second.sites[-1].input.l2))
    assert number(middle) in said(app)  # where the second's residual ends


@LANGUAGE
def test_a_link_opens_in_its_state(lang: str) -> None:
    state = {"prompt": "fox", "compare": "chinese", "map": "second", "norm": "7.input_layernorm"}
    app = opened(lang, **state)
    assert {name: address(app, name) for name in state} == state
    assert menu(app).value == "chinese"
    assert "compare=chinese" in app.code[0].value
    assert "map=second" in app.code[0].value
    tokens = load_recording().traces["chinese"].tokens
    assert len(charts(app)["heatmap"]["layout"]["xaxis"]["ticktext"]) <= len(tokens)
    choose(app, "none")
    assert address(app, "compare") is None


@LANGUAGE
@pytest.mark.parametrize("code", ["live-1", "file", "<script>", "99"])
def test_what_another_session_has_compares_with_nothing_here(lang: str, code: str) -> None:
    app = opened(lang, compare=code)
    assert lines(app)[0] == words(lang).t("common.series.residual")


@LANGUAGE
def test_other_tokens_have_no_ratio_and_the_page_says_why(lang: str) -> None:
    app, text = opened(lang, compare="river", map="ratio"), words(lang)
    assert text.t("compare.unlike.tokens") in said(app)
    own = charts(opened(lang))["heatmap"]
    assert title(charts(app)["heatmap"]) == title(own)  # still the first's map
    working(app.segmented_control(key="choice.map").set_value("second").run())
    assert address(app, "map") == "second"
    names = charts(app)["heatmap"]["layout"]["xaxis"]["ticktext"]
    assert names != own["layout"]["xaxis"]["ticktext"]


@LANGUAGE
def test_live_results_can_be_compared_with(
    lang: str, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHECKPOINT_VARIABLE, str(tiny_folder("qwen2")))
    text = words(lang)
    app = opened(lang)
    for prompt in ("alpha beta", "gamma delta"):
        working(app.text_area(key="probe.text").set_value(prompt).run())
        working(app.button(key="probe-run").click().run())
    options = dict(zip(range(20), menu(app).options, strict=False))
    live = [option for option in options.values() if "alpha beta" in option or "gamma delta" in option]
    assert len(live) == 2
    choose(app, "live-1")
    assert address(app, "compare") == "live-1"
    assert {f"{text.t('common.series.output')} {mark}" for mark in "AB"} <= set(lines(app))
    assert "alpha beta" in said(app)
    assert "alpha beta" not in app.code[0].value  # a typed prompt never goes into a link
    choose(app, "fox")  # another checkpoint, of another depth
    assert charts(app)["depth"]["layout"]["xaxis"]["title"]["text"] == text.t("compare.depth.x_stretched")
    working(app.text_area(key="probe.text").set_value(PRESETS["fox"]).run())
    working(app.button(key="probe-run").click().run())
    assert text.t("compare.unlike.sites") in said(app) or text.t("compare.unlike.tokens") in said(app)
    working(app.pills(key="choice.prompt").set_value("river").run())


@LANGUAGE
def test_a_layer_that_the_second_has_not_is_said(
    lang: str, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHECKPOINT_VARIABLE, str(tiny_folder("qwen2")))
    app, text = opened(lang), words(lang)
    working(app.text_area(key="probe.text").set_value("alpha").run())
    working(app.button(key="probe-run").click().run())
    working(app.pills(key="choice.prompt").set_value("fox").run())
    app.session_state["choice.norm"] = "20.input_layernorm"
    choose(app, "live-1")
    last = app.session_state["compare.codes"]
    assert last
    trace = next(iter(app.session_state["measure.results"].values()))
    assert text.t("compare.no_layer", layer=20, last=trace.checkpoint.num_layers - 1) in said(app)
    app.session_state["choice.norm"] = "final.norm"
    working(app.run())
    assert text.t("compare.no_norm") not in said(app)


# a file


WRITERS: dict[str, Callable[[NormTrace], bytes | str]] = {"json": to_json, "csv": to_csv, "npz": to_npz}


@LANGUAGE
@pytest.mark.parametrize("ending", WRITERS)
def test_a_saved_trace_is_opened(lang: str, ending: str) -> None:
    app, text = choose(opened(lang), "file"), words(lang)
    assert address(app, "compare") == "file"
    assert lines(app)[0] == text.t("common.series.residual")  # nothing is open yet
    second = renamed(FOX, dtype="bfloat16", name="another")
    open_file(app, WRITERS[ending](second), f"<b>trace.{ending}")
    assert f"{text.t('common.series.residual')} B" in lines(app)
    assert "another · bfloat16" in said(app)
    assert text.t("common.provenance.file", date="").strip()[:4] in said(app)
    assert text.t("compare.is_open", name=f"<b>trace.{ending}") in said(app)
    assert not app.error
    working(app.segmented_control(key="choice.map").set_value("ratio").run())
    figure = charts(app)["heatmap"]
    assert title(figure) == text.t("compare.map.alike", line=text.t("common.series.residual").capitalize())
    assert figure["data"][0]["zmin"] == -figure["data"][0]["zmax"]
    choose(app, "none")
    choose(app, "file")  # it is still there
    assert f"{text.t('common.series.residual')} B" in lines(app)


def bomb() -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("input_l2.npy", b"\0" * 300_000_000)
    return buffer.getvalue()


REFUSED: dict[str, tuple[str, Callable[[], bytes | str]]] = {
    "not_whole": ("t.json", lambda: to_json(FOX)[:-50]),
    "format": ("t.json", lambda: to_json(FOX).replace("rmsnorm-trace/1", "rmsnorm-trace/9")),
    "counts": ("t.csv", lambda: to_csv(FOX) + to_csv(FOX).splitlines(keepends=True)[-1]),
    "ending": ("t.exe", lambda: b"MZ"),
    "too_large": ("t.json", lambda: b"[" * 2_000_000),
    "malformed": ("t.npz", bomb),
}


@LANGUAGE
@pytest.mark.parametrize("why", REFUSED)
def test_what_is_no_trace_is_a_sentence_in_the_pages_language(lang: str, why: str) -> None:
    app, text = choose(opened(lang), "file"), words(lang)
    name, make = REFUSED[why]
    open_file(app, make(), name)
    reason = plain(app.error[0].value)
    facts = {"kind": "JSON", "found": "'rmsnorm-trace/9'", "wanted": "'rmsnorm-trace/1'"}
    assert reason == text.t("errors.not_a_trace", path=name, reason=text.t(f"compare.refused.{why}", **facts))
    assert lines(app)[0] == text.t("common.series.residual")  # the page stays
    open_file(app, to_json(renamed(FOX, dtype="float16")), "good.json")  # the next one works
    assert not app.error
    assert "float16" in said(app)


@LANGUAGE
def test_a_trace_without_a_depth_is_refused(lang: str) -> None:
    heads = dataclasses.replace(FOX, sites=tuple(dataclasses.replace(s, role="query") for s in FOX.sites))
    app = open_file(choose(opened(lang), "file"), to_json(heads), "heads.json")
    assert words(lang).t("compare.no_depth") in app.error[0].value


@LANGUAGE
def test_markup_in_a_file_is_shown_letter_for_letter(lang: str) -> None:
    """Fault 20."""
    hostile = "<img src=x onerror=alert(1)>$\\frac12$[a](javascript:alert(1))`|"
    sites = tuple(dataclasses.replace(s, name=f"{hostile}{i}") for i, s in enumerate(FOX.sites))
    tokens = tuple(dataclasses.replace(t, text=hostile) for t in FOX.tokens)
    second = dataclasses.replace(
        renamed(FOX, name=hostile, dtype="<b>"), sites=sites, tokens=tokens, prompt=hostile
    )
    app = open_file(
        choose(opened(lang, map="second"), "file"), to_json(second), f"{hostile}.json".replace("/", "")
    )
    assert not app.error
    for element in (*app.markdown, *app.caption, *app.info):
        assert not re.search(r"(?<!\\)(<img|\$\\?\\frac|\[a\])", element.value)
    assert "<img" not in table(app)
    assert "<img" not in "".join(element.proto.spec for element in app.get("plotly_chart"))
    assert "<img src=x" in said(app)


def test_a_file_is_this_sessions_alone() -> None:
    first = open_file(choose(opened(), "file"), to_json(renamed(FOX, dtype="float16")), "mine.json")
    assert "float16" in said(first)
    second = choose(opened(), "file")
    assert "residual" in lines(second)


def test_the_server_takes_no_larger_files() -> None:
    import tomllib

    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert config["server"]["maxUploadSize"] == MEGABYTES
    app = choose(opened(), "file")
    assert app.file_uploader[0].proto.max_upload_size_mb == MEGABYTES


def test_a_click_in_the_seconds_own_map_changes_nothing_of_the_first() -> None:
    app = opened(compare="river", map="second")
    proto = next(e.proto for e in app.get("plotly_chart") if e.proto.id.endswith("-probe-heatmap"))
    assert not proto.selection_mode
    same = opened(compare="fox", map="second")
    proto = next(e.proto for e in same.get("plotly_chart") if e.proto.id.endswith("-probe-heatmap"))
    assert proto.selection_mode

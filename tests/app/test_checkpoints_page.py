"""Several checkpoints on one machine: chosen by a code, opened one at a time, each with results of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import streamlit as st
from hub import Hub
from streamlit.testing.v1 import AppTest

import model_probe
from model_probe import capture, fetch, open_checkpoint
from model_probe.catalog import CHECKPOINT_VARIABLE
from model_probe.progress import Cancelled, Progress
from viz import measure
from viz.jobs import Job
from viz.measure import Bench, Download
from viz.offers import OPERATORS, Offer, here, offers
from viz.text import LANGUAGES, words

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
FIRST, SECOND = "qwen3-0.6b", "qwen2.5-0.5b"  # in the order of the table
PROMPT = "alpha beta"


@pytest.fixture(autouse=True)
def fresh_bench() -> Iterator[None]:
    """No checkpoint is open from another test."""
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


@pytest.fixture
def two_here(
    empty_caches: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Path]:
    """Two of the table, tiny ones in their place, fetched from a hub: folders by name."""
    with Hub({"Qwen/Qwen3-0.6B": tiny_folder("qwen3"), "Qwen/Qwen2.5-0.5B": tiny_folder("qwen2")}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        folders = {name: fetch(name) for name in (FIRST, SECOND)}
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    return folders


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was opened, in order."""
    opened: list[object] = []
    real = open_checkpoint

    def counted(where: str, **settings: object) -> object:
        opened.append(where)
        return real(where, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(model_probe, "open_checkpoint", counted, raising=False)
    return opened


def page(lang: str = "en", **choices: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / "probe.py"), default_timeout=60)
    app.query_params["lang"] = lang
    for name, code in choices.items():
        app.query_params[name] = code
    return working(app.run())


def working(app: AppTest) -> AppTest:
    assert not app.exception
    return app


def measure_prompt(app: AppTest, text: str) -> AppTest:
    working(app.text_area(key="probe.text").set_value(text).run())
    return working(app.button(key="probe-run").click().run())


def captions(app: AppTest) -> str:
    return "\n".join(element.value for element in app.caption).replace("\\", "")


def quiet(stage: str, done: float | None = None, detail: str = "") -> None:
    pass


@LANGUAGE
def test_from_one_to_the_other_and_back(lang: str, two_here: dict[str, Path], loads: list[object]) -> None:
    app, text = page(lang), words(lang)
    menu = app.selectbox(key="choice.checkpoint")
    assert menu.label == text.t("checkpoints.choose")
    assert menu.options == [FIRST, SECOND]
    measure_prompt(app, PROMPT)
    working(app.selectbox(key="choice.checkpoint").set_value(SECOND).run())
    assert text.t("probe.not_on_this", run=text.t("probe.run")) in [note.value for note in app.info]
    assert not app.button(key="probe-run").disabled
    working(app.button(key="probe-run").click().run())
    assert f" {SECOND}" in captions(app)
    working(app.selectbox(key="choice.checkpoint").set_value(FIRST).run())
    assert app.button(key="probe-run").disabled  # measured already, and shown again
    results = app.session_state["measure.results"]
    assert set(results) == {(FIRST, PROMPT), (SECOND, PROMPT)}
    for name, folder in two_here.items():
        alone = capture(open_checkpoint(folder, device="cpu", dtype="float32"), PROMPT)
        shown = results[name, PROMPT]
        assert shown.checkpoint.name == name
        assert [site.name for site in shown.sites] == [site.name for site in alone.sites]
        for mine, theirs in zip(shown.sites, alone.sites, strict=True):
            np.testing.assert_array_equal(mine.output.l2, theirs.output.l2)
    assert loads == [FIRST, SECOND]


def test_a_link_says_which(two_here: dict[str, Path]) -> None:
    app = measure_prompt(page(checkpoint=SECOND), PROMPT)
    assert set(app.session_state["measure.results"]) == {(SECOND, PROMPT)}
    assert page(checkpoint="/etc/passwd").selectbox(key="choice.checkpoint").value == FIRST


def test_without_any_four_are_offered(empty_caches: Path) -> None:
    app = page()
    assert [b.key for b in app.button if str(b.key).startswith("fetch-")] == [
        "fetch-qwen2.5-coder-0.5b",
        "fetch-qwen3.5-0.8b",
        "fetch-qwen3-0.6b",
        "fetch-qwen2.5-0.5b",
    ]


def test_too_little_memory_is_said_beforehand(
    two_here: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from viz import checkpoint_controls

    monkeypatch.setattr(checkpoint_controls, "free_memory", lambda: 1000)
    assert "a run would be refused" in captions(page())


def test_the_operators_checkpoint_is_the_only_one(
    two_here: dict[str, Path], tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_folder("llama")
    monkeypatch.setenv(CHECKPOINT_VARIABLE, str(folder))
    assert offers() == (Offer(OPERATORS, folder.name, str(folder)),)
    app = page(checkpoint=FIRST)
    assert not [menu for menu in app.selectbox if menu.key == "choice.checkpoint"]
    assert not [button for button in app.button if str(button.key).startswith("fetch-")]
    assert folder.name in captions(app)
    assert str(folder) not in captions(app)


def test_a_path_that_leads_nowhere_is_not_shown_whole(
    tmp_path: Path, empty_caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHECKPOINT_VARIABLE, str(tmp_path / "gone"))
    (offer,) = offers()
    assert offer.name == "gone"


def test_fault_22_twenty_reruns_and_five_cold_visitors_at_once_load_once(
    two_here: dict[str, Path], loads: list[object]
) -> None:
    bench, offer = Bench(), here(offers())[0]
    jobs = [Job(lambda progress: measure._measure(bench, offer, PROMPT, progress)) for _ in range(5)]
    traces = [job.result().trace for job in jobs]
    assert loads == [FIRST]
    for trace in traces[1:]:
        np.testing.assert_array_equal(trace.sites[-1].output.l2, traces[0].sites[-1].output.l2)
    app = measure_prompt(page(), PROMPT)  # a server of its own
    for axis in ("linear", "log") * 10:
        working(app.segmented_control(key="choice.axis").set_value(axis).run())
    assert loads == [FIRST, FIRST]


def test_fault_23_two_visitors_fifty_runs_each_get_their_own(two_here: dict[str, Path]) -> None:
    bench, (first, second) = Bench(), here(offers())
    prompts = {first: "alpha beta gamma", second: "the fox"}
    alone = {
        offer: capture(open_checkpoint(two_here[offer.name], device="cpu", dtype="float32"), prompt)
        for offer, prompt in prompts.items()
    }
    wrong: list[str] = []

    def visit(offer: Offer) -> None:
        for run in range(50):
            taken = measure._measure(bench, offer, prompts[offer], quiet).trace
            if taken.prompt != prompts[offer] or taken.checkpoint.name != offer.name:
                wrong.append(f"{offer.name}: run {run} is another's")
            for mine, theirs in zip(taken.sites, alone[offer].sites, strict=True):
                if not np.array_equal(mine.output.l2, theirs.output.l2):
                    wrong.append(f"{offer.name}: run {run}, {mine.name}")

    visitors = [threading.Thread(target=visit, args=(offer,)) for offer in (first, second)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    assert not wrong
    assert bench.checkpoint is not None
    modules = list(bench.checkpoint.model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in modules)


def test_an_opening_that_fails_leaves_the_bench_usable(two_here: dict[str, Path]) -> None:
    bench, (first, second) = Bench(), here(offers())
    broken = Offer("broken", "broken", str(two_here[FIRST].parent / "nowhere" / "at-all"))
    measure._measure(bench, first, PROMPT, quiet)
    with pytest.raises(model_probe.ProbeError):
        measure._measure(bench, broken, PROMPT, quiet)
    assert bench.checkpoint is None
    assert bench.code is None
    assert measure._measure(bench, second, PROMPT, quiet).trace.checkpoint.name == second.name


def test_a_download_that_another_waits_for_goes_on_without_who_cancels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = threading.Event()

    def work(progress: Progress) -> Path:
        try:
            while True:
                progress("download", 0.5)
                time.sleep(0.01)
        except Cancelled:
            ended.set()
            raise

    bench, state = Bench(), {"measure.session": "a"}
    monkeypatch.setattr(measure, "_bench", lambda: bench)
    monkeypatch.setattr(measure.st, "session_state", state)
    download = bench.downloads[FIRST] = Download(Job(work))
    now = time.monotonic()
    download.looked = {"a": now, "b": now}
    state["measure.job"] = download.job
    measure.cancel()
    assert "measure.job" not in state
    assert not ended.wait(0.1)
    state |= {"measure.session": "b", "measure.job": download.job}
    measure.cancel()
    assert ended.wait(10)

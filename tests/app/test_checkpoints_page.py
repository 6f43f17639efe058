"""Several checkpoints on one machine: chosen by a code, opened one at a time, each with results of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hub import Hub
from streamlit.testing.v1 import AppTest

import model_probe
from model_probe import capture, fetch, open_checkpoint
from model_probe.catalog import CHECKPOINT_VARIABLE
from model_probe.progress import Cancelled, Progress
from viz import jobs, measure
from viz.jobs import Job, TooSlow, Within
from viz.measure import Bench
from viz.offers import OPERATORS, Offer, here, offers
from viz.text import LANGUAGES, words

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = pytest.mark.parametrize("lang", LANGUAGES)
FIRST, SECOND = "qwen3-0.6b", "qwen2.5-0.5b"  # in the order of the table
PROMPT = "alpha beta"


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


@pytest.fixture
def bench_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[Bench, dict[str, object]]]:
    """The bench and the session state of a visitor, outside any page."""
    bench = Bench()
    sessions: dict[str, dict[str, object]] = {}

    def visit(name: str) -> tuple[Bench, dict[str, object]]:
        state = sessions.setdefault(name, {"measure.session": name})
        monkeypatch.setattr(measure, "_bench", lambda: bench)
        monkeypatch.setattr(measure.st, "session_state", state)
        return bench, state

    return visit


def test_a_download_that_another_waits_for_goes_on_without_who_cancels(
    empty_caches: Path,
    bench_of: Callable[[str], tuple[Bench, dict[str, object]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, ended = [], threading.Event()

    def work(name: str, progress: Progress) -> Path:
        begun.append(name)
        try:
            while True:
                progress("download", 0.5)
                time.sleep(0.01)
        except Cancelled:
            ended.set()
            raise

    monkeypatch.setattr(measure, "_fetch", work)
    states = {}
    for visitor in ("a", "b"):
        _, states[visitor] = bench_of(visitor)
        measure.start_fetching(FIRST)
    assert states["a"]["measure.job"] is states["b"]["measure.job"]
    assert begun == [FIRST]
    bench_of("a")
    measure.cancel()
    assert "measure.job" not in states["a"]
    assert not ended.wait(0.1)
    bench_of("b")
    measure.cancel()
    assert ended.wait(10)


def test_the_same_prompt_is_run_once_for_all(
    two_here: dict[str, Path],
    bench_of: Callable[[str], tuple[Bench, dict[str, object]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = []
    real = model_probe.capture

    def counted(*args: object, **settings: object) -> object:
        runs.append(args)
        return real(*args, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(model_probe, "capture", counted, raising=False)
    jobs = []
    bench, _ = bench_of("a")
    with bench.turns.take(quiet):  # nobody's turn comes before all have asked
        for visitor in "abc":
            _, state = bench_of(visitor)
            measure.start_measuring(PROMPT)
            jobs.append(state["measure.job"])
    assert jobs[0] is jobs[1] is jobs[2]
    trace = jobs[0].result().trace
    _, state = bench_of("d")  # later: what was measured is at hand
    measure.start_measuring(PROMPT)
    assert "measure.job" not in state
    assert measure.measured(PROMPT) is trace
    assert len(runs) == 1


def test_results_of_all_visitors_are_bounded(
    two_here: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, offer = Bench(), here(offers())[0]
    monkeypatch.setattr(measure, "RESULT_COUNT", 4)
    for run in range(10):
        measure._measure(bench, offer, f"{PROMPT} {run}", quiet)
    assert len(bench.results) == 4
    assert bench.results.currsize <= measure.RESULT_BYTES


def test_a_full_queue_is_said(
    two_here: dict[str, Path],
    bench_of: Callable[[str], tuple[Bench, dict[str, object]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RMSNORM_LAB_QUEUE", "1")
    bench, state = bench_of("a")
    with bench.turns.take(quiet):
        measure.start_measuring(PROMPT)
        assert "measure.job" not in state
        assert measure.failure(words("en")) == words("en").t("errors.queue_full", n=1)


def test_one_visitor_has_one_place(
    two_here: dict[str, Path], bench_of: Callable[[str], tuple[Bench, dict[str, object]]]
) -> None:
    bench, state = bench_of("a")
    with bench.turns.take(quiet):
        for run in range(20):
            measure.start_measuring(f"{PROMPT} {run}")
        time.sleep(0.5)
        assert len(bench.turns) == 2  # this test's own, and one
    assert state["measure.job"].result().trace.prompt == f"{PROMPT} 0"


def test_who_is_gone_gives_the_place_back(
    two_here: dict[str, Path],
    bench_of: Callable[[str], tuple[Bench, dict[str, object]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, state = bench_of("a")
    monkeypatch.setattr(bench.captures, "_patience", 0.3)
    with bench.turns.take(quiet):
        measure.start_measuring(PROMPT)
        with pytest.raises(Cancelled):
            state["measure.job"].result()  # nobody looks any more
        assert len(bench.turns) == 1


def test_a_browser_that_goes_away_gives_the_place_back(
    two_here: dict[str, Path],
    bench_of: Callable[[str], tuple[Bench, dict[str, object]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its page's script runs on, and looks at the job as before: that counts only while the browser is there."""
    here = {"a browser"}
    server = SimpleNamespace(is_active_session=lambda identity: identity in here)
    monkeypatch.setattr(measure, "runtime", SimpleNamespace(exists=lambda: True, get_instance=lambda: server))
    monkeypatch.setattr(measure, "get_script_run_ctx", lambda: SimpleNamespace(session_id="a browser"))
    bench, state = bench_of("a")
    monkeypatch.setattr(bench.captures, "_patience", 1.0)
    with bench.turns.take(quiet):
        measure.start_measuring(PROMPT)
        job = state["measure.job"]
        look = measure.looking(bench.captures, job)
        for _ in range(15):
            assert not job.wait(0.1)
            look()
        here.clear()
        for _ in range(30):
            if job.wait(0.1):
                break
            look()
        with pytest.raises(Cancelled):
            job.result()
        assert len(bench.turns) == 1


def test_a_run_that_takes_too_long_is_stopped_and_said(
    two_here: dict[str, Path], tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "Within", lambda seconds, progress: Within(0.0, progress))
    app = measure_prompt(page(), PROMPT)
    assert app.error[0].value == words("en").t("errors.too_slow", seconds=600)
    monkeypatch.setattr(measure, "Within", Within)
    working(app.button(key="probe-run").click().run())
    assert not app.error


def test_opening_the_checkpoint_is_no_part_of_the_time_of_a_run(
    two_here: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is slow to open it would else stop every first run, and open it again for the next."""
    now = [0.0]
    monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slowly(where: str, *, progress: Progress, **settings: object) -> object:
        now[0] += 1000.0
        progress("load")
        return open_checkpoint(where, progress=progress, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(model_probe, "open_checkpoint", slowly, raising=False)
    timed = Within(60.0, quiet)
    bench = Bench()
    first = next(offer for offer in offers() if offer.name == FIRST)
    assert measure._opened(bench, first, timed) is bench.checkpoint is not None
    now[0] += 59.0
    timed("capture")
    measure._opened(bench, first, timed)  # is open: the run's time goes on
    now[0] += 2.0
    with pytest.raises(TooSlow):
        timed("capture")


def test_switched_off_is_said(two_here: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMSNORM_LAB_LIVE", "off")
    app = working(page().button(key="probe-run").click().run())
    assert app.error[0].value == words("en").t("errors.switched_off")


def test_what_the_operator_leaves_out_is_not_offered(
    two_here: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RMSNORM_LAB_CHECKPOINTS", SECOND)
    assert [offer.code for offer in offers()] == [SECOND]
    monkeypatch.delenv("RMSNORM_LAB_CHECKPOINTS")
    monkeypatch.setenv("RMSNORM_LAB_PRESET", "public")
    assert [offer.code for offer in offers()] == [FIRST, SECOND]  # what is here, and nothing to fetch


@LANGUAGE
@pytest.mark.parametrize(
    ("stem", "button", "before"),
    [
        ("train", "train-run", ()),
        ("placement", "placement-lab-run", ("placement.deeper.show", "placement.scale_free.show")),
    ],
)
def test_labs_that_are_switched_off_say_so(
    lang: str, stem: str, button: str, before: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def visited() -> AppTest:
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        app.query_params["lang"] = lang
        app.run().switch_page(f"pages/{stem}.py")
        working(app.run())
        for key in before:
            working(app.button(key=key).click().run())
        return app

    assert button in [each.key for each in visited().button]
    monkeypatch.setenv("RMSNORM_LAB_PRESET", "public")
    app = visited()
    assert button not in [each.key for each in app.button]
    assert words(lang).t("errors.switched_off") in [caption.value for caption in app.caption]


@LANGUAGE
def test_an_operators_mistake_is_a_sentence(
    lang: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RMSNORM_LAB_QUEUE", "<b>many")
    app = page(lang)
    assert "RMSNORM\\_LAB\\_QUEUE" in app.error[0].value
    assert "\\<b\\>" in app.error[0].value
    assert "RMSNORM_LAB_QUEUE" in caplog.text

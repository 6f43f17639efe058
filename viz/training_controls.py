"""The reader's own trainings on the page `train`: settings of up to four runs, Run, Stop, Resume, curves that grow.

Every run's settings are one code in the address (`viz.outcomes.encode`), so that a link holds them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import streamlit as st

from model_probe.runs import (
    LAYER_RANGE,
    NORMS,
    PLACEMENTS,
    SEED_RANGE,
    STEP_RANGE,
    TEXTS,
    WARMUP_RANGE,
    WIDTHS,
    RunSettings,
)
from viz import measure
from viz.address import Choice
from viz.admission import allowed, began, refusal
from viz.chart import chart
from viz.figures.training import training_alt, training_figure
from viz.jobs import Turns
from viz.outcomes import Shown, decode, encode, names, outcome_table, rate
from viz.provenance import trained_provenance
from viz.shell import Page
from viz.text import literal
from viz.training import MOST_RUNS, Training

CHART: Final = "train-own"
REFRESH_SECONDS: Final = 1.0  # between two looks at runs that are at work
RATES: Final = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
OFF: Final = "off"
_NAMES: Final = tuple(f"run{n}" for n in range(1, MOST_RUNS + 1))
_KEYS: Final = tuple(Choice(name, (), "").key for name in _NAMES)
_TRAINING: Final = "train.training"  # this visitor's runs
_EDITED: Final = "train.edited"  # number of the run whose settings are shown, from 1
_FIELD: Final = "train.field."  # before the name of a setting: its widget's key


@dataclass(frozen=True, slots=True)
class RunChoice(Choice):
    """The settings of one run as a code, or OFF."""

    def valid(self, value: object) -> str:
        """The code itself, its numbers kept in range; OFF where there may be no run; else the default."""
        if value == OFF and self.name != _NAMES[0]:
            return OFF
        settings = decode(value) if isinstance(value, str) else None
        return self.default if settings is None else encode(settings)


def run_choices(lang: str) -> tuple[RunChoice, ...]:
    """The choices of the runs, the first two on: with a norm and without, on the text of the page's language."""
    defaults = [encode(RunSettings(norm=norm, text=lang)) for norm in ("rms", "none")]
    codes = defaults + [OFF] * (MOST_RUNS - len(defaults))
    return tuple(RunChoice(name, (), code) for name, code in zip(_NAMES, codes, strict=True))


def training() -> Training:
    """The runs of this session."""
    return st.session_state.setdefault(_TRAINING, Training())


def chosen_runs() -> list[RunSettings]:
    """The settings of the runs that are switched on, after their choices were bound."""
    codes = [st.session_state[key] for key in _KEYS]
    return [settings for code in codes if code != OFF and (settings := decode(code)) is not None]


def choose_runs(settings: Sequence[RunSettings]) -> None:
    """Make these the runs that are switched on; `bind` then puts them into the address."""
    codes = [encode(one) for one in settings[:MOST_RUNS]]
    for key, code in zip(_KEYS, codes + [OFF] * (MOST_RUNS - len(codes)), strict=True):
        st.session_state[key] = code


def train(settings: Sequence[RunSettings]) -> None:
    """Choose these runs and begin to train them."""
    choose_runs(settings)
    _begin(lambda turns: training().start(settings, turns))


def run_controls(page: Page) -> None:
    """Draws which runs there are, and the settings of one of them, after their choices were bound."""
    runs = chosen_runs()
    called = names(runs, page.words)
    edited = _edited(runs) + 1
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="train-runs"):
        st.segmented_control(
            page.t("train.edit"),
            range(1, len(runs) + 1),
            default=_held(_EDITED, edited),
            required=True,
            key=_EDITED,
            format_func=lambda n: page.t("train.numbered", n=n, name=called[n - 1]),
            wrap=True,
        )
        st.button(
            page.t("train.add"),
            key="train-add",
            on_click=_add,
            type="tertiary",
            disabled=len(runs) == MOST_RUNS,
        )
        st.button(
            page.t("train.remove", n=edited), key="train-remove", on_click=_remove, type="tertiary",
            disabled=len(runs) == 1,
        )  # fmt: skip
    _settings(page, runs[edited - 1])


def _settings(page: Page, run: RunSettings) -> None:
    """The nine settings of a run, in three columns that follow one another on a phone."""
    look, size, time_ = st.columns(3, gap="medium")
    with look:
        _one(page, run, "norm", NORMS)
        _one(page, run, "placement", PLACEMENTS, disabled=run.norm == "none")
        _one(page, run, "text", TEXTS)
    with size:
        _slider(page, run, "layers", LAYER_RANGE)
        _one(page, run, "width", WIDTHS)
        _rates(page, run)
    with time_:
        _slider(page, run, "warmup", WARMUP_RANGE, step=10)
        _slider(page, run, "steps", STEP_RANGE, step=10)
        _seed(page, run)


def own_runs(page: Page) -> None:
    """Draws Run, Stop and Resume, and the curves of this visitor's runs, growing while they are at work."""
    every = REFRESH_SECONDS if training().running else None
    st.fragment(_own_runs, run_every=every)(page, every is not None)


def _own_runs(page: Page, was_running: bool) -> None:
    if not allowed("training"):
        st.caption(page.t("errors.switched_off"))
        return
    runs = training()
    runs.look()
    if runs.settled() or runs.running != was_running:  # only a run of the whole page sets or ends the clock
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="train-buttons"):
        if runs.running:
            st.button(
                page.t("train.stopping" if runs.stopping else "train.stop"),
                key="train-stop", disabled=runs.stopping, on_click=runs.stop,
            )  # fmt: skip
        else:
            st.button(
                page.t("train.run", n=len(chosen_runs())), key="train-run", type="primary", on_click=_start
            )
            if runs.left:
                st.button(page.t("train.resume"), key="train-resume", on_click=_resume)
        st.markdown(_progress(page, runs))
    if runs.error is not None:
        st.error(measure.sentence(runs.error, page.words))
    if not runs.tracks:
        return
    if runs.running:
        st.progress(runs.done, text=page.t("train.bar"))
    shown = [track.shown for track in runs.tracks]
    title = page.t("train.running_title") if runs.left else None
    chart(
        training_figure(shown, page.words, page.palette, title=title),
        key=CHART,
        alt=training_alt(shown, page.words),
    )
    if all(track.run is not None for track in runs.tracks):
        st.caption(trained_provenance(page.words, runs.began, runs.torch))
    st.html(outcome_table(shown, page.words))
    samples = [track.sample for track in runs.tracks]
    if any(sample is not None for sample in samples):
        sample_texts(page, shown, samples)


def sample_texts(page: Page, runs: Sequence[Shown], samples: Sequence[str | None]) -> None:
    """Draws what each run writes at its end, letter for letter; None where it is not there yet."""
    st.markdown(page.t("train.sample.heading"))
    called = names([run.settings for run in runs], page.words)
    columns = [column for _ in range(0, len(runs), 2) for column in st.columns(2, gap="medium")]
    for i, (column, sample, name) in enumerate(zip(columns, samples, called, strict=False)):
        with column:
            st.caption(literal(page.t("train.numbered", n=i + 1, name=name)))
            if sample:
                st.code(sample, language=None, wrap_lines=True)
            else:
                st.markdown(page.t("train.sample.none" if sample == "" else "train.sample.later"))


def _progress(page: Page, runs: Training) -> str:
    """How far the work is, in a sentence."""
    steps = sum(track.settings.steps for track in runs.tracks)
    made = sum(track.step for track in runs.tracks)
    if not runs.running:
        return page.t("train.stopped", made=made, steps=steps) if runs.tracks and runs.left else ""
    if runs.place is not None:
        return page.t("train.queue", n=runs.place)
    if runs.stage == "begin" or made == 0:
        return page.t("train.begins")
    left = runs.seconds_left
    if left is None:
        return page.t("train.made", made=made, steps=steps)
    return page.t("train.left", made=made, steps=steps, time=_duration(page, left))


def _duration(page: Page, seconds: float) -> str:
    whole = max(1, round(seconds))
    if whole < 100:
        return page.t("train.seconds", n=whole)
    return page.t("train.minutes", n=round(whole / 60))


def _begin(work: Callable[[Turns], None]) -> None:
    """Begin it where the operator lets visitors train and the queue has room for this one."""
    turns = measure.turns()
    training().error = refusal("training", turns)
    if training().error is None:
        work(turns)
        began(training())


def _start() -> None:
    _begin(lambda turns: training().start(chosen_runs(), turns))


def _resume() -> None:
    _begin(training().resume)


def _add() -> None:
    """Another run with the settings of the one shown."""
    runs = chosen_runs()
    if len(runs) == MOST_RUNS:
        return
    runs.append(runs[_edited(runs)])
    choose_runs(runs)
    st.session_state[_EDITED] = len(runs)


def _remove() -> None:
    runs = chosen_runs()
    if len(runs) == 1:
        return
    del runs[_edited(runs)]
    choose_runs(runs)
    st.session_state[_EDITED] = _edited(runs) + 1


def _change(name: str) -> None:
    """What a widget says becomes a setting of the run that is shown, if it may be one: a browser may say anything."""
    runs = chosen_runs()
    place = _edited(runs)
    with suppress(TypeError, ValueError):
        runs[place] = replace(runs[place], **{name: st.session_state[_FIELD + name]})
        choose_runs(runs)


def _edited(runs: Sequence[RunSettings]) -> int:
    """The place, from 0, of the run whose settings are shown."""
    return min(max(st.session_state.get(_EDITED) or 1, 1), len(runs)) - 1


def _held(key: str, value: Any) -> Any:
    """The value to give a widget of this key at its making, None where it has just been set to it.

    It is set only where it is not that already, as a set value undoes what the reader is just typing; and it is
    given as the widget's own start all the same, as a browser that has lost the widget begins there again.
    """
    if st.session_state.get(key, value) == value:
        return value
    st.session_state[key] = value
    return None


def _one(page: Page, run: RunSettings, name: str, options: Sequence[Any], *, disabled: bool = False) -> None:
    shown: Callable[[Any], str] = (
        str if name == "width" else lambda option: page.t(f"train.name.{name}.{option}")
    )
    key = _FIELD + name
    st.segmented_control(
        page.t(f"train.setting.{name}"), options, default=_held(key, getattr(run, name)), required=True, key=key,
        format_func=shown, on_change=_change, args=(name,), disabled=disabled, wrap=True,
    )  # fmt: skip


def _slider(page: Page, run: RunSettings, name: str, ends: tuple[int, int], step: int = 1) -> None:
    key = _FIELD + name
    st.slider(
        page.t(f"train.setting.{name}"), *ends, value=_held(key, getattr(run, name)), step=step, key=key,
        on_change=_change, args=(name,),
    )  # fmt: skip


def _rates(page: Page, run: RunSettings) -> None:
    """The learning rate on a logarithmic scale; one that a link brought is among the stops."""
    stops, key = sorted({*RATES, run.learning_rate}), _FIELD + "learning_rate"
    st.select_slider(
        page.t("train.setting.learning_rate"), stops, value=_held(key, run.learning_rate), key=key,
        format_func=rate, on_change=_change, args=("learning_rate",),
    )  # fmt: skip


def _seed(page: Page, run: RunSettings) -> None:
    least, most = SEED_RANGE
    key = _FIELD + "seed"
    value = _held(key, run.seed)
    st.number_input(
        page.t("train.setting.seed"), least, most, "min" if value is None else value, step=1, key=key,
        on_change=_change, args=("seed",),
    )  # fmt: skip

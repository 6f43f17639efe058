"""The free bench of the page `release`: up to three changes of the reader's own, together, on a prompt of their own.

A change is one code in the address (`viz.effects.encode`); the prompt is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import streamlit as st

from model_probe.experiments import CAPITAL, load_recorded
from model_probe.interventions import KINDS, NORM_KINDS, WITH_AMOUNT, Intervention
from model_probe.outcome import Outcome
from model_probe.progress import Progress
from model_probe.trace import CheckpointInfo, Token
from viz import measure
from viz.address import Choice
from viz.chart import chart
from viz.effects import decode, encode, factor, placed
from viz.figures import release as figures
from viz.on_demand import OnDemand, Turn, run_button
from viz.provenance import outcomes_provenance
from viz.release import effects, maps
from viz.shell import Page
from viz.text import literal

MOST: Final = 3  # changes at once
MAX_CHARS: Final = 2_000  # of a typed prompt: three passes over it, each with the logits of every position
CONTINUED: Final = 20  # tokens
AMOUNTS: Final = (1 / 16, 0.125, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0)
OFF: Final = "off"
VIEW: Final = Choice("view", ("depth", "positions", "map"), "depth")
_NAME: Final = "bench"
_RESULT: Final = "release.bench"
_EDITED: Final = "release.edited"  # number of the change whose settings are shown, from 1
_FIELD: Final = "release.field."
_PROMPT: Final = "release.prompt"
_LAYER: Final = "release.map_layer"
_HEAD: Final = "release.map_head"


@dataclass(frozen=True, slots=True)
class ChangeChoice(Choice):
    """One change as a code, or OFF."""

    def valid(self, value: object) -> str:
        """The code itself, written one way; OFF where there may be no change; else the default."""
        if value == OFF and self.name != CHANGES[0].name:
            return OFF
        change = decode(value) if isinstance(value, str) else None
        return self.default if change is None else encode(change)


CHANGES: Final = tuple(
    ChangeChoice(f"change{n}", (), "fixed_rms~~6-6~attention_input" if n == 1 else OFF)
    for n in range(1, MOST + 1)
)


@dataclass(frozen=True, slots=True)
class Result:
    """What a run of the bench came to."""

    checkpoint: CheckpointInfo
    prompt: str
    tokens: tuple[Token, ...]
    tokens_cut: int
    untouched: Outcome
    changed: Outcome


def bench_section(page: Page, view: str) -> None:
    """Draws the bench, after CHANGES and VIEW were bound."""
    st.header(page.t("release.heading.own"), anchor=False)
    page.prose("release/own", most=MOST)
    changes = chosen_changes()
    edited = _edited(changes) + 1
    st.session_state[_EDITED] = edited
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="release-changes"):
        st.segmented_control(
            page.t("release.bench.edit"),
            range(1, len(changes) + 1),
            required=True,
            key=_EDITED,
            format_func=lambda n: placed(changes[n - 1], page.words),
            wrap=True,
        )
        st.button(
            page.t("release.bench.add"), key="release-add", type="tertiary", on_click=_add,
            disabled=len(changes) == MOST,
        )  # fmt: skip
        st.button(
            page.t("release.bench.remove", n=edited), key="release-remove", type="tertiary", on_click=_remove,
            disabled=len(changes) == 1,
        )  # fmt: skip
    _settings(page, changes[edited - 1])
    st.session_state.setdefault(_PROMPT, CAPITAL)
    st.text_area(
        page.t("release.bench.prompt"), key=_PROMPT, max_chars=MAX_CHARS, height=100, persist_state="session"
    )
    prompt = st.session_state[_PROMPT][:MAX_CHARS]
    result: Result | None = st.session_state.get(_RESULT)
    if not prompt:
        st.info(page.t("errors.empty_prompt"))
    elif len(prompt) == MAX_CHARS:
        st.warning(page.t("release.bench.too_long", n=MAX_CHARS))
    elif result is not None and (result.prompt, result.changed.interventions) != (prompt, changes):
        st.info(page.t("release.bench.not_run"))
    run_button(page, _run(prompt, changes), disabled=not prompt)
    if result is None:
        st.caption(page.t("release.bench.empty"))
        return
    _outcome(page, result, view)


def chosen_changes() -> tuple[Intervention, ...]:
    """The changes that are switched on, after their choices were bound."""
    codes = [st.session_state[choice.key] for choice in CHANGES]
    return tuple(change for code in codes if code != OFF and (change := decode(code)) is not None)


def _outcome(page: Page, result: Result, view: str) -> None:
    done = result.changed.interventions
    name = "; ".join(placed(change, page.words) for change in done)
    st.markdown(page.t("release.bench.shown_for", name=literal(name)))
    if len(result.tokens) == 1:
        st.info(page.t("release.bench.one_token"))
    if result.tokens_cut:
        st.warning(page.t("release.bench.cut", n=len(result.tokens)))
    _segments(
        page.t("release.bench.look"), VIEW.codes, VIEW.key, lambda code: page.t(f"release.bench.view.{code}")
    )
    pair = result.untouched, result.changed
    if view == "depth":
        figure = figures.depth_figure(*pair, "output_l2", page.words, page.palette)
        chart(figure, key="release-bench", alt=figures.alt(figure, page.words, "depth"))
    elif view == "positions":
        figure = figures.positions_figure(
            {"changed": result.changed}, result.tokens, "changed", page.words, page.palette
        )
        chart(figure, key="release-bench", alt=figures.alt(figure, page.words, "positions"))
    else:
        _maps(page, result)
    st.caption(
        outcomes_provenance(page.words, result.checkpoint, result.prompt, len(result.tokens), origin="live")
    )
    effects(page, *pair)


def _maps(page: Page, result: Result) -> None:
    attention = result.untouched.attention
    layers = () if attention is None else tuple(sorted(attention.maps))
    if attention is None or not layers:
        st.markdown(page.t("release.map.none"))
        return
    heads = range(attention.entropy.shape[1])
    for key, options in ((_LAYER, layers), (_HEAD, tuple(heads))):
        if st.session_state.get(key) not in options:
            st.session_state[key] = options[len(options) // 2]
    if len(layers) > 1:
        st.select_slider(page.t("release.bench.layer"), layers, key=_LAYER)
    _segments(page.t("release.bench.head"), tuple(heads), _HEAD, str)
    place = st.session_state[_LAYER], st.session_state[_HEAD]
    maps(page, (result.untouched, result.changed), result.tokens, place, "release-bench")


def _run(prompt: str, changes: tuple[Intervention, ...]) -> OnDemand[Result]:
    open_ = measure.opener()

    def work(progress: Progress, turn: Turn) -> Result:
        with turn():
            checkpoint = open_(progress)
            from model_probe.observing import Experiment  # loads torch, which by now is there

            experiment = Experiment(checkpoint, prompt, progress=progress)
            layers = tuple(range(checkpoint.info.num_layers))
            progress("intervene", 0.3)
            changed = experiment.run(*changes, maps=layers, continued=CONTINUED, progress=progress)
            progress("intervene", 0.7)
            untouched = experiment.run(maps=layers, continued=CONTINUED, progress=progress)
            return Result(
                experiment.recorded_info, prompt, experiment.tokens, experiment.tokens_cut, untouched, changed
            )

    def keep(result: Result) -> None:
        st.session_state[_RESULT] = result

    return OnDemand(_NAME, work, keep, switch="live")


def _settings(page: Page, change: Intervention) -> None:
    """Kind and amount, and where: columns that follow one another on a phone."""
    what, where = st.columns(2, gap="medium")
    with what:
        st.selectbox(
            page.t("release.bench.kind"), KINDS, key=_kept(f"kind.{page.lang}", change.kind), on_change=_change,
            args=(f"kind.{page.lang}",),
            format_func=lambda kind: page.t(f"release.does.{kind}", k="k").strip(),
        )  # fmt: skip
        if change.amount is not None and change.kind in WITH_AMOUNT:
            stops = sorted({*AMOUNTS, change.amount})
            st.select_slider(
                page.t("release.bench.amount"), stops, key=_kept("amount", change.amount), format_func=factor,
                on_change=_change, args=("amount",),
            )  # fmt: skip
    with where:
        _places(page, change)


def _places(page: Page, change: Intervention) -> None:
    most = _layers()
    everywhere = "embedding" if change.kind == "residual_scale" else "all_layers"
    key = _kept("everywhere", "all" if change.layers is None else "some")
    _segments(
        page.t("release.bench.place"), ("all", "some"), key,
        lambda code: page.t(f"release.bench.{everywhere if code == 'all' else 'some_layers'}"), partial(_change, "everywhere"),
    )  # fmt: skip
    if change.layers is not None and most > 1:
        first, last = (min(end, most - 1) for end in (change.layers[0], change.layers[-1]))
        st.slider(
            page.t("release.bench.span"), 0, most - 1, key=_kept("span", (first, last)), on_change=_change,
            args=("span",),
        )  # fmt: skip
    if change.kind in NORM_KINDS:
        st.pills(
            f"{page.t('release.bench.roles')} ({page.t('release.bench.any_role')})" if not change.roles
            else page.t("release.bench.roles"),
            _roles(change), selection_mode="multi", key=_kept("roles", list(change.roles or ())),
            format_func=lambda role: page.t(f"common.role.{role}"), on_change=_change, args=("roles",), wrap=True,
        )  # fmt: skip


def _layers() -> int:
    """How many layers the checkpoint has that would be run, as far as it is known."""
    here = measure.open_sites()
    return (load_recorded().checkpoint if here is None else here[0]).num_layers


def _roles(change: Intervention) -> tuple[str, ...]:
    """The norms' roles that the checkpoint has, as far as it is known, and those that a link brought."""
    here = measure.open_sites()
    sites: Any = load_recorded().untouched.sites if here is None else here[1]
    return tuple(dict.fromkeys((*(site.role for site in sites), *(change.roles or ()))))


def _kept(name: str, value: object) -> str:
    """The widget's key, its value set to the change's."""
    st.session_state[_FIELD + name] = value
    return _FIELD + name


def _change(name: str) -> None:
    """What a widget says becomes a setting of the change that is shown, if it may be one: a browser may say anything."""
    changes = list(chosen_changes())
    place = _edited(changes)
    with suppress(TypeError, ValueError):
        changes[place] = _changed(changes[place], name, st.session_state[_FIELD + name])
        _choose(changes)


def _edited(changes: Sequence[Intervention]) -> int:
    """The place, from 0, of the change whose settings are shown."""
    return min(max(st.session_state.get(_EDITED) or 1, 1), len(changes)) - 1


def _changed(change: Intervention, name: str, value: Any) -> Intervention:
    if name.startswith("kind."):  # a widget for each language: one that stays keeps the label it had
        if value not in KINDS:
            return change
        amount = (change.amount or 2.0) if value in WITH_AMOUNT else None
        roles = change.roles if value in NORM_KINDS else None
        return Intervention(value, amount, change.layers, roles)
    if name == "amount":
        return change.with_amount(value)
    if name == "everywhere":
        return replace(change, layers=None if value == "all" else (min(4, _layers() - 1),))
    if name == "span":
        return replace(change, layers=tuple(range(min(value), max(value) + 1)))
    return replace(change, roles=tuple(value) or None)


def _choose(changes: list[Intervention]) -> None:
    codes = [encode(change) for change in changes]
    for choice, code in zip(CHANGES, codes + [OFF] * (MOST - len(codes)), strict=True):
        st.session_state[choice.key] = code


def _add() -> None:
    """Another change like the one shown, to be made different."""
    changes = list(chosen_changes())
    if len(changes) == MOST:
        return
    _choose([*changes, changes[_edited(changes)]])
    st.session_state[_EDITED] = len(changes) + 1


def _remove() -> None:
    changes = list(chosen_changes())
    if len(changes) == 1:
        return
    del changes[_edited(changes)]
    _choose(changes)
    st.session_state[_EDITED] = _edited(changes) + 1


def _segments(
    label: str,
    options: tuple[Any, ...],
    key: str,
    name: Callable[[Any], str],
    on_change: Callable[[], None] | None = None,
) -> None:
    st.segmented_control(
        label, options, required=True, key=key, format_func=name, on_change=on_change, wrap=True
    )

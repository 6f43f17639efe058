"""The page `release`: an experiment's picture and table, recorded or measured here; the free bench below is viz/release_bench.py.

What this session measures arrives case by case in a mapping that the job's thread writes and the page reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

import streamlit as st

from model_probe.experiments import CAPITAL, EXPERIMENTS, Outcomes, cases, load_recorded
from model_probe.outcome import Outcome
from model_probe.progress import Progress
from model_probe.trace import CheckpointInfo, Token
from viz import measure
from viz.address import Choice
from viz.chart import chart
from viz.effects import (
    FACTORS,
    best_label,
    called,
    effect_table,
    factor,
    kl_by_layer,
    non_finite,
    sharpness_by_factor,
    top_table,
)
from viz.figures import release as figures
from viz.figures.base import site_title, title_of
from viz.on_demand import OnDemand, Turn, run_button, running
from viz.provenance import Origin, outcomes_provenance
from viz.shell import Page
from viz.text import literal, number

if TYPE_CHECKING:
    import plotly.graph_objects as go

EXPERIMENT: Final = Choice("experiment", EXPERIMENTS, EXPERIMENTS[0])
ROLE: Final = Choice("before", ("attention_input", "mlp_input"), "attention_input")
SOURCE: Final = Choice("source", ("live", "recording"), "live")  # live, where something was measured here
_LOUDER: Final = (  # in the order in which the whole is taken apart
    "output_x2", "logits_x4", "values_x2", "output_and_bias_x2", "output_x1.5", "output_x4", "logits_x2", "values_x4",
)  # fmt: skip
_DEFAULT_LAYER: Final = "6"  # whose division the recorded prompt misses most
_UNTOUCHED: Final = "untouched"
_LIVE: Final = "release.live"  # {experiment: Measured} of this session
_NAME: Final = "live"  # of the work


@dataclass(slots=True)
class Measured:
    """One experiment of this session, as far as it has come; written in the job's thread."""

    checkpoint: CheckpointInfo
    prompt: str
    tokens: tuple[Token, ...]
    untouched: Outcome
    by_code: dict[str, Outcome] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page shows of an experiment."""

    checkpoint: CheckpointInfo
    prompt: str
    tokens: tuple[Token, ...]
    untouched: Outcome
    by_code: Mapping[str, Outcome]
    origin: Origin


def case_choice(experiment: str, num_layers: int) -> Choice:
    """Which case of an experiment is looked at; named after the experiment in the address."""
    if experiment == "sharpness":
        return Choice("k", tuple(FACTORS), "x4")
    if experiment == "louder":
        return Choice("part", _LOUDER, _LOUDER[0])
    if experiment == "one_brake":
        layers = tuple(map(str, range(num_layers)))
        return Choice("layer", layers, _DEFAULT_LAYER if _DEFAULT_LAYER in layers else "0")
    codes = tuple(case.code for case in cases(experiment, num_layers))
    return Choice(experiment, codes, codes[1] if experiment == "invariance" else codes[0])


def head_choice(recorded: Outcomes) -> Choice:
    """Which head of the layer whose maps were recorded is looked at: by default the one that × 4 changes most."""
    attention = recorded.untouched.attention
    live = live_results().get("sharpness")
    most = [
        each for each in (attention, None if live is None else live.untouched.attention) if each is not None
    ]
    heads = max((each.entropy.shape[1] for each in most), default=1)
    layer = map_layer(recorded.untouched)
    after = recorded.by_case["sharpness"]["x4"].attention
    if attention is None or after is None or layer is None:
        return Choice("head", ("0",), "0")
    row = attention.layers.index(layer)
    best = int((attention.entropy[row] - after.entropy[row]).argmax())
    return Choice("head", tuple(map(str, range(heads))), str(best))


def map_layer(outcome: Outcome) -> int | None:
    """The layer whose attention maps an outcome holds, None where it holds none."""
    return None if outcome.attention is None else next(iter(outcome.attention.maps), None)


def live_results() -> dict[str, Measured]:
    """What this session measured, by experiment."""
    results: dict[str, Measured] = st.session_state.setdefault(_LIVE, {})
    return results


def seen(experiment: str, source: str) -> Seen:
    """The results that are shown: measured here where there are any and they are asked for, else recorded."""
    measured = live_results().get(experiment)
    if measured is not None and source == "live":
        by_code = dict(measured.by_code)
        origin: Origin = "live"
        shown = Seen(
            measured.checkpoint, measured.prompt, measured.tokens, measured.untouched, by_code, origin
        )
        sharp = live_results().get("sharpness")
        other = None if sharp is None else sharp.by_code.get("x4")
    else:
        recorded = load_recorded()
        shown = Seen(
            recorded.checkpoint, recorded.prompt, recorded.tokens, recorded.untouched,
            dict(recorded.by_case[experiment]), "recording",
        )  # fmt: skip
        other = recorded.by_case["sharpness"]["x4"]
    if experiment == "louder" and other is not None:
        return Seen(
            shown.checkpoint, shown.prompt, shown.tokens, shown.untouched, {**shown.by_code, "logits_x4": other},
            shown.origin,
        )  # fmt: skip
    return shown


def live_run(experiment: str) -> OnDemand[None]:
    """What measures an experiment on the checkpoint that is here."""
    results, open_ = live_results(), measure.opener()

    def work(progress: Progress, turn: Turn) -> None:
        with turn():
            checkpoint = open_(progress)
            from model_probe.capturing import now, token_ids  # loads torch, which by now is there
            from model_probe.sweeping import run_experiment
            from model_probe.tokens import readable_tokens

            progress("intervene")
            for code, outcome in run_experiment(checkpoint, CAPITAL, experiment, progress):
                if code == _UNTOUCHED:
                    tokens = readable_tokens(checkpoint.tokenizer, token_ids(checkpoint, CAPITAL))
                    info = replace(checkpoint.info, recorded_at=now())
                    results[experiment] = Measured(info, CAPITAL, tokens, outcome)
                else:
                    results[experiment].by_code[code] = outcome

    return OnDemand(_NAME, work, lambda _: None, switch="live")


def case_control(page: Page, experiment: str, choice: Choice, shown: Seen) -> None:
    """Draws the one control of an experiment, after its choice was bound."""
    label = page.t(f"release.control.{experiment}")
    if experiment == "sharpness":
        st.select_slider(label, choice.codes, key=choice.key, format_func=lambda code: f"× {FACTORS[code]:g}")
        return
    if experiment == "one_brake":
        st.select_slider(label, choice.codes, key=choice.key)
        _segments(page, page.t("release.control.role"), ROLE, lambda role: page.t(f"common.role.{role}"))
        return
    if experiment == "louder":
        named = {case.code: case.interventions for each in ("louder", "sharpness") for case in cases(each, 1)}
        named["logits_x4"] = named["x4"]
        _segments(page, label, choice, lambda code: called(named[code], page.words))
        return
    _segments(page, label, choice, lambda code: page.t(f"release.case.{code}"))


def experiment_picture(page: Page, experiment: str, code: str, role: str, source: str) -> None:
    """Draws picture and table of a case, growing while this session measures it; Run, progress and Stop; and the choice
    of what is shown where recorded and measured results are there."""
    run_button(page, live_run(experiment), above=partial(_picture, page, experiment, code, role, source))
    if experiment in live_results():
        label = page.t("release.control.source")
        _segments(page, label, SOURCE, lambda each: page.t(f"release.source.{each}"))


def watch_run(page: Page, experiment: str) -> None:
    """Draws progress and Stop of a run of this session that goes on, where no picture is shown yet."""
    if running(page, _NAME):
        run_button(page, live_run(experiment))


def _picture(page: Page, experiment: str, code: str, role: str, source: str) -> None:
    shown = seen(experiment, source)
    figure, alt = _FIGURES[experiment](page, shown, code)
    chart(figure, key=f"release-{experiment}", alt=alt)
    st.caption(
        outcomes_provenance(
            page.words, shown.checkpoint, shown.prompt, len(shown.tokens), origin=shown.origin
        )
    )
    changed = chosen_outcome(experiment, shown, code, role)
    if changed is None:
        st.markdown(page.t("release.waiting"))
        return
    effects(page, shown.untouched, changed)


def chosen_outcome(experiment: str, shown: Seen, code: str, role: str) -> Outcome | None:
    """The outcome of the case that is looked at; None while it is not measured."""
    if experiment == "sharpness" and code == "x1":
        return shown.untouched
    return shown.by_code.get(f"{role}.{code}" if experiment == "one_brake" else code)


def effects(page: Page, untouched: Outcome, changed: Outcome) -> None:
    """Draws a run before and after: the table, what is not finite, and folded away the next tokens and the continuation."""
    first = changed.first_non_finite
    broken = non_finite(changed)
    if broken:
        at = (
            page.t("release.table.logits")
            if first is None
            else site_title(page.words, first.layer, first.role)
        )
        st.warning(page.t("release.non_finite", n=broken, site=at))
    st.html(effect_table(untouched, changed, page.words))
    with st.expander(page.t("release.more")):
        st.html(top_table(untouched, changed, page.words))
        if untouched.continuation:
            st.markdown(page.t("release.goes_on"))
            st.code(untouched.continuation, language=None, wrap_lines=True)
            st.markdown(
                page.t("release.goes_on_changed" if changed.continuation else "release.goes_on_nothing")
            )
            if changed.continuation:
                st.code(changed.continuation, language=None, wrap_lines=True)


def maps(
    page: Page, pair: tuple[Outcome, Outcome], tokens: tuple[Token, ...], place: tuple[int, int], key: str
) -> None:
    """Draws a head's attention, (layer, head), before and after: side by side, over one another on a phone."""
    drawn = [figures.map_figure(each, place, tokens, page.words, page.palette) for each in pair]
    if None in drawn:
        st.markdown(page.t("release.map.none"))
        return
    for column, figure, when in zip(st.columns(2, gap="medium"), drawn, ("before", "after"), strict=True):
        with column:
            chart(figure, key=f"{key}-{when}", alt=page.t("release.alt.map", title=title_of(figure)))


def sharpness_map(page: Page, code: str, head: Choice, source: str) -> None:
    """Draws the heat maps of the experiment `sharpness` and the choice of the head."""
    shown = seen("sharpness", source)
    changed = chosen_outcome("sharpness", shown, code, "")
    layer = map_layer(shown.untouched)
    if changed is None or layer is None:
        return
    page.prose("release/map")
    _segments(page, page.t("release.control.head", layer=layer), head, str)
    heads = 1 if shown.untouched.attention is None else shown.untouched.attention.entropy.shape[1]
    place = layer, min(int(st.session_state[head.key]), heads - 1)  # another checkpoint may have fewer
    maps(page, (shown.untouched, changed), shown.tokens, place, "release-map")
    st.caption(
        outcomes_provenance(
            page.words, shown.checkpoint, shown.prompt, len(shown.tokens), origin=shown.origin
        )
    )


def next_button(page: Page, experiment: str) -> None:
    """Draws the way to the next experiment."""
    place = EXPERIMENTS.index(experiment)
    if place + 1 < len(EXPERIMENTS):
        following = EXPERIMENTS[place + 1]
        st.button(
            page.t("release.next", name=page.t(f"release.experiment.{following}")),
            key="release-next",
            on_click=partial(_go, following),
        )


def _go(experiment: str) -> None:
    st.session_state[EXPERIMENT.key] = experiment


def _segments(page: Page, label: str, choice: Choice, name: Callable[[str], str]) -> None:
    st.segmented_control(label, choice.codes, required=True, key=choice.key, format_func=name, wrap=True)


def _depth(series: str) -> Callable[[Page, Seen, str], tuple[go.Figure, str]]:
    def draw(page: Page, shown: Seen, code: str) -> tuple[go.Figure, str]:
        changed = shown.by_code.get(code, shown.untouched)
        figure = figures.depth_figure(shown.untouched, changed, series, page.words, page.palette)
        return figure, figures.alt(figure, page.words, "depth")

    return draw


def _sharpness(page: Page, shown: Seen, code: str) -> tuple[go.Figure, str]:
    figure = figures.sharpness_figure(
        sharpness_by_factor(shown.untouched, shown.by_code), FACTORS[code], page.words, page.palette
    )
    return figure, figures.alt(figure, page.words, "sharpness")


def _louder(page: Page, shown: Seen, code: str) -> tuple[go.Figure, str]:
    ordered = {each: shown.by_code[each] for each in _LOUDER if each in shown.by_code}
    figure = figures.perplexity_figure(ordered, shown.untouched, code, page.words, page.palette)
    return figure, figures.alt(figure, page.words, "bars")


def _one_brake(page: Page, shown: Seen, code: str) -> tuple[go.Figure, str]:
    layers = shown.checkpoint.num_layers
    figure = figures.layers_figure(shown.by_code, layers, int(code), page.words, page.palette)
    return figure, figures.layers_alt(shown.by_code, page.words)


def _mean(page: Page, shown: Seen, code: str) -> tuple[go.Figure, str]:
    figure = figures.positions_figure(shown.by_code, shown.tokens, code, page.words, page.palette)
    return figure, figures.alt(figure, page.words, "positions")


_FIGURES: Final[Mapping[str, Callable[[Page, Seen, str], tuple[go.Figure, str]]]] = {
    "invariance": _depth("normalized_l2"),
    "sharpness": _sharpness,
    "louder": _louder,
    "one_brake": _one_brake,
    "all_brakes": _depth("output_l2"),
    "mean": _mean,
}


def reasons(experiment: str, recorded: Outcomes, page: Page) -> dict[str, object]:
    """The measured values that the explanation of an experiment names, from the recording."""
    return _REASONS[experiment](recorded, page)


def _perplexity(outcome: Outcome) -> str:
    return number(outcome.perplexity)


def _why_invariance(recorded: Outcomes, page: Page) -> dict[str, object]:
    by_case, untouched = recorded.by_case["invariance"], recorded.untouched
    first, small = figures.depth(untouched)[0], figures.depth(by_case["x1_16"])[0]
    trace = next(iter(measure.recording().traces.values()))
    rms = first.input_l2 / trace.checkpoint.hidden_size**0.5
    return {
        "kl_up": number(by_case["x16"].mean_kl, 1),
        "kl_down": number(by_case["x1_16"].mean_kl, 2),
        "token": literal(best_label(by_case["x1_16"])),
        "before": literal(best_label(untouched)),
        "rms": number(rms, 2),
        "square": number((rms / 16) ** 2, 2),
        "eps": number(trace.depth()[0].eps, 1),
        "first": number(first.normalized_l2, 4),
        "first_small": number(small.normalized_l2, 4),
    }


def _why_sharpness(recorded: Outcomes, page: Page) -> dict[str, object]:
    outcomes = {1: recorded.untouched, 4: recorded.by_case["sharpness"]["x4"]}
    return {
        **{f"entropy{k}": number(each.mean_entropy, 2) for k, each in outcomes.items()},
        **{f"jacobian{k}": number(each.mean_jacobian, 2) for k, each in outcomes.items()},
        **{f"perplexity{k}": _perplexity(each) for k, each in outcomes.items()},
        "perplexity16": _perplexity(recorded.by_case["sharpness"]["x16"]),
        "perplexity025": _perplexity(recorded.by_case["sharpness"]["x0.25"]),
        "low": factor(min(FACTORS.values())),
        "n": len(recorded.tokens),
    }


def _why_louder(recorded: Outcomes, page: Page) -> dict[str, object]:
    by_case = recorded.by_case["louder"]
    return {
        "logits": _perplexity(recorded.by_case["sharpness"]["x4"]),
        "values": _perplexity(by_case["values_x2"]),
        "output": _perplexity(by_case["output_x2"]),
        "both": _perplexity(by_case["output_and_bias_x2"]),
    }


def _why_one_brake(recorded: Outcomes, page: Page) -> dict[str, object]:
    attention, mlp = (kl_by_layer(recorded.by_case["one_brake"], role) for role in ROLE.codes)
    least, worst = min(attention, key=attention.__getitem__), max(attention, key=attention.__getitem__)
    read = {site.layer: site.input_l2 for site in recorded.untouched.sites if site.role == "attention_input"}
    return {
        "least": least,
        "kl_least": number(attention[least], 2),
        "worst": worst,
        "kl_worst": number(attention[worst]),
        "median_attention": number(median(attention.values()), 2),
        "median_mlp": number(median(mlp.values()), 2),
        "mlp_first": number(mlp[min(mlp)], 2),
        "mlp_last": number(mlp[max(mlp)]),
        "l2_least": number(read[least], 2),
        "l2_worst": number(read[worst]),
        "root": number(recorded.checkpoint.hidden_size**0.5),
    }


def _why_all_brakes(recorded: Outcomes, page: Page) -> dict[str, object]:
    everywhere, final = (recorded.by_case["all_brakes"][code] for code in ("everywhere", "final"))
    before, after = figures.depth(recorded.untouched), figures.depth(everywhere)
    broken = non_finite(everywhere)
    return {
        "first": number(before[0].output_l2),
        "first_all": number(after[0].output_l2, 2),
        "last": number(before[-1].output_l2),
        "last_all": number(after[-1].output_l2),
        "entropy": number(recorded.untouched.mean_entropy, 2),
        "entropy_all": number(everywhere.mean_entropy, 2),
        "perplexity_all": number(everywhere.perplexity, 1),
        "finite": page.t("release.all_brakes.overflowed", n=broken)
        if broken
        else page.t("release.all_brakes.finite"),
        "perplexity_final": _perplexity(final),
        "token": literal(best_label(final)),
        "share": number(final.top[0].probability, 2),
        "rms": number(before[-1].rms, 2),
    }


def _why_mean(recorded: Outcomes, page: Page) -> dict[str, object]:
    by_case = recorded.by_case["mean"]
    return {
        "before": _perplexity(recorded.untouched),
        "kl": number(by_case["layer_norm"].mean_kl, 2),
        **{code: _perplexity(outcome) for code, outcome in by_case.items()},
    }


_REASONS: Final[Mapping[str, Callable[[Outcomes, Page], dict[str, object]]]] = {
    "invariance": _why_invariance,
    "sharpness": _why_sharpness,
    "louder": _why_louder,
    "one_brake": _why_one_brake,
    "all_brakes": _why_all_brakes,
    "mean": _why_mean,
}


def setting(experiment: str, recorded: Outcomes) -> dict[str, object]:
    """The values that the set-up of an experiment names, from the recording."""
    sites = len(recorded.untouched.sites)
    if experiment == "louder":
        return {
            "before": _perplexity(recorded.untouched),
            "output": _perplexity(recorded.by_case["louder"]["output_x2"]),
        }
    if experiment == "one_brake":
        return {"runs": len(recorded.by_case["one_brake"])}
    return {} if experiment == "sharpness" else {"sites": sites}

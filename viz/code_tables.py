"""The page `code`: source lines with what changed in them, and the tables of comparisons and of broken norms.

HTML, as `viz/tables.py` has it; every text of a program or a checkpoint is escaped. Neither Streamlit nor torch is
imported here.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Final

from babel.dates import format_date

from model_probe.code_results import (
    CHECKPOINT,
    WITHOUT_SOURCE,
    CodeResults,
    Comparison,
    Outcome,
    Prediction,
    source,
)
from model_probe.norms import l2_per_token
from model_probe.presets import DEFAULT
from model_probe.summaries import sinks
from viz.figures.base import visible
from viz.provenance import Origin, checkpoint_provenance
from viz.text import Words, literal, number

RIGHT: Final = {"minus_one_read_as_weight": "one_plus", "no_final_norm": "head"}  # else "right"
_NAME: Final = re.compile(r"^def \w+\(")
_DIGITS: Final = 4  # of an RMS: 1.360 against 1.362


def variant_name(variant: str, words: Words, class_name: str | None) -> str:
    """What a variant is called."""
    if variant == CHECKPOINT:
        return words.t("code.variant.checkpoint_class", name=class_name or "—")
    return words.t(f"code.variant.{variant}")


def variant_code(variant: str, against: str, words: Words) -> str:
    """The lines of one variant, marked where they differ from those of another; empty for what has no lines."""
    if variant in WITHOUT_SOURCE:
        return ""
    after = _lines("variants", variant)
    before = after if against in WITHOUT_SOURCE else _lines("variants", against)
    return _changed(before, after, words)


def break_code(name: str, words: Words) -> str:
    """The lines of a broken norm, marked where they differ from the right ones."""
    return _changed(_lines("broken", RIGHT.get(name, "right")), _lines("broken", name), words)


def comparison_table(results: CodeResults, given: str, dtype: str, against: str, words: Words) -> str:
    """One row a variant: how many elements differ from the reference, by how much, and what is not finite."""
    table = results.table
    rows = []
    for variant, told in table.row(given, dtype, against=against).items():
        cells = [
            words.t("code.table.of", n=number(float(told.differ)), all=number(float(told.elements))),
            number(told.largest_absolute),
            number(told.largest_relative),
            str(told.non_finite),
            words.t("code.table.yes" if told.equal else "code.table.no"),
        ]
        rows.append(_row(variant_name(variant, words, table.class_name), cells, figure=variant))
    heads = [
        words.t(f"code.table.{head}") for head in ("differ", "absolute", "relative", "non_finite", "equal")
    ]
    caption = words.t(
        "code.table.caption",
        against=variant_name(against, words, table.class_name),
        input=words.t(f"code.input.{given}"),
        shape=shape_text(table.shapes[given]),
        dtype=dtype,
    )
    return _table(caption, ["", *heads], rows)


def outcome_table(results: CodeResults, name: str, words: Words) -> str:
    """What a broken norm did, case by case."""
    if name == "no_final_norm" and results.prediction is not None:
        return _prediction_table(results.prediction, words)
    outcomes = results.outcomes[name]
    if name == "no_keepdim":
        return _shape_table(outcomes, words)
    if name == "wrong_dimension":
        return _leak_table(outcomes, words)
    rows = [
        _row(
            case_name(outcome, results, words),
            [
                _value(outcome),
                number(outcome.right, _DIGITS),
                "NaN" if outcome.verdict == "nan" else number(outcome.broken, _DIGITS),
                words.t(f"code.verdict.{outcome.verdict}"),
            ],
            figure=outcome.case,
            worded=True,
        )
        for outcome in outcomes
    ]
    heads = [
        words.t(f"code.break.{name}.value"),
        *(words.t(f"code.outcome.{h}") for h in ("right", "broken")),
    ]
    return _table(words.t(f"code.break.{name}.caption"), ["", *heads, words.t("code.outcome.verdict")], rows)


def case_name(outcome: Outcome, results: CodeResults, words: Words) -> str:
    """What was given to a broken norm, in words; a real token by its text."""
    kind, _, place = outcome.case.rpartition("_")
    if outcome.case.isdigit():
        kind, place = "token", outcome.case
    if kind == "real":
        return words.t("code.case.real", token=visible(results.residual_tokens[int(place)]))
    if place.isdigit():
        return words.t("code.case.token", n=int(place) + 1)
    return words.t(f"code.case.{outcome.break_name}.{outcome.case}")


def shape_text(shape: Sequence[int]) -> str:
    """A shape as torch writes it: [2, 9, 32]."""
    return f"[{', '.join(map(str, shape))}]"


def code_provenance(words: Words, results: CodeResults, origin: Origin) -> str:
    """Recorded or run here, when and with what."""
    date = format_date(datetime.fromisoformat(results.made.recorded_at), format="long", locale=words.lang)
    made = words.t(f"code.provenance.{origin}", date=date)
    return words.t(
        "code.provenance.with", made=made, torch=literal(results.made.torch), device=results.made.device
    )


def residual_provenance(words: Words, results: CodeResults) -> str:
    """Whose residual the real one is, and of which norm."""
    whose: Origin = "live" if results.checkpoint is results.source else "recording"
    return words.t(
        "code.provenance.residual",
        source=checkpoint_provenance(words, results.source, origin=whose),
        site=literal(results.residual_site),
        tokens=len(results.residual_tokens),
        prompt=words.t(f"common.preset.{DEFAULT}"),
    )


def lab_provenance(words: Words, results: CodeResults, origin: Origin, name: str) -> str:
    """The line under what a broken norm did: on what checkpoint, where it took one, else how it was run."""
    if name == "no_final_norm" and results.checkpoint is not None:
        return checkpoint_provenance(words, results.checkpoint, origin=origin)
    if any(outcome.case.startswith("real_") for outcome in results.outcomes[name]):
        return f"{code_provenance(words, results, origin)} · {residual_provenance(words, results)}"
    return code_provenance(words, results, origin)


def _prediction_table(prediction: Prediction, words: Words) -> str:
    """The likeliest next tokens with the final norm and without, side by side."""
    rows = []
    for place, pair in enumerate(zip(prediction.tokens, prediction.tokens_without, strict=True), 1):
        cells = [f"{visible(text)}  {100 * share:.1f} %" for text, share in pair]
        rows.append(_row(str(place), cells, figure=f"place.{place}"))
    figures = {
        "perplexity": (prediction.perplexity, prediction.perplexity_without),
        "reads": (prediction.normed_rms, prediction.residual_rms),
    }
    for name, values in figures.items():
        rows.append(_row(words.t(f"code.prediction.{name}"), map(number, values), figure=name))
    heads = [words.t("code.prediction.with"), words.t("code.prediction.without")]
    return _table(words.t("code.prediction.caption", prompt=prediction.prompt), ["", *heads], rows)


def _shape_table(outcomes: Iterable[Outcome], words: Words) -> str:
    rows = []
    for outcome in outcomes:
        out = words.t("code.outcome.refused") if outcome.out_shape is None else shape_text(outcome.out_shape)
        cells = [shape_text(outcome.shape), out, words.t(f"code.verdict.{outcome.verdict}")]
        label = words.t(f"code.case.no_keepdim.{outcome.case}")
        rows.append(_row(label, cells, figure=outcome.case, worded=True))
    heads = [words.t(f"code.outcome.{head}") for head in ("goes_in", "comes_out", "verdict")]
    return _table(words.t("code.break.no_keepdim.caption"), ["", *heads], rows)


def _leak_table(outcomes: Iterable[Outcome], words: Words) -> str:
    """The tokens that nobody touched: how far their output moved, by the right line and by the broken one."""
    moved: dict[str, dict[str, float]] = {}
    for outcome in outcomes:
        norm, _, place = outcome.case.rpartition("_")
        moved.setdefault(place, {})[norm] = outcome.value
    rows = [
        _row(
            words.t("code.case.token", n=int(place) + 1),
            [number(by["right"]), number(by["wrong_dimension"])],
            figure=place,
        )
        for place, by in moved.items()
    ]
    heads = [words.t(f"code.outcome.moved_{which}") for which in ("right", "broken")]
    return _table(words.t("code.break.wrong_dimension.caption"), ["", *heads], rows)


def _lines(module: str, function: str) -> list[str]:
    """A function's lines under one and the same name, so that only what it does can differ."""
    first, *rest = source(module, function).splitlines()
    return [
        _NAME.sub("def rms_norm(" if module == "variants" or "x:" in first else "def logits(", first),
        *rest,
    ]


def _changed(before: Sequence[str], after: Sequence[str], words: Words) -> str:
    """Lines taken away with a minus, lines put in with a plus: told by a sign, a word for readers aloud, and colour."""
    drawn = []
    for line in difflib.ndiff(before, after):
        sign, text = line[0], escape(line[2:])
        if sign == "?":
            continue
        tag = {"-": "del", "+": "ins"}.get(sign)
        if tag is None:
            drawn.append(f"<span>  {text}</span>")
        else:
            spoken = escape(words.t(f"code.diff.{tag}"))
            mark = "−" if sign == "-" else "+"
            drawn.append(f'<{tag}><span class="lab-spoken">{spoken} </span>{mark} {text}</{tag}>')
    return f'<pre class="lab-code"><code>{"".join(drawn)}</code></pre>'


def _value(outcome: Outcome) -> str:
    """The number that decides; on the way to float16's limit with all the digits that it has there."""
    if outcome.break_name == "no_upcast":
        return f"{outcome.value:g}"
    return number(outcome.value, _DIGITS)


def _row(label: str, cells: Iterable[str], figure: str, *, worded: bool = False) -> str:
    """A row of numbers; where it is `worded` the last cell is text, which may wrap."""
    kinds = ["lab-number", "lab-words"]
    *firsts, last = [escape(cell) for cell in cells]
    mark = escape(figure, quote=True)
    values = "".join(f'<td class="lab-number" data-figure="{mark}">{cell}</td>' for cell in firsts)
    return (
        f'<tr><th scope="row">{escape(label)}</th>{values}'
        f'<td class="{kinds[worded]}" data-figure="{mark}">{last}</td></tr>'
    )


def _table(caption: str, heads: Sequence[str], rows: Sequence[str]) -> str:
    label = escape(caption, quote=True)
    top = "".join(f'<th scope="col">{escape(head)}</th>' if head else "<td></td>" for head in heads)
    return (
        f'<div class="lab-table lab-code-table" tabindex="0" role="region" aria-label="{label}"><table>'
        f"<caption>{label}</caption><thead><tr>{top}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def told(results: CodeResults) -> Mapping[str, str]:
    """The numbers of the sentences about the comparisons, by the names that the prose gives them."""
    table = results.table

    def between(variant: str, against: str, dtype: str = "float32") -> Comparison:
        return table.comparison("small", dtype, variant, against=against)

    same = between("zero_centred", "cast_then_gain")
    reordered = between("gain_first", "two_lines")
    late = between("zero_centred", "cast_then_gain", "bfloat16")
    wide = between("cast_then_gain", "two_lines", "float64")
    wide_torch = between("torch_rms_norm", "two_lines", "float64")
    exact = {v: between(v, "exact", "bfloat16") for v in ("two_lines", "cast_then_gain", "gain_in_float32")}
    changed, of_one = results.findings["one_gain_changed"], results.findings["gain_of_one"]
    return {
        "same": str(same.differ),
        "all": str(same.elements),
        "upcast": str(between("cast_then_gain", "two_lines").differ),
        "changed": str(changed.differ),
        "reordered": percent(reordered.share),
        "reordered_most": number(reordered.largest_relative, 1),
        "late": percent(late.share),
        "late_most": percent(late.largest_relative, 1),
        "two_lines": percent(exact["two_lines"].share),
        "cast_then_gain": percent(exact["cast_then_gain"].share),
        "gain_in_float32": percent(exact["gain_in_float32"].share),
        "roots_bfloat16": percent(results.findings["roots_bfloat16"].share),
        "roots_float16": percent(results.findings["roots_float16"].share),
        "wide": number(wide.largest_relative, 1),
        "wide_torch": number(wide_torch.largest_relative, 1),
        "of_one": str(of_one.differ),
    }


def happened(results: CodeResults, name: str, words: Words) -> str:
    """The sentence about what one broken norm did, as Markdown.

    Raises:
        KeyError: not one of BREAKS, or `no_final_norm` where nothing was predicted.
    """
    sentence = words.t(f"code.break.{name}.happened", **_happened(results, name))
    return f"{sentence} {_really(results, words)}" if name == "no_upcast" else sentence


def _really(results: CodeResults, words: Words) -> str:
    """What float16 does to the real residual."""
    real = [o for o in results.outcomes["no_upcast"] if o.case.startswith("real_")]
    lost = [place for place, outcome in enumerate(real) if outcome.verdict == "zeros"]
    if not lost:
        return words.t(
            "code.break.no_upcast.real_none", most=number(max((o.value for o in real), default=math.nan))
        )
    are_sinks = sinks(l2_per_token(results.residual))[lost].all()
    tokens = (literal(visible(results.residual_tokens[place])) for place in lost)
    return words.t(
        f"code.break.no_upcast.{'real_sink' if are_sinks else 'real'}",
        lost=len(lost),
        real=len(real),
        tokens=words.t("figures.list_separator").join(
            words.t("figures.quoted", text=token) for token in tokens
        ),
        largest=number(max(real[place].value for place in lost)),
    )


def _happened(results: CodeResults, name: str) -> Mapping[str, str]:
    """The numbers of the sentence, by the names that its text gives them."""
    cases = {outcome.case: outcome for outcome in results.outcomes[name]}
    real = [o for case, o in cases.items() if case.startswith("real_")]
    made = [o for o in cases.values() if not o.case.startswith("real_")]
    if name == "no_keepdim":
        errors = [o.error for o in made if o.error]
        return {"error": literal(errors[0]) if errors else "—"}
    if name == "mean_of_x":
        nan = [o for o in made if o.verdict == "nan"]
        factors = [o.broken / o.right for o in made if math.isfinite(o.broken) and o.right]
        lost = [o for o in real if o.verdict == "nan"]
        return {
            "n": str(len(nan)),
            "all": str(len(made)),
            "least": number(min(factors, default=math.nan), 2),
            "most": number(max(factors, default=math.nan), 2),
            "lost": str(len(lost)),
            "real": str(len(real)),
        }
    if name in ("no_eps", "eps_outside"):
        short, usual = cases["3"], cases["1"]
        return {
            "rms": f"{short.value:g}",
            "right": number(short.right),
            "broken": number(short.broken),
            "usual": f"{usual.value:g}",
            "percent": number(100 * abs(usual.broken / usual.right - 1), 1),
        }
    if name == "no_upcast":
        fine = [o.value for o in made if o.verdict in ("same", "close")]
        gone = [o.value for o in made if o.verdict == "zeros"]
        return {
            "last": f"{max(fine, default=math.nan):g}",
            "first": f"{min(gone, default=math.nan):g}",
        }
    if name == "wrong_dimension":
        moved = [o.value for o in made if o.case.startswith("wrong")]
        still = [o.value for o in made if o.case.startswith("right")]
        return {
            "n": str(sum(m > 0 for m in moved)),
            "most": number(max(moved), 2),
            "right": number(max(still)),
        }
    if name == "minus_one_read_as_weight":
        random, trained = cases["random"], cases["trained"]
        return {
            "right": number(random.right),
            "broken": number(random.broken),
            "mean": number(trained.value, 2),
            "percent": percent(1 - trained.broken / trained.right),
        }
    if name == "no_final_norm" and results.prediction is not None:
        told = results.prediction
        (first, share), (other, other_share) = told.tokens[0], told.tokens_without[0]
        return {
            "first": literal(visible(first)),
            "first_share": percent(share),
            "other": literal(visible(other)),
            "other_share": percent(other_share),
            "perplexity": number(told.perplexity),
            "perplexity_without": number(told.perplexity_without),
        }
    raise KeyError(name)


def percent(share: float, digits: int = 2) -> str:
    """A share as a number of percent, without the sign."""
    return number(100 * share, digits)

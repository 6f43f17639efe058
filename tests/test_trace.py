"""`NormTrace` out and in: three formats that give the same trace again, and refuse what is not one."""

import dataclasses
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_probe.errors import ProbeError
from model_probe.trace import (
    SERIES,
    CheckpointInfo,
    GainSummary,
    NormTrace,
    SiteTrace,
    Statistics,
    Token,
)
from model_probe.trace_files import read_trace, to_csv, to_json, to_npz

INFO = CheckpointInfo(
    "tiny", "folder", "0" * 64, "Qwen2ForCausalLM", "qwen2", 32, 2, "float32", "cpu", "2", "5", "2026-01-01T00:00:00+00:00"
)  # fmt: skip


def make_trace(texts=("The", " =1+1", "a,\"b\"\n'c'"), bad=False) -> NormTrace:
    random = np.random.default_rng(1)
    tokens = tuple(Token(i, 100 + i, text, special=i == 1) for i, text in enumerate(texts))

    def numbers():
        values = random.lognormal(0, 3, len(texts)).astype(np.float32)
        if bad:
            values[0] = np.nan
        return values

    def statistics():
        return Statistics(numbers(), -numbers(), numbers(), numbers())

    gain = GainSummary(1.5, 1.6, -0.5, 3.0, 0.4)
    sites = (
        SiteTrace("l.0.n", 0, "attention_input", "N", 32, 1e-6, "weight", gain, statistics(), numbers(), statistics(), int(bad)),
        SiteTrace("l.0.q", 0, "query", "N", 8, 1e-5, "one_plus_weight", gain, statistics(), numbers(), statistics(), 0, heads=4),
        SiteTrace("n", None, "final", "N", 32, float("nan"), "other", None, statistics(), numbers(), statistics(), 0, why_no_gain="a gate"),
    )  # fmt: skip
    return NormTrace(INFO, "a <b> $x$ 我\u2028", tokens, sites, tokens_cut=3)


@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.parametrize("ending", ["json", "csv", "npz"])
def test_a_trace_comes_back_as_it_was(tmp_path, ending, bad):
    trace = make_trace(bad=bad)
    trace.save(tmp_path / f"t.{ending}")
    again = NormTrace.load(tmp_path / f"t.{ending}")
    assert to_json(again) == to_json(trace)
    assert again.tokens == trace.tokens
    assert again.checkpoint == trace.checkpoint
    for site, site_again in zip(trace.sites, again.sites, strict=True):
        for name in SERIES:
            np.testing.assert_array_equal(site.series(name), site_again.series(name))
            assert site_again.series(name).dtype == np.float32


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=1, max_size=5))
def test_any_token_text_survives_every_format(texts):
    trace = make_trace(tuple(texts))
    for data, name in (
        (to_json(trace).encode(), "t.json"),
        (to_csv(trace).encode(), "t.csv"),
        (to_npz(trace), "t.npz"),
    ):
        assert [t.text for t in read_trace(data, name).tokens] == texts


def test_json_has_no_nan_and_says_how_many_there_were():
    document = json.loads(to_json(make_trace(bad=True)), parse_constant=pytest.fail)
    site = document["sites"][0]
    assert site["input"]["l2"][0] is None
    assert site["non_finite"] == 1
    assert site["gain"] == {"mean": 1.5, "rms": 1.6, "min": -0.5, "max": 3.0, "std": 0.4}
    assert document["sites"][1]["heads"] == 4
    assert document["format"] == "rmsnorm-trace/1"


def test_csv_is_one_row_a_site_and_token():
    lines = list(__import__("csv").DictReader(io.StringIO(to_csv(make_trace()), newline="")))
    assert len(lines) == 9
    assert lines[3]["site"] == "l.0.q"
    assert lines[3]["token_id"] == "100"
    assert float(lines[0]["input_l2"]) == make_trace().sites[0].input.l2[0]


def _without(key):
    document = json.loads(to_json(make_trace()))
    del document[key]
    return json.dumps(document)


def _changed(change):
    document = json.loads(to_json(make_trace()))
    change(document)
    return json.dumps(document)


BROKEN_JSON = {
    "empty": "",
    "not json": "{",
    "a list": "[]",
    "another format": _changed(lambda d: d.update(format="rmsnorm-trace/9")),
    "deep": "[" * 100_000,
    "no sites": _without("sites"),
    "no checkpoint": _without("checkpoint"),
    "no tokens": _changed(lambda d: d.update(tokens=[])),
    "a short series": _changed(lambda d: d["sites"][0]["input"]["l2"].pop()),
    "a text among numbers": _changed(lambda d: d["sites"][0]["input"]["l2"].__setitem__(0, "x")),
    "a list among numbers": _changed(lambda d: d["sites"][0]["input"]["l2"].__setitem__(0, [])),
    "an unknown role": _changed(lambda d: d["sites"][0].update(role="<script>")),
    "a number for a text": _changed(lambda d: d.update(prompt=3)),
    "numbers for sites": _changed(lambda d: d.update(sites=[1, 2])),
}


@pytest.mark.parametrize("case", BROKEN_JSON)
def test_what_is_not_a_trace_is_refused_in_a_sentence(tmp_path, case):
    path = tmp_path / "broken.json"
    path.write_text(BROKEN_JSON[case])
    with pytest.raises(ProbeError) as refusal:
        NormTrace.load(path)
    assert refusal.value.code == "not_a_trace"
    assert str(refusal.value).startswith("broken.json is not a trace of this program (")


@pytest.mark.parametrize("name", ["t.csv", "t.npz", "t.txt", "t"])
@pytest.mark.parametrize(
    "data", [b"", b"a,b\n1,2\n", b"PK\x03\x04 cut off", b"\xff\xfe", to_npz(make_trace())[:-200]]
)
def test_other_content_is_refused_whatever_its_ending(name, data):
    with pytest.raises(ProbeError, match="is not a trace"):
        read_trace(data, name)


def test_a_csv_with_a_row_cut_off_is_refused():
    whole = to_csv(make_trace(("a", "b"))).splitlines(keepends=True)
    for cut in ("".join(whole[:-1]), "".join(whole)[:-20], to_csv(make_trace())[:-120]):
        with pytest.raises(ProbeError, match=r"more or fewer|CSV"):
            read_trace(cut.encode(), "t.csv")


def test_a_pickle_in_an_npz_is_not_opened():
    buffer = io.BytesIO()
    np.savez(buffer, **{name: np.array([{}], dtype=object) for name in (*SERIES, "header")})
    with pytest.raises(ProbeError, match="is not a trace"):
        read_trace(buffer.getvalue(), "t.npz")


def test_a_missing_file_and_an_unknown_ending(tmp_path):
    with pytest.raises(ProbeError) as missing:
        NormTrace.load(tmp_path / "none.json")
    assert missing.value.code == "not_found"
    with pytest.raises(ValueError, match="saved as"):
        make_trace().save(tmp_path / "t.txt")


def test_depth_is_the_residual_stream_and_for_a_post_norm_model_the_branches():
    trace = make_trace()
    assert [site.name for site in trace.depth()] == ["l.0.n", "n"]
    post = dataclasses.replace(trace.sites[0], role="attention_output")
    only_post = dataclasses.replace(trace, sites=(post, *trace.sites[1:]))
    assert [site.name for site in only_post.depth()] == ["l.0.n", "n"]

"""Files that call themselves traces: whatever they hold, a trace that can be drawn or one sentence, in bounded memory."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import tracemalloc
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_trace import make_trace

from model_probe import trace_files
from model_probe.errors import ProbeError
from model_probe.trace_files import (
    MAX_SITES,
    MAX_TOKENS,
    REASONS,
    read_trace,
    to_arrays,
    to_csv,
    to_json,
    to_npz,
)

DOCUMENT: dict[str, Any] = json.loads(to_json(make_trace()))
MEGABYTE = 2**20


def refused(data: bytes, name: str, **limits: int) -> str:
    """Why a file was refused, a key of REASONS."""
    with pytest.raises(ProbeError) as refusal:
        read_trace(data, name, **limits)
    assert refusal.value.code == "not_a_trace"
    why = refusal.value.fields["why"]
    assert why in REASONS
    return str(why)


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = copy.deepcopy(DOCUMENT)
    change(document)
    return json.dumps(document).encode()


def first_token(**values: object) -> bytes:
    return changed(lambda d: d["tokens"][0].update(values))


def first_site(**values: object) -> bytes:
    return changed(lambda d: d["sites"][0].update(values))


def checkpoint(**values: object) -> bytes:
    return changed(lambda d: d["checkpoint"].update(values))


HOSTILE = {
    "a date that is none": checkpoint(recorded_at="yesterday"),
    "a width of nothing": checkpoint(hidden_size=0),
    "a negative width": checkpoint(hidden_size=-896),
    "a width as text": checkpoint(hidden_size="896"),
    "a width beyond all": checkpoint(hidden_size=10**30),
    "a dtype that is a list": checkpoint(dtype=["float32"]),
    "a name beyond all": checkpoint(name="x" * 5000),
    "half a surrogate pair": first_token(text="\ud800"),
    "half a surrogate pair in a name": first_site(name="\udfff"),
    "a token's text is null": first_token(text=None),
    "a token's id is NaN": first_token(id=float("nan")),
    "a token's id is true": first_token(id=True),
    "a token out of its place": first_token(position=7),
    "special is a text": first_token(special="no"),
    "a layer of a half": first_site(layer=0.5),
    "a layer below the first": first_site(layer=-1),
    "a size of nothing": first_site(size=0),
    "an eps that is an object": first_site(eps={}),
    "a gain that is a list": first_site(gain=[1, 2]),
    "a role that is a list": first_site(role=["final"]),
    "numbers that are a text": first_site(input="123"),
    "a negative length": changed(lambda d: d["sites"][0]["input"]["l2"].__setitem__(0, -1.0)),
    "the same site twice": changed(lambda d: d["sites"].append(d["sites"][0])),
    "tokens that are a text": changed(lambda d: d.update(tokens="abc")),
    "sites that are an object": changed(lambda d: d.update(sites={"a": 1})),
    "a checkpoint that is a list": changed(lambda d: d.update(checkpoint=[])),
    "more tokens than there may be": changed(lambda d: d.update(tokens=d["tokens"] * MAX_TOKENS)),
    "more sites than there may be": changed(lambda d: d.update(sites=[{}] * (MAX_SITES + 1))),
    "nested without end": b'{"format":' + b"[" * 100_000,
    "an integer of a million digits": b'{"format":' + b"9" * MEGABYTE + b"}",
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_json_is_refused(case: str) -> None:
    refused(HOSTILE[case], "t.json")


def test_the_reason_says_what_is_wrong() -> None:
    wanted = {
        "negative": HOSTILE["a negative length"],
        "twice": HOSTILE["the same site twice"],
        "limits": HOSTILE["more tokens than there may be"],
        "format": changed(lambda d: d.update(format="rmsnorm-trace/9")),
        "nothing": changed(lambda d: d.update(tokens=[])),
        "counts": changed(lambda d: d["sites"][0]["input"]["l2"].pop()),
        "not_whole": to_json(make_trace()).encode()[:-9],
        "not_an_object": b"[1]",
        "malformed": checkpoint(name=3),
    }
    assert {why: refused(data, "t.json") for why, data in wanted.items()} == {why: why for why in wanted}
    assert refused(b"{}", "t.txt") == "ending"
    assert refused(b"{}", "json") == "ending"
    assert refused(b"a,b\n1,2\n", "t.csv") == "columns"
    assert refused(b"PK", "t.npz") == "not_whole"
    assert refused(to_json(make_trace()).encode(), "t.json", at_most=100) == "too_large"


def test_a_number_too_large_for_float32_is_not_finite() -> None:
    read = read_trace(changed(lambda d: d["sites"][0]["input"]["l2"].__setitem__(0, 1e300)), "t.json")
    assert np.isnan(read.sites[0].input.l2[0])


def npz(arrays: dict[str, np.ndarray], **replaced: bytes) -> bytes:
    """An NPZ of these arrays, some members replaced by raw content."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=True)
            archive.writestr(f"{name}.npy", replaced.get(name, content.getvalue()))
    return buffer.getvalue()


def claiming(shape: str, descr: str = "<f4") -> bytes:
    """A member whose header claims a shape and whose content is empty."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


ARRAYS = to_arrays(make_trace())
BOMBS = {
    "a shape beyond all": npz(ARRAYS, input_l2=claiming("(1000000000000, 3)")),
    "a negative shape": npz(ARRAYS, input_l2=claiming("(-3, 3)")),
    "a header beyond all": npz(ARRAYS, header=claiming("()", "<U1000000000")),
    "a pickle": npz(ARRAYS | {"input_l2": np.array([[{}]], dtype=object)}),
    "a million sites": npz(ARRAYS | {name: np.zeros((2**20, 1), np.float32) for name in trace_files.SERIES}),
    "a header that is a list": npz(ARRAYS | {"header": np.array("[1]")}),
    "zeros without end": npz(
        ARRAYS | {name: np.zeros((2, 2**23), np.float32) for name in trace_files.SERIES}
    ),
    "another version": npz(ARRAYS, input_l2=b"\x93NUMPY\x09\x00"),
}


@pytest.mark.parametrize("case", BOMBS)
def test_an_archive_that_claims_more_than_it_holds_is_refused_before_room_is_made(case: str) -> None:
    tracemalloc.start()
    try:
        refused(BOMBS[case], "t.npz", at_most=64 * MEGABYTE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 150 * MEGABYTE


def test_a_directory_of_thousands_is_refused_unread() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for i in range(2000):
            archive.writestr(f"{i}.npy", b"")
    assert refused(buffer.getvalue(), "t.npz") == "not_whole"


@pytest.mark.parametrize("at", [0.3, 0.5, 0.9])
def test_a_damaged_archive_is_refused(at: float) -> None:
    data = bytearray(to_npz(make_trace()))
    place = int(len(data) * at)
    data[place : place + 40] = bytes(b ^ 0xFF for b in data[place : place + 40])
    refused(bytes(data), "t.npz")


@pytest.mark.parametrize(
    "data",
    [
        b"[" * (4 * MEGABYTE),
        b'{"a":[' + b"{}," * (2 * MEGABYTE) + b"0]}",
        b'{"a":[' + b"[]," * (2 * MEGABYTE) + b"0]}",
    ],
)
def test_brackets_without_end_are_refused_unparsed(data: bytes) -> None:
    tracemalloc.start()
    try:
        assert refused(data, "t.json") == "too_large"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEGABYTE


def test_rows_without_end_are_refused_at_the_first_too_many() -> None:
    whole = to_csv(make_trace())
    rows = whole + whole.splitlines(keepends=True)[-1] * 50_000
    tracemalloc.start()
    try:
        assert refused(rows.encode(), "t.csv") == "counts"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(rows) + MEGABYTE
    assert refused(b"," * MEGABYTE, "t.csv") == "columns"


@given(st.binary(max_size=200), st.sampled_from(["t.json", "t.csv", "t.npz"]))
def test_any_bytes_are_a_sentence(data: bytes, name: str) -> None:
    refused(data, name)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(node: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Where something stands in a JSON document."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


PLACES = places(DOCUMENT)[1:]


@given(st.sampled_from(PLACES), ANYTHING)
def test_anything_anywhere_is_a_sentence_or_a_trace(place: tuple[Any, ...], value: object) -> None:
    document = copy.deepcopy(DOCUMENT)
    node = document
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    with contextlib.suppress(ProbeError):
        to_json(read_trace(json.dumps(document).encode(), "t.json"))

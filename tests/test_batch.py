"""Batches: what is written, what is not run twice, and what a killed process, worker or disk does to it."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from filelock import FileLock
from pyarrow import parquet

from model_probe import NormTrace, capture, open_checkpoint, read_batch
from model_probe.batch import BatchResult, Here, Measurer, Opening, Outcome, here, run_batch
from model_probe.batch_files import BatchFolder, Measured, Settings
from model_probe.cli import main
from model_probe.errors import ProbeError
from model_probe.progress import Cancelled
from model_probe.prompt_files import Prompt, read_prompts
from model_probe.ray_batch import RayWorkers
from model_probe.trace import SERIES

Folder = Callable[[str], Path]
RIVER = "The river flows softly through the valley."
LONG = "the fox jumps over the dog " * 80
ROOT = Path(__file__).resolve().parent.parent


def lines(path: Path, *documents: object) -> Path:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
    return path


def many(path: Path, count: int, text: str = LONG) -> Path:
    return lines(path, *({"prompt": f"{number} {text}"} for number in range(count)))


def prompts_of(*texts: str) -> list[Prompt]:
    return [Prompt(index, None, text) for index, text in enumerate(texts)]


def run(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[object, str, list[str]]:
    """Status, standard output and the lines of standard error of `batch` in this process."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as left:
        main(["batch", *(str(argument) for argument in arguments)])
    out, err = capfd.readouterr()
    return left.value.code, out, err.splitlines()


def traces(out: Path) -> dict[int, NormTrace]:
    """By index; each stands there once."""
    found = [(one.index, one.trace) for one in read_batch(out)]
    assert len(dict(found)) == len(found)
    return dict(found)


def assert_same(found: NormTrace, expected: NormTrace, rtol: float = 0.0) -> None:
    assert (found.prompt, found.tokens, found.tokens_cut) == (
        expected.prompt,
        expected.tokens,
        expected.tokens_cut,
    )
    assert replace(found.checkpoint, recorded_at="") == replace(expected.checkpoint, recorded_at="")
    assert len(found.sites) == len(expected.sites)
    for site, other in zip(found.sites, expected.sites, strict=True):
        named = (
            "name",
            "layer",
            "role",
            "class_name",
            "size",
            "eps",
            "gain_convention",
            "gain",
            "heads",
            "non_finite",
        )
        assert [getattr(site, name) for name in named] == [getattr(other, name) for name in named]
        for name in SERIES:
            values, expected_values = site.series(name), other.series(name)
            scale = np.abs(expected_values).max()
            np.testing.assert_allclose(values, expected_values, rtol=0, atol=rtol * scale, err_msg=site.name)


def assert_whole(out: Path, checkpoint: Path, file: Path) -> None:
    """Every prompt of the file stands there as `capture` measures it."""
    opened, found = open_checkpoint(checkpoint), traces(out)
    prompts = read_prompts(file)
    assert found.keys() == {prompt.index for prompt in prompts}
    for prompt in prompts:
        assert_same(found[prompt.index], capture(opened, prompt.text))


# what is written


@pytest.mark.parametrize("architecture", ["qwen3", "qwen3_5", "gemma3"])
def test_the_dataset_holds_what_capture_gives(
    architecture: str, tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tiny_folder(architecture)
    file = lines(
        tmp_path / "p.jsonl", {"prompt": RIVER, "id": "river"}, {"prompt": "苗寨 ☕<|im_end|>\u2028\n"}
    )
    status, out, err = run(capfd, "--prompts", file, "--checkpoint", folder, "--out", tmp_path / "out")
    assert (status, out) == (0, f"{tmp_path / 'out'}\n")
    assert err[-2:] == ["Written: 2 of 2", "2 prompts measured, 0 there already."]
    assert_whole(tmp_path / "out", folder, file)
    assert [one.id for one in read_batch(tmp_path / "out")] == ["river", None]


def test_other_programs_read_it(tiny_folder: Folder, tmp_path: Path) -> None:
    opening = Opening(str(tiny_folder("qwen3")), max_tokens=6)
    run_batch(prompts_of(RIVER, "", "ab"), tmp_path / "out", here(opening), part_rows=1)
    table = pd.read_parquet(tmp_path / "out")
    trace = capture(open_checkpoint(tiny_folder("qwen3")), RIVER, max_tokens=6)
    assert len(table[table.prompt_index == 0]) == len(trace.sites) * 6
    assert sorted(table.prompt_index.unique()) == [0, 2]
    final = table[(table.prompt_index == 0) & (table.site == "model.norm")]
    np.testing.assert_array_equal(final.output_l2, trace.site("model.norm").output.l2)
    assert final.layer.isna().all()
    assert set(final.tokens_cut) == {trace.tokens_cut}
    assert list(final.token) == [token.text for token in trace.tokens]
    dataset = ds.dataset(tmp_path / "out")
    queries = dataset.to_table(filter=(ds.field("role") == "query") & (ds.field("layer") == 1))
    assert set(queries["site"].to_pylist()) == {"model.layers.1.self_attn.q_norm"}
    header = json.loads(dataset.schema.metadata[b"rmsnorm_batch"])
    assert header["format"] == "rmsnorm-batch/1"
    assert header["checkpoint"]["digest"] == trace.checkpoint.digest
    assert {site["name"]: site["gain_convention"] for site in header["sites"]} == {
        site.name: site.gain_convention for site in trace.sites
    }


def test_what_is_not_finite_is_null_and_counted(tiny_folder: Folder, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_folder("qwen2"))
    trace = capture(checkpoint, RIVER)
    values = trace.sites[1].output.l2.copy()
    values[:2] = np.inf, np.nan
    broken = replace(trace.sites[1], output=replace(trace.sites[1].output, l2=values), non_finite=64)
    trace = replace(trace, sites=(trace.sites[0], broken, *trace.sites[2:]))
    with BatchFolder.opened(tmp_path / "out") as folder:
        folder.write(Settings(checkpoint.info, 2048, {}), [Measured(prompts_of(RIVER), trace)])
    column = parquet.read_table(tmp_path / "out")["output_l2"]
    assert column.null_count == 2
    (read,) = traces(tmp_path / "out").values()
    assert read.sites[1].non_finite == 64
    np.testing.assert_array_equal(
        np.isnan(read.sites[1].output.l2), [True, True, *[False] * (len(values) - 2)]
    )


def test_a_text_that_stands_there_twice_is_run_once(tiny_folder: Folder, tmp_path: Path) -> None:
    runs = Counting(Here(open_checkpoint(tiny_folder("qwen2")), Opening("")))
    prompts = [Prompt(0, "a", RIVER), Prompt(1, "b", "x"), Prompt(2, None, RIVER)]
    result = run_batch(prompts, tmp_path / "out", runs)
    assert runs.texts == [RIVER, "x"]
    assert (result.measured, result.total) == (3, 3)
    found = traces(tmp_path / "out")
    assert_same(found[0], found[2])
    assert {one.index: one.id for one in read_batch(tmp_path / "out")} == {0: "a", 1: "b", 2: None}


class Counting:
    """A measurer that remembers what it was asked for."""

    def __init__(self, measurer: Measurer) -> None:
        self.measurer, self.texts = measurer, list[str]()
        self.info, self.max_tokens, self.spread = measurer.info, measurer.max_tokens, measurer.spread

    def measure(self, texts: Sequence[str]) -> Iterator[tuple[int, Outcome]]:
        self.texts += texts
        return self.measurer.measure(texts)

    def __enter__(self) -> Counting:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def test_what_cannot_be_run_is_listed_and_what_is_too_long_is_cut(
    tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.jsonl").write_bytes(
        b'\xef\xbb\xbf{"prompt": "", "id": 7, "label": [1]}\r\n\n{"prompt": "ab", "score": 0.5}\n'
        b'  \n{"prompt": null}\n{"prompt": "\\ud800"}\n{"prompt": "zzzzzzzz"}'
    )
    base = (
        "--prompts",
        tmp_path / "p.jsonl",
        "--checkpoint",
        tiny_folder("qwen2"),
        "--out",
        tmp_path / "out",
    )
    status, _, err = run(capfd, *base, "--max-tokens", 4)
    assert status == 0
    assert err[-3:] == [
        "2 prompts measured, 0 there already.",
        "1 prompt cut to 4 tokens.",
        f"3 prompts not measured; {tmp_path / 'out' / '_errors.jsonl'} says why.",
    ]
    errors = [json.loads(line) for line in (tmp_path / "out" / "_errors.jsonl").read_text().splitlines()]
    assert [(one["prompt_index"], one["prompt_id"], one["code"]) for one in errors] == [
        (0, "7", "empty_prompt"), (2, None, "empty_prompt"), (3, None, "bad_prompt"),
    ]  # fmt: skip
    found = traces(tmp_path / "out")
    assert {index: (len(one.tokens), one.tokens_cut) for index, one in found.items()} == {
        1: (2, 0),
        4: (4, 4),
    }
    assert run(capfd, *base, "--max-tokens", 4)[2][-2:] == [
        "0 prompts measured, 2 there already.",
        f"3 prompts not measured; {tmp_path / 'out' / '_errors.jsonl'} says why.",
    ]


# the file of prompts


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"prompt": "a"', "line 3 is not JSON"),
        (b'"a"', 'line 3 is not an object with a "prompt"'),
        (b'{"text": "a"}', 'line 3 is not an object with a "prompt"'),
        (b'{"prompt": 5}', 'line 3 has a "prompt" that is not a text'),
        (b'{"prompt": "a", "id": {}}', 'line 3 has an "id" that is neither a text nor a whole number'),
        (b'{"prompt": "a", "id": "\\ud800"}', 'line 3 has an "id" with half a surrogate pair'),
        (b'{"prompt": "\xff"}', "line 3 is not UTF-8 text"),
        (b"[" * 100_000, "line 3 is not JSON"),
    ],
)
def test_a_broken_line_is_named(
    line: bytes, reason: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.jsonl").write_bytes(b'{"prompt": "a"}\n\n' + line + b"\n")
    status, out, err = run(capfd, "--prompts", tmp_path / "p.jsonl", "--out", tmp_path / "out")
    assert (status, out) == (2, "")
    assert err == [f"{tmp_path / 'p.jsonl'} cannot be read as a list of prompts: {reason}."]
    assert not (tmp_path / "out").exists()


def test_prompts_in_a_parquet_file(tmp_path: Path) -> None:
    table = {"n": [1, 2, 3], "prompt": ["a\u2028b", None, "c"], "id": [10, None, 30]}
    parquet.write_table(pa.table(table), tmp_path / "p.parquet")
    assert read_prompts(tmp_path / "p.parquet") == [
        Prompt(0, "10", "a\u2028b"), Prompt(1, None, ""), Prompt(2, "30", "c"),
    ]  # fmt: skip
    coded = pa.table({"prompt": pa.array(["a", "a"]).dictionary_encode()})
    parquet.write_table(coded, tmp_path / "p.parquet")
    assert read_prompts(tmp_path / "p.parquet") == prompts_of("a", "a")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("p.parquet", pa.table({"text": ["a"]}), 'no one column "prompt"'),
        ("p.parquet", pa.table({"prompt": [{"a": 1}]}), "cannot be read as a list of prompts"),
        ("p.parquet", b"PAR1 and no more", "cannot be read as a list of prompts"),
        ("p.txt", b"a\n", "neither .jsonl nor .parquet"),
        ("gone.jsonl", None, "There is no file"),
    ],
)
def test_a_file_that_is_no_list_of_prompts(
    name: str, content: pa.Table | bytes | None, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif content is not None:
        parquet.write_table(content, tmp_path / name)
    status, _, err = run(capfd, "--prompts", tmp_path / name, "--out", tmp_path / "out")
    assert (status, len(err)) == (2, 1)
    assert words in err[0]


# going on


def test_a_killed_run_goes_on(tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder, out = tiny_folder("qwen3"), tmp_path / "out"
    file = many(tmp_path / "p.jsonl", 40)
    base = ["--prompts", str(file), "--checkpoint", str(folder), "--out", str(out), "--part-rows", "1"]
    program = subprocess.Popen(
        [sys.executable, "-m", "model_probe", "batch", *base], cwd=ROOT, stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    wait_for(lambda: len(list(out.glob("part-*.parquet"))) >= 3 or program.poll() is not None)
    program.send_signal(signal.SIGKILL)
    assert program.wait() == -signal.SIGKILL, "it had come to its end"
    written = {part: part.stat().st_mtime_ns for part in out.glob("part-*.parquet")}
    there = len(traces(out))
    assert 3 <= there < 40
    (out / ".half-part-000040.parquet").write_bytes(b"PAR1")
    assert pd.read_parquet(out).prompt_index.nunique() == there  # what is half-written does not count

    status, _, err = run(capfd, *base)
    assert status == 0
    assert err[-1] == f"{40 - there} prompts measured, {there} there already."
    assert {part: part.stat().st_mtime_ns for part in written} == written
    assert not list(out.glob(".half-*"))
    assert_whole(out, folder, file)
    assert run(capfd, *base)[2][-1] == "0 prompts measured, 40 there already."


def wait_for(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not happens():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_a_stopped_run_keeps_what_it_measured(tiny_folder: Folder, tmp_path: Path) -> None:
    prompts = prompts_of("a", "", "b", "c", "d")

    def stop_after_half(stage: str, done: float | None = None, detail: str = "") -> None:
        if stage == "batch" and done is not None and done > 0.5:
            raise Cancelled

    opening = Opening(str(tiny_folder("qwen2")))
    with pytest.raises(Cancelled):
        run_batch(prompts, tmp_path / "out", here(opening), progress=stop_after_half)
    assert traces(tmp_path / "out").keys() == {0, 2}
    assert "empty_prompt" in (tmp_path / "out" / "_errors.jsonl").read_text()
    result = run_batch(prompts, tmp_path / "out", here(opening))
    assert result == BatchResult(total=5, before=2, measured=2, cut=0, failed=1, removed=())


def test_a_run_that_is_told_to_end_keeps_what_it_measured(tiny_folder: Folder, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = [
        "--prompts",
        many(tmp_path / "p.jsonl", 2000),
        "--checkpoint",
        tiny_folder("qwen2"),
        "--out",
        out,
    ]
    program = subprocess.Popen(
        [sys.executable, "-m", "model_probe", "batch", *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert program.stderr is not None
    said = iter(program.stderr.readline, "")
    assert "Measuring the prompts\n" in said  # reads up to it
    program.terminate()
    assert list(said)[-1] == "Stopped.\n"
    assert program.wait() == 2
    assert 1 <= len(traces(out)) < 2000


def test_a_part_that_is_not_whole_is_measured_again(
    tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, out = tiny_folder("qwen2"), tmp_path / "out"
    file = many(tmp_path / "p.jsonl", 3, "x")
    base = ("--prompts", file, "--checkpoint", folder, "--out", out, "--part-rows", 1)
    run(capfd, *base)
    part = out / "part-000001.parquet"
    part.write_bytes(part.read_bytes()[:-100])
    status, _, err = run(capfd, *base)
    assert status == 0
    assert err[-2:] == [
        "part-000001.parquet was not whole; its prompts were measured again.",
        "1 prompt measured, 2 there already.",
    ]
    assert_whole(out, folder, file)


def test_a_longer_list_goes_on_with_a_shorter_one(
    tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    base = ("--checkpoint", tiny_folder("qwen2"), "--out", tmp_path / "out")
    run(capfd, "--prompts", many(tmp_path / "p.jsonl", 2, "x"), *base)
    assert run(capfd, "--prompts", many(tmp_path / "p.jsonl", 5, "x"), *base)[2][-1] == (
        "3 prompts measured, 2 there already."
    )
    shorter = run(capfd, "--prompts", many(tmp_path / "p.jsonl", 4, "x"), *base)
    assert shorter[0] == 2
    assert "the list of prompts has no prompt 4" in shorter[2][-1]
    other = run(capfd, "--prompts", many(tmp_path / "p.jsonl", 5, "y"), *base)
    assert other[0] == 2
    assert "prompt 0 is another text there" in other[2][-1]
    assert len(traces(tmp_path / "out")) == 5


def test_traces_that_do_not_belong_together_are_kept_apart(
    tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = many(tmp_path / "p.jsonl", 1, "x")
    base = ("--prompts", file, "--out", tmp_path / "out", "--checkpoint")
    run(capfd, *base, tiny_folder("qwen2"))
    for changed, reason in (
        ((tiny_folder("llama"),), "the name of its checkpoint is qwen2, not llama"),
        (
            (tiny_folder("qwen2"), "--dtype", "bfloat16"),
            "the dtype of its checkpoint is float32, not bfloat16",
        ),
        ((tiny_folder("qwen2"), "--max-tokens", 5), "it cuts prompts to 2048 tokens, not 5"),
    ):
        status, _, err = run(capfd, *base, *changed)
        assert status == 2
        assert err[-1] == f"{tmp_path / 'out'} holds another batch: {reason}; choose another folder."
    (tmp_path / "mine").mkdir()
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "mine" / "part-000000.parquet")
    status, _, err = run(
        capfd, "--prompts", file, "--checkpoint", tiny_folder("qwen2"), "--out", tmp_path / "mine"
    )
    assert (status, len(err)) == (2, 1)
    assert "part-000000.parquet is another program's" in err[0]
    assert (tmp_path / "mine" / "part-000000.parquet").exists()


def test_only_one_run_writes_to_a_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    with FileLock(tmp_path / "out" / ".lock"):
        status, _, err = run(capfd, "--prompts", many(tmp_path / "p.jsonl", 1), "--out", tmp_path / "out")
    assert (status, err) == (2, [f"Another run is writing to {tmp_path / 'out'}."])


def test_a_full_disk_leaves_nothing_half_written(
    tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = many(tmp_path / "p.jsonl", 3, "x")
    base = (
        "--prompts",
        file,
        "--checkpoint",
        tiny_folder("qwen2"),
        "--out",
        tmp_path / "out",
        "--part-rows",
        1,
    )
    real = parquet.write_table
    seen: list[int] = []

    def fills_up(table: pa.Table, path: Path, **options: Any) -> None:
        if "000001" in path.name:
            path.write_bytes(b"PAR1")
            seen.append(pd.read_parquet(tmp_path / "out").prompt_index.nunique())  # by others meanwhile
            raise OSError(errno.ENOSPC, "No space left on device")
        real(table, path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(parquet, "write_table", fills_up)
        status, _, err = run(capfd, *base)
    assert status == 2
    assert seen == [1]
    assert err[-1] == f"The disk is full: more bytes are needed in {tmp_path / 'out'}."
    assert [path.name for path in (tmp_path / "out").glob("*part*")] == ["part-000000.parquet"]
    assert run(capfd, *base)[2][-1] == "2 prompts measured, 1 there already."


def test_a_folder_that_is_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("x")
    status, _, err = run(
        capfd, "--prompts", many(tmp_path / "p.jsonl", 1), "--out", tmp_path / "file" / "out"
    )
    assert (status, len(err)) == (2, 1)
    assert "cannot be written" in err[0]
    with pytest.raises(ProbeError, match="no file or folder"):
        next(read_batch(tmp_path / "gone"))
    with pytest.raises(ProbeError, match="holds no batch"):
        next(read_batch(tmp_path))


# Ray


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a Ray cluster of two CPUs on this machine."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        started = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 2, "object_store_memory": 80 * 2**20, "include_dashboard": False},
        )
        try:
            yield started.address
        finally:
            started.shutdown()


def test_ray_writes_the_same_rows_and_loses_nothing_when_a_worker_is_killed(
    cluster: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    folder = tiny_folder("qwen3")
    file = many(tmp_path / "p.jsonl", 48)
    workers = RayWorkers(cluster, Opening(str(folder)), workers=2)
    killed: list[int] = []

    def kill_one(stage: str, done: float | None = None, detail: str = "") -> None:
        if stage == "batch" and not killed:
            killed.extend(workers.processes()[:1])
            os.kill(killed[0], signal.SIGKILL)

    result = run_batch(read_prompts(file), tmp_path / "out", workers, progress=kill_one)
    assert result == BatchResult(total=48, before=0, measured=48, cut=0, failed=0, removed=())
    assert workers.replaced == 1
    assert_whole(tmp_path / "out", folder, file)


def test_ray_on_the_command_line(
    cluster: str, tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = lines(tmp_path / "p.jsonl", {"prompt": RIVER}, {"prompt": ""}, {"prompt": "x"})
    base = ("--prompts", file, "--out", tmp_path / "out", "--ray", cluster)
    status, _, err = run(capfd, *base, "--checkpoint", tiny_folder("qwen2"))
    assert (status, err[0]) == (0, "Starting the workers")
    assert err[-2].startswith("2 prompts measured, 0 there already.")
    assert traces(tmp_path / "out").keys() == {0, 2}
    status, _, err = run(capfd, *base, "--checkpoint", tmp_path / "gone")
    assert (status, err[-1]) == (2, f"There is no file or folder at {tmp_path / 'gone'}.")


def test_a_prompt_that_kills_each_worker_is_given_up(
    cluster: str, tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from model_probe import ray_batch

    class Fragile(ray_batch.Worker):
        def measure(self, texts: Sequence[str]) -> list[Any]:
            if "poison" in texts:
                os._exit(1)
            return super().measure(texts)

    monkeypatch.setattr(ray_batch, "Worker", Fragile)
    monkeypatch.setattr(ray_batch, "TRIES", 2)
    prompts = prompts_of("a", "poison", "b")
    workers = RayWorkers(cluster, Opening(str(tiny_folder("qwen2"))), workers=1)
    result = run_batch(prompts, tmp_path / "out", workers)
    assert (result.measured, result.failed, workers.replaced) == (2, 1, 2)
    (line,) = (tmp_path / "out" / "_errors.jsonl").read_text().splitlines()
    assert (json.loads(line)["prompt_index"], json.loads(line)["code"]) == (1, "worker_died")


def test_ray_that_is_not_installed_or_not_there(
    tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as bound:  # and listens to nobody
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        base = ("--prompts", many(tmp_path / "p.jsonl", 1), "--out", tmp_path / "out", "--ray", address)
        status, _, err = run(capfd, *base)
        assert (status, len(err)) == (2, 1)
        assert f"The Ray cluster at {address} cannot be used" in err[0]
    monkeypatch.setitem(sys.modules, "ray", None)
    status, _, err = run(capfd, *base)
    assert (status, err) == (2, ["Ray is not installed; `pip install -r requirements-ray.txt` installs it."])


# over devices and processes


def test_offloaded_to_the_disk_it_measures_the_same(tiny_folder: Folder) -> None:
    folder = tiny_folder("qwen3")
    laid_out = {
        "model.embed_tokens": "cpu",
        "lm_head": "cpu",
        "model.rotary_emb": "cpu",
        "model.norm": "disk",
    }
    laid_out |= {"model.layers.0": "cpu", "model.layers.1": "disk"}
    opened = open_checkpoint(folder, device="cpu", device_map=laid_out)
    assert opened.model.model.norm.weight.device.type == "meta"
    assert_same(capture(opened, RIVER), capture(open_checkpoint(folder), RIVER))


def test_a_device_map_on_the_command_line(
    tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = many(tmp_path / "p.jsonl", 2)
    base = ("--prompts", file, "--checkpoint", tiny_folder("qwen3"), "--out", tmp_path / "out")
    assert run(capfd, *base, "--device-map", "auto")[0] == 0
    assert_whole(tmp_path / "out", tiny_folder("qwen3"), file)
    schema = ds.dataset(tmp_path / "out").schema
    assert json.loads(schema.metadata[b"rmsnorm_batch"])["spread"] == {"device_map": "auto"}


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
def test_two_processes_measure_what_one_does(architecture: str, tiny_folder: Folder, tmp_path: Path) -> None:
    folder, out = tiny_folder(architecture), tmp_path / "out"
    file = lines(tmp_path / "p.jsonl", {"prompt": RIVER}, {"prompt": ""}, {"prompt": "苗寨 ☕"})
    ran = torchrun(
        "--prompts", file, "--checkpoint", folder, "--out", out, "--tp-plan", "auto", "--part-rows", 1
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [str(out)]  # the first process's alone
    found, opened = traces(out), open_checkpoint(folder)
    assert found.keys() == {0, 2}
    for trace in found.values():
        assert_same(trace, capture(opened, trace.prompt), rtol=1e-5)
    header = json.loads(ds.dataset(out).schema.metadata[b"rmsnorm_batch"])
    assert header["spread"] == {"tp_plan": "auto"}


def torchrun(*arguments: object, processes: int = 2) -> subprocess.CompletedProcess[str]:
    """`batch` in processes that torchrun starts on this machine's CPU, so with gloo."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = f"--nproc-per-node {processes} --master-addr 127.0.0.1 --master-port {port}".split()
    command = [sys.executable, "-m", "torch.distributed.run", *places, "-m", "model_probe", "batch"]
    return subprocess.run(
        [*command, *(str(argument) for argument in arguments)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip


def test_a_failure_under_torchrun_is_a_sentence(tiny_folder: Folder, tmp_path: Path) -> None:
    ran = torchrun("--prompts", many(tmp_path / "p.jsonl", 1), "--out", tmp_path / "out")
    assert ran.returncode != 0
    assert "Under torchrun, give --tp-plan auto." in ran.stderr
    base = (
        "--prompts",
        tmp_path / "p.jsonl",
        "--checkpoint",
        tiny_folder("qwen3"),
        "--out",
        tmp_path / "out",
    )
    ran = torchrun(*base, "--tp-plan", "auto", processes=3)
    assert ran.returncode != 0
    assert "its 4 attention heads cannot be shared evenly by 3 processes." in ran.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tp-plan", "auto"), "start it with torchrun"),
        (("--ray", "auto", "--tp-plan", "auto"), "either --ray or --tp-plan"),
        (("--workers", "2"), "--workers goes with --ray"),
        (("--device-map", "mine"), "--device-map"),
        (("--max-tokens", "0"), "--max-tokens"),
    ],
)
def test_options_that_do_not_go_together(
    options: Sequence[str], words: str, tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    base = ("--prompts", many(tmp_path / "p.jsonl", 1), "--checkpoint", tiny_folder("qwen2"), "--out")
    status, out, err = run(capfd, *base, tmp_path / "out", *options)
    assert (status, out, len(err)) == (2, "", 1)
    assert words in err[0]

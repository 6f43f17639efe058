"""Faults 11, 12, 13 and 15: networks that are not there, renamed keys, and half of a download.

Against servers on this machine that play the Hugging Face hub and ModelScope.
"""

from __future__ import annotations

import builtins
import errno
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any

import gguf_files
import pytest
import tiny
from hub import Hub, sha256
from served import DEAD, TINY, refused

from model_probe import fetch, open_checkpoint
from model_probe.catalog import find
from model_probe.errors import ProbeError
from model_probe.progress import Cancelled

WEIGHTS = "model.safetensors"
GIVEN_UP = 10.0  # seconds; the hub's own client goes on for 23 where nothing answers

# Parts of programs that the tests run as processes of their own.
NAMED_TINY = f"""
from model_probe import capture, fetch, open_checkpoint
from model_probe.catalog import NAMED, NamedCheckpoint, find
NAMED.clear()
NAMED["tiny"] = NamedCheckpoint(*{astuple(TINY)!r})
"""
FETCH = """
said = set()
def tell(stage, done=None, detail=""):
    if stage not in said:
        print(stage, flush=True)
    said.add(stage)
print(fetch("tiny", progress=tell), flush=True)
"""
NO_NETWORK = """
import os, sys
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        os.write(2, f"the network was asked: {event} {arguments}\\n".encode())
        os._exit(9)
sys.addaudithook(refuse)
"""
NETWORK_OFF = """
import socket
def refuse(*_, **__): raise OSError(101, "Network is unreachable")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
"""


class Told:
    """Keeps what a progress function is told, and cancels when a download has come so far."""

    def __init__(self, cancel_at: float | None = None) -> None:
        self.words: list[tuple[str, float | None, str]] = []
        self.times: list[float] = []
        self.cancel_at = cancel_at  # share of the download

    def __call__(self, stage: str, done: float | None = None, detail: str = "") -> None:
        self.words.append((stage, done, detail))
        self.times.append(time.monotonic())
        if stage == "download" and self.cancel_at is not None and (done or 0.0) >= self.cancel_at:
            raise Cancelled


@pytest.fixture(params=["hub", "modelscope"])
def server(request: pytest.FixtureRequest) -> Hub:
    """A source that holds TINY; the other one is dead."""
    return request.getfixturevalue(request.param)


def arrived_whole(server: Hub, folder: Path) -> bool:
    return sha256(folder / WEIGHTS) == sha256(server.repositories["owner/tiny"] / WEIGHTS)


def weights_in(caches: Path) -> list[Path]:
    """Whatever goes by the name of the weights in the cache of a client."""
    return [path for client in ("hub", "modelscope") for path in (caches / client).rglob(WEIGHTS)]


def half_in(caches: Path) -> list[Path]:
    return [path for client in ("hub", "modelscope") for path in (caches / client).rglob("*.incomplete")]


def sizes_of_halves(caches: Path) -> dict[Path, int]:
    """Bytes of what is arriving; a small file may be whole, and elsewhere, between two looks."""
    sizes = {}
    for half in half_in(caches):
        with suppress(FileNotFoundError):
            sizes[half] = half.stat().st_size
    return sizes


def grows(caches: Path) -> bool:
    """Whether a file is arriving slowly, which under the fault "drip" only weights do."""
    before = sizes_of_halves(caches)
    time.sleep(0.5)
    return any(0 < before.get(half, 0) < size for half, size in sizes_of_halves(caches).items())


def started(code: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    """What is left of a process's output, held to have gone well."""
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output.splitlines()


# 11: a cached model still asked the network


def test_fault_11_a_warm_cache_opens_with_the_network_refused(server: Hub) -> None:
    fetch("tiny")
    server.requests.clear()
    timed = """
import statistics, time
folder = find("tiny").folder
def seconds(where):
    begin = time.perf_counter()
    open_checkpoint(where)
    return time.perf_counter() - begin
opened = open_checkpoint("tiny")
pairs = [(seconds("tiny"), seconds(folder)) for _ in range(5)]
ratio = statistics.median(name / folder for name, folder in pairs)
print(ratio, len(capture(opened, "hi").sites), opened.info.source)
"""
    (line,) = lines_of(started(NO_NETWORK + NAMED_TINY + timed))
    ratio, sites, source = line.split()
    assert float(ratio) < 3  # of what opening the folder itself takes: nothing is waited for
    assert (sites, source) == ("9", "owner/tiny")
    assert server.requests == []


@pytest.mark.parametrize("where", ["owner/tiny", "owner/tiny@main", "owner/tiny@0123456"])
def test_fault_11_a_cached_hub_id_opens_with_the_network_refused(hub: Hub, where: str) -> None:
    fetch("owner/tiny")
    code = NO_NETWORK + NAMED_TINY + f"print(len(capture(open_checkpoint({where!r}), 'hi').sites))"
    assert lines_of(started(code)) == ["9"]


@pytest.mark.parametrize("where", ["tiny", "owner/tiny"])
def test_fault_11_a_cold_cache_without_a_network_is_one_sentence(
    empty_caches: Path, known: Callable[..., None], where: str
) -> None:
    code = f"""
import time
import torch, transformers, modelscope_hub
from model_probe.cli import main
begin = time.monotonic()
try: main(["capture", "--checkpoint", {where!r}, "--prompt", "hi"])
except SystemExit as left: print(left.code, time.monotonic() - begin)
"""
    process = started(NETWORK_OFF + NAMED_TINY + code)
    output, errors = process.communicate(timeout=300)
    status, seconds = output.split()
    assert status == "2"
    assert float(seconds) < GIVEN_UP
    lines = errors.splitlines()
    assert [line for line in lines if not line.startswith(("Asking ", "Given up: "))] == [lines[-1]]
    assert lines[-1] == f"{where} could not be fetched: {DEAD} cannot be reached."


def test_fault_11_a_network_that_says_nothing_is_one_sentence(hub: Hub) -> None:
    hub.fault = "slow"
    begin = time.monotonic()
    sentence = refused()
    assert time.monotonic() - begin < GIVEN_UP
    assert f"{hub.address} did not answer within 3 seconds" in sentence


# 12: a mirror was ignored


@pytest.mark.parametrize("fault", ["dead", "slow", "broken", "babble"])
def test_fault_12_a_mirror_that_fails_is_named_and_the_next_source_tried(
    modelscope: Hub, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    with Hub({}) as mirror:
        address = DEAD if fault == "dead" else mirror.address
        mirror.fault = fault
        monkeypatch.setenv("HF_ENDPOINT", address)
        told = Told()
        begin = time.monotonic()
        assert arrived_whole(modelscope, fetch("tiny", progress=told))
    next_asked = told.words.index(("look", None, modelscope.address))
    assert told.times[next_asked] - begin < GIVEN_UP
    asked = [detail for stage, _, detail in told.words if stage == "look"]
    assert list(dict.fromkeys(asked)) == [address, modelscope.address]
    given_up = [detail for stage, _, detail in told.words if stage == "unreachable"]
    expected = {
        "dead": f"{DEAD} cannot be reached",
        "slow": f"{address} did not answer within 3 seconds",
        "broken": f"{address} answers with status 503",
    }
    assert given_up == ([expected[fault]] if fault in expected else [])  # babble answers, so it is no mirror


def test_fault_12_a_mirror_is_asked_and_nothing_else(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    fetch("tiny", progress=told)
    assert {detail for stage, _, detail in told.words if stage == "look"} == {hub.address}
    assert hub.downloads()


@pytest.mark.parametrize("where", [None, "tiny"])
def test_fault_12_all_sources_dead_is_said_with_their_addresses(
    empty_caches: Path, known: Callable[..., None], monkeypatch: pytest.MonkeyPatch, where: str | None
) -> None:
    known(TINY)
    monkeypatch.setenv("MODELSCOPE_ENDPOINT", "http://127.0.0.1:10")
    told = Told()
    begin = time.monotonic()
    with pytest.raises(ProbeError) as caught:
        fetch(where, progress=told)
    assert time.monotonic() - begin < GIVEN_UP
    for address in (DEAD, "http://127.0.0.1:10"):
        assert str(caught.value).count(f"{address} cannot be reached") == 1
        assert ("unreachable", None, f"{address} cannot be reached") in told.words


# 13: renamed keys silently left norm weights at random


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "qwen3_5", "qwen3_5_wrapper", "gemma3_wrapper"])
def test_fault_13_each_renamed_norm_is_refused_by_its_key(
    own_tiny: Callable[[str], Path], architecture: str
) -> None:
    folder = own_tiny(architecture)
    keys = [key for key in tiny.tensors(folder) if key.endswith("norm.weight")]
    if architecture.endswith("_wrapper"):  # its tower is not loaded
        keys = [key for key in keys if "language_model" in key]
    assert len(keys) > 4
    for key in keys:
        tiny.rename_tensor(folder, key, f"{key}ed")
        with pytest.raises(ProbeError) as caught:
            open_checkpoint(folder)
        assert caught.value.code == "missing_weights"
        tail = key.partition("layers.")[2] or "norm.weight"
        assert str(caught.value.fields["names"]).endswith(tail)
        tiny.rename_tensor(folder, f"{key}ed", key)
    assert open_checkpoint(folder).sites


@pytest.mark.parametrize("key", ["blk.1.attn_norm.weight", "blk.0.attn_q_norm.weight", "output_norm.weight"])
def test_fault_13_a_renamed_norm_of_a_gguf_file_is_refused_by_its_key(
    empty_caches: Path, tmp_path: Path, key: str
) -> None:
    path = gguf_files.write_gguf(tmp_path / "mine.gguf")
    content = path.read_bytes()
    assert content.count(key.encode()) == 1
    path.write_bytes(content.replace(key.encode(), key.replace("norm", "nrom").encode()))
    with pytest.raises(ProbeError) as caught:
        open_checkpoint(path)
    assert caught.value.code == "missing_weights"
    named = {"blk.1": "layers.1.input_layernorm", "blk.0": "layers.0.self_attn.q_norm", "outpu": "model.norm"}
    assert named[key[:5]] in str(caught.value)
    assert not list((empty_caches / "converted").glob("*"))  # nothing half-made


# 15: half of a download taken for the whole


@pytest.mark.parametrize("fault", ["cut", "corrupt", "lie"])
def test_fault_15_a_spoilt_download_is_refused_and_got_anew(server: Hub, tmp_path: Path, fault: str) -> None:
    server.fault = fault
    sentence = refused()
    if fault == "cut":
        assert server.address in sentence
    else:
        assert f"{WEIGHTS} arrived with a different sha256 than published" in sentence
        assert half_in(tmp_path) == []
    assert find("tiny") is None
    assert weights_in(tmp_path) == []
    server.fault = ""
    assert arrived_whole(server, fetch("tiny"))
    assert half_in(tmp_path) == []


def test_fault_15_a_cut_download_goes_on_where_it_stopped(server: Hub, tmp_path: Path) -> None:
    server.fault = "cut"
    refused()
    (half,) = half_in(tmp_path)
    length = half.stat().st_size
    assert length > 0
    server.fault = ""
    server.requests.clear()
    assert arrived_whole(server, fetch("tiny"))
    assert server.ranges() == [f"bytes={length}-"]


def test_fault_15_a_cancelled_download_goes_on_where_it_stopped(server: Hub, tmp_path: Path) -> None:
    server.fault, server.drip_seconds = "drip", 4.0
    with pytest.raises(Cancelled):
        fetch("tiny", progress=Told(cancel_at=0.4))
    assert find("tiny") is None
    (half,) = half_in(tmp_path)
    length = half.stat().st_size
    assert length > 0.3 * (server.repositories["owner/tiny"] / WEIGHTS).stat().st_size
    server.fault = ""
    server.requests.clear()
    told = Told()
    assert arrived_whole(server, fetch("tiny", progress=told))
    assert server.ranges() == [f"bytes={length}-"]
    shares = [done for stage, done, _ in told.words if stage == "download" and done is not None]
    assert shares == sorted(shares)
    assert sum(share < 0.3 for share in shares) <= 1  # what was here already counts as done
    assert shares[-1] == 1.0


def test_fault_15_a_damaged_half_does_not_spoil_the_rest(server: Hub, tmp_path: Path) -> None:
    server.fault, server.drip_seconds = "drip", 2.0
    with pytest.raises(Cancelled):
        fetch("tiny", progress=Told(cancel_at=0.4))
    (half,) = half_in(tmp_path)
    half.write_bytes(bytes(half.stat().st_size))
    server.fault = ""
    with suppress(ProbeError):  # one of the two clients notices and begins anew by itself
        fetch("tiny")
    assert half_in(tmp_path) == []
    assert arrived_whole(server, fetch("tiny"))


def test_fault_15_a_download_that_stalls_is_cancelled_at_once(server: Hub) -> None:
    server.fault, server.drip_seconds = "drip", 2_000.0
    said = 0

    def cancel(stage: str, done: float | None = None, detail: str = "") -> None:
        nonlocal said
        said += stage == "download"
        if said > 2:
            raise Cancelled

    begin = time.monotonic()
    with pytest.raises(Cancelled):
        fetch("tiny", progress=cancel)
    assert time.monotonic() - begin < GIVEN_UP
    server.fault = ""


class FullDisk:
    """A file that takes some bytes and then finds the disk full."""

    def __init__(self, file: Any, room: int) -> None:
        self.file = file
        self.room = room

    def write(self, piece: bytes) -> int:
        self.room -= len(piece)
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(piece)

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on weights that arrive find room for 10 kB, however they are opened."""
    real_open, real_path_open = builtins.open, Path.open

    def opened(path: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        file = real_open(path, mode, *rest, **more)
        return FullDisk(file, 10_000) if str(path).endswith(".incomplete") and mode in ("ab", "wb") else file

    def path_opened(path: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        file = real_path_open(path, mode, *rest, **more)
        return FullDisk(file, 10_000) if path.suffix == ".incomplete" and mode in ("ab", "wb") else file

    from modelscope_hub import _download

    monkeypatch.setattr(_download, "open", opened, raising=False)
    monkeypatch.setattr(Path, "open", path_opened)


def test_fault_15_a_full_disk_is_a_sentence_and_leaves_nothing(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fault, server.drip_seconds = "drip", 0.5
    with monkeypatch.context() as patches:
        fill_the_disk(patches)
        with pytest.raises(ProbeError) as caught:
            fetch("tiny")
    assert caught.value.code == "disk_full"
    assert str(caught.value.fields["path"]).startswith(str(tmp_path))
    assert half_in(tmp_path) == weights_in(tmp_path) == []
    assert find("tiny") is None
    assert arrived_whole(server, fetch("tiny"))


def test_fault_15_two_processes_at_once_download_once(server: Hub) -> None:
    server.fault, server.drip_seconds = "drip", 200.0
    first, second = started(NAMED_TINY + FETCH), started(NAMED_TINY + FETCH)
    # whichever comes first downloads, and goes on as soon as the other one waits
    read_until(first, "download", "wait")
    read_until(second, "download", "wait")
    server.fault = ""
    said = [lines_of(first), lines_of(second)]
    folders = {Path(lines[-1]) for lines in said}
    assert len(folders) == 1
    assert arrived_whole(server, folders.pop())
    assert server.downloads().count(WEIGHTS) == 1


def read_until(process: subprocess.Popen[str], *stages: str) -> None:
    """Wait until a process has come to one of some stages."""
    assert process.stdout is not None
    while (line := process.stdout.readline().strip()) not in stages:
        assert line, process.stderr.read() if process.stderr else ""


def test_fault_15_what_a_killed_process_left_is_taken_up(server: Hub, tmp_path: Path) -> None:
    """Its lock is free at once, its half goes on."""
    server.fault, server.drip_seconds = "drip", 60.0
    process = started(NAMED_TINY + FETCH)
    read_until(process, "download")
    begin = time.monotonic()
    while not grows(tmp_path):
        assert time.monotonic() - begin < 60
    process.kill()
    process.communicate(timeout=30)
    assert find("tiny") is None
    server.fault = ""
    server.requests.clear()
    told = Told()
    assert arrived_whole(server, fetch("tiny", progress=told))
    assert "wait" not in [stage for stage, _, _ in told.words]
    assert len(server.ranges()) == 1
    assert half_in(tmp_path) == []


def test_fault_15_weights_come_last_so_that_a_part_is_never_the_whole(server: Hub, tmp_path: Path) -> None:
    """Without this a folder with its weights, but not yet with all of its tokenizer, would pass for whole."""
    server.fault, server.drip_seconds = "drip", 2.0
    seen: list[bool] = []

    def look(stage: str, done: float | None = None, detail: str = "") -> None:
        found = find("tiny")
        seen.append(found is not None)
        if found is not None:
            names = {path.name for path in found.folder.iterdir()}
            assert {
                "config.json",
                "tokenizer.json",
                "tokenizer_config.json",
                "generation_config.json",
            } < names

    folder = fetch("tiny", progress=look)
    assert not seen[0]
    assert arrived_whole(server, folder)

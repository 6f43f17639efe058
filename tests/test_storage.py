"""The cache: one maker at a time, nothing half-made, disk errors as sentences."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from model_probe.errors import ProbeError
from model_probe.progress import Cancelled
from model_probe.storage import (
    cache_dir,
    disk_errors,
    making,
    publish,
    remembered_sha256,
    require_space,
    sha256,
)


def left_over(cache: Path) -> list[Path]:
    return list((cache / "scratch").iterdir())


def test_the_cache_is_where_the_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RMSNORM_LAB_CACHE", str(tmp_path / "there"))
    assert cache_dir() == tmp_path / "there"
    monkeypatch.setenv("RMSNORM_LAB_CACHE", "")
    assert cache_dir().name == "rmsnorm-lab"
    assert tmp_path not in cache_dir().parents


def test_what_is_made_is_readable_by_others(empty_caches: Path) -> None:
    with making("things/one") as (target, scratch):
        (scratch / "file").write_text("x")
        (scratch / "file").chmod(0o600)  # as transformers leaves its weights
        publish(scratch, target)
    assert (empty_caches / "things" / "one" / "file").stat().st_mode & 0o777 == 0o644
    assert (empty_caches / "things" / "one").stat().st_mode & 0o777 == 0o755
    assert not left_over(empty_caches)


def test_a_failure_leaves_nothing(empty_caches: Path) -> None:
    with pytest.raises(RuntimeError, match="power cut"), making("things/one") as (_, scratch):
        (scratch / "half").write_text("x")
        raise RuntimeError("power cut")
    assert not left_over(empty_caches)
    assert not (empty_caches / "things" / "one").exists()


def test_the_next_maker_clears_what_a_killed_one_left(empty_caches: Path) -> None:
    half = empty_caches / "scratch" / "things--one"
    half.mkdir(parents=True)
    (half / "half").write_text("x")
    with making("things/one") as (_, scratch):
        assert list(scratch.iterdir()) == []


def test_a_second_process_waits_and_finds_the_first_ones(empty_caches: Path) -> None:
    child = """
import sys, time
from model_probe.storage import making, publish
with making("things/one", lambda stage, done=None, detail="": print(stage, flush=True)) as (target, scratch):
    if target.exists():
        print("found", target.read_text(), flush=True)
"""
    with making("things/one") as (target, scratch):
        process = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "wait\n"
        (scratch / "file").write_text("the first's")
        publish(scratch / "file", target)
    output, _ = process.communicate(timeout=30)
    assert output.splitlines()[-1] == "found the first's"
    assert process.returncode == 0


def test_the_lock_of_a_process_that_died_is_free(empty_caches: Path) -> None:
    child = (
        "import time\nfrom model_probe.storage import making\nwith making('a') as (_, scratch):\n"
        " (scratch / 'half').write_text('x'); print('have it', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "have it\n"
    process.kill()
    process.communicate(timeout=30)
    stages: list[str] = []
    with making("a", lambda stage, done=None, detail="": stages.append(stage)) as (_, scratch):
        assert list(scratch.iterdir()) == []
    assert stages == []


def test_a_waiting_maker_can_be_cancelled(empty_caches: Path) -> None:
    def cancel(stage: str, done: float | None = None, detail: str = "") -> None:
        raise Cancelled

    child = (
        "import time\nfrom model_probe.storage import making\nwith making('a'):\n"
        " print('have it', flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "have it\n"
    with pytest.raises(Cancelled), making("a", cancel):
        pass
    process.communicate("\n", timeout=30)


def test_a_full_disk_is_a_sentence(empty_caches: Path) -> None:
    with (
        pytest.raises(ProbeError) as caught,
        disk_errors(2_520_000_000),
        Path("/dev/full").open("wb") as full,
    ):
        full.write(b"x" * 100_000)
    assert caught.value.code == "disk_full"
    assert str(caught.value) == f"The disk is full: 2.5 GB are needed in {empty_caches}."


def test_safetensors_full_disk_is_one_too(empty_caches: Path) -> None:
    from safetensors import SafetensorError

    with pytest.raises(ProbeError) as caught, disk_errors():
        # what it says on a full tmpfs; it renames into place, so it cannot be pointed at /dev/full
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
    assert caught.value.code == "disk_full"


def test_too_little_space_is_said_beforehand(empty_caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    require_space(1000)
    with pytest.raises(ProbeError) as caught:
        require_space(1001)
    assert caught.value.code == "disk_full"


def test_an_unwritable_cache_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RMSNORM_LAB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ProbeError) as caught, making("things/one"):
        pass
    assert caught.value.code == "cache_unwritable"


def test_a_digest_is_remembered_until_the_file_changes(
    empty_caches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from model_probe import storage

    file = tmp_path / "file"
    file.write_bytes(b"abc")
    first = remembered_sha256(file)
    assert first == sha256(file) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    hashed: list[Path] = []
    monkeypatch.setattr(storage, "sha256", lambda path, _: hashed.append(path) or "new")
    assert remembered_sha256(file) == first
    assert not hashed
    file.write_bytes(b"abcd")
    assert remembered_sha256(file) == "new"

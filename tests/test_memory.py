"""How much memory a checkpoint needs, how much is free, and that it is asked before anything is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import gguf_files
import pytest
import tiny
import torch

from model_probe import loading, memory, open_checkpoint
from model_probe.catalog import NAMED, LocalCheckpoint
from model_probe.errors import ProbeError
from model_probe.memory import LOADING, free_memory, memory_needed, parameters

Folder = Callable[[str], Path]


@pytest.mark.parametrize(
    "architecture",
    [
        "qwen2",
        "qwen3",
        "qwen3_next",
        "qwen3_5",
        "qwen3_5_wrapper",
        "llama",
        "gemma2",
        "gemma3_wrapper",
        "olmo2",
    ],
)
def test_the_parameters_are_those_that_are_loaded(tiny_folder: Folder, architecture: str) -> None:
    """Counted from the headers; a wrapper's tower is not loaded, and tied weights are loaded once."""
    model = open_checkpoint(tiny_folder(architecture)).model
    assert parameters(tiny_folder(architecture)) == sum(p.numel() for p in model.parameters())


def test_a_tied_head_that_is_stored_all_the_same_counts_once(own_tiny: Folder) -> None:
    folder = own_tiny("qwen3")
    once = parameters(folder)
    tiny.add_tensors(folder, {"lm_head.weight": tiny.tensors(folder)["model.embed_tokens.weight"].clone()})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    assert parameters(folder) == once
    assert sum(p.numel() for p in open_checkpoint(folder).model.parameters()) == once
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    assert parameters(folder) > once


def test_shards_count_together(tmp_path: Path, tiny_folder: Folder) -> None:
    tiny.model("qwen3").save_pretrained(tmp_path, max_shard_size="40kB")
    tiny.tokenizer().save_pretrained(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert parameters(tmp_path) == parameters(tiny_folder("qwen3"))


def test_the_dtype_counts(tiny_folder: Folder) -> None:
    folder = tiny_folder("qwen3")
    numbers = parameters(folder)
    for dtype, size in (("float32", 4), ("bfloat16", 2), ("float16", 2)):
        assert memory_needed(folder, dtype) == numbers * size + LOADING
    assert memory_needed(LocalCheckpoint("x", folder, 1, "x")) == memory_needed(folder)
    known = NAMED["qwen3-0.6b"]
    assert memory_needed(known, "bfloat16") == 2 * 596_049_920 + LOADING


def test_the_catalog_knows_the_real_ones_parameters(real_checkpoint_dir: Path) -> None:
    assert parameters(real_checkpoint_dir) == NAMED["qwen2.5-coder-0.5b"].parameters


def test_it_is_asked_without_torch(tiny_folder: Folder) -> None:
    code = f"""
import sys
from pathlib import Path
from model_probe.memory import free_memory, memory_needed
print(memory_needed(Path({str(tiny_folder("qwen3"))!r})) > 0, free_memory() > 0)
print(sorted({{"torch", "transformers", "numpy"}} & set(sys.modules)))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["True True", "[]"]


# what is free


def test_too_little_is_said_before_anything_is_loaded(
    tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_folder("qwen3")
    needed = memory_needed(folder, "bfloat16")
    monkeypatch.setattr(memory, "free_memory", lambda: needed)
    assert open_checkpoint(folder, dtype="bfloat16", device="cpu").sites  # just enough
    monkeypatch.setattr(memory, "free_memory", lambda: needed - 1)
    monkeypatch.setattr(loading, "load", lambda *_, **__: pytest.fail("it was loaded"))
    with pytest.raises(ProbeError) as caught:
        open_checkpoint(folder, dtype="bfloat16", device="cpu")
    assert caught.value.code == "too_little_memory"
    assert str(caught.value) == (
        f"{folder} needs 200 MB of memory in bfloat16, and 200 MB are free on the device cpu; close something,"
        " take a smaller dtype (--dtype bfloat16) or a smaller checkpoint."
    )


def test_float32_asks_for_more(tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: memory_needed(tiny_folder("qwen3"), "bfloat16"))
    with pytest.raises(ProbeError) as caught:
        open_checkpoint(tiny_folder("qwen3"), device="cpu")
    assert caught.value.fields["dtype"] == "float32"


@pytest.mark.parametrize(
    ("device", "free", "short"),
    [("cuda", 10_000_000, False), ("cuda", 100, True), ("mps", 10_000_000, False), ("mps", 100, True)],
)
def test_an_accelerator_has_its_own(
    *, tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch, device: str, free: int, short: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free - 50, 80_000_000_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 70)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 20)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: free + 30)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 30)
    place = SimpleNamespace(type=device)
    assert memory.free_on(place) == free  # type: ignore[arg-type]
    if not short:
        memory.require_memory(tiny_folder("qwen3"), "bfloat16", place)  # type: ignore[arg-type]
        return
    with pytest.raises(ProbeError) as caught:
        memory.require_memory(tiny_folder("qwen3"), "bfloat16", place)  # type: ignore[arg-type]
    assert (caught.value.fields["device"], caught.value.fields["free"]) == (device, "100 B")


def test_a_conversion_asks_too(empty_caches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from model_probe import convert

    path = gguf_files.write_gguf(tmp_path / "mine.gguf")
    monkeypatch.setattr(convert, "free_memory", lambda: 1000)
    with pytest.raises(ProbeError) as caught:
        open_checkpoint(path)
    assert caught.value.code == "too_little_memory"
    assert list((empty_caches / "converted").iterdir()) == []


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 2: the group's own limit, its parents', and pages of files that can be dropped."""
    group = tmp_path / "above" / "mine"
    group.mkdir(parents=True)
    for folder, most, now, dropped in (
        (tmp_path, "max", 0, 0),
        (tmp_path / "above", "900", 500, 100),
        (group, "max", 400, 0),
    ):
        (folder / "memory.max").write_text(f"{most}\n")
        (folder / "memory.current").write_text(f"{now}\n")
        (folder / "memory.stat").write_text(f"anon 1\ninactive_file {dropped}\n")
    lines = tmp_path / "cgroup"
    lines.write_text("0::/above/mine\n")
    monkeypatch.setattr(memory, "_CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(memory, "_MINE", lines)
    assert free_memory() == 500
    (group / "memory.max").write_text("420\n")
    assert free_memory() == 20
    (group / "memory.max").write_text("100\n")
    assert free_memory() == 0


def test_a_containers_limit_counts_in_the_first_version_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = tmp_path / "memory" / "mine"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text("1000\n")
    (group / "memory.usage_in_bytes").write_text("700\n")
    (group / "memory.stat").write_text("total_inactive_file 11\n")
    lines = tmp_path / "cgroup"
    lines.write_text("9:name=systemd:/\n4:cpu,memory:/mine\n0::/\n")
    monkeypatch.setattr(memory, "_CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(memory, "_MINE", lines)
    assert free_memory() == 311


def test_a_limit_of_the_address_space_counts() -> None:
    code = """
import resource
import psutil
from model_probe.memory import free_memory
room = 300_000_000
resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + room,) * 2)
print(free_memory() <= room, free_memory() > room // 2)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "True True"


@pytest.mark.skipif(sys.platform != "linux", reason="reads what the process holds from /proc")
def test_what_is_needed_is_what_the_real_checkpoint_takes(real_checkpoint_dir: Path) -> None:
    """In bfloat16 nothing of it can stay in the file, so all of it is memory of the process's own."""
    code = f"""
import threading, time
from pathlib import Path
import torch, transformers
from model_probe import discovery, loading, open_checkpoint
from model_probe.memory import memory_needed

def held():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

before, peak, done = held(), 0, threading.Event()
def watch():
    global peak
    while not done.wait(0.01):
        peak = max(peak, held())
watcher = threading.Thread(target=watch)
watcher.start()
checkpoint = open_checkpoint(Path({str(real_checkpoint_dir)!r}), dtype="bfloat16", device="cpu")
checkpoint.tokenizer
done.set()
watcher.join()
print((peak - before) / memory_needed(Path({str(real_checkpoint_dir)!r}), "bfloat16"))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0.8 < float(ran.stdout) < 1.1

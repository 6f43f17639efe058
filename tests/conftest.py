"""Fixtures that several test files share."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from model_probe import Checkpoint


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

"""What a container is made of, as far as it can be held without a container engine.

The files that the Dockerfile copies are put into a folder of their own, and its command and its health check run there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from model_probe.settings import PRESETS

ROOT = Path(__file__).resolve().parent.parent
PORT = 8501
START_SECONDS = 60


def instructions(name: str) -> list[str]:
    """What one instruction of the Dockerfile says, each time it comes, its lines put together."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    return [line.partition(" ")[2].strip() for line in text.splitlines() if line.startswith(f"{name} ")]


def copied() -> list[tuple[str, str]]:
    """Every path that goes into the image, and where it goes in the working directory."""
    pairs = []
    for line in instructions("COPY"):
        *sources, target = line.split()
        pairs += [(source, target if (ROOT / source).is_dir() else f"{target}{source}") for source in sources]
    return pairs


def environment(cache: str | Path = "/cache") -> dict[str, str]:
    """What ENV sets, with the cache somewhere else."""
    pairs = dict(pair.split("=", 1) for line in instructions("ENV") for pair in line.split())
    return {name: value.replace("/cache", str(cache)) for name, value in pairs.items()}


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    return loaded


def header() -> dict[str, Any]:
    """What Hugging Face Spaces reads at the top of its README."""
    text = (ROOT / "docs/spaces/README.md").read_text(encoding="utf-8")
    assert text.startswith("---\n")
    loaded: dict[str, Any] = yaml.safe_load(text.split("---\n")[1])
    return loaded


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of the image: what is copied, nothing else."""
    folder = tmp_path_factory.mktemp("image")
    for source, target in copied():
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, folder / target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, folder / target)
    return folder


def test_the_base_is_one_image_and_its_python_is_new_enough():
    (base,) = instructions("FROM")
    version = re.fullmatch(r"python:(\d+)\.(\d+)\.\d+-slim-[a-z]+", base)
    assert version, "a tag that moves is another image tomorrow"
    assert (int(version[1]), int(version[2])) >= (3, 11)


def test_it_does_not_run_as_root_and_its_cache_is_a_volume_of_that_user():
    (user,) = instructions("USER")
    assert user == "1000"  # the one that Hugging Face Spaces runs an image as
    made = next(line for line in instructions("RUN") if "useradd" in line)
    assert f"--uid {user} lab" in made
    assert instructions("VOLUME") == [environment()["RMSNORM_LAB_CACHE"]]
    for name in ("HF_HOME", "MODELSCOPE_CACHE"):  # nothing is written anywhere else
        assert environment()[name].startswith(f"{environment()['RMSNORM_LAB_CACHE']}/")
    assert f"-o lab -g lab {environment()['RMSNORM_LAB_CACHE']}" in made


def test_a_server_has_the_preset_that_is_safe_on_the_internet():
    assert environment()["RMSNORM_LAB_PRESET"] == "public"
    assert not PRESETS["public"].fetching


def test_one_port_everywhere():
    (exposed,) = instructions("EXPOSE")
    (health,) = instructions("HEALTHCHECK")
    command = json.loads(instructions("CMD")[-1])
    assert int(exposed) == PORT
    assert f"'127.0.0.1', {PORT}," in health
    assert command[command.index("--server.port") + 1] == str(PORT)
    assert header()["app_port"] == PORT
    assert header()["sdk"] == "docker"
    for service in compose()["services"].values():
        assert [ports.rsplit(":", 1)[1] for ports in service["ports"]] == [str(PORT)]


def test_everything_that_is_copied_exists_and_is_not_ignored():
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert rules[1] == "*"
    kept = {rule[1:] for rule in rules if rule.startswith("!")}
    assert copied()
    for source, _ in copied():
        assert (ROOT / source).exists(), source
    assert {source for source, _ in copied()} == kept


@pytest.mark.parametrize(("device", "torch_first"), [("cpu", True), ("cuda", False)])
def test_the_readmes_torch_comes_first_without_a_gpu(device, torch_first):
    """Run as the Dockerfile runs it, with another program in the place of pip."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (advice,) = re.findall(r"`pip (install torch==\S+ --index-url \S+)`", readme)
    (run,) = (line for line in instructions("RUN") if "pip install" in line)
    assert instructions("ARG") == ["DEVICE=cpu"]
    ran = subprocess.run(
        ["sh", "-c", f'pip() {{ echo "$@"; }}\n{run}'],
        cwd=ROOT,
        env={**os.environ, "DEVICE": device},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == [advice] * torch_first + ["install -r requirements.txt"]


def test_compose_passes_every_setting_of_the_readme_and_can_write_to_the_cache_alone():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(RMSNORM_LAB_[A-Z_]+)`", readme))
    loaded = compose()
    devices = {name: service["build"]["args"]["DEVICE"] for name, service in loaded["services"].items()}
    assert devices == {"lab": "cpu", "lab-cuda": "cuda"}
    for service in loaded["services"].values():
        ours = {name for name in service["environment"] if name.startswith("RMSNORM_LAB_")}
        # where the cache is and that visitors are strangers is the image's to say
        assert ours == named - {"RMSNORM_LAB_CACHE", "RMSNORM_LAB_PRESET"}
        assert set(service["environment"].values()) == {None}  # passed on, never set to nothing
        assert service["volumes"] == [f"cache:{environment()['RMSNORM_LAB_CACHE']}"]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["ports"][0].startswith("${ADDRESS:-127.0.0.1}:")
    assert "cache" in loaded["volumes"]


def test_every_file_of_the_app_that_git_keeps_is_in_the_image(image):
    kept = subprocess.run(
        ["git", "ls-files", "app.py", "model_probe", "viz", "pages", ".streamlit"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    ignored = [
        rule for rule in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if "**/" in rule
    ]
    assert len(kept) > 50
    for file in kept:
        assert not any(fnmatch(part, rule[3:]) for rule in ignored for part in Path(file).parts), file
        if (ROOT / file).exists():
            assert (image / file).exists(), file


def test_the_first_page_needs_nothing_that_is_not_in_the_image(image, tmp_path):
    code = (
        "from streamlit.testing.v1 import AppTest\n"
        "app = AppTest.from_file('app.py', default_timeout=60).run()\n"
        "import viz\n"
        "print(len(app.exception), len(app.markdown) > 0, viz.__path__[0])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=image,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        | environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.split() == ["0", "True", str(image / "viz")], ran.stderr


def test_its_command_serves_the_app_and_its_health_check_sees_that(image, tmp_path):
    with _served(image, tmp_path) as port:
        assert _healthy(port)
    assert not _healthy(port)
    # nor does it ask somebody for its address
    assert "xternal" not in (tmp_path / "log.txt").read_text(encoding="utf-8")


@contextmanager
def _served(image: Path, folder: Path) -> Iterator[int]:
    """The CMD on a port of its own, as long as the block runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    name, *arguments = json.loads(instructions("CMD")[-1])
    assert name == "streamlit"
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", name, *(str(port) if part == str(PORT) else part for part in arguments)],
            cwd=image,
            env={**os.environ, **environment(folder)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        end = time.monotonic() + START_SECONDS
        while not _healthy(port):
            assert process.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < end, log.read_text(encoding="utf-8")
        yield port
    finally:
        process.terminate()
        process.wait(timeout=30)


def _healthy(port: int) -> bool:
    """What the HEALTHCHECK says of the app at this port."""
    (line,) = instructions("HEALTHCHECK")
    name, *arguments = json.loads(line[line.index("CMD") + 3 :])
    assert name == "python"
    command = [argument.replace(f", {PORT},", f", {port},") for argument in arguments]
    return subprocess.run([sys.executable, *command], capture_output=True, check=False).returncode == 0

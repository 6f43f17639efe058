"""Every command of README and CONTRIBUTING is run as it stands there, in an empty folder.

Four rewrite what ships, and take minutes: those are read as they stand, and run with less to do. What .ci/run itself
runs, or a test file of its own, is named in ELSEWHERE.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from browser.server import free_port, healthy

from model_probe import cli

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("README.md", "CONTRIBUTING.md")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:pip|python|streamlit)\s[^`]+)`")
SECONDS = 600

# Read as it stands, run with less to do: the same options, fewer values.
SMALLER = {
    "profiles --out model_probe/data/profiles.json": "profiles --depth 2 --out model_probe/data/profiles.json",
    "train --preset NAME --seed 0 --seed 1 --seed 2 --text en --text zh --out model_probe/data/runs/NAME.npz": (
        "train --preset norms --seed 0 --text en --out model_probe/data/runs/norms.npz"
    ),
    "record": "record --checkpoint TINY --out recording.npz",
    "experiments": "experiments --checkpoint TINY --out release.json",
}
ELSEWHERE = {
    ".ci/run": "this runs in it",
    "pytest": "this runs in it",
    "pytest tests/test_trace.py tests/app": "part of it",
    "ruff check": ".ci/run",
    "ruff format": ".ci/run",  # as a check
    "mypy": ".ci/run",
    "python tests/gpu/check.py": "tests/test_gpu_check.py",
}


def commands(document: str) -> Iterator[str]:
    """The commands of its blocks and lines, without comments, one of a chain at a time."""
    text = (ROOT / document).read_text(encoding="utf-8")
    blocks = [body for kind, body in BLOCK.findall(text) if kind == "sh"]
    lines = [line for body in blocks for line in body.splitlines()]
    lines += [" ".join(inline.split()) for inline in INLINE.findall(BLOCK.sub("", text))]
    for line in lines:
        for command in re.sub(r"\s+#.*", "", line).split("&&"):
            if command.strip():
                yield command.strip()


COMMANDS = sorted({command for document in DOCUMENTS for command in commands(document)})


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with what the documents take for granted."""
    (tmp_path / "prompts.jsonl").write_text(
        "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in ("One.", "Two of them.")),
        encoding="utf-8",
    )
    (tmp_path / "model_probe" / "data" / "runs").mkdir(parents=True)
    return tmp_path


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("RMSNORM_LAB_CHECKPOINT", None)
    program = [sys.executable] if words[0] == "python" else [sys.executable, "-m", words[0]]
    return subprocess.run(
        [*program, *words[1:]], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip


def test_the_documents_have_commands() -> None:
    assert len(COMMANDS) > 20
    assert {"streamlit run app.py", "pytest"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_command(
    command: str, desk: Path, real_checkpoint_dir: Path, tiny_folder: Callable[[str], Path]
) -> None:
    words = shlex.split(command)
    if command in ELSEWHERE:
        if (ROOT / ELSEWHERE[command]).is_file():
            assert Path(words[-1]).name in (ROOT / ELSEWHERE[command]).read_text(encoding="utf-8")
    elif words[:3] == ["python", "-m", "model_probe"]:
        program(words[3:], desk, str(tiny_folder("qwen2")))
    elif words[0] == "pip":
        installs(words, desk)
    elif words[0] == "streamlit":
        serves(words)
    elif words[:2] == ["python", "tests/bench/run.py"]:
        ran = run([*words, "--first", "capture"], ROOT)
        assert ran.stdout.startswith("capture / bare forward, 20 tokens"), ran.stderr
    else:
        raise AssertionError("nothing runs this command")


def program(arguments: list[str], desk: Path, tiny: str) -> None:
    """A command of model_probe: what it is to write is there afterwards, and it says nothing of an error."""
    written = " ".join(arguments)
    if written in SMALLER:
        name, *options = [word.replace("NAME", "norms") for word in arguments]
        subcommand = cli.commands.get_command(click.Context(cli.commands), name)
        assert subcommand is not None
        subcommand.make_context(name, options)  # reads every option, begins nothing
        arguments = [tiny if word == "TINY" else word for word in shlex.split(SMALLER[written])]
    ran = run(["python", "-m", "model_probe", *arguments], desk)
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    if "--out" in arguments:
        out = desk / arguments[arguments.index("--out") + 1]
        assert any(out.iterdir()) if out.is_dir() else out.stat().st_size


def installs(words: list[str], desk: Path) -> None:
    """Everything that it names is what these tests run with, so that pip would change nothing."""
    names = [str(ROOT / word) if word.endswith(".txt") else word for word in words[1:]]
    ran = run(["pip", *names[:1], "--dry-run", *names[1:]], desk)
    assert ran.returncode == 0, ran.stderr
    assert "Would install" not in ran.stdout, ran.stdout


def serves(words: list[str]) -> None:
    """The app answers, as typed in the project's folder."""
    port = free_port()
    environment = {
        **os.environ, "STREAMLIT_SERVER_PORT": str(port), "STREAMLIT_SERVER_HEADLESS": "true",
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", *words], cwd=ROOT, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert healthy(f"http://127.0.0.1:{port}", process)
    finally:
        process.terminate()
        process.wait(timeout=30)


def test_the_python_of_the_readme(desk: Path, real_checkpoint_dir: Path) -> None:
    (code,) = (
        body for kind, body in BLOCK.findall((ROOT / "README.md").read_text("utf-8")) if kind == "python"
    )
    ran = run(["python", "-c", code], desk)
    assert ran.returncode == 0, ran.stderr
    assert len(re.findall(r"\d+\.\d+", ran.stdout)) > 5
    assert (desk / "trace.json").stat().st_size

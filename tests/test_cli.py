"""The command line: what it prints, where, and its exit status."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf_files
import numpy as np
import pytest
from hub import COMMIT, Hub

from model_probe import NormTrace, capture, open_checkpoint
from model_probe.cli import main
from model_probe.memory import LOADING, parameters
from model_probe.progress import STAGES
from model_probe.recording import Recording
from model_probe.report import STAGE_TEXTS
from model_probe.storage import size_text

Folder = Callable[[str], Path]
RIVER = "The river flows softly through the valley."


class Ran:
    """One run of the command line in this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str], *arguments: object) -> None:
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        self.status = left.value.code
        self.out, self.err = capfd.readouterr()


def one_sentence(ran: Ran) -> str:
    """What a failure said, held to be its only line on standard error after the stages."""
    assert ran.status == 2
    assert ran.out == ""
    lines = ran.err.splitlines()
    assert lines, "it said nothing"
    assert "Traceback" not in ran.err
    assert lines[-1].endswith((".", "?"))
    return lines[-1]


def test_help_is_quick_and_loads_no_torch() -> None:
    code = (
        "import sys\nfrom model_probe.cli import main\n"
        "try: main(['capture', '--help'])\nexcept SystemExit as left: status = left.code\n"
        "print(status, sorted({'torch', 'transformers', 'requests'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--prompt-file" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "0 []"


def test_without_arguments_it_explains_itself(capfd: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capfd)
    assert ran.status == 0
    assert "capture" in ran.out + ran.err


def test_as_a_program(tiny_folder: Folder) -> None:
    """Standard output is the JSON and nothing else, in UTF-8 whatever the locale."""
    command = [sys.executable, "-m", "model_probe", "capture", "--checkpoint", tiny_folder("qwen3_5_wrapper")]
    ran = subprocess.run(
        [*command, "--prompt", "苗寨 ☕"], capture_output=True, env=os.environ | {"LC_ALL": "C"}, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    document = json.loads(ran.stdout.decode("utf-8"))
    assert document["format"] == "rmsnorm-trace/1"
    assert document["prompt"] == "苗寨 ☕"
    assert ran.stderr.decode().splitlines() == ["Loading", "Finding the norms", "Measuring"]


def test_list(empty_caches: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    open_checkpoint(gguf_files.write_gguf(tmp_path / "mine.gguf"))
    (converted,) = (empty_caches / "converted").iterdir()
    ran = Ran(capfd, "list")
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "qwen3.5-0.8b", "qwen3-0.6b", "qwen2.5-0.5b", "qwen2.5-coder-0.5b", "mine.gguf",
    ]  # fmt: skip
    assert "not here" in lines[0]
    assert "1.8 GB to fetch" in lines[0]
    assert "3.2 GB of memory" in lines[0]
    assert "491 MB to fetch" in lines[3]
    assert "2.7 GB of memory" in lines[3]
    assert f"{size_text(parameters(converted) * 4 + LOADING)} of memory" in lines[4]
    assert "ready" in lines[4]
    assert str(empty_caches / "converted") in lines[4]


def test_capture_equals_the_librarys(
    tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = capture(open_checkpoint(tiny_folder("gemma3")), RIVER)
    for ending in (".json", ".csv", ".npz"):
        path = tmp_path / f"trace{ending}"
        ran = Ran(capfd, "capture", "--checkpoint", tiny_folder("gemma3"), "--prompt", RIVER, "--out", path)
        assert (ran.status, ran.out) == (0, "")
        trace = NormTrace.load(path)
        assert [site.name for site in trace.sites] == [site.name for site in expected.sites]
        for site, other in zip(trace.sites, expected.sites, strict=True):
            np.testing.assert_array_equal(site.output.l2, other.output.l2)


def test_device_and_dtype_are_passed_on(tiny_folder: Folder, capfd: pytest.CaptureFixture[str]) -> None:
    ran = Ran(
        capfd, "capture", "--checkpoint", tiny_folder("qwen2"), "--prompt", "a", "--dtype", "bfloat16",
        "--device", "cpu",
    )  # fmt: skip
    checkpoint = json.loads(ran.out)["checkpoint"]
    assert (checkpoint["dtype"], checkpoint["device"]) == ("bfloat16", "cpu")


def test_a_prompt_file_is_taken_byte_for_byte(
    tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "\ufeff a\r\nb\n\n\t苗\x00 \n"
    (tmp_path / "prompt").write_bytes(text.encode())
    ran = Ran(capfd, "capture", "--checkpoint", tiny_folder("qwen2"), "--prompt-file", tmp_path / "prompt")
    assert json.loads(ran.out)["prompt"] == text


def test_a_long_prompt_is_cut_with_a_notice(tiny_folder: Folder, capfd: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capfd, "capture", "--checkpoint", tiny_folder("qwen2"), "--prompt", "z" * 2_100)
    assert len(json.loads(ran.out)["tokens"]) == 2_048
    assert ran.err.splitlines()[-1] == "The prompt was cut to 2048 tokens; 52 were left out."


def test_gains(tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tiny_folder("qwen3_5")
    sites = {site.name: site for site in open_checkpoint(folder).sites}
    document = json.loads(Ran(capfd, "gains", "--checkpoint", folder).out)
    assert {site["name"]: site["gain_convention"] for site in document["sites"]} == {
        name: site.gain_convention for name, site in sites.items()
    }
    Ran(capfd, "gains", "--checkpoint", folder, "--out", tmp_path / "gains.npz")
    with np.load(tmp_path / "gains.npz") as arrays:
        for name, site in sites.items():
            np.testing.assert_array_equal(arrays[name], site.gain)
    Ran(capfd, "gains", "--checkpoint", folder, "--out", tmp_path / "gains.csv")
    rows = list(csv.DictReader((tmp_path / "gains.csv").open()))
    assert len(rows) == sum(site.size for site in sites.values())


def test_record(tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capfd, "record", "--checkpoint", tiny_folder("qwen3"), "--out", tmp_path / "recording.npz")
    assert ran.status == 0
    recording = Recording.load(tmp_path / "recording.npz")
    assert recording.checkpoint.name == "qwen3"
    assert "fox" in recording.traces


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["capture"], "Give either --prompt or --prompt-file."),
        (["capture", "--prompt", "a", "--prompt-file", "b"], "Give either --prompt or --prompt-file."),
        (["capture", "--prompt", "a", "--device", "tpu"], "'tpu' is not one of"),
        (["capture", "--prompt", "a", "--out", "trace.txt"], "ends in neither .json, .csv nor .npz."),
        (["capture", "--prompt", "a", "--out", "none/trace.json"], "there is no folder none."),
        (["capture", "--prompt-file", "none"], "There is no file or folder at none."),
        (
            ["capture", "--prompt-file", "/proc/self/mem"],
            "/proc/self/mem cannot be read (Input/output error).",
        ),
        (["record", "--out", "recording.json"], "does not end in .npz."),
        (["fetch", "gpt-5"], "'gpt-5' is not a known checkpoint"),
        (["fetch", "a", "b"], "unexpected extra argument (b)."),
        (["bogus"], "No such command 'bogus'."),
        (["capture", "--bogus"], "No such option '--bogus'; did you mean"),
        (["capture", "--prompt", "a"], "No checkpoint is on this machine yet"),
        (["capture", "--prompt", "a", "--checkpoint", "none"], "'none' is not a known checkpoint"),
        (["capture", "--prompt", "a", "--checkpoint", "./no\nne"], "There is no file or folder at ./no ne."),
    ],
)
def test_what_a_person_gets_wrong_is_one_sentence(
    empty_caches: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    ran = Ran(capfd, *arguments)
    assert sentence in one_sentence(ran)
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("command", ["capture", "gains"])
@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("missing folder", "There is no file or folder at"),
        ("unreadable file", "cannot be read (Input/output error)."),
        ("no tokenizer", "has no tokenizer files"),
        ("truncated GGUF", "is not a whole GGUF file (it is cut short"),
        ("unknown GGUF", "is a GGUF file of the architecture 'wavenet9'"),
        ("adapter only", "holds an adapter only"),
        ("gpt2", "GPT2LMHeadModel has no RMSNorm"),
    ],
)
def test_what_cannot_be_opened_is_one_sentence(
    *,
    empty_caches: Path,
    tmp_path: Path,
    own_tiny: Folder,
    capfd: pytest.CaptureFixture[str],
    command: str,
    kind: str,
    sentence: str,
) -> None:
    path = spoilt(kind, tmp_path, own_tiny)
    prompt = ["--prompt", "a"] if command == "capture" else []
    assert sentence in one_sentence(Ran(capfd, command, "--checkpoint", path, *prompt))


def spoilt(kind: str, folder: Path, own_tiny: Folder) -> Path:
    """A checkpoint with something wrong about it."""
    if kind == "missing folder":
        return folder / "none"
    if kind == "unreadable file":
        (folder / "a.gguf").symlink_to("/proc/self/mem")
        return folder / "a.gguf"
    if kind == "no tokenizer":
        (own_tiny("qwen2") / "tokenizer.json").unlink()
        return folder / "qwen2"
    if kind == "truncated GGUF":
        whole = gguf_files.write_gguf(folder / "a.gguf").read_bytes()
        (folder / "a.gguf").write_bytes(whole[: len(whole) // 2])
        return folder / "a.gguf"
    if kind == "unknown GGUF":
        return gguf_files.write_gguf(folder / "a.gguf", claims="wavenet9")
    if kind == "adapter only":
        (folder / "adapter_config.json").write_text("{}")
        return folder
    return own_tiny(kind)


def test_prompts_that_cannot_run(
    tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoint = ("capture", "--checkpoint", tiny_folder("qwen2"))
    assert "The prompt is empty" in one_sentence(Ran(capfd, *checkpoint, "--prompt", ""))
    (tmp_path / "latin").write_bytes(b"na\xefve")
    failed = one_sentence(Ran(capfd, *checkpoint, "--prompt-file", tmp_path / "latin"))
    assert "cannot be read as UTF-8" in failed
    assert "byte 2" in failed


def test_an_output_that_cannot_be_written(tiny_folder: Folder, capfd: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capfd, "gains", "--checkpoint", tiny_folder("qwen2"), "--out", "/proc/gains.json")
    assert "/proc/gains.json cannot be written" in one_sentence(ran)


def test_fetch_takes_an_id_of_the_hub(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capfd, "fetch", "owner/tiny@main")
    assert ran.status == 0
    folder = Path(ran.out.strip())
    assert folder.name == COMMIT
    assert ran.err.splitlines() == [
        f"Asking {hub.address}",
        "Downloading model.safetensors (0 B / 116 kB)",
        "Verifying model.safetensors",
    ]
    again = Ran(capfd, "fetch", "owner/tiny")
    assert (again.out, again.err) == (ran.out, "")


def test_a_gated_checkpoint_says_what_to_do(hub: Hub, capfd: pytest.CaptureFixture[str]) -> None:
    hub.fault = "gated"
    sentence = one_sentence(Ran(capfd, "capture", "--checkpoint", "owner/tiny", "--prompt", "a"))
    assert sentence == (
        f"owner/tiny is gated: accept its terms at {hub.address}/owner/tiny,"
        " then set HF_TOKEN to a token of that account."
    )


def test_fault_12_fetch_says_what_it_tried_and_what_conversion_needs(
    empty_caches: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELSCOPE_DOMAIN", "127.0.0.1:10")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    ran = Ran(capfd, "fetch", "qwen2.5-coder-0.5b")
    sentence = one_sentence(ran)
    lines = ran.err.splitlines()
    assert "45 seconds, 4 GB of memory and 2.5 GB of disk" in lines[0]
    assert lines[1:5] == [
        "Asking http://127.0.0.1:9",
        "Given up: http://127.0.0.1:9 cannot be reached",
        "Asking http://127.0.0.1:10",
        "Given up: http://127.0.0.1:10 cannot be reached",
    ]
    assert sentence == (
        "qwen2.5-coder-0.5b could not be fetched: http://127.0.0.1:9 cannot be reached;"
        " http://127.0.0.1:10 cannot be reached; the package index cannot be reached."
    )


def test_fetch_prints_the_folder_of_what_is_here(
    real_checkpoint_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = Ran(capfd, "fetch", "qwen2.5-coder-0.5b")
    assert (ran.status, ran.out, ran.err) == (0, f"{real_checkpoint_dir}\n", "")


def test_a_terminal_gets_bars(tmp_path: Path) -> None:
    """Through a pseudo-terminal: a bar for a stage that knows its share, no line of it elsewhere."""
    code = """
from model_probe.report import Report
with Report() as report:
    report("load")
    for i in range(11): report("download", i / 10, "a file")
    report("capture")
"""
    read, write = os.openpty()
    subprocess.run([sys.executable, "-c", code], stderr=write, check=True)
    os.close(write)
    shown = b""
    while True:
        try:
            piece = os.read(read, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(read)
    text = shown.decode()
    assert "Loading" in text
    assert "Downloading 100 %" in text
    assert "Measuring" in text


def test_every_stage_has_words() -> None:
    assert tuple(STAGE_TEXTS) == STAGES


def test_a_changed_checkpoint_is_run_and_written(
    tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    base = ("intervene", "--checkpoint", tiny_folder("qwen3"), "--prompt", RIVER)
    ran = Ran(capfd, *base, "--change", "output_scale=2@attention_input:0", "--change", "value_scale=2")
    assert ran.status == 0, ran.err
    written = json.loads(ran.out)
    assert written["format"] == "rmsnorm-outcomes/1"
    changed = written["experiments"]["free"]["changes"]
    assert [it["kind"] for it in changed["interventions"]] == ["output_scale", "value_scale"]
    assert changed["interventions"][0]["layers"] == [0]
    assert changed["perplexity"] != written["untouched"]["perplexity"]
    out = tmp_path / "outcomes.csv"
    assert Ran(capfd, *base, "--change", "no_division", "--out", out).status == 0
    assert [row["case"] for row in csv.DictReader(out.open(newline=""))] == ["untouched", "changes"]
    assert "no_division takes no amount" in one_sentence(Ran(capfd, *base, "--change", "no_division=3"))
    assert "no query, key or value bias" in one_sentence(Ran(capfd, *base, "--change", "bias_scale=2"))
    assert ".json" in one_sentence(Ran(capfd, *base, "--out", tmp_path / "outcomes.npz"))


def test_a_sweep_is_written_point_by_point(
    tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    base = ("sweep", "--checkpoint", tiny_folder("qwen3"), "--prompt", RIVER)
    ran = Ran(capfd, *base, "--change", "output_scale=1@attention_input", "--amounts", "0.5,1,2")
    assert ran.status == 0, ran.err
    points = json.loads(ran.out)["points"]
    assert [point["amount"] for point in points] == [0.5, 1, 2]
    assert points[1]["mean_kl"] < 1e-6 < points[0]["mean_kl"]
    out = tmp_path / "sweep.csv"
    assert Ran(capfd, *base, "--change", "no_division", "--layers", "all", "--out", out).status == 0
    assert [row["layer"] for row in csv.DictReader(out.open(newline=""))] == ["0", "1"]
    assert "once" in one_sentence(Ran(capfd, *base))
    wrong = Ran(capfd, *base, "--change", "no_division", "--layers", "one")
    assert "are not layers" in one_sentence(wrong)
    assert "no norm" in one_sentence(Ran(capfd, *base, "--change", "no_division", "--layers", "7")).lower()

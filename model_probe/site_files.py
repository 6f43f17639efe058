"""The discovered norms of a converted checkpoint, kept beside it, so that opening need not find them again.

    sites = kept_sites(folder, model, dtype="float32", digest="1d96…") or discover(model)
    keep_sites(folder, sites, dtype="float32", digest="1d96…")

One NPZ a dtype, without pickles. It counts only for the checkpoint, the versions and the way of finding
that it was written with, and only if the model at hand has these norms with these weights; any other
is as if it were not there. Written only into folders of our own cache, and renamed into place.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import nn

from model_probe.catalog import CONVERTED
from model_probe.measure_norm import TOLERANCE
from model_probe.sites import GATES, LAYOUTS, NormSite
from model_probe.storage import cache_dir
from model_probe.trace import CONVENTIONS, ROLES

FORMAT: Final = "rmsnorm-sites/1"
_FIELDS: Final = (
    "name", "layer", "role", "class_name", "size", "eps", "gain_convention", "gate", "layout", "why_no_gain",
)  # fmt: skip
# What finds and measures: where one of these files changes, what was found before is found anew.
_FINDERS: Final = ("discovery.py", "measure_norm.py", "fused.py", "sites.py", "norms.py")


def is_ours(folder: Path) -> bool:
    """Whether the folder is one that this program converted into its cache."""
    return folder.resolve().parent == (cache_dir() / CONVERTED).resolve()


def kept_sites(folder: Path, model: nn.Module, *, dtype: str, digest: str) -> tuple[NormSite, ...] | None:
    """The sites that were kept for a model of this dtype, None where there are none that fit it.

    `digest` is that of the checkpoint. Which modules there are, their classes, their sizes, and every
    gain that is a weight are compared with the model.
    """
    try:
        with np.load(_path(folder, dtype), allow_pickle=False) as arrays:
            kept = json.loads(str(arrays["sites"]))
            if kept["key"] != _key(dtype, digest):
                return None
            gains = _Gains(arrays["gains"])
            sites = tuple(
                NormSite(gain=gains.next(told["size"]) if told["why_no_gain"] is None else None, **told)
                for told in kept["sites"]
            )
        fits = bool(sites) and all(_is_sound(site) and _fits(site, model) for site in sites)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile):
        return None
    return sites if fits else None


def keep_sites(folder: Path, sites: Sequence[NormSite], *, dtype: str, digest: str) -> None:
    """Write the sites of a model of this dtype beside its weights; a folder that cannot be written is left."""
    told = [{name: getattr(site, name) for name in _FIELDS} for site in sites]
    gains = [site.gain for site in sites if site.gain is not None]
    text = json.dumps({"key": _key(dtype, digest), "sites": told})
    with suppress(OSError), NamedTemporaryFile(dir=folder, prefix=".sites-", delete=False) as file:
        made = Path(file.name)
        try:
            np.savez(file, sites=np.array(text), gains=np.concatenate(gains) if gains else np.zeros(0, "f4"))
            file.close()
            made.chmod(0o644)
            made.replace(_path(folder, dtype))
        finally:
            made.unlink(missing_ok=True)


class _Gains:
    """Hands out the gains that lie in one vector one after the other."""

    def __init__(self, vector: NDArray[Any]) -> None:
        if vector.dtype != np.float32 or vector.ndim != 1:
            raise ValueError("the gains are no vector of float32")
        self._rest: NDArray[np.float32] = vector

    def next(self, size: int) -> NDArray[np.float32]:
        gain, self._rest = self._rest[:size], self._rest[size:]
        return gain


def _path(folder: Path, dtype: str) -> Path:
    return folder / f"sites-{dtype}.npz"


def _key(dtype: str, digest: str) -> dict[str, str]:
    finders = hashlib.sha256()
    for name in _FINDERS:
        finders.update((Path(__file__).parent / name).read_bytes())
    return {
        "format": FORMAT,
        "checkpoint": digest,
        "dtype": dtype,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "found_by": finders.hexdigest(),
    }


def _is_sound(site: NormSite) -> bool:
    """Whether everything in it is of the kind that it has to be."""
    if site.gain is not None and site.gain.shape != (site.size,):
        return False
    return (
        site.role in ROLES
        and site.gain_convention in CONVENTIONS
        and site.layout in LAYOUTS
        and site.gate in (None, *GATES)
        and isinstance(site.eps, float)
        and (site.layer is None or isinstance(site.layer, int))
    )


def _fits(site: NormSite, model: nn.Module) -> bool:
    module = model.get_submodule(site.module)
    if type(module).__name__ != site.class_name:
        return False
    weights = [_float32(p) for p in module.parameters()]
    if site.gain is None or site.gain_convention not in ("weight", "one_plus_weight"):
        return bool(weights) == (site.gain_convention != "none")
    stored = site.gain - (site.gain_convention == "one_plus_weight")
    return any(w.shape == stored.shape and _equal(w, stored) for w in weights)


def _equal(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    return bool(np.abs(a - b).max() <= TOLERANCE * max(1.0, float(np.abs(a).max())))


def _float32(parameter: Any) -> NDArray[np.float32]:
    return parameter.detach().to("cpu", torch.float32).numpy().reshape(-1)

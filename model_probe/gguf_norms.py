"""Whether the norms of a converted GGUF file multiply by what the file says.

llama.cpp stores what a norm multiplies by, whatever its class does with its weight. A reader that
forgets to take the 1 off for a class that means `1 + weight`, or leaves a norm out, gives a model that
runs and is wrong. So the measured gains are compared with the file's own numbers.

Source: convert_hf_to_gguf.py of llama.cpp; `gguf.get_tensor_name_map` for the names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from model_probe.errors import ProbeError
from model_probe.gguf_file import GgufHeader, read_vector
from model_probe.sites import NormSite

_TOLERANCE: Final = 1e-5  # of the largest number
_NORM: Final = re.compile(r"norm(_\d+)?\.weight$")


def check_norms(gguf: Path, header: GgufHeader, sites: Iterable[NormSite]) -> None:
    """Compare each norm of the file with the measured gain of its site, in float32.

    Raises:
        ProbeError: `gguf_norm_differs` naming the model's norm, or `gguf_norm_lost` naming the file's.
    """
    sites = [site for site in sites if site.name == site.module and site.gain_convention != "none"]
    layers = 1 + max((site.layer for site in sites if site.layer is not None), default=-1)
    stored = {
        name: read_vector(gguf, vector)
        for name, vector in header.vectors.items()
        # a norm with a bias is no RMSNorm; the layers after the last are there to guess further tokens
        if _NORM.search(name) and f"{name.removesuffix('weight')}bias" not in header.vectors
        if _layer(name) < layers
    }
    name_of = _names(header.architecture, layers)
    lost = set(stored)
    for site in sites:
        name = name_of(site.module)
        if site.gain is None:
            lost.discard(name)
            continue
        # under a name that the table does not know, any of the file's norms will do
        due = [name] if name in stored else [other for other, v in stored.items() if v.size == site.size]
        equal = [other for other in due if _off(site.gain, stored[other]) <= _TOLERANCE]
        if not equal:
            off = min((_off(site.gain, stored[other]) for other in due), default=np.inf)
            raise ProbeError("gguf_norm_differs", path=gguf, name=site.module, off=f"{off:.2g}")
        lost.difference_update(equal)
    if lost:
        raise ProbeError("gguf_norm_lost", path=gguf, name=min(lost))


def _off(gain: NDArray[np.float32], stored: NDArray[np.float32]) -> float:
    """The largest difference as a share of the largest number that is stored."""
    if gain.shape != stored.shape:
        return np.inf
    return float(np.abs(gain - stored).max() / max(float(np.abs(stored).max()), 1e-30))


def _layer(name: str) -> int:
    match = re.match(r"blk\.(\d+)\.", name)
    return int(match[1]) if match else -1


def _names(architecture: str, layers: int) -> Callable[[str], str]:
    """From a module's name in transformers to its weight's in the file, "" where the table has none."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    known_as = (architecture, architecture.replace("_", "-"))
    number = next((number for number, name in MODEL_ARCH_NAMES.items() if name in known_as), None)
    if number is None:
        return lambda _: ""
    table = get_tensor_name_map(number, max(layers, 1))
    return lambda module: f"{table.get_name(module)}.weight"

"""The measured gains of a checkpoint as files: JSON, CSV or NPZ.

JSON: `{"format": "rmsnorm-gains/1", "checkpoint": {...}, "sites": [{name, layer, role, class, size,
eps, gain_convention, statistics, counts, gain: [...]}]}`. CSV: one row a site and feature. NPZ: one
float32 array a site by its name, and `header`, the rest as JSON.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from model_probe.sites import NormSite, count_gain
from model_probe.trace import CheckpointInfo

FORMAT: Final = "rmsnorm-gains/1"


def gains_json(checkpoint: CheckpointInfo, sites: Sequence[NormSite]) -> str:
    """Every site with its whole gain vector, as JSON."""
    document = header(checkpoint, sites)
    for entry, site in zip(document["sites"], sites, strict=True):
        entry["gain"] = None if site.gain is None else [float(str(g)) for g in site.gain]
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def gains_csv(sites: Sequence[NormSite]) -> str:
    """One row a site and feature: site, layer, role, gain_convention, feature, gain."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["site", "layer", "role", "gain_convention", "feature", "gain"])
    for site in sites:
        layer = "" if site.layer is None else site.layer
        for feature, gain in enumerate(site.gain if site.gain is not None else ()):
            writer.writerow([site.name, layer, site.role, site.gain_convention, feature, str(gain)])
    return buffer.getvalue()


def save_gains(path: str | Path, checkpoint: CheckpointInfo, sites: Sequence[NormSite]) -> None:
    """Write the gains as JSON, CSV or NPZ, by the ending of `path`.

    Raises:
        ValueError: another ending.
    """
    path = Path(path)
    if path.suffix == ".json":
        path.write_text(gains_json(checkpoint, sites), encoding="utf-8")
    elif path.suffix == ".csv":
        path.write_text(gains_csv(sites), encoding="utf-8")
    elif path.suffix == ".npz":
        arrays: dict[str, Any] = {site.name: site.gain for site in sites if site.gain is not None}
        arrays["header"] = np.array(
            json.dumps(header(checkpoint, sites), ensure_ascii=False, allow_nan=False)
        )
        with path.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
    else:
        raise ValueError(f"gains are saved as .json, .csv or .npz, not {path.suffix!r}")


def header(checkpoint: CheckpointInfo, sites: Sequence[NormSite]) -> dict[str, Any]:
    """All but the gain vectors, ready for JSON."""
    return {
        "format": FORMAT,
        "checkpoint": asdict(checkpoint),
        "sites": [_entry(site) for site in sites],
    }


def _entry(site: NormSite) -> dict[str, Any]:
    summary = site.summary
    return {
        "name": site.name,
        "layer": site.layer,
        "role": site.role,
        "class": site.class_name,
        "size": site.size,
        "eps": site.eps if np.isfinite(site.eps) else None,
        "gain_convention": site.gain_convention,
        "gate": site.gate,
        "layout": site.layout,
        "why_no_gain": site.why_no_gain,
        "statistics": None if summary is None else asdict(summary),
        "counts": None if site.gain is None else asdict(count_gain(site.gain)),
    }

"""The recording that ships: preset prompts and gains measured on one real checkpoint.

The app opens on it before any checkpoint is there. One NPZ file holds the arrays of each trace under
`<preset>.<series>`, each gain under `gain.<site>`, and a JSON header. Reading it needs NumPy alone;
`record` makes it anew from an open checkpoint.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from model_probe import gains
from model_probe.errors import ProbeError
from model_probe.presets import PRESETS
from model_probe.sites import NormSite
from model_probe.trace import SERIES, CheckpointInfo, NormTrace
from model_probe.trace_files import from_arrays, to_arrays

if TYPE_CHECKING:
    from model_probe.checkpoints import Checkpoint
    from model_probe.progress import Progress

FORMAT: Final = "rmsnorm-recording/1"
SHIPPED: Final = Path(__file__).parent / "data" / "qwen2.5-coder-0.5b.npz"


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """What was measured once, on which checkpoint, and when."""

    checkpoint: CheckpointInfo
    traces: Mapping[str, NormTrace]  # by preset id
    sites: tuple[NormSite, ...]  # with their measured gains, in the order of the pass

    def site(self, name: str) -> NormSite:
        """The site of this name. Raises KeyError when there is none."""
        for site in self.sites:
            if site.name == name:
                return site
        raise KeyError(name)

    def save(self, path: str | Path) -> None:
        """Write the NPZ file."""
        arrays: dict[str, Any] = {f"gain.{s.name}": s.gain for s in self.sites if s.gain is not None}
        for preset, trace in self.traces.items():
            arrays |= {f"{preset}.{name}": array for name, array in to_arrays(trace).items()}
        header = gains.header(self.checkpoint, self.sites) | {"format": FORMAT, "presets": list(self.traces)}
        arrays["header"] = np.array(json.dumps(header, ensure_ascii=False, allow_nan=False))
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        Path(path).write_bytes(buffer.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Read what `save` wrote.

        Raises:
            ProbeError: `not_found`, or `not_a_recording` with the reason.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                return cls._from_arrays(file)
        except FileNotFoundError:
            raise ProbeError("not_found", path=path) from None
        except (ValueError, KeyError, TypeError, OSError, EOFError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ProbeError("not_a_recording", path=Path(path).name, reason=reason[:120]) from None

    @classmethod
    def _from_arrays(cls, arrays: Mapping[str, Any]) -> Recording:
        header = json.loads(str(arrays["header"]))
        if header["format"] != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        sites = tuple(
            NormSite(
                name=entry["name"],
                layer=entry["layer"],
                role=entry["role"],
                class_name=entry["class"],
                size=entry["size"],
                eps=float("nan") if entry["eps"] is None else entry["eps"],
                gain_convention=entry["gain_convention"],
                gain=None if entry["statistics"] is None else arrays[f"gain.{entry['name']}"],
                gate=entry["gate"],
                layout=entry["layout"],
                why_no_gain=entry["why_no_gain"],
            )
            for entry in header["sites"]
        )
        traces = {
            preset: from_arrays({name: arrays[f"{preset}.{name}"] for name in (*SERIES, "header")})
            for preset in header["presets"]
        }
        return cls(CheckpointInfo(**header["checkpoint"]), traces, sites)


@functools.cache
def load_recording() -> Recording:
    """The recording that ships with the app, read once."""
    return Recording.load(SHIPPED)


def record(checkpoint: Checkpoint, progress: Progress | None = None) -> Recording:
    """Measure every preset prompt and the gains on an open checkpoint."""
    from model_probe.capturing import capture

    traces = {}
    for done, (preset, prompt) in enumerate(PRESETS.items()):
        if progress:
            progress("capture", done / len(PRESETS), preset)
        traces[preset] = capture(checkpoint, prompt)
    return Recording(traces[next(iter(PRESETS))].checkpoint, traces, checkpoint.sites)

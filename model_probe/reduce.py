"""Per-row figures of an activation: L2, mean, population std and |max|, cheaply.

On a CPU in float32 the activation's own memory is read through NumPy, which costs about one percent
of a forward pass; elsewhere a few torch reductions run on the device and only their results are
fetched, after the pass. Sums are float32; a row whose sum of squares overflows, vanishes, or cancels
against its mean is done again in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_TINY: Final = 1e-30  # below this a float32 sum of squares has lost digits
_CANCELS: Final = 0.5  # share of the mean square that the squared mean may be


@dataclass(slots=True, eq=False)
class Reduced:
    """Figures by row. `raw` is [5, rows] on the device until `numbers` fetches it: L2, mean, std,
    |max|, count of elements that are not finite."""

    raw: Tensor | NDArray[np.float64]

    @property
    def rows(self) -> int:
        return int(self.raw.shape[1])

    def _fetch(self) -> NDArray[np.float64]:
        if isinstance(self.raw, Tensor):
            self.raw = self.raw.to("cpu", torch.float64).numpy()
        return self.raw

    def numbers(self) -> NDArray[np.float64]:
        """[rows, 4]: L2, mean, std, |max|."""
        return self._fetch()[:4].T

    def non_finite(self) -> int:
        """How many elements are NaN or infinite."""
        return int(self._fetch()[4].sum())


def reduce_rows(x: Tensor) -> Reduced:
    """Reduce an activation [..., size] to its figures by row, at once."""
    x = x.detach()
    rows = x.reshape(-1, x.shape[-1])
    if x.device.type == "cpu":
        return Reduced(
            _reduce_numpy(rows.to(torch.float64 if x.dtype == torch.float64 else torch.float32).numpy())
        )
    return Reduced(_reduce_torch(rows.to(torch.float32)))


def _reduce_numpy(x: NDArray[np.floating]) -> NDArray[np.float64]:
    """[rows, size] → [5, rows]."""
    size = x.shape[1]
    result = np.zeros((5, x.shape[0]))
    with np.errstate(over="ignore", invalid="ignore"):
        mean_square = np.einsum("ij,ij->i", x, x).astype(np.float64) / size
        mean = x.sum(axis=1).astype(np.float64) / size
        result[0] = np.sqrt(mean_square * size)
        result[1] = mean
        result[2] = np.sqrt(np.maximum(mean_square - mean**2, 0))
        result[3] = np.maximum(x.max(axis=1), -x.min(axis=1))
        again = ~(np.isfinite(mean_square) & (mean_square > _TINY) & (mean**2 <= _CANCELS * mean_square))
        if again.any():
            exact = x[again].astype(np.float64)
            result[0, again] = np.sqrt(np.square(exact).sum(axis=1))
            result[1, again] = exact.mean(axis=1)
            result[2, again] = exact.std(axis=1)
            result[4, again] = np.sum(~np.isfinite(exact), axis=1)
    return result


def _reduce_torch(x: Tensor) -> Tensor:
    """[rows, size] float32 → [5, rows]; scaled by |max| first, so that no square overflows."""
    largest = x.abs().amax(dim=1)
    scale = torch.where((largest > 0) & torch.isfinite(largest), largest, torch.ones_like(largest))
    l2 = torch.linalg.vector_norm(x / scale[:, None], dim=1) * scale
    std, mean = torch.std_mean(x / scale[:, None], dim=1, correction=0)
    non_finite = (~torch.isfinite(x)).sum(dim=1).to(torch.float32)
    return torch.stack([l2, mean * scale, std * scale, largest, non_finite])

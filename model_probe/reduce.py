"""Per-row figures of an activation: L2, mean, population std and |max|, cheaply.

On a CPU the four reductions cost about half a percent of a forward pass and only what follows is NumPy's;
elsewhere all is done on the device and the results are fetched after the pass. Sums are float32; a row whose sum of squares overflows, vanishes, or cancels
against its mean is done again in float64.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_TINY: Final = 1e-30  # below this a float32 sum of squares has lost digits
_BLOCK: Final = 2**19  # numbers that a store asks for at once, 4 MB
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


class Store:
    """Room for figures, apart from the heap.

    Small arrays that stay between the large buffers of a pass keep the allocator from using those buffers'
    memory again: at 2,048 tokens a capture then meets a million page faults that the bare pass does not.
    """

    def __init__(self) -> None:
        self._block: NDArray[np.float64] = np.empty(0)

    def take(self, rows: int) -> NDArray[np.float64]:
        """[5, rows], zeros."""
        size = 5 * rows
        if size > len(self._block):
            self._block = np.frombuffer(mmap.mmap(-1, 8 * max(size, _BLOCK)), dtype=np.float64)
        taken, self._block = self._block[:size], self._block[size:]
        return taken.reshape(5, rows)


def reduce_rows(x: Tensor, store: Store | None = None) -> Reduced:
    """Reduce an activation [..., size] to its figures by row, at once; what stays is kept in the store."""
    x = x.detach()
    rows = x.reshape(-1, x.shape[-1])
    if x.device.type == "cpu":
        exact = rows if x.dtype == torch.float64 else rows.to(torch.float32)
        return Reduced(_reduce_here(exact, (store or Store()).take(len(rows))))
    return Reduced(_reduce_there(rows.to(torch.float32)))


def _reduce_here(x: Tensor, result: NDArray[np.float64]) -> NDArray[np.float64]:
    """[rows, size] on the CPU → [5, rows]: four passes, each the quickest kernel torch has for it."""
    size = x.shape[1]
    l2, mean, std, largest, non_finite = result
    l2[:] = torch.linalg.vector_norm(x, dim=1).numpy()
    mean[:] = x.sum(dim=1).numpy()
    np.maximum(x.amax(dim=1).numpy(), -x.amin(dim=1).numpy(), out=largest)
    with np.errstate(over="ignore", invalid="ignore"):
        mean /= size
        mean_square = np.square(l2) / size
        squared_mean = np.square(mean)
        np.sqrt(np.maximum(mean_square - squared_mean, 0), out=std)
        again = ~(np.isfinite(l2) & (mean_square > _TINY) & (squared_mean <= _CANCELS * mean_square))
    if again.any():
        exact = x.numpy()[again].astype(np.float64)
        l2[again] = np.sqrt(np.square(exact).sum(axis=1))
        mean[again] = exact.mean(axis=1)
        std[again] = exact.std(axis=1)
        non_finite[again] = np.sum(~np.isfinite(exact), axis=1)
    return result


def _reduce_there(x: Tensor) -> Tensor:
    """[rows, size] float32 → [5, rows]; scaled by |max| first, so that no square overflows."""
    largest = x.abs().amax(dim=1)
    scale = torch.where((largest > 0) & torch.isfinite(largest), largest, torch.ones_like(largest))
    l2 = torch.linalg.vector_norm(x / scale[:, None], dim=1) * scale
    std, mean = torch.std_mean(x / scale[:, None], dim=1, correction=0)
    non_finite = (~torch.isfinite(x)).sum(dim=1).to(torch.float32)
    return torch.stack([l2, mean * scale, std * scale, largest, non_finite])

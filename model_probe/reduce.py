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

_TINY: Final = 1e-15  # of an L2: below this a float32 sum of squares has lost digits
_BLOCK: Final = 2**19  # numbers that a store asks for at once, 4 MB
_SUMS: Final = ("l2", "total", "largest", "least")  # of a row, on a CPU
_CANCELS: Final = 0.5  # share of the mean square that the squared mean may be


@dataclass(slots=True, eq=False)
class Reduced:
    """Figures by row: on the device until they are asked for, and on a CPU as the sums they follow from."""

    size: int  # elements in a row
    raw: Tensor | NDArray[np.float64]  # [5, rows] L2, mean, std, |max|, not finite; on a CPU _SUMS, [4, rows]
    exact: tuple[NDArray[np.intp], NDArray[np.float64]] | None = None  # rows done again, and their [5, rows]

    @property
    def rows(self) -> int:
        return int(self.raw.shape[1])

    def numbers(self) -> NDArray[np.float64]:
        """[5, rows] float64: L2, mean, population std, |max|, count of elements that are NaN or infinite."""
        if isinstance(self.raw, Tensor):
            return self.raw.to("cpu", torch.float64).numpy()
        l2, total, largest, least = self.raw
        mean = total / self.size
        with np.errstate(over="ignore", invalid="ignore"):
            std = np.sqrt(np.maximum(np.square(l2) / self.size - np.square(mean), 0))
        numbers = np.stack([l2, mean, std, np.maximum(largest, -least), np.zeros_like(l2)])
        if self.exact is not None:
            again, figures = self.exact
            numbers[:, again] = figures
        return numbers


class Store:
    """Room for figures, apart from the heap.

    Small arrays that stay between the large buffers of a pass keep the allocator from using those buffers'
    memory again: at 2,048 tokens a capture then meets a million page faults that the bare pass does not.
    """

    def __init__(self) -> None:
        self._block: NDArray[np.float64] = np.empty(0)

    def take(self, rows: int) -> NDArray[np.float64]:
        """[len(_SUMS), rows], to be written to."""
        size = len(_SUMS) * rows
        if size > len(self._block):
            self._block = np.frombuffer(mmap.mmap(-1, 8 * max(size, _BLOCK)), dtype=np.float64)
        taken, self._block = self._block[:size], self._block[size:]
        return taken.reshape(len(_SUMS), rows)


def reduce_rows(x: Tensor, store: Store | None = None) -> Reduced:
    """Reduce an activation [..., size] to its figures by row, at once; what stays is kept in the store."""
    x = x.detach()
    rows = x.reshape(-1, x.shape[-1])
    if x.device.type == "cpu":
        exact = rows if x.dtype == torch.float64 else rows.to(torch.float32)
        return _reduce_here(exact, (store or Store()).take(len(rows)))
    return Reduced(rows.shape[1], _reduce_there(rows.to(torch.float32)))


def _reduce_here(x: Tensor, sums: NDArray[np.float64]) -> Reduced:
    """[rows, size] on the CPU: four passes, each the quickest kernel torch has for it; the rest can wait."""
    size = x.shape[1]
    l2, total, _, _ = sums
    for row, figure in zip(
        sums, (torch.linalg.vector_norm(x, dim=1), x.sum(1), x.amax(1), x.amin(1)), strict=True
    ):
        row[:] = figure.numpy()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        share = np.square(total / l2)  # size × squared mean / mean square
    again = np.flatnonzero(~((l2 > _TINY) & (l2 < np.inf) & (share <= _CANCELS * size)))
    if not len(again):
        return Reduced(size, sums)
    exact = x.numpy()[again].astype(np.float64)
    with np.errstate(invalid="ignore"):
        figures = np.stack(
            [
                np.sqrt(np.square(exact).sum(axis=1)),
                exact.mean(axis=1),
                exact.std(axis=1),
                np.abs(exact).max(axis=1),
                np.sum(~np.isfinite(exact), axis=1),
            ]
        )
    return Reduced(size, sums, (again, figures))


def _reduce_there(x: Tensor) -> Tensor:
    """[rows, size] float32 → [5, rows]; scaled by |max| first, so that no square overflows."""
    largest = x.abs().amax(dim=1)
    scale = torch.where((largest > 0) & torch.isfinite(largest), largest, torch.ones_like(largest))
    l2 = torch.linalg.vector_norm(x / scale[:, None], dim=1) * scale
    std, mean = torch.std_mean(x / scale[:, None], dim=1, correction=0)
    non_finite = (~torch.isfinite(x)).sum(dim=1).to(torch.float32)
    return torch.stack([l2, mean * scale, std * scale, largest, non_finite])

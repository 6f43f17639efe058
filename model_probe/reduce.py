"""Per-row figures of an activation: L2, mean, population std and |max|, cheaply.

On a CPU the four reductions cost about half a percent of a forward pass and only what follows is NumPy's;
elsewhere all is done on the device and the results are fetched after the pass. Sums are float32; a row whose sum of squares overflows, vanishes, or cancels
against its mean is done again in float64.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_TINY: Final = 1e-15  # of an L2: below this a float32 sum of squares has lost digits
_SUMS: Final = ("l2", "total", "largest", "least")  # of a row, on a CPU
_CANCELS: Final = 0.5  # share of the mean square that the squared mean may be


@dataclass(slots=True, eq=False)
class Reduced:
    """Figures of activations of one shape, by row: on the device until they are asked for, and on a CPU as the
    sums they follow from."""

    size: int  # elements in a row
    raw: Tensor  # [activations, 5, rows] L2, mean, std, |max|, not finite; on a CPU _SUMS, [activations, 4, rows]
    exact: tuple[NDArray[np.bool_], NDArray[np.float64]] | None = None
    # which were done again, [activations, rows], and their [again, 5]

    @property
    def rows(self) -> int:
        return self.raw.shape[2]

    def numbers(self) -> NDArray[np.float64]:
        """[activations, 5, rows]: L2, mean, population std, |max|, count of elements that are NaN or infinite."""
        return numbers_of([self])[0]


def numbers_of(many: Sequence[Reduced]) -> NDArray[np.float64]:
    """[many, activations, 5, rows] float64: the numbers of what has one shape, fetched and worked out at once."""
    raw = torch.stack([each.raw for each in many]).cpu().numpy()
    if raw.shape[2] != len(_SUMS):
        return raw.astype(np.float64)
    size = many[0].size
    numbers = np.empty((*raw.shape[:2], 5, raw.shape[3]))
    l2, mean, std, largest, non_finite = numbers.transpose(2, 0, 1, 3)
    sums = raw.transpose(2, 0, 1, 3)
    with np.errstate(over="ignore", invalid="ignore"):
        l2[:] = sums[0]
        np.divide(sums[1], size, out=mean)
        np.square(l2, out=std)
        std /= size
        np.square(mean, out=largest)
        std -= largest
        np.sqrt(np.maximum(std, 0, out=std), out=std)
    np.maximum(sums[2], -sums[3], out=largest)
    non_finite[:] = 0
    for index, each in enumerate(many):
        if each.exact is not None:
            again, figures = each.exact
            numbers[index].transpose(0, 2, 1)[again] = figures
    return numbers


class Store:
    """Room for the figures of a pass, apart from the heap and made ready before it is needed.

    Small arrays that stay between the large buffers of a pass keep the allocator from using those buffers'
    memory again: at 2,048 tokens a capture then meets a million page faults that the bare pass does not.
    """

    def __init__(self, calls: int = 1) -> None:
        """`calls`: how many rooms of a shape will be asked for, about."""
        self._calls = calls
        self._rooms: dict[tuple[int, int, torch.dtype], list[_Room]] = {}

    def take(self, activations: int, rows: int, dtype: torch.dtype) -> _Room:
        """For the sums of so many activations of so many rows."""
        rooms = self._rooms.setdefault((activations, rows, dtype), [])
        if not rooms:
            shape = (self._calls, activations, len(_SUMS), rows)
            block = torch.frombuffer(mmap.mmap(-1, math.prod(shape) * dtype.itemsize), dtype=dtype)
            rooms += [_Room.of(sums) for sums in block.view(shape).unbind()]
        return rooms.pop()


@dataclass(frozen=True, slots=True, eq=False)
class _Room:
    """Where the sums of one call go: together, and each by itself."""

    sums: Tensor  # [activations, 4, rows]
    each: tuple[tuple[Tensor, ...], ...]  # the same, 4 × [rows] an activation
    l2: Tensor  # [activations, rows]
    total: Tensor  # [activations, rows]

    @classmethod
    def of(cls, sums: Tensor) -> _Room:
        return cls(sums, tuple(one.unbind() for one in sums.unbind()), sums[:, 0], sums[:, 1])


def reduce_rows(*activations: Tensor, store: Store | None = None) -> Reduced:
    """Reduce activations [..., size] of one shape to their figures by row, at once; what stays is in the store."""
    size = activations[0].shape[-1]
    rows = [(x.detach() if x.requires_grad else x).reshape(-1, size) for x in activations]
    if rows[0].device.type != "cpu":
        return Reduced(size, torch.stack([_reduce_there(x.to(torch.float32)) for x in rows]))
    dtype = torch.float64 if rows[0].dtype == torch.float64 else torch.float32
    room = (store or Store()).take(len(rows), len(rows[0]), dtype)
    return _reduce_here([x if x.dtype == dtype else x.to(dtype) for x in rows], room)


def _reduce_here(activations: Sequence[Tensor], room: _Room) -> Reduced:
    """[rows, size] each, on the CPU: four passes, each the quickest kernel torch has for it; the rest can wait.

    Few calls, and the same ones again: a pass waits for memory, and what is called anew has to come from there.
    """
    size = activations[0].shape[1]
    for x, (l2, total, largest, least) in zip(activations, room.each, strict=True):
        torch.linalg.vector_norm(x, dim=1, out=l2)
        torch.sum(x, 1, out=total)
        torch.amax(x, 1, out=largest)
        torch.amin(x, 1, out=least)
    l2 = room.l2
    # above 0 where the std would be what rounding leaves of it; every comparison is false for a NaN
    cancels = torch.sub(room.total.abs(), l2, alpha=math.sqrt(_CANCELS * size))
    if torch.amin(l2).item() > _TINY and torch.amax(l2).item() < math.inf and torch.amax(cancels).item() <= 0:
        return Reduced(size, room.sums)
    again = (~((l2 > _TINY) & (l2 < math.inf) & (cancels <= 0))).numpy()  # [activations, rows]
    exact = torch.stack(list(activations)).numpy()[again].astype(np.float64)  # [again, size]
    with np.errstate(invalid="ignore"):
        figures = np.stack(
            [
                np.sqrt(np.square(exact).sum(axis=1)),
                exact.mean(axis=1),
                exact.std(axis=1),
                np.abs(exact).max(axis=1),
                np.sum(~np.isfinite(exact), axis=1),
            ],
            axis=1,
        )
    return Reduced(size, room.sums, (again, figures))


def _reduce_there(x: Tensor) -> Tensor:
    """[rows, size] float32 → [5, rows]; scaled by |max| first, so that no square overflows."""
    largest = x.abs().amax(dim=1)
    scale = torch.where((largest > 0) & torch.isfinite(largest), largest, torch.ones_like(largest))
    l2 = torch.linalg.vector_norm(x / scale[:, None], dim=1) * scale
    std, mean = torch.std_mean(x / scale[:, None], dim=1, correction=0)
    non_finite = (~torch.isfinite(x)).sum(dim=1).to(torch.float32)
    return torch.stack([l2, mean * scale, std * scale, largest, non_finite])

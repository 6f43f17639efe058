"""One number for many tokens, and which tokens are attention sinks.

The median is the default everywhere: one sink with fifty times the others' L2 sets a mean.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

STATISTICS: Final = ("median", "mean", "root_mean_square")
SINK_FACTOR: Final = 5.0  # a sink's L2 is above this many times the median at its site


def summarize(values: ArrayLike, statistic: str = "median") -> float:
    """Median, mean or root mean square of one number a token, NaN when there is none.

    values [tokens]; numbers that are not finite make the answer NaN, they are never left out.

    >>> summarize([1.0, 2.0, 9.0]), summarize([1.0, 2.0, 9.0], "mean")
    (2.0, 4.0)
    """
    x = np.asarray(values, dtype=np.float64)
    if x.size == 0 or not np.isfinite(x).all():
        return float("nan")
    if statistic == "median":
        return float(np.median(x))
    if statistic == "mean":
        return float(np.mean(x))
    if statistic == "root_mean_square":
        return float(np.sqrt(np.mean(np.square(x))))
    raise ValueError(f"statistic is one of {STATISTICS}, not {statistic!r}")


def sinks(l2: ArrayLike) -> NDArray[np.bool_]:
    """Which tokens carry more than five times the median L2 of their site: [tokens] → [tokens].

    Source: attention sinks, arXiv 2309.17453; massive activations, arXiv 2402.17762.

    >>> sinks([979.0, 12.0, 11.0, 13.0]).tolist()
    [True, False, False, False]
    """
    x = np.asarray(l2, dtype=np.float64)
    if x.size == 0 or not np.isfinite(x).any():
        return np.zeros(x.shape, dtype=bool)
    return x > SINK_FACTOR * np.nanmedian(x)

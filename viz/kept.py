"""What is drawn is made once, for all visitors.

A page runs from top to bottom at every click, and plotly takes tens of milliseconds to make a figure, in which no other
page moves. The same trace in the same words, colours and view is the same figure: it is kept, within bounds, and handed
out again. Nobody changes what was handed out.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar, cast

from cachetools import LRUCache

from model_probe.trace import NormTrace
from viz.text import Words

KEPT_BYTES: Final = 64_000_000  # of all that is kept and what it was made of; the least used goes first

Arguments = ParamSpec("Arguments")
Drawn = TypeVar("Drawn")


class _Kept(NamedTuple):
    drawn: Any
    size: int  # bytes


_room: LRUCache[Hashable, _Kept] = LRUCache(KEPT_BYTES, getsizeof=lambda kept: kept.size)
_lock: Final = threading.Lock()  # guards `_room`


def kept(draw: Callable[Arguments, Drawn]) -> Callable[Arguments, Drawn]:
    """A function whose answers are kept by its arguments, which are hashable: a trace counts as itself, not by what is
    in it."""

    @wraps(draw)
    def keeping(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Drawn:
        key = draw, args, tuple(kwargs.items())
        with _lock:
            found = _room.get(key)
        if found is None:
            found = _Kept(drawn := draw(*args, **kwargs), _size_of((*args, *kwargs.values(), drawn)))
            if found.size <= KEPT_BYTES:
                with _lock:
                    _room[key] = found
        return cast(Drawn, found.drawn)

    return keeping


def forget() -> None:
    """Nothing is kept any more. Figures hold themselves: what `viz.collecting` freezes of them would never be freed."""
    with _lock:
        _room.clear()


class _Scale(pickle.Pickler):
    """Weighs what it is given, a trace by its own count, words not at all: they are there anyway."""

    def __init__(self) -> None:
        super().__init__(self)
        self.bytes = 0

    def write(self, data: bytes) -> int:
        """Of the pickle nothing but its length is wanted."""
        written = memoryview(data).nbytes
        self.bytes += written
        return written

    def reducer_override(self, thing: object) -> Any:
        if isinstance(thing, NormTrace):
            self.bytes += thing.nbytes
            return object, ()
        return (object, ()) if isinstance(thing, Words) else NotImplemented


def _size_of(things: tuple[object, ...]) -> int:
    """Bytes of them, pickled; in memory figures take about twice as much."""
    scale = _Scale()
    scale.dump(things)
    return scale.bytes

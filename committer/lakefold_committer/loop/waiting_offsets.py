"""Offsets of entries that wait in the log only, in order: eight bytes each, whatever the entries hold."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_COMPACT_AT = 65_536


class Offsets:
    """A queue of ascending offsets."""

    def __init__(self) -> None:
        self._offsets = array("q")
        self._start = 0

    def __len__(self) -> int:
        return len(self._offsets) - self._start

    @property
    def first(self) -> int:
        """The lowest offset. Raises `IndexError` if the queue is empty."""
        return self._offsets[self._start]

    def append(self, offset: int) -> None:
        """Adds an offset that is higher than all others."""
        self._offsets.append(offset)

    def put_before(self, offsets: Iterable[int]) -> None:
        """Adds ascending offsets that are lower than all others."""
        self._offsets = array("q", [*offsets]) + self._offsets[self._start :]
        self._start = 0

    def leading(self, most: int) -> Sequence[int]:
        """Returns the lowest offsets, at most so many."""
        return self._offsets[self._start : self._start + most]

    def drop(self, count: int) -> None:
        """Removes the lowest offsets, so many."""
        self._start += count
        if self._start >= max(_COMPACT_AT, len(self._offsets) // 2) or self._start == len(self._offsets):
            del self._offsets[: self._start]
            self._start = 0

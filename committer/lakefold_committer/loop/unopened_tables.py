"""Messages for names under which no table is open, kept as offsets in the order of the log.

Anybody may send proposals for any number of names. Most of them are no tables, and to find that out costs as
much as to fold a proposal. So only some of them are looked at at a time, and the tables that are open don't
wait for them. Whatever a message turns out to be, it comes after those of its own table that came before it.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from lakefold_committer.loop.waiting_offsets import Offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_table.uri import Place

BUCKETS: Final = 1 << 20
"""Names are told apart by a hash of so many values: four bytes each, for any number of names."""


class Strangers:
    """A queue of offsets that knows for which names there may be some in it."""

    def __init__(self) -> None:
        self._offsets = Offsets()
        self._counts = array("I")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def first(self) -> int:
        """The lowest offset. Raises `IndexError` if there is none."""
        return self._offsets.first

    def holds(self, place: Place) -> bool:
        """Whether messages for this name may be waiting here; False only if there are none."""
        return bool(self._counts) and self._counts[hash(place) % BUCKETS] > 0

    def add(self, offset: int, place: Place | None) -> None:
        """One more message behind the others; `place` is None if it is for no table at all."""
        self._offsets.append(offset)
        if place is not None:
            if not self._counts:
                self._counts = array("I", bytes(array("I").itemsize * BUCKETS))
            self._counts[hash(place) % BUCKETS] += 1

    def leading(self, most: int) -> Sequence[int]:
        """The lowest offsets, at most so many."""
        return self._offsets.leading(most)

    def drop(self, places: Iterable[Place | None]) -> None:
        """Forgets the first messages, which were for these names."""
        count = 0
        for place in places:
            count += 1
            if place is not None:
                self._counts[hash(place) % BUCKETS] -= 1
        self._offsets.drop(count)
        if not len(self._offsets):
            self._counts = array("I")

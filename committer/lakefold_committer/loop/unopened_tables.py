"""Messages for names under which no table is open, kept as offsets in the order of the log.

Anybody may send proposals for any number of names. Most of them are no tables, and to find that out costs as
much as to fold a proposal. So only some of them are looked at at a time, and the tables that are open don't
wait for them. Whatever a message turns out to be, it comes after those of its own table that came before it.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from lakefold_committer.loop.waiting_offsets import Offsets
from lakefold_committer.tables.branches import line_of
from lakefold_log.codec.envelope import MAX_TABLE
from lakefold_table.entry import Invalid
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lakefold_table.uri import Place

BUCKETS: Final = 1 << 20
"""Names are told apart by a hash of so many values: four bytes each, for any number of names."""
NO_NAME: Final = -1
"""Stands for the hash of a message that names no table."""
MOST_SEARCHED: Final = 200_000
"""So many of the waiting messages are searched for those of a name that comes first."""


def bucket_of(place: Place) -> int:
    """The hash by which a name's messages are counted."""
    return hash(place) % BUCKETS


class UnopenedTables:
    """A queue of offsets that knows for which names there may be some in it.

    Those of some names may be put first. So there are two queues, each in the order of the log.
    """

    def __init__(self) -> None:
        self._first = Offsets()
        self._offsets, self._buckets = Offsets(), Offsets()
        self._counts = array("I")

    def __len__(self) -> int:
        return len(self._first) + len(self._offsets)

    @property
    def first(self) -> int:
        """The lowest offset. Raises `IndexError` if there is none."""
        return min(queue.first for queue in (self._first, self._offsets) if queue or not self)

    def holds(self, place: Place) -> bool:
        """Whether messages for this name may be waiting here; False only if there are none."""
        return bool(self._counts) and self._counts[bucket_of(place)] > 0

    def add(self, offset: int, place: Place | None) -> None:
        """One more message behind the others; `place` is None if it is for no table at all."""
        self._offsets.append(offset)
        self._buckets.append(_bucket(place))
        if place is not None:
            if not self._counts:
                self._counts = array("I", bytes(array("I").itemsize * BUCKETS))
            self._counts[bucket_of(place)] += 1

    def leading(self, most: int) -> Sequence[int]:
        """The offsets whose turn it is, at most so many, ascending."""
        return (self._first or self._offsets).leading(most)

    def drop(self, places: Sequence[Place | None], kept: Collection[int] = ()) -> None:
        """Forgets the leading messages, which were for these names, but for those at the offsets `kept`."""
        queue = self._first or self._offsets
        leading = [*zip(queue.leading(len(places)), places, strict=True)]
        queue.drop(len(places))
        queue.put_before(offset for offset, _ in leading if offset in kept)
        if queue is self._offsets:
            self._buckets.drop(len(places))
            self._buckets.put_before(_bucket(place) for offset, place in leading if offset in kept)
        for offset, place in leading:
            if place is not None and offset not in kept:
                self._counts[bucket_of(place)] -= 1
        if not len(self):
            self._counts = array("I")

    def put_first(self, buckets: Collection[int]) -> None:
        """Has the messages go first whose names have these hashes: their names are worth a look."""
        wanted = {one for one in buckets if self._counts[one]} if self._counts else set[int]()
        if not wanted:
            return
        searched = min(len(self._offsets), MOST_SEARCHED)
        offsets, found = self._offsets.leading(searched), self._buckets.leading(searched)
        first = {offset for offset, bucket in zip(offsets, found, strict=True) if bucket in wanted}
        if not first:
            return
        rest = [one for one in zip(offsets, found, strict=True) if one[0] not in first]
        self._offsets.drop(searched)
        self._buckets.drop(searched)
        self._offsets.put_before(offset for offset, _ in rest)
        self._buckets.put_before(bucket for _, bucket in rest)
        before = self._first.leading(len(self._first))
        self._first.drop(len(before))
        self._first.put_before(sorted({*before, *first}))


def place_of(address: tuple[str, str] | None) -> Place | None:
    """Where the versions would lie of what a message names; None if that is no name of a table."""
    if address is None or len(address[0]) > MAX_TABLE:
        return None
    try:
        found = line_of(*address)
    except InvalidError:
        return None
    return None if isinstance(found, Invalid) else found


def _bucket(place: Place | None) -> int:
    return NO_NAME if place is None else bucket_of(place)

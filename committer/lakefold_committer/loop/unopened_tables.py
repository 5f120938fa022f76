"""Messages for names under which no table is open, kept as offsets in the order of the log.

A client may send proposals for any number of names. Most of them are not tables, and to check that costs as
much as to fold a proposal. So only some names are checked at a time, and the tables that are open don't wait
for them. A message is never taken before earlier messages for its own table.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from lakefold_committer.loop.waiting_entries import Offsets
from lakefold_committer.tables.branches import branch_location
from lakefold_log.codec.envelope import MAX_TABLE
from lakefold_table.entry import Invalid
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from lakefold_table.uri import Location

BUCKETS: Final = 1 << 20
"""The number of values of a hash that distinguishes names. A hash takes four bytes."""
HASHES: Final = 3
"""How many hashes of a name are counted. If 60,000 names wait, another name seems to be among them once in
6,000 times, with a single hash once in 18 times. Then its table waits for its turn in the log's order."""
NO_NAME: Final = -1
"""The hash of a message that names no table."""
MOST_SEARCHED: Final = 200_000
"""How many of the waiting messages are searched for those of a name that goes first."""


def bucket_of(location: Location) -> int:
    """Returns the hash by which the messages for a location are moved before others."""
    return hash(location) % BUCKETS


def _counters_of(location: Location) -> Iterator[int]:
    """Yields the indices at which the messages for a location are counted, `bucket_of` first."""
    value = hash(location)
    for number in range(HASHES):
        yield number * BUCKETS + value % BUCKETS
        value //= BUCKETS


class UnopenedTables:
    """A queue of offsets that knows which names its messages may be for.

    The messages of some names may go first. So these are two queues, each in the order of the log.
    """

    def __init__(self) -> None:
        self._first = Offsets()
        self._offsets, self._buckets = Offsets(), Offsets()
        self._counts = array("I")

    def __len__(self) -> int:
        return len(self._first) + len(self._offsets)

    @property
    def first(self) -> int:
        """The lowest offset. Raises `IndexError` if the queue is empty."""
        return min(queue.first for queue in (self._first, self._offsets) if queue or not self)

    def holds(self, location: Location) -> bool:
        """Returns whether messages for this name may be waiting. If it returns False, none is."""
        return bool(self._counts) and all(self._counts[index] for index in _counters_of(location))

    def add(self, offset: int, location: Location | None) -> None:
        """Adds a message behind the others. `location` is None if it names no table."""
        self._offsets.append(offset)
        self._buckets.append(_bucket(location))
        if location is not None:
            if not self._counts:
                self._counts = array("I", bytes(array("I").itemsize * BUCKETS * HASHES))
            for index in _counters_of(location):
                self._counts[index] += 1

    def leading(self, most: int) -> Sequence[int]:
        """Returns the next offsets, at most `most`, ascending."""
        return (self._first or self._offsets).leading(most)

    def drop(self, locations: Sequence[Location | None], except_offsets: Collection[int] = ()) -> None:
        """Removes the leading messages, which were for these names, except for those at some offsets."""
        queue = self._first or self._offsets
        leading = [*zip(queue.leading(len(locations)), locations, strict=True)]
        queue.drop(len(locations))
        queue.put_before(offset for offset, _ in leading if offset in except_offsets)
        if queue is self._offsets:
            self._buckets.drop(len(locations))
            self._buckets.put_before(
                _bucket(location) for offset, location in leading if offset in except_offsets
            )
        for offset, location in leading:
            if location is not None and offset not in except_offsets:
                for index in _counters_of(location):
                    self._counts[index] -= 1
        if not len(self):
            self._counts = array("I")

    def put_first(self, buckets: Collection[int]) -> None:
        """Moves the messages whose names have these hashes before the others."""
        waiting = {bucket for bucket in buckets if self._counts[bucket]} if self._counts else set[int]()
        if not waiting:
            return
        searched = min(len(self._offsets), MOST_SEARCHED)
        messages = [*zip(self._offsets.leading(searched), self._buckets.leading(searched), strict=True)]
        first = {offset for offset, bucket in messages if bucket in waiting}
        if not first:
            return
        rest = [(offset, bucket) for offset, bucket in messages if offset not in first]
        self._offsets.drop(searched)
        self._buckets.drop(searched)
        self._offsets.put_before(offset for offset, _ in rest)
        self._buckets.put_before(bucket for _, bucket in rest)
        before = self._first.leading(len(self._first))
        self._first.drop(len(before))
        self._first.put_before(sorted({*before, *first}))


def location_of(address: tuple[str, str] | None) -> Location | None:
    """Returns the location of the table that a message names. Returns None if that names no table."""
    if address is None or len(address[0]) > MAX_TABLE:
        return None
    try:
        location = branch_location(*address)
    except InvalidError:
        return None
    return None if isinstance(location, Invalid) else location


def _bucket(location: Location | None) -> int:
    return NO_NAME if location is None else bucket_of(location)

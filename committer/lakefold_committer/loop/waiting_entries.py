"""The entries that wait for a table: the first in memory, all others as offsets.

An offset takes eight bytes, whatever its entry holds, which is read from the log again when its turn comes.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from lakefold_committer.states.charts import BACKLOG
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakefold_committer.fold.grouping import Limits
    from lakefold_log.codec.envelope import UnknownKind
    from lakefold_log.read.consumer import Message
    from lakefold_table.entry import Entry

_COMPACT_AT = 65_536


@value()
class Waiting:
    """An entry in memory, with the message that it came in. `memory`: see `Reread`."""

    message: Message
    entry: Entry | UnknownKind
    memory: int = 0

    @property
    def offset(self) -> int:
        """Its offset in the log."""
        return self.entry.position.offset


@dataclass(slots=True)
class Load:
    """What all queues of a partition hold: entries in memory and their bytes, and offsets of others.

    `memory`: how many bytes of memory the large entries among them take, decoded.
    """

    entries: int = 0
    size: int = 0
    memory: int = 0
    offsets: int = 0


class EntriesInMemory:
    """Entries in their order. They are counted in `load`, and `size` is the sum of their bytes."""

    __slots__ = ("_entries", "_load", "_watched", "size")

    def __init__(self, load: Load) -> None:
        self._entries: deque[Waiting] = deque()
        self._load = load
        self._watched: tuple[int, float] | None = None
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._entries)

    @property
    def first(self) -> Waiting:
        """The first entry. Raises `IndexError` if there is none."""
        return self._entries[0]

    def append(self, waiting: Waiting, now: float) -> None:
        """Adds an entry at the end."""
        self._entries.append(waiting)
        self._count(1, waiting.entry.size, waiting.memory)
        if self._watched is None:
            self._watched = (waiting.offset, now)

    def take_first(self) -> Waiting:
        """Removes the first entry and returns it."""
        waiting = self._entries.popleft()
        self._count(-1, -waiting.entry.size, -waiting.memory)
        if self._watched is not None and waiting.offset >= self._watched[0]:
            self._watched = None
        return waiting

    def put_before(self, group: Sequence[Waiting]) -> None:
        """Adds entries that come before all others."""
        self._entries.extendleft(reversed(group))
        self._count(len(group), _bytes_of(group), _memory_of(group))

    def take_rest(self, keep: Limits | None) -> Sequence[Waiting]:
        """Removes all entries but one group within the limits `keep`, and returns them."""
        count = size = 0
        if keep is not None:
            for waiting in islice(self._entries, keep.max_entries):
                size += waiting.entry.size
                if count and size > keep.max_bytes:
                    break
                count += 1
        rest = [self._entries.pop() for _ in range(len(self._entries) - count)][::-1]
        self._count(-len(rest), -_bytes_of(rest), -_memory_of(rest))
        if rest and self._watched is not None and self._watched[0] >= rest[0].offset:
            self._watched = None
        return rest

    def delay(self, now: float) -> float:
        """Returns for how many seconds, at least, an entry has been waiting here for its group."""
        return 0.0 if self._watched is None else now - self._watched[1]

    def _count(self, entries: int, size: int, memory: int) -> None:
        """Counts entries that were added, or removed if the numbers are negative."""
        self.size += size
        self._load.entries += entries
        self._load.size += size
        self._load.memory += memory


def _bytes_of(entries: Iterable[Waiting]) -> int:
    return sum(waiting.entry.size for waiting in entries)


def _memory_of(entries: Iterable[Waiting]) -> int:
    return sum(waiting.memory for waiting in entries)


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
        """Returns the lowest offsets, at most `most`."""
        return self._offsets[self._start : self._start + most]

    def drop(self, count: int) -> None:
        """Removes the `count` lowest offsets."""
        self._start += count
        if self._start >= max(_COMPACT_AT, len(self._offsets) // 2) or self._start == len(self._offsets):
            del self._offsets[: self._start]
            self._start = 0


class Backlog(Offsets):
    """The offsets of the entries that follow those in memory; they are counted in `load`.

    `time_us`: the log time of the first, about. `reading`: whether a task reads some of them.
    """

    def __init__(self, load: Load) -> None:
        super().__init__()
        self._load = load
        self.time_us = 0
        self.reading = BACKLOG.machine()

    def add(self, offset: int, time_us: int) -> None:
        """Adds an entry that comes after all others."""
        if not self:
            self.time_us = time_us
        self.append(offset)
        self._load.offsets += 1

    def add_before(self, entries: Sequence[Waiting]) -> None:
        """Adds entries that come before all others."""
        self.time_us = entries[0].entry.time_us
        self.put_before(waiting.offset for waiting in entries)
        self._load.offsets += len(entries)

    def were_read(self, count: int, time_us: int | None) -> None:
        """Removes the first entries, of which the last had this time; None if that is not known."""
        self.drop(count)
        self._load.offsets -= count
        self.time_us = self.time_us if time_us is None else time_us

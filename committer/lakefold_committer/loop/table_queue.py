"""One line of a table on its way through a committer: the entries that wait for it, and how far they are.

Entries wait in memory, or, where the line can't go on or is slow, as offsets only: then they are read again
from the log when their turn comes. Whatever happens they stay in their order. Nothing here does IO or reads a
clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from lakefold_committer.fold.grouping import first_group
from lakefold_committer.loop.backoff import Backoff
from lakefold_committer.loop.waiting_offsets import Offsets
from lakefold_log.codec.envelope import UnknownKind
from lakefold_table.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_committer.fold.grouping import Limits
    from lakefold_committer.tables.table_writer import Prepared, TableWriter
    from lakefold_log.read.consumer import Message
    from lakefold_table.errors import LakefoldError
    from lakefold_table.formats import Formats
    from lakefold_table.uri import Place

LONGEST_PARKING_SECONDS = 60.0
"""How long a table is left alone that can't be gone on with, though its store answers."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An entry in memory, with the message that it came in. `memory`: see `Reread`."""

    message: Message
    entry: Entry | UnknownKind
    memory: int = 0

    @property
    def offset(self) -> int:
        """Where it stands in the log."""
        return self.entry.position.offset


@dataclass(slots=True)
class Batch:
    """A group at work."""

    group: tuple[Waiting, ...]
    prepared: Prepared | None = None

    def without_first(self, count: int) -> Batch:
        """What of the group is still to be folded."""
        return Batch(self.group[count:])

    @property
    def entries(self) -> list[Entry]:
        """The entries of the group."""
        return [one.entry for one in self.group if isinstance(one.entry, Entry)]


@dataclass(slots=True)
class Parked:
    """Why a line is left alone, since when and until when (seconds of a monotonic clock).

    `step`: what failed, which unparks the line where it succeeds.
    """

    error: LakefoldError
    step: str
    since: float
    until: float
    backoff: Backoff


@dataclass(slots=True)
class Load:
    """What all lines of a partition hold: entries in memory and their bytes, and offsets of others.

    `memory`: how many bytes of memory the large ones of these entries take, decoded.
    """

    entries: int = 0
    size: int = 0
    memory: int = 0
    offsets: int = 0


@dataclass(eq=False, slots=True)
class TableQueue:
    """`uri` and `branch` name it as its first entry did; `place` is where its versions lie.

    `at_work`: the step that a task is at ("" for none), besides the put; `since`: since when. A put may be
    under way at the same time: `putting` is what is put or waits to be put again, `ready` what follows it.
    `lost`: what was prepared is worthless, since somebody else published. `counted_bytes`: what its table
    took in memory when it was idle last. `load` counts what all lines hold. `is_reading`: its backlog is
    being read. `is_large`: it has the turn of those that fold much at once. `behind_strangers`: entries for
    it may still wait among the names that no table is open under. `seems_there`: whether anything lies at its
    root, None while nobody has looked.
    """

    place: Place
    uri: str
    branch: str
    queue: deque[Waiting] = field(default_factory=deque)
    queued_bytes: int = 0
    backlog: Offsets = field(default_factory=Offsets)
    backlog_us: int = 0
    table: TableWriter | None = None
    at_work: str = ""
    since: float = 0.0
    folding: Batch | None = None
    ready: Batch | None = None
    putting: Batch | None = None
    is_put_running: bool = False
    lost: bool = False
    parked: Parked | None = None
    counted_bytes: int = 0
    load: Load = field(default_factory=Load)
    is_reading: bool = False
    is_large: bool = False
    behind_strangers: bool = False
    seems_there: bool | None = None
    _watched: tuple[int, float] | None = None

    @property
    def batches(self) -> list[Batch]:
        """What was taken out of the queue and isn't answered, in order."""
        return [one for one in (self.putting, self.ready, self.folding) if one is not None]

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is at work."""
        return not (self.queue or self.backlog or self.at_work or self.batches)

    @property
    def has_versions(self) -> bool:
        """Whether a table is known to be there."""
        return self.table is not None and self.table.table.state is not None

    @property
    def first_offset(self) -> int | None:
        """The lowest offset that isn't answered, None where all are."""
        for batch in self.batches:
            return batch.group[0].offset
        if self.queue:
            return self.queue[0].offset
        return self.backlog.first if self.backlog else None

    @property
    def oldest_us(self) -> int | None:
        """The log time of what waits longest, as far as it is in memory; None where nothing waits."""
        for batch in self.batches:
            return batch.group[0].entry.time_us
        if self.queue:
            return self.queue[0].entry.time_us
        return self.backlog_us if self.backlog else None

    @property
    def waiting(self) -> int:
        """How many entries aren't answered."""
        return sum(len(batch.group) for batch in self.batches) + len(self.queue) + len(self.backlog)

    @property
    def unknown(self) -> UnknownKind | None:
        """What stands at the head of the queue, where this release doesn't know what that is."""
        head = self.queue[0].entry if self.queue else None
        return head if isinstance(head, UnknownKind) else None

    def take(self, one: Waiting, now: float = 0.0) -> None:
        """One more entry from the log; only its offset if others before it wait in the log."""
        if self.backlog:
            self.pass_over(one.offset, one.entry.time_us)
        else:
            self._queue(one, now)

    def pass_over(self, offset: int, time_us: int) -> None:
        """One more entry, which is read from the log again when its turn comes."""
        if not self.backlog:
            self.backlog_us = time_us
        self.backlog.append(offset)
        self.load.offsets += 1

    def take_again(self, several: Sequence[Waiting], now: float = 0.0, *, read: int | None = None) -> None:
        """The first ones of the backlog, read again; `read` (None: as many): how many messages they were."""
        count = len(several) if read is None else read
        self.backlog.drop(count)
        self.load.offsets -= count
        for one in several:
            self._queue(one, now)
        if several:
            self.backlog_us = several[-1].entry.time_us

    def cut(self, formats: Formats, limits: Limits) -> tuple[Waiting, ...]:
        """Takes the next group out of the queue: what may share the version after all that was prepared."""
        known = takewhile(_is_entry, islice(self.queue, limits.max_entries + 1))
        entries = [one.entry for one in known if isinstance(one.entry, Entry)]
        state = None if self.table is None else self.table.ahead.state
        size = len(first_group(entries, formats, limits, state))
        return tuple(self.take_head() for _ in range(size))

    def take_head(self) -> Waiting:
        """Takes the first entry out of the queue."""
        one = self.queue.popleft()
        self._count([one], -1)
        if self._watched is not None and one.offset >= self._watched[0]:
            self._watched = None
        return one

    def give_back(self, batches: Iterable[Batch]) -> None:
        """Puts groups back to the head of the queue; they are given in order."""
        for batch in reversed([*batches]):
            self.queue.extendleft(reversed(batch.group))
            self._count(batch.group)

    def spill(self, keep: Limits | None = None) -> None:
        """Keeps only the offsets of what is queued, but for what a group within `keep` may hold."""
        kept = size = 0
        if keep is not None:
            for one in islice(self.queue, keep.max_entries):
                size += one.entry.size
                if kept and size > keep.max_bytes:
                    break
                kept += 1
        if len(self.queue) > kept:
            rest = [self.queue.pop() for _ in range(len(self.queue) - kept)][::-1]
            self._count(rest, -1)
            self.backlog_us = rest[0].entry.time_us
            self.backlog.put_before(one.offset for one in rest)
            self.load.offsets += len(rest)
            if self._watched is not None and self._watched[0] >= rest[0].offset:
                self._watched = None

    def delay(self, now: float) -> float:
        """For how many seconds, at least, one of its entries has been waiting in memory for its group."""
        return 0.0 if self._watched is None else now - self._watched[1]

    def park(self, error: LakefoldError, step: str, now: float, longest: float) -> float:
        """Leaves the line alone for a while, for longer each time; returns for how many seconds."""
        if self.parked is None or self.parked.step != step:
            since = now if self.parked is None else self.parked.since
            self.parked = Parked(error, step, since, now, Backoff(longest=longest))
        pause = self.parked.backoff.pause()
        self.parked.error, self.parked.until = error, now + pause
        return pause

    def succeeded(self, step: str) -> bool:
        """Notes that a step has succeeded; whether that ended the line's being parked."""
        if self.parked is None or self.parked.step != step:
            return False
        self.parked = None
        return True

    def may_go(self, now: float) -> bool:
        """Whether it isn't parked, or it is time to try again."""
        return self.parked is None or now >= self.parked.until

    def _queue(self, one: Waiting, now: float) -> None:
        self.queue.append(one)
        self._count([one])
        if self._watched is None:
            self._watched = (one.offset, now)

    def _count(self, several: Sequence[Waiting], sign: int = 1) -> None:
        """Notes that these came into the queue, or (-1) that they left it."""
        size = sign * sum(one.entry.size for one in several)
        self.queued_bytes += size
        self.load.entries += sign * len(several)
        self.load.size += size
        self.load.memory += sign * sum(one.memory for one in several)


def _is_entry(one: Waiting) -> bool:
    return isinstance(one.entry, Entry)

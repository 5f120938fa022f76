"""The queue of a branch of a table: the entries that wait for it, and how far its next versions are.

Entries wait in memory, or, if the queue is parked or slow, as offsets only: then they are read again from the
log when their turn comes. Whatever happens they stay in their order. How far the versions are is the state of
four machines (`states/charts.py`); a method here sends an event and moves what belongs to the state.
Nothing here does IO or reads a clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, TypeVar

from lakefold_committer.fold.grouping import GroupEnd, Limits, end_of, first_group
from lakefold_committer.fold.manifest_budget import ManifestBudget, ManifestLimits
from lakefold_committer.loop.backoff import Backoff
from lakefold_committer.loop.waiting_offsets import Offsets
from lakefold_committer.states.charts import (
    BACKLOG,
    PARKING,
    PREPARATION,
    PUBLICATION,
    BacklogEvent,
    BacklogState,
    ParkingEvent,
    ParkingState,
    PreparationEvent,
    PreparationState,
    PublicationEvent,
    PublicationState,
)
from lakefold_committer.states.machine import IllegalTransitionError, Machine
from lakefold_log.codec.envelope import UnknownKind
from lakefold_table.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_committer.tables.table_writer import Prepared, TableWriter
    from lakefold_log.read.consumer import Message
    from lakefold_table.errors import LakefoldError
    from lakefold_table.formats import Formats
    from lakefold_table.uri import Location

B = TypeVar("B", bound="Batch")
AT_WORK: Final = (PreparationState.OPENING, PreparationState.FOLDING, PreparationState.FOLDING_TO_PUBLISH)
"""A task opens the table or folds."""
READY: Final = (PreparationState.CLOSED, PreparationState.OPEN, PreparationState.HELD)
"""The table may be opened, or its next group be folded."""
LONGEST_PARKING_SECONDS = 60.0
"""The longest pause between attempts at a table whose store answers."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An entry in memory, with the message that it came in. `memory`: see `Reread`."""

    message: Message
    entry: Entry | UnknownKind
    memory: int = 0

    @property
    def offset(self) -> int:
        """Its offset in the log."""
        return self.entry.position.offset


@dataclass(frozen=True, slots=True)
class Batch:
    """A group that was taken out of the queue, to be folded."""

    group: tuple[Waiting, ...]

    @property
    def entries(self) -> list[Entry]:
        """The entries of the group."""
        return [waiting.entry for waiting in self.group if isinstance(waiting.entry, Entry)]


@dataclass(frozen=True, slots=True)
class FoldedBatch(Batch):
    """A group that is folded, or its first entries."""

    prepared: Prepared


@dataclass(slots=True)
class Parked:
    """Why a queue is parked, since when and until when (seconds of a monotonic clock).

    `step`: what failed. The queue is active again when it succeeds.
    """

    error: LakefoldError
    step: str
    since: float
    until: float
    backoff: Backoff


@dataclass(slots=True)
class Load:
    """What all queues of a partition hold: entries in memory and their bytes, and offsets of others.

    `memory`: how many bytes of memory the large entries among them take, decoded.
    """

    entries: int = 0
    size: int = 0
    memory: int = 0
    offsets: int = 0


@dataclass(eq=False, slots=True)
class TableQueue:
    """`uri` and `branch` name it as its first entry did; `location` is the path of its versions.

    `table` is None while `preparation` is closed or opening. `folding`, `folded` and `putting` are the groups
    of these steps. `since`: when the task was started that runs now. `counted_bytes`: what its table took in
    memory when it was idle last. `load` counts what all queues hold. `behind_strangers`: entries for it may
    still wait among the names under which no table is open. `may_exist`: whether anything is stored at its
    root, None if that was not checked yet. `budget`: how many bytes of manifests it may still get.
    `held_since`, `held_until`: the times of the last hold. `group_end`: why the group that was cut last
    ended.
    """

    location: Location
    uri: str
    branch: str
    in_memory: deque[Waiting] = field(default_factory=deque)
    queued_bytes: int = 0
    backlog: Offsets = field(default_factory=Offsets)
    backlog_us: int = 0
    preparation: Machine[PreparationState, PreparationEvent] = field(default_factory=PREPARATION.machine)
    publication: Machine[PublicationState, PublicationEvent] = field(default_factory=PUBLICATION.machine)
    parking: Machine[ParkingState, ParkingEvent] = field(default_factory=PARKING.machine)
    rereading: Machine[BacklogState, BacklogEvent] = field(default_factory=BACKLOG.machine)
    table: TableWriter | None = None
    folding: Batch | None = None
    folded: FoldedBatch | None = None
    putting: FoldedBatch | None = None
    parked: Parked | None = None
    since: float = 0.0
    counted_bytes: int = 0
    load: Load = field(default_factory=Load)
    behind_strangers: bool = False
    may_exist: bool | None = None
    budget: ManifestBudget = field(default_factory=ManifestBudget)
    held_since: float = 0.0
    held_until: float = 0.0
    group_end: GroupEnd | None = None
    _watched: tuple[int, float] | None = None
    _waited: GroupEnd | None = None

    @property
    def batches(self) -> list[Batch]:
        """The groups that were taken out of the queue and are not answered, in order."""
        return [batch for batch in (self.putting, self.folded, self.folding) if batch is not None]

    @property
    def is_at_work(self) -> bool:
        """Whether a task opens the table or folds a group."""
        return self.preparation.state in AT_WORK

    @property
    def is_held(self) -> bool:
        """Whether the next version waits for the budget of manifest bytes."""
        return self.preparation.state is PreparationState.HELD

    @property
    def is_busy(self) -> bool:
        """Whether a task opens the table, folds a group or puts a version."""
        return self.is_at_work or self.publication.state is PublicationState.IN_FLIGHT

    @property
    def is_lost(self) -> bool:
        """Whether all that was prepared is to be folded again, once no task folds any more."""
        return self.publication.state is PublicationState.LOST

    @property
    def writer(self) -> TableWriter:
        """The table, which is open. Raises `IllegalTransitionError` if it isn't."""
        if self.table is None:
            raise IllegalTransitionError(
                f"{self.uri}: no table in the state {self.preparation.state.title!r}"
            )
        return self.table

    @property
    def may_prepare(self) -> bool:
        """Whether the table may be opened, or its next group be folded."""
        return bool(self.in_memory) and self.preparation.state in READY and not self.is_lost

    @property
    def is_idle(self) -> bool:
        """Whether no entry waits and no step is at work."""
        return not (self.in_memory or self.backlog or self.is_at_work or self.batches)

    @property
    def has_versions(self) -> bool:
        """Whether the table is open and has a version."""
        return self.table is not None and self.table.table.state is not None

    @property
    def first_offset(self) -> int | None:
        """The lowest offset that isn't answered. None if all are answered."""
        for batch in self.batches:
            return batch.group[0].offset
        if self.in_memory:
            return self.in_memory[0].offset
        return self.backlog.first if self.backlog else None

    @property
    def oldest_us(self) -> int | None:
        """The log time in microseconds of the entry that waits longest. None if no entry waits."""
        for batch in self.batches:
            return batch.group[0].entry.time_us
        if self.in_memory:
            return self.in_memory[0].entry.time_us
        return self.backlog_us if self.backlog else None

    @property
    def waiting(self) -> int:
        """The number of entries that are not answered."""
        return sum(len(batch.group) for batch in self.batches) + len(self.in_memory) + len(self.backlog)

    @property
    def unknown(self) -> UnknownKind | None:
        """The proposal at the head of the queue, if this release doesn't know its kind; otherwise None."""
        head = self.in_memory[0].entry if self.in_memory else None
        return head if isinstance(head, UnknownKind) else None

    def take(self, waiting: Waiting, now: float = 0.0) -> None:
        """Adds an entry. Only its offset is kept if entries before it wait as offsets."""
        if self.backlog:
            self.pass_over(waiting.offset, waiting.entry.time_us)
        else:
            self._append(waiting, now)

    def pass_over(self, offset: int, time_us: int) -> None:
        """Adds the offset of an entry, which is read from the log again when its turn comes."""
        if not self.backlog:
            self.backlog_us = time_us
        self.backlog.append(offset)
        self.load.offsets += 1

    def take_again(self, entries: Sequence[Waiting], now: float = 0.0, *, read: int | None = None) -> None:
        """Replaces the first offsets of the backlog by their entries.

        `read`: how many messages were read, None if each of them was an entry.
        """
        count = len(entries) if read is None else read
        self.backlog.drop(count)
        self.load.offsets -= count
        for waiting in entries:
            self._append(waiting, now)
        if entries:
            self.backlog_us = entries[-1].entry.time_us

    def cut(self, formats: Formats, limits: Limits) -> tuple[Waiting, ...]:
        """Removes the next group from the queue and returns it: the entries that may share a version."""
        first = takewhile(_is_entry, islice(self.in_memory, limits.max_entries + 1))
        entries = [waiting.entry for waiting in first if isinstance(waiting.entry, Entry)]
        state = None if self.table is None else self.table.ahead.state
        group = first_group(entries, formats, limits, state)
        following = entries[len(group)] if len(group) < len(entries) else None
        self.group_end = end_of(group, following, limits, self._waited)
        self._waited = None
        return tuple(self.take_head() for _ in range(len(group)))

    def holds(self, now: float, limits: Limits, manifests: ManifestLimits) -> bool:
        """Returns whether the next version has to wait, so that the table's manifests stay within the budget.

        It doesn't if the queues of the partition hold a full group already: they have to be emptied.
        """
        is_full = self.load.entries >= limits.max_entries or self.load.size >= limits.max_bytes
        since = self.held_since if self.is_held else now
        room_at = now if is_full else now + self.budget.wait_s(now, manifests)
        until = min(room_at, since + manifests.max_wait_s)
        if until > now:
            if not self.is_held:
                self.preparation.send(PreparationEvent.HOLD_BEGUN)
            self.held_since, self.held_until = since, until
            return True
        if self.is_held:
            self.preparation.send(PreparationEvent.HOLD_ENDED)
            self._waited = GroupEnd.BUDGET if room_at <= now else GroupEnd.DELAY
        return False

    def spend(self, size: int, now: float, manifests: ManifestLimits) -> None:
        """Takes the bytes of a manifest from the budget."""
        self.budget = self.budget.spent(size, now, manifests)

    def take_head(self) -> Waiting:
        """Removes the first entry from the queue and returns it."""
        waiting = self.in_memory.popleft()
        self._count([waiting], -1)
        if self._watched is not None and waiting.offset >= self._watched[0]:
            self._watched = None
        return waiting

    def give_back(self, batches: Iterable[Batch]) -> None:
        """Returns groups, given in order, to the head of the queue."""
        for batch in reversed([*batches]):
            self.in_memory.extendleft(reversed(batch.group))
            self._count(batch.group)

    def spill(self, keep: Limits | None = None) -> None:
        """Keeps only the offsets of the entries in memory, except for one group within the limits `keep`."""
        count = size = 0
        if keep is not None:
            for waiting in islice(self.in_memory, keep.max_entries):
                size += waiting.entry.size
                if count and size > keep.max_bytes:
                    break
                count += 1
        if len(self.in_memory) > count:
            rest = [self.in_memory.pop() for _ in range(len(self.in_memory) - count)][::-1]
            self._count(rest, -1)
            self.backlog_us = rest[0].entry.time_us
            self.backlog.put_before(waiting.offset for waiting in rest)
            self.load.offsets += len(rest)
            if self._watched is not None and self._watched[0] >= rest[0].offset:
                self._watched = None

    def delay(self, now: float) -> float:
        """Returns for how many seconds, at least, an entry has been waiting in memory for its group."""
        return 0.0 if self._watched is None else now - self._watched[1]

    def begin_opening(self, now: float) -> None:
        """A task opens the table."""
        self.preparation.send(PreparationEvent.OPENING_BEGUN)
        self.since = now

    def opened(self, table: TableWriter) -> None:
        """The table is open."""
        self.preparation.send(PreparationEvent.OPENED)
        self.table = table

    def opening_failed(self) -> None:
        """The table could not be opened."""
        self.preparation.send(PreparationEvent.OPENING_FAILED)

    def let_go(self) -> None:
        """Closes the table, which nothing is prepared for."""
        if self.is_held:
            self.preparation.send(PreparationEvent.HOLD_ENDED)
        self.preparation.send(PreparationEvent.LET_GO)
        self.table = None

    def begin_fold(self, group: tuple[Waiting, ...], now: float) -> Batch:
        """A task folds this group, and publishes its version too if nothing else can be folded meanwhile."""
        alone = not self.in_memory and self.publication.state is PublicationState.NONE
        self.preparation.send(
            PreparationEvent.FOLD_TO_PUBLISH_BEGUN if alone else PreparationEvent.FOLD_BEGUN
        )
        self.folding, self.since = Batch(group), now
        return self.folding

    def fold_ended(self, prepared: Prepared) -> None:
        """The first entries of the group are folded, or all of them; the others go back into the queue."""
        self.preparation.send(PreparationEvent.FOLD_ENDED)
        batch, count = self._taken(self.folding), len(prepared.group)
        self.folding, self.folded = None, FoldedBatch(batch.group[:count], prepared)
        self.give_back([Batch(batch.group[count:])])

    def fold_failed(self) -> Batch:
        """Returns the group, which is to be given back or answered."""
        self.preparation.send(PreparationEvent.FOLD_FAILED)
        batch, self.folding = self._taken(self.folding), None
        return batch

    def begin_put(self, now: float) -> FoldedBatch | None:
        """Returns the version that a task is to put now: the next, or the same again, or None."""
        if self.publication.state is PublicationState.NONE and self.folded is not None:
            self.preparation.send(PreparationEvent.HANDED_OVER)
            self.putting, self.folded = self.folded, None
        elif self.publication.state is not PublicationState.UNKNOWN:
            return None
        self.publication.send(PublicationEvent.PUT_BEGUN)
        if not self.is_at_work:
            self.since = now
        return self.putting

    def put_confirmed(self) -> FoldedBatch:
        """The version is published. Returns it, with the group to be answered."""
        self.publication.send(PublicationEvent.PUT_CONFIRMED)
        batch, self.putting = self._taken(self.putting), None
        return batch

    def put_unknown(self) -> None:
        """The store could not be reached: the same version is to be put again."""
        self.publication.send(PublicationEvent.PUT_UNKNOWN)

    def put_lost(self) -> None:
        """The version was not published. `fall_back` follows as soon as no task folds any more."""
        self.publication.send(PublicationEvent.PUT_LOST)

    def take_lost(self) -> Batch:
        """Returns the group whose version was not published, to be answered instead of folded again."""
        batch, self.putting = self._taken(self.putting), None
        return batch

    def fall_back(self) -> None:
        """Gives back all that was prepared on a version that was not published."""
        if self.folding is not None:
            self.preparation.send(PreparationEvent.FOLD_DISCARDED)
        elif self.folded is not None:
            self.preparation.send(PreparationEvent.FALLEN_BACK)
        self.publication.send(PublicationEvent.FALLEN_BACK)
        self.give_back(self.batches)
        self.putting = self.folded = self.folding = None

    def begin_reading(self, most: int) -> Sequence[int]:
        """Returns the offsets, at most so many, that a task reads again."""
        self.rereading.send(BacklogEvent.READ_BEGUN)
        return self.backlog.leading(most)

    def reading_ended(self) -> None:
        """The messages were read, or could not be."""
        self.rereading.send(BacklogEvent.READ_ENDED)

    def park(self, error: LakefoldError, step: str, now: float, longest: float) -> float:
        """Parks the queue, for longer each time. Returns for how many seconds."""
        self.parking.send(ParkingEvent.STEP_FAILED)
        if self.parked is None or self.parked.step != step:
            since = now if self.parked is None else self.parked.since
            self.parked = Parked(error, step, since, now, Backoff(longest=longest))
        pause = self.parked.backoff.pause()
        self.parked.error, self.parked.until = error, now + pause
        return pause

    def succeeded(self, step: str) -> bool:
        """Notes that a step has succeeded. Returns whether the queue was parked because of it."""
        if self.parked is None or self.parked.step != step:
            return False
        self.parking.send(ParkingEvent.STEP_SUCCEEDED)
        self.parked = None
        return True

    def may_go(self, now: float) -> bool:
        """Returns whether a step may be started: the queue isn't parked, or it is time to try again."""
        return self.parked is None or now >= self.parked.until

    def _taken(self, batch: B | None) -> B:
        """Returns the group of a state. Raises `IllegalTransitionError` if there is none."""
        if batch is None:
            raise IllegalTransitionError(
                f"{self.uri}: no group in the states {self.preparation.state.title!r} and "
                f"{self.publication.state.title!r}"
            )
        return batch

    def _append(self, waiting: Waiting, now: float) -> None:
        self.in_memory.append(waiting)
        self._count([waiting])
        if self._watched is None:
            self._watched = (waiting.offset, now)

    def _count(self, entries: Sequence[Waiting], sign: int = 1) -> None:
        """Counts entries that were added (`sign` 1) or removed (-1)."""
        size = sign * sum(waiting.entry.size for waiting in entries)
        self.queued_bytes += size
        self.load.entries += sign * len(entries)
        self.load.size += size
        self.load.memory += sign * sum(waiting.memory for waiting in entries)


def _is_entry(waiting: Waiting) -> bool:
    return isinstance(waiting.entry, Entry)

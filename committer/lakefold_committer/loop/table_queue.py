"""The queue of a branch of a table: the entries that wait for it, and how far its next versions are.

Entries wait in memory, or, if the queue is parked or slow, as offsets only: then they are read again from the
log when their turn comes. Whatever happens they stay in their order. How far the versions are is the state of
four machines (`states/charts.py`); a method here sends an event and moves what belongs to the state.
Nothing here does IO or reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, TypeVar

from lakefold_committer.fold.grouping import GroupEnd, Limits, end_of, first_group
from lakefold_committer.fold.manifest_budget import ManifestBudget, ManifestLimits
from lakefold_committer.loop.backoff import Backoff
from lakefold_committer.loop.waiting_entries import Backlog, EntriesInMemory, Load, Waiting
from lakefold_committer.states.charts import (
    PARKING,
    PREPARATION,
    PUBLICATION,
    BacklogEvent,
    ParkingEvent,
    ParkingState,
    PreparationEvent,
    PreparationState,
    PublicationEvent,
    PublicationState,
)
from lakefold_committer.states.machine import IllegalTransitionError
from lakefold_log.codec.envelope import UnknownKind
from lakefold_table.entry import Entry
from lakefold_table.marks.marks import NO_APPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakefold_committer.tables.table_writer import Prepared, TableWriter
    from lakefold_table.errors import LakefoldError
    from lakefold_table.formats import Formats
    from lakefold_table.uri import Location

B = TypeVar("B", bound="Batch")
AT_WORK: Final = (PreparationState.OPENING, PreparationState.FOLDING, PreparationState.FOLDING_TO_PUBLISH)
"""A task opens the table or folds."""
NOT_OPEN: Final = (PreparationState.CLOSED, PreparationState.OPENING)
READY: Final = (PreparationState.CLOSED, PreparationState.OPEN, PreparationState.HELD)
"""The table may be opened, or its next group be folded."""
LONGEST_PARKING_SECONDS = 60.0
"""The longest pause between attempts at a table whose store answers."""


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


class Parking:
    """Whether a queue is worked on: the machine of `PARKING`, and what belongs to its state `PARKED`."""

    __slots__ = ("_machine", "_parked")

    def __init__(self) -> None:
        self._machine = PARKING.machine()
        self._parked: Parked | None = None

    @property
    def state(self) -> ParkingState:
        """The state of the machine."""
        return self._machine.state

    @property
    def parked(self) -> Parked | None:
        """Why the queue is parked. None if it is active."""
        return self._parked if self.state is ParkingState.PARKED else None

    def failed(self, error: LakefoldError, step: str, now: float, longest: float) -> float:
        """Parks the queue, for longer each time. Returns for how many seconds."""
        before = self.parked
        self._machine.send(ParkingEvent.STEP_FAILED)
        if before is None or before.step != step:
            since = now if before is None else before.since
            before = self._parked = Parked(error, step, since, now, Backoff(longest=longest))
        pause = before.backoff.pause()
        before.error, before.until = error, now + pause
        return pause

    def succeeded(self, step: str) -> bool:
        """Notes that a step has succeeded. Returns whether the queue was parked because of it."""
        if self.parked is None or self.parked.step != step:
            return False
        self._machine.send(ParkingEvent.STEP_SUCCEEDED)
        return True

    def allows(self, now: float) -> bool:
        """Returns whether a step may be started: the queue isn't parked, or it is time to try again."""
        return self.parked is None or now >= self.parked.until


@dataclass(slots=True)
class ManifestHold:
    """How long a version waits for the budget of manifest bytes.

    `since`, `until`: the times of the last hold. `ended_by`: why the group ends that is cut next, if it was
    held until now.
    """

    budget: ManifestBudget = field(default_factory=ManifestBudget)
    since: float = 0.0
    until: float = 0.0
    ended_by: GroupEnd | None = None

    def waits(self, now: float, limits: ManifestLimits, *, is_held: bool, is_full: bool) -> bool:
        """Returns whether the next version has to wait. `is_held`: it does; `is_full`: it must not."""
        since = self.since if is_held else now
        room_at = now if is_full else now + self.budget.wait_s(now, limits)
        until = min(room_at, since + limits.max_wait_s)
        if until > now:
            self.since, self.until = since, until
            return True
        if is_held:
            self.ended_by = GroupEnd.BUDGET if room_at <= now else GroupEnd.DELAY
        return False


class TableQueue:
    """`uri` and `branch` name it as its first entry did; `location` is the path of its versions.

    `folding`, `folded` and `putting` are the groups of these steps. `since`: when the task was started that
    runs now. `counted_bytes`: what its table took in memory when it was idle last; `counted_apps`: the apps
    that it knew then. `load` counts what all queues hold. `behind_unopened`: entries for it may still wait
    among the names under which no table is open.
    """

    def __init__(
        self,
        location: Location,
        uri: str,
        branch: str,
        load: Load | None = None,
        *,
        behind_unopened: bool = False,
    ) -> None:
        self.location: Final = location
        self.uri: Final = uri
        self.branch: Final = branch
        self.load: Final = load or Load()
        self.in_memory: Final = EntriesInMemory(self.load)
        self.backlog: Final = Backlog(self.load)
        self.preparation: Final = PREPARATION.machine()
        self.publication: Final = PUBLICATION.machine()
        self.parking: Final = Parking()
        self.hold: Final = ManifestHold()
        self.folding: Batch | None = None
        self.folded: FoldedBatch | None = None
        self.putting: FoldedBatch | None = None
        self.since = 0.0
        self.counted_bytes = 0
        self.counted_apps = NO_APPS
        self._writer: TableWriter | None = None
        self._behind_unopened = behind_unopened
        self._may_exist: bool | None = None

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
    def is_open(self) -> bool:
        """Whether the table is open."""
        return self.preparation.state not in NOT_OPEN

    @property
    def parked(self) -> Parked | None:
        """Why the queue is parked. None if it is active."""
        return self.parking.parked

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
        if self._writer is None or not self.is_open:
            raise IllegalTransitionError(
                f"{self.uri}: no table in the state {self.preparation.state.title!r}"
            )
        return self._writer

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
        return self.is_open and self.writer.table.state is not None

    @property
    def first_offset(self) -> int | None:
        """The lowest offset that isn't answered. None if all are answered."""
        for batch in self.batches:
            return batch.group[0].offset
        if self.in_memory:
            return self.in_memory.first.offset
        return self.backlog.first if self.backlog else None

    @property
    def oldest_us(self) -> int | None:
        """The log time in microseconds of the entry that waits longest. None if no entry waits."""
        for batch in self.batches:
            return batch.group[0].entry.time_us
        if self.in_memory:
            return self.in_memory.first.entry.time_us
        return self.backlog.time_us if self.backlog else None

    @property
    def waiting(self) -> int:
        """The number of entries that are not answered."""
        return sum(len(batch.group) for batch in self.batches) + len(self.in_memory) + len(self.backlog)

    @property
    def unknown(self) -> UnknownKind | None:
        """The proposal at the head of the queue, if this release doesn't know its kind; otherwise None."""
        head = self.in_memory.first.entry if self.in_memory else None
        return head if isinstance(head, UnknownKind) else None

    def take(self, waiting: Waiting, now: float = 0.0) -> None:
        """Adds an entry. Only its offset is kept if entries before it wait as offsets."""
        if self.backlog:
            self.pass_over(waiting.offset, waiting.entry.time_us)
        else:
            self.in_memory.append(waiting, now)

    def pass_over(self, offset: int, time_us: int) -> None:
        """Adds the offset of an entry, which is read from the log again when its turn comes."""
        self.backlog.add(offset, time_us)

    def take_again(self, entries: Sequence[Waiting], now: float = 0.0, *, read: int | None = None) -> None:
        """Replaces the first offsets of the backlog by their entries.

        `read`: how many messages were read, None if each of them was an entry.
        """
        last_us = entries[-1].entry.time_us if entries else None
        self.backlog.were_read(len(entries) if read is None else read, last_us)
        for waiting in entries:
            self.in_memory.append(waiting, now)

    def cut(self, formats: Formats, limits: Limits) -> tuple[tuple[Waiting, ...], GroupEnd]:
        """Removes the next group from the queue and returns it, and why it ends.

        It has the entries that may share a version.
        """
        first = takewhile(_is_entry, islice(self.in_memory, limits.max_entries + 1))
        entries = [waiting.entry for waiting in first if isinstance(waiting.entry, Entry)]
        state = self.writer.ahead.state if self.is_open else None
        group = first_group(entries, formats, limits, state)
        following = entries[len(group)] if len(group) < len(entries) else None
        end = end_of(group, following, limits, self.hold.ended_by)
        self.hold.ended_by = None
        return tuple(self.take_head() for _ in range(len(group))), end

    def holds(self, now: float, limits: Limits, manifests: ManifestLimits) -> bool:
        """Returns whether the next version has to wait, so that the table's manifests stay within the budget.

        It doesn't if the queues of the partition hold a full group already: they have to be emptied.
        """
        is_full = self.load.entries >= limits.max_entries or self.load.size >= limits.max_bytes
        is_held = self.is_held
        waits = self.hold.waits(now, manifests, is_held=is_held, is_full=is_full)
        if waits is not is_held:
            self.preparation.send(PreparationEvent.HOLD_BEGUN if waits else PreparationEvent.HOLD_ENDED)
        return waits

    def spend(self, size: int, now: float, manifests: ManifestLimits) -> None:
        """Takes the bytes of a manifest from the budget."""
        self.hold.budget = self.hold.budget.spent(size, now, manifests)

    def take_head(self) -> Waiting:
        """Removes the first entry from the queue and returns it."""
        return self.in_memory.take_first()

    def give_back(self, batches: Iterable[Batch]) -> None:
        """Returns groups, given in order, to the head of the queue."""
        for batch in reversed([*batches]):
            self.in_memory.put_before(batch.group)

    def spill(self, keep: Limits | None = None) -> None:
        """Keeps only the offsets of the entries in memory, except for one group within the limits `keep`."""
        rest = self.in_memory.take_rest(keep)
        if rest:
            self.backlog.add_before(rest)

    def waits_behind(self, unopened: bool) -> bool:  # noqa: FBT001 - the answer to "do some wait?"
        """Returns whether entries for it wait as unopened. Once they don't, they never do again."""
        self._behind_unopened = self._behind_unopened and unopened
        return self._behind_unopened

    def may_exist(self, check: Callable[[str, str], bool]) -> bool:
        """Returns whether anything may be stored at its root. `check` is asked once."""
        if self._may_exist is None:
            self._may_exist = check(self.uri, self.branch)
        return self._may_exist

    def count(self) -> None:
        """Counts how many bytes of memory the table takes, which is open and idle, and its apps."""
        self.counted_bytes = self.writer.memory_bytes
        self.counted_apps = self.writer.table.marks.app_counts

    def begin_opening(self, now: float) -> None:
        """Notes that a task opens the table."""
        self.preparation.send(PreparationEvent.OPENING_BEGUN)
        self.since = now

    def opened(self, table: TableWriter) -> None:
        """Notes that the table is open."""
        self.preparation.send(PreparationEvent.OPENED)
        self._writer = table

    def opening_failed(self) -> None:
        """Notes that the table could not be opened."""
        self.preparation.send(PreparationEvent.OPENING_FAILED)

    def let_go(self) -> None:
        """Closes the table. No version of it may be in preparation."""
        if self.is_held:
            self.preparation.send(PreparationEvent.HOLD_ENDED)
        self.preparation.send(PreparationEvent.LET_GO)
        self._writer = None

    def begin_fold(self, group: tuple[Waiting, ...], now: float) -> Batch:
        """Notes that a task folds this group.

        The task publishes the version as well if nothing else can be folded meanwhile.
        """
        alone = not self.in_memory and self.publication.state is PublicationState.NONE
        self.preparation.send(
            PreparationEvent.FOLD_TO_PUBLISH_BEGUN if alone else PreparationEvent.FOLD_BEGUN
        )
        self.folding, self.since = Batch(group), now
        return self.folding

    def fold_ended(self, prepared: Prepared) -> None:
        """Notes that the first entries of the group, or all of them, are folded.

        The others are queued again.
        """
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
        if (
            self.publication.state is PublicationState.NONE
            and self.preparation.state is PreparationState.FOLDED
        ):
            self.preparation.send(PreparationEvent.HANDED_OVER)
            self.putting, self.folded = self.folded, None
        elif self.publication.state is not PublicationState.UNKNOWN:
            return None
        self.publication.send(PublicationEvent.PUT_BEGUN)
        if not self.is_at_work:
            self.since = now
        return self.putting

    def put_confirmed(self) -> FoldedBatch:
        """Notes that the version is published. Returns it, with the group to be answered."""
        self.publication.send(PublicationEvent.PUT_CONFIRMED)
        batch, self.putting = self._taken(self.putting), None
        return batch

    def put_unknown(self) -> None:
        """Notes that the store could not be reached: the same version is to be put again."""
        self.publication.send(PublicationEvent.PUT_UNKNOWN)

    def put_lost(self) -> None:
        """Notes that the version was not published. `fall_back` follows as soon as no task folds any more."""
        self.publication.send(PublicationEvent.PUT_LOST)

    def take_lost(self) -> Batch:
        """Returns the group whose version was not published, to be answered instead of folded again."""
        batch, self.putting = self._taken(self.putting), None
        return batch

    def fall_back(self) -> None:
        """Gives back all that was prepared on a version that was not published."""
        if self.is_at_work:
            self.preparation.send(PreparationEvent.FOLD_DISCARDED)
        elif self.preparation.state is PreparationState.FOLDED:
            self.preparation.send(PreparationEvent.FALLEN_BACK)
        self.publication.send(PublicationEvent.FALLEN_BACK)
        self.give_back(self.batches)
        self.putting = self.folded = self.folding = None

    def begin_reading(self, most: int) -> Sequence[int]:
        """Returns the offsets, at most `most`, that a task reads again."""
        self.backlog.reading.send(BacklogEvent.READ_BEGUN)
        return self.backlog.leading(most)

    def reading_ended(self) -> None:
        """Notes that the messages were read, or could not be read."""
        self.backlog.reading.send(BacklogEvent.READ_ENDED)

    def _taken(self, batch: B | None) -> B:
        """Returns the group of a state. Raises `IllegalTransitionError` if there is none."""
        if batch is None:
            raise IllegalTransitionError(
                f"{self.uri}: no group in the states {self.preparation.state.title!r} and "
                f"{self.publication.state.title!r}"
            )
        return batch


def _is_entry(waiting: Waiting) -> bool:
    return isinstance(waiting.entry, Entry)

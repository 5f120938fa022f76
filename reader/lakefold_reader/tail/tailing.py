"""A tail: the changes of one table in order, one by one or in steps, waited for where they are still to come.

It holds what was read and not handed out yet, and takes a version only once it is sure to be one of the same
table.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Final

from lakefold_reader.scan.columns import schema_of
from lakefold_reader.tail.change import Change
from lakefold_reader.tail.limits import NOTHING, Limits, weight_of, weight_of_fragments
from lakefold_reader.tail.wakeup import OutcomesTopic, Waker
from lakefold_reader.versions.branches import fork_of
from lakefold_reader.versions.cursor import Cursor
from lakefold_reader.versions.prefetch import Following
from lakefold_reader.versions.source import newest_of, read_state, read_step, time_of
from lakefold_reader.versions.start import (
    MadeAnewError,
    anew_for,
    check_free,
    check_same,
    expired_for,
    made_anew,
    other_table,
    removed,
    replaced,
)
from lakefold_reader.versions.stray_files import expired_behind, is_stray, keeps_names_behind, missing
from lakefold_table.errors import (
    DamagedError,
    InvalidError,
    LakefoldError,
    NotATableError,
    VersionExpiredError,
)
from lakefold_table.marks.marks import decode_marks
from lakefold_table.marks.record import decode_record
from lakefold_table.storage.base import NamesObstacles

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from lakefold_protos.lance.table_pb2 import Manifest
    from lakefold_reader.consumers.consumers import Consumer, Consumers
    from lakefold_reader.scan.columns import TableSchema
    from lakefold_reader.tail.limits import Weight
    from lakefold_reader.versions.source import Source, Step


AT_ONCE = 0.25
AT_ONCE_HERE = 0.005
"""Two versions that are asked for within so many seconds are of one table: on this machine, and on others
nobody removes a table and makes as many versions of another in that time."""

MISSED_SECONDS: Final = 0.2
"""So long after a version was missing it is taken for the newest one, without a look behind it."""


@dataclass(frozen=True)
class Pace:
    """How a tail waits for the next version. Times in seconds.

    It looks again after `first` and then ever more seldom, up to `longest`; each wait is cut by a random
    part of up to a half, so that many readers don't ask at once. A reader that was away for longer than
    `away`, or has found nothing for that long, makes sure by a listing that the version it waits for wasn't
    cleaned up. Where the outcomes topic wakes it, it looks by itself only every `woken` seconds.

    On a store where a question costs next to nothing (a local disk) it also looks every `beside` seconds
    whether the version that it stands at is still there, and whether something that is no version has the
    name of the next. A table whose versions are all gone is waited for `gone` seconds, since its file system
    may be mounted again; then it counts as removed.
    """

    first: float = 0.001
    longest: float = 0.05
    away: float = 60.0
    woken: float = 5.0
    beside: float = 1.0
    gone: float = 10.0
    wait: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    def pause(self, misses: int, most: float = math.inf) -> None:
        """Wait after this many misses in a row, no longer than `most`."""
        self.wait(min(self.pause_of(misses), most))

    def pause_of(self, misses: int, *, woken: bool = False) -> float:
        """How long to wait after this many misses in a row. `woken`: something wakes the tail meanwhile."""
        limit = self.woken if woken else min(self.longest, self.first * 2 ** min(misses - 1, 30))
        return limit * (1 - self.chance() / 2)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A change that was read and not handed out yet. `whole`: it is all that its version holds."""

    change: Change
    step: Step
    whole: bool

    def weight(self, source: Source) -> Weight:
        """What it counts for in the limits of a step."""
        if self.whole:
            return weight_of_fragments(read_state(source, self.step.version).fragments)
        record = decode_record(self.step.properties, source.uri) if self.step.own else None
        deleted = 0 if record is None else sum(one.rows_deleted for one in record.committed.values())
        return weight_of(self.step.transaction, deleted)


class Tail(Iterator[Change]):
    """The changes of one table, one by one or in steps; `cursor` is where it stands. Made by `tail`.

    For one thread; a context manager that ends its own threads. What it has read beforehand is handed out
    later, so nothing is lost or told twice where steps and single changes are taken in turn.
    """

    def __init__(
        self, source: Source, seen: int, *, newest: int, follow: bool, pace: Pace, stop: Callable[[], bool]
    ) -> None:
        self._source = source
        self._follow = follow
        self._pace = pace
        self._stop = stop
        self._given = self._cursor = Cursor("", "", seen)
        self._fork: str | None = None
        self._asked_at = -math.inf
        self._newest = newest
        self._table_id = ""
        self._schema: TableSchema | None = None
        self._whole = False
        self._looked = self._looked_beside = pace.clock()
        self._lost_at: float | None = None
        self._missed = self._looked if seen == newest else -math.inf
        self._end = 0
        self._fault: tuple[int, LakefoldError] | None = None
        self._following = Following(source)
        self._waiting: deque[_Waiting] = deque()
        self._bound: int | None = None
        self._consumer: tuple[Consumers, Consumer] | None = None
        self._outcomes: OutcomesTopic | None = None
        self._waker: Waker | None = None

    @property
    def cursor(self) -> Cursor:
        """After which version it stands: the one handed out last. A new tail goes on from here."""
        return self._given

    def begin(self, at: Cursor | None, *, whole: bool) -> None:
        """Take the start: the cursor to hold the table against, and whether all content comes first.

        Raises `VersionExpiredError` where neither the version seen last nor the next one is there,
        `MadeAnewError` where what is there isn't what the cursor was given for.
        """
        self._whole = whole
        if at is not None:
            self._cursor, self._table_id = at, at.table_id
        seen = self._cursor.version
        step = read_step(self._source, seen, whole=True) if seen and not whole else None
        if at is not None:
            self._fork = fork_of(self._source, at.branch)
            self._check_fork(at, self._fork)
            if step is not None:
                check_same(self._source, at, step)
        if step is not None:
            self._take(step)
        elif not whole and not self._source.versions.exists(seen + 1):
            raise missing(self._source, seen + 1)
        self._given = self._cursor

    def commit_by(self, consumers: Consumers, consumer: Consumer) -> None:
        """Read for this consumer: `commit` moves it."""
        self._consumer = consumers, consumer

    def commit(self) -> None:
        """Note durably, under the consumer's name, that all changes handed out so far are done with.

        Five small requests to the store, none where nothing is new. Raises `InvalidError` where the tail
        reads for no consumer, `StopError` where another reader runs under the same name.
        """
        if self._consumer is None:
            hint = "lakefold.tail(…, consumer=NAME); or keep `cursor` yourself"
            raise InvalidError("this tail reads for no consumer", where=self._source.uri, hint=hint)
        consumers, consumer = self._consumer
        self._consumer = consumers, consumers.commit(consumer, self._given)

    def wake_by(self, outcomes: OutcomesTopic) -> None:
        """Listen to the outcomes of the table from the first time that there is something to wait for.

        The partition is that of the marks that the tail saw first. A table that is bound to another one
        later still has its versions found, only not at once.
        """
        self._outcomes = outcomes

    def __next__(self) -> Change:
        if not self._waiting and not self._bring(None if self._follow else 0.0):
            self.close()
            raise StopIteration
        return self._handed_out(1)[0]

    def step(
        self,
        max_versions: int | None = None,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        timeout: float | None = 0.0,
    ) -> list[Change]:
        """The next changes that stay within these limits together; the first one in any case.

        So a reader always gets on, however large a version is. `max_rows` counts the rows that versions
        insert, and those they deleted where a committer noted that; `max_bytes` the data files they bring.
        Both are known from the versions alone: no data is read. Without limits it gives what is there,
        10,000 versions at most. Where there is nothing new it waits `timeout` seconds for it (None: until
        `stop` says so), and gives an empty list where nothing came.

        Raises as `tail` does; where changes stand in front of the error, these are given first, and the next
        call raises it.
        """
        return self._handed_out(self._gather(Limits(max_versions, max_rows, max_bytes), timeout))

    def end(
        self, max_versions: int | None = None, max_rows: int | None = None, max_bytes: int | None = None
    ) -> Cursor:
        """Where a `step` with these limits would end, if it were taken now; the tail stays where it is.

        What was looked at is kept for the step that follows, so that nothing is read twice.
        """
        count = self._gather(Limits(max_versions, max_rows, max_bytes), 0.0)
        return self._waiting[count - 1].change.cursor if count else self._given

    def steps(
        self, max_versions: int | None = None, max_rows: int | None = None, max_bytes: int | None = None
    ) -> Iterator[list[Change]]:
        """Steps one after another, none of them empty, until the tail ends (see `step`)."""
        timeout = None if self._follow else 0.0
        while changes := self.step(max_versions, max_rows, max_bytes, timeout):
            yield changes

    def close(self) -> None:
        """End what reads beforehand and what wakes it. The tail can still be asked, and goes on then."""
        self._following.close()
        if self._waker is not None:
            self._waker.close()
            self._waker = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _gather(self, limits: Limits, timeout: float | None) -> int:
        """How many of the changes that wait make up the next step, once enough of them do."""
        count, weight = 0, NOTHING
        self._end = 0
        while not count or limits.admit(count + 1, weight):
            if count == len(self._waiting) and not self._look(timeout if not count else 0.0):
                break
            if limits.weighs:
                try:
                    weight += self._waiting[count].weight(self._source)
                except LakefoldError:
                    if not count:
                        raise
                    break
            if count and not limits.admit(count + 1, weight):
                break
            count += 1
        return count

    def _look(self, timeout: float | None) -> bool:
        """Whether one more change waits now. An error behind others comes when its turn has come."""
        if not self._waiting:
            return self._bring(timeout)
        if self._cursor.version == self._end:
            # The look behind this version found nothing, in this same call.
            return False
        with suppress(LakefoldError):
            return self._bring(0.0)
        return False

    def _handed_out(self, count: int) -> list[Change]:
        changes = [self._waiting.popleft().change for _ in range(count)]
        if changes:
            self._given = changes[-1].cursor
        return changes

    def _bring(self, timeout: float | None) -> bool:
        """Have the next change wait to be handed out; False where it doesn't come in so many seconds."""
        deadline = math.inf if timeout is None else self._pace.clock() + _seconds(timeout)
        misses = 0
        while not self._stop():
            version, whole = self._cursor.version + 1, self._schema is None
            self._raise_fault(version)
            step = self._following.take(version, newest=self._newest, whole=whole)
            if step is not None:
                self._check_in_line(step)
                self._waiting.append(self._change(step))
                return True
            self._miss()
            misses += 1
            self._prove_waiting(waits=timeout is None or timeout > 0)
            left = deadline - self._pace.clock()
            if left <= 0:
                break
            self._pause(misses, left)
        return False

    def _check_in_line(self, step: Step) -> None:
        """Raises `VersionExpiredError` if this is the file of no version.

        Nothing is looked at if the version was missing a moment ago: then it is the newest one.
        """
        is_other = self._table_id and step.table_id and self._table_id != step.table_id
        if is_other or self._pace.clock() - self._missed <= MISSED_SECONDS:
            return
        try:
            after = self._following.ahead(step.version + 1, newest=self._newest)
        except LakefoldError as error:
            self._keep_fault(step, error)
            return
        if after is None:
            self._end = step.version
        elif is_stray(self._source, step, after):
            raise self._gone(expired_behind(self._source, step.version))

    def _miss(self) -> None:
        """Note that the next version isn't there, unless it may have been removed since the last look."""
        now = self._pace.clock()
        if now - max(self._looked, self._missed) <= MISSED_SECONDS:
            self._missed = now

    def _keep_fault(self, step: Step, error: LakefoldError) -> None:
        """Keep what was raised by the version behind this one until that one's turn comes.

        Raises it at once if only the version behind can tell whether this is one.
        """
        seen = self._cursor
        try:
            is_sure = bool(seen.version) and keeps_names_behind(self._source, seen.version, seen.branch or "")
        except LakefoldError:
            raise error from None
        if not is_sure:
            raise error
        self._fault = step.version + 1, error

    def _raise_fault(self, version: int) -> None:
        """Raises what a look before its turn was answered with; the next call asks again."""
        fault, self._fault = self._fault, None
        if fault is not None and fault[0] == version:
            raise fault[1]

    def _pause(self, misses: int, most: float) -> None:
        if self._outcomes is None:
            self._pace.pause(misses, most)
            return
        if self._waker is None:
            uri, branch, partition = self._source.uri, self._cursor.branch, self._bound
            self._waker = Waker(partial(self._outcomes.news, uri, branch, partition))
        seconds = self._pace.pause_of(misses, woken=self._waker.listening)
        self._waker.wait(self._cursor.version, min(seconds, most))

    def _change(self, step: Step) -> _Waiting:
        # What can't be told must not count as seen: nobody would be told of it a second time.
        timestamp = time_of(step.time_us)
        schema = self._take(step)
        whole, self._whole = self._whole, False
        change = Change(
            version=step.version,
            timestamp=timestamp,
            operation=step.operation,
            cursor=self._cursor,
            _source=self._source,
            _step=step,
            _schema=schema,
            _whole=whole,
        )
        return _Waiting(change, step, whole)

    def _take(self, step: Step) -> TableSchema:
        """Stand at this version, once it is sure to be one of the same table."""
        self._check_follows(step)
        schema = self._schema if step.head is None else schema_of(step.head)
        self._table_id = step.table_id or self._table_id
        branch = self._cursor.branch if step.branch is None else step.branch
        if self._fork is None:
            self._fork = fork_of(self._source, branch or "")
        self._cursor = Cursor(step.table_id, branch, step.version, step.mark, self._fork)
        self._asked_at = step.asked_at
        self._newest = max(self._newest, step.version)
        self._looked = self._pace.clock()
        self._lost_at = None
        if step.head is not None:
            if self._schema is None:
                self._bound = _bound(step.head)
            self._schema = self._schema if self._schema == schema else schema
        if self._schema is None:
            raise AssertionError("the first version that a tail takes is read whole")
        return self._schema

    def _check_follows(self, step: Step) -> None:
        """Makes sure that a version follows the one seen last, and isn't one of another table in its place.

        One that names the table's id does, but on a branch, which has that of the main line. For any other
        the version seen last is looked at once more: it must still be there as it was. That isn't needed
        where both were read at nearly the same time. Raises `MadeAnewError`.
        """
        seen = self._cursor
        if self._table_id and step.table_id and self._table_id != step.table_id:
            raise self._gone(other_table(self._source, seen, step.table_id, step.branch))
        told = bool(step.table_id) and step.table_id == seen.table_id and not seen.branch
        if told or not seen.mark or step.version <= seen.version:
            return
        if step.asked_at - self._asked_at <= (AT_ONCE_HERE if self._source.storage.cheap_size else AT_ONCE):
            return
        try:
            there = read_step(self._source, seen.version)
            if there is not None:
                check_same(self._source, seen, there)
            elif seen.table_id and not step.table_id:
                # It was cleaned up, and the table's id with it.
                raise made_anew(self._source, seen)
            else:
                self._check_fork(seen, fork_of(self._source, seen.branch))
        except MadeAnewError as error:
            raise self._gone(error) from None

    def _check_fork(self, at: Cursor, now: str) -> None:
        """Raises `MadeAnewError` where the branch's file has another identifier, `now`, than the cursor."""
        if at.fork and now and at.fork != now:
            raise made_anew(self._source, at)

    def _prove_waiting(self, *, waits: bool) -> None:
        """Makes sure that the version waited for is still to come, and wasn't cleaned up.

        That is known without asking, unless newer versions were seen or the reader has been away for long.
        `waits`: the caller has time.
        """
        seen = self._cursor.version
        self._newest = max(self._newest, self._following.seen)
        if self._newest <= seen and not self._is_in_doubt(seen):
            return
        try:
            newest = newest_of(self._source)
        except NotATableError as error:
            self._bear_loss(error, can_wait=waits or self._newest <= seen)
            return
        self._looked, self._lost_at = self._pace.clock(), None
        if newest < seen:
            raise self._gone(replaced(self._source, seen, newest))
        if newest > seen and not self._source.versions.exists(seen + 1):
            raise self._gone(missing(self._source, seen + 1))

    def _is_in_doubt(self, seen: int) -> bool:
        """Whether the newest version must be asked for, although none newer than `seen` was met.

        Raises `DamagedError` if something that is no version has the next one's name.
        """
        now, storage = self._pace.clock(), self._source.storage
        if self._lost_at is None and now - self._looked > self._pace.away:
            return True
        if (
            self._lost_at is None and not storage.cheap_size
        ) or now - self._looked_beside <= self._pace.beside:
            return False
        self._looked_beside = now
        if isinstance(storage, NamesObstacles):
            check_free(storage, self._source.versions.path(seen + 1))
        return self._lost_at is not None or not self._source.versions.exists(seen)

    def _bear_loss(self, error: NotATableError, *, can_wait: bool) -> None:
        """Raises `NotATableError` once the versions have been gone for as long as they are waited for."""
        now = self._looked_beside = self._pace.clock()
        self._lost_at = now if self._lost_at is None else self._lost_at
        if not can_wait or now - self._lost_at >= self._pace.gone:
            raise removed(self._source, self._cursor) from error

    def _gone(self, error: LakefoldError) -> LakefoldError:
        """What a consumer is told differs: it goes on where it is set to."""
        if isinstance(error, VersionExpiredError) and self._consumer is not None:
            return expired_for(error, self._consumer[1].name)
        if isinstance(error, MadeAnewError) and self._consumer is not None:
            return anew_for(error, self._consumer[1].name)
        return error


def _seconds(timeout: object) -> float:
    """Returns how long a step may wait. Raises `InvalidError` for what is no number of seconds."""
    if isinstance(timeout, bool) or not isinstance(timeout, Real) or math.isnan(timeout):
        raise InvalidError(f"timeout is {timeout!r}", hint="give seconds, or None to wait without end")
    return float(timeout)


def _bound(head: Manifest) -> int | None:
    """The partition of the log that a version is bound to, None where no marks that can be read say so."""
    with suppress(DamagedError):
        marks = decode_marks(head.table_metadata)
        if marks is not None and marks.position is not None:
            return marks.position.log.partition
    return None

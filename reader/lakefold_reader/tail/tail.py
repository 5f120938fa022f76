"""Follows a table version by version: reads the next version by its name, and returns what it changed.

A tail at version V reads V+1. In steady state that is a single read of a file that mostly does not exist yet,
and never a listing. For a version that Lakefold published the first bytes of its file suffice, so a step
costs what the change costs, whatever the size of the table. A tail that is many versions behind reads the
next versions ahead (`versions.prefetch`). It returns the changes in turn, or steps of several that stay
within limits (`StepLimits`). It holds what was read and not returned yet, and accepts a version only if it is
sure to be part of the same table.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from numbers import Real
from typing import TYPE_CHECKING, Final

from lakefold_reader.consumers.consumers import Consumer, Consumers
from lakefold_reader.format.changes import NOTHING
from lakefold_reader.formats import on_branch
from lakefold_reader.tail.change import Change, StepLimits
from lakefold_reader.tail.wakeup import OutcomesListener, OutcomesTopic, Pace
from lakefold_reader.versions.branches import fork_of
from lakefold_reader.versions.cursor import Cursor
from lakefold_reader.versions.late_versions import (
    expired_late,
    is_late,
    keeps_names_behind,
    missing,
    oldest_of,
)
from lakefold_reader.versions.listing import newest_of
from lakefold_reader.versions.prefetch import PrefetchedVersions
from lakefold_reader.versions.start import (
    EARLIEST,
    LATEST,
    MadeAnewError,
    anew_for,
    check_free,
    check_same,
    expired_for,
    id_at,
    made_anew,
    other_table,
    removed,
    replaced,
    start_of,
)
from lakefold_reader.versions.times import time_of
from lakefold_table.closing import Closing
from lakefold_table.errors import (
    DamagedError,
    InvalidError,
    LakefoldError,
    NotATableError,
    VersionExpiredError,
)
from lakefold_table.marks.marks import decode_marks
from lakefold_table.roots import above
from lakefold_table.version_mark import mark_of

if TYPE_CHECKING:
    import os

    from lakefold_reader.format.source import Schema, Source
    from lakefold_table.format import VersionSummary

AT_ONCE = 0.25
AT_ONCE_HERE = 0.005
"""Two versions that are requested within these seconds are of one table, on this machine and on others: in
that time nobody removes a table and publishes as many versions of another."""

MISSED_SECONDS: Final = 0.2
"""After a version was missing, a version that is read within this many seconds counts as the newest one: the
version after it is not read first."""


def tail(  # noqa: PLR0913 - the public call: each is one thing that a user may say
    uri: str | os.PathLike[str],
    start: Cursor | str | int = LATEST,
    *,
    branch: str | None = None,
    follow: bool = False,
    storage_options: Mapping[str, str] | None = None,
    pace: Pace | None = None,
    stop: Callable[[], bool] | None = None,
    wake: str | OutcomesTopic | None = None,
    consumer: str | None = None,
) -> Tail:
    """Returns the changes of the table after `start`, one for each version, in order.

        nightly = lakefold.tail("s3://lake/flights.lance", start="earliest", consumer="nightly")
        for change in nightly:
            print(change.version, change.inserted().num_rows)
            nightly.commit()

    `start`: a `Cursor` or its text; the number of the version seen last; "earliest" (the first change is then
    the whole content of the oldest version after which none is missing); or "latest" (what comes after this
    call). `branch`: the branch to follow, `main` for the main branch (None: the branch at `uri`). Without
    `follow` it ends at the newest version; with it, it waits for the next version until `stop()` returns
    true. `wake`: the brokers (`host:port,…`), or an `OutcomesTopic` with more settings for them. An outcome
    of the table then ends the wait at once, and the tail polls the table only every five seconds (`pace`).
    While no broker answers, it polls as often as without `wake`; that is never an error. Needs the extra
    `kafka`.

    `consumer`: a name for this reader. It continues after its last `Tail.commit`, and begins at `start` if
    the table has no such consumer yet. Clean-ups keep what it hasn't read (decision 0024).

    Raises `NotATableError` if the table does not exist, or if it was removed and did not come back within
    `Pace.gone` seconds; `InvalidError` for a cursor of another branch, or a version that doesn't exist yet;
    `MadeAnewError` if the table or the branch was removed and created again since the cursor was given;
    `VersionExpiredError` if the next version was cleaned up (its `oldest` is the oldest version after which
    none is missing); `DamagedError` if a folder has the name of the next version. The same errors can be
    raised while it runs; after a `RetryError` it can be used again.
    """
    begin = partial(tail_of, start=start, follow=follow, pace=pace, stop=stop, consumer=consumer)
    begun = on_branch(uri, branch, storage_options, begin)
    if wake is not None:
        outcomes = OutcomesTopic(wake) if isinstance(wake, str) else wake
        outcomes.check()
        begun.wake_by(outcomes)
    return begun


def tail_of(
    source: Source,
    start: Cursor | str | int = LATEST,
    *,
    follow: bool = False,
    pace: Pace | None = None,
    stop: Callable[[], bool] | None = None,
    consumer: str | None = None,
) -> Tail:
    """Returns what `tail` does, of a table that is open already."""
    begin = partial(_started, source, follow=follow, pace=pace or Pace(), stop=stop or _never)
    return begin(start) if consumer is None else _resumed(source, consumer, start, begin)


def _started(
    source: Source, start: Cursor | str | int, *, follow: bool, pace: Pace, stop: Callable[[], bool]
) -> Tail:
    newest = newest_of(source)
    at, seen = start_of(start, newest, lambda: oldest_of(source), source.versions.first)
    if seen > newest:
        raise replaced(source, seen, newest)
    begun = Tail(source, seen, newest=newest, follow=follow, pace=pace, stop=stop)
    begun.begin(at, whole=start == EARLIEST)
    return begun


def _resumed(
    source: Source, name: str, start: Cursor | str | int, begin: Callable[[Cursor | str | int], Tail]
) -> Tail:
    """Returns a tail for the consumer of this name, which is created if it doesn't exist."""
    consumers = Consumers(source)
    consumer = consumers.find(name)
    if consumer is None:
        at = begin(start).cursor
        consumer = consumers.begin(name, None if start == EARLIEST else at)
    consumers.check_branch(consumer)
    consumers.hold(consumer)
    try:
        begun = begin(consumer.start)
    except VersionExpiredError as error:
        raise expired_for(error, name) from None
    except MadeAnewError as error:
        raise anew_for(error, name) from None
    begun.commit_by(consumers, consumer)
    return begun


def _never() -> bool:
    return False


class Tail(Closing, Iterator[Change]):
    """The changes of a table, one by one or in steps; `cursor` is its position. Made by `tail`.

    For one thread; a context manager that ends its own threads. What it has read ahead is returned later, so
    nothing is lost or returned twice if steps and single changes are mixed.
    """

    def __init__(
        self, source: Source, seen: int, *, newest: int, follow: bool, pace: Pace, stop: Callable[[], bool]
    ) -> None:
        self._source = source
        self._follow = follow
        self._pace = pace
        self._stop = stop
        self._returned_cursor = self._cursor = Cursor("", "", seen)
        self._fork: str | None = None
        self._requested_at = -math.inf
        self._newest = newest
        self._table_id = ""
        self._schema: Schema | None = None
        self._whole = False
        self._checked_at = self._checked_beside_at = pace.clock()
        self._lost_at: float | None = None
        self._missed_at = self._checked_at if seen == newest else -math.inf
        self._known_end = -1
        self._kept_error: tuple[int, LakefoldError] | None = None
        self._versions = PrefetchedVersions(source)
        self._waiting: deque[Change] = deque()
        self._bound: int | None = None
        self._consumer: tuple[Consumers, Consumer] | None = None
        # The cursor of a commit that has not ended: a Ctrl-C may have come after it was recorded.
        self._doubtful: Cursor | None = None
        self._outcomes: OutcomesTopic | None = None
        self._waker: OutcomesListener | None = None

    @property
    def cursor(self) -> Cursor:
        """The cursor of the change that was returned last. A new tail continues from here."""
        return self._returned_cursor

    def begin(self, at: Cursor | None, *, whole: bool) -> None:
        """Sets the start. `at`: the cursor that the table must match. `whole`: all content comes first.

        Raises `VersionExpiredError` if neither the version seen last nor the next version exists,
        `MadeAnewError` if the table is not that for which the cursor was given.
        """
        self._whole = whole
        if at is not None:
            self._cursor, self._table_id = at, at.table_id
        seen = self._cursor.version
        exists = seen >= self._source.versions.first
        step = self._source.summary(seen, whole=True) if exists and not whole else None
        if at is not None:
            self._fork = fork_of(self._source, at.branch)
            self._check_fork(at, self._fork)
            if step is not None:
                check_same(self._source, at, step)
        if step is not None:
            self._move_to(step)
        elif not whole and not self._source.versions.exists(seen + 1):
            raise missing(self._source, seen + 1)
        self._returned_cursor = self._cursor

    def commit_by(self, consumers: Consumers, consumer: Consumer) -> None:
        """Sets the consumer that `commit` moves."""
        self._consumer = consumers, consumer

    def commit(self) -> None:
        """Records durably, under the consumer's name, that all changes returned so far were processed.

            tail = lakefold.tail("s3://lake/flights.lance", consumer="report", start="earliest")
            for change in tail:
                tail.commit()

        Takes five small requests to the store, none if nothing is new. Raises `InvalidError` if the tail
        has no consumer, `StopError` if another reader runs under the same name.
        """
        if self._consumer is None:
            hint = "give the tail a consumer when it is made, or keep `cursor` yourself"
            raise InvalidError("this tail has no consumer", where=self._source.uri, hint=hint)
        consumers, consumer = self._consumer
        if self._doubtful is not None:
            stored = consumers.get(consumer.name)
            consumer = stored if stored.at == self._doubtful else consumer
        self._doubtful = self._returned_cursor
        self._consumer = consumers, consumers.commit(consumer, self._returned_cursor)
        self._doubtful = None

    def wake_by(self, outcomes: OutcomesTopic) -> None:
        """Listens to the outcomes of the table, beginning with the first wait.

        The partition is that of the marks that the tail saw first. If a table is bound to another partition
        later, its versions are still found, but not at once.
        """
        self._outcomes = outcomes

    def __next__(self) -> Change:
        if not self._waiting and not self._fill(None if self._follow else 0.0):
            self.close()
            raise StopIteration
        (change,), left, cursor = self._divided(1)
        self._waiting, self._returned_cursor = left, cursor
        return change

    def step(
        self,
        max_versions: int | None = None,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        timeout: float | None = 0.0,
    ) -> list[Change]:
        """Returns the next changes that stay within these limits together; the first in any case.

        So a reader always makes progress, however large a version is. `max_rows` counts the rows that
        versions insert, and those they deleted if a committer recorded that; `max_bytes` the data files that
        they add. Both are known from the versions alone: no data is read. Without limits it returns all
        changes that exist, 10,000 versions at most. If there are none, it waits `timeout` seconds (None:
        until `stop` returns true) and then returns an empty list.

        Raises as `tail` does. If changes come before the error, these are returned first, and the next call
        raises it.
        """
        count = self._gather(StepLimits(max_versions, max_rows, max_bytes), timeout)
        changes, left, cursor = self._divided(count)
        # Nothing is called from here on, so no Ctrl-C comes that would lose what is returned.
        self._waiting, self._returned_cursor = left, cursor
        return changes

    def end(
        self, max_versions: int | None = None, max_rows: int | None = None, max_bytes: int | None = None
    ) -> Cursor:
        """Returns the cursor at which a `step` with these limits would end. The tail does not move.

        What was read is kept for the next step, so that nothing is read twice.
        """
        count = self._gather(StepLimits(max_versions, max_rows, max_bytes), 0.0)
        return self._waiting[count - 1].cursor if count else self._returned_cursor

    def steps(
        self, max_versions: int | None = None, max_rows: int | None = None, max_bytes: int | None = None
    ) -> Iterator[list[Change]]:
        """Yields steps, none of them empty, until the tail ends (see `step`).

        with lakefold.tail("s3://lake/flights.lance", start=7) as tail:
            for changes in tail.steps(max_rows=10_000):
                print([change.version for change in changes])
        """
        timeout = None if self._follow else 0.0
        while changes := self.step(max_versions, max_rows, max_bytes, timeout):
            yield changes

    def close(self) -> None:
        """Ends the threads that read ahead and that wake it. A tail that is used later starts them again."""
        self._versions.close()
        if self._waker is not None:
            self._waker.close()
            self._waker = None

    def _gather(self, limits: StepLimits, timeout: float | None) -> int:
        """Reads until the next step is complete. Returns how many of the waiting changes it takes."""
        count, cost = 0, NOTHING
        self._known_end = -1
        while not count or limits.admit(count + 1, cost):
            if count == len(self._waiting) and not self._has_more(timeout if not count else 0.0):
                break
            if limits.needs_cost:
                try:
                    cost += self._waiting[count].cost
                except LakefoldError:
                    if not count:
                        raise
                    break
            if count and not limits.admit(count + 1, cost):
                break
            count += 1
        return count

    def _has_more(self, timeout: float | None) -> bool:
        """Returns whether another change is waiting now. An error after other changes is raised in turn."""
        if not self._waiting:
            return self._fill(timeout)
        if self._cursor.version == self._known_end:
            # This call has already found that no later version exists.
            return False
        with suppress(LakefoldError):
            return self._fill(0.0)
        return False

    def _divided(self, count: int) -> tuple[list[Change], deque[Change], Cursor]:
        """Returns the changes that are returned next, those that wait then, and the cursor then."""
        changes = list(islice(self._waiting, count))
        cursor = changes[-1].cursor if changes else self._returned_cursor
        return changes, deque(islice(self._waiting, count, None)), cursor

    def _fill(self, timeout: float | None) -> bool:
        """Reads the next change into the queue. Returns False if none comes within `timeout` seconds."""
        deadline = math.inf if timeout is None else self._pace.clock() + _seconds(timeout)
        misses = 0
        while not self._stop():
            version, whole = self._cursor.version + 1, self._schema is None
            self._raise_fault(version)
            step = self._versions.take(version, newest=self._newest, whole=whole)
            if step is not None:
                self._check_not_late(step)
                self._take(step)
                return True
            self._miss()
            misses += 1
            self._check_still_to_come(waits=timeout is None or timeout > 0)
            remaining_seconds = deadline - self._pace.clock()
            if remaining_seconds <= 0:
                break
            self._pause(misses, remaining_seconds)
        return False

    def _check_not_late(self, step: VersionSummary) -> None:
        """Raises `VersionExpiredError` if this is a late version.

        Nothing is read for it if the version was missing a moment ago: then the last version is the newest.
        """
        is_other = self._table_id and step.table_id and self._table_id != step.table_id
        if is_other or self._pace.clock() - self._missed_at <= MISSED_SECONDS:
            return
        try:
            after = self._versions.ahead(step.version + 1, newest=self._newest)
        except LakefoldError as error:
            self._keep_fault(step, error)
            return
        if after is None:
            self._known_end = step.version
        elif is_late(self._source, step, after):
            raise self._for_consumer(expired_late(self._source, step.version))

    def _miss(self) -> None:
        """Records that the next version is missing, unless it may have been removed since the last check."""
        now = self._pace.clock()
        if now - max(self._checked_at, self._missed_at) <= MISSED_SECONDS:
            self._missed_at = now

    def _keep_fault(self, step: VersionSummary, error: LakefoldError) -> None:
        """Keeps an error of the next version until its turn.

        Raises it at once if only the next version can show whether this is a late version.
        """
        seen = self._cursor
        try:
            exists = seen.version >= self._source.versions.first
            is_sure = exists and keeps_names_behind(self._source, seen.version, seen.branch or "")
        except LakefoldError:
            raise error from None
        if not is_sure:
            raise error
        self._kept_error = step.version + 1, error

    def _raise_fault(self, version: int) -> None:
        """Raises the error that was kept for this version; the next call reads the version again."""
        fault, self._kept_error = self._kept_error, None
        if fault is not None and fault[0] == version:
            raise fault[1]

    def _pause(self, misses: int, most: float) -> None:
        if self._outcomes is None:
            self._pace.pause(misses, most)
            return
        if self._waker is None:
            uri, branch = self._source.uri, self._cursor.branch
            table = above(uri, self._source.format.branch_root(branch)) if branch else uri
            self._waker = OutcomesListener(partial(self._outcomes.news, table, branch, self._bound))
        seconds = self._pace.pause_of(misses, woken=self._waker.listening)
        self._waker.wait(self._cursor.version, min(seconds, most))

    def _take(self, step: VersionSummary) -> None:
        """Moves to a version, whose change waits then. If a Ctrl-C comes, both is done or nothing."""
        before = self._cursor, self._table_id, self._schema, self._whole, self._requested_at
        try:
            self._waiting.append(self._change(step))
        except BaseException:
            if not self._waiting or self._waiting[-1].version != step.version:
                self._cursor, self._table_id, self._schema, self._whole, self._requested_at = before
            raise

    def _change(self, step: VersionSummary) -> Change:
        # If the time can't be read, the version must not count as seen: it would not be reported again.
        timestamp = time_of(step.time_us)
        schema = self._move_to(step)
        whole, self._whole = self._whole, False
        return Change(
            version=step.version,
            timestamp=timestamp,
            operation=step.operation,
            cursor=self._cursor,
            _source=self._source,
            _summary=step,
            _schema=schema,
            _whole=whole,
        )

    def _move_to(self, step: VersionSummary) -> Schema:
        """Moves to this version, after checking that it belongs to the same table. Returns its schema."""
        self._check_follows(step)
        schema = self._source.format.schema(step) or self._schema
        self._table_id = step.table_id or self._table_id
        branch = self._cursor.branch if step.branch is None else step.branch
        if self._fork is None:
            self._fork = fork_of(self._source, branch or "")
        self._cursor = Cursor(step.table_id, branch, step.version, mark_of(step), self._fork)
        self._requested_at = step.requested_at
        self._newest = max(self._newest, step.version)
        self._checked_at = self._pace.clock()
        self._lost_at = None
        if self._schema is None and step.metadata is not None:
            self._bound = _bound(step.metadata)
        self._schema = self._schema if self._schema == schema else schema
        if self._schema is None:
            raise AssertionError("the first version that a tail takes is read whole")
        return self._schema

    def _check_follows(self, step: VersionSummary) -> None:
        """Checks that a version follows the version seen last, and does not belong to another table.

        A version that names the table's id does, except on a branch, which has the id of the main branch. For
        any other the version seen last is read once more: it must still exist unchanged. That isn't needed if
        both were read at nearly the same time. Raises `MadeAnewError`.
        """
        seen = self._cursor
        if self._table_id and step.table_id and self._table_id != step.table_id:
            raise self._for_consumer(other_table(self._source, seen, step.table_id, step.branch))
        is_named = bool(step.table_id) and step.table_id == seen.table_id and not seen.branch
        if is_named or not seen.mark or step.version <= seen.version:
            return
        if step.requested_at - self._requested_at <= (
            AT_ONCE_HERE if self._source.storage.cheap_size else AT_ONCE
        ):
            return
        try:
            current = self._source.summary(seen.version)
            if current is not None:
                check_same(self._source, seen, current)
            elif seen.table_id and (step.table_id or id_at(self._source, step.version)) != seen.table_id:
                # It was cleaned up, and the table's id with it.
                raise made_anew(self._source, seen)
            else:
                self._check_fork(seen, fork_of(self._source, seen.branch))
        except MadeAnewError as error:
            raise self._for_consumer(error) from None

    def _check_fork(self, at: Cursor, now: str) -> None:
        """Raises `MadeAnewError` if the branch's file has another identifier, `now`, than the cursor."""
        if at.fork and now and at.fork != now:
            raise made_anew(self._source, at)

    def _check_still_to_come(self, *, waits: bool) -> None:
        """Checks that the version that is waited for is still to come, and wasn't cleaned up.

        That is known without a request, unless newer versions were seen or the reader has not asked for long.
        `waits`: the caller has time.
        """
        seen = self._cursor.version
        self._newest = max(self._newest, self._versions.seen)
        if self._newest <= seen and not self._is_in_doubt(seen):
            return
        try:
            newest = newest_of(self._source)
        except NotATableError as error:
            self._wait_for_return(error, can_wait=waits or self._newest <= seen)
            return
        self._checked_at, self._lost_at = self._pace.clock(), None
        if newest < seen:
            raise self._for_consumer(replaced(self._source, seen, newest))
        if newest > seen and not self._source.versions.exists(seen + 1):
            raise self._for_consumer(missing(self._source, seen + 1))

    def _is_in_doubt(self, seen: int) -> bool:
        """Returns whether the newest version must be requested, although none newer than `seen` was read.

        Raises `DamagedError` if something that is no version has the name of the next version.
        """
        now, storage = self._pace.clock(), self._source.storage
        if self._lost_at is None and now - self._checked_at > self._pace.away:
            return True
        if (
            self._lost_at is None and not storage.cheap_size
        ) or now - self._checked_beside_at <= self._pace.beside:
            return False
        self._checked_beside_at = now
        check_free(storage, self._source.versions.path(seen + 1))
        return self._lost_at is not None or not self._source.versions.exists(seen)

    def _wait_for_return(self, error: NotATableError, *, can_wait: bool) -> None:
        """Raises `NotATableError` once the versions have been gone for as long as they are waited for."""
        now = self._checked_beside_at = self._pace.clock()
        self._lost_at = now if self._lost_at is None else self._lost_at
        if not can_wait or now - self._lost_at >= self._pace.gone:
            raise removed(self._source, self._cursor) from error

    def _for_consumer(self, error: LakefoldError) -> LakefoldError:
        """Returns the error for a consumer if the tail has one: its start is set by a command."""
        if isinstance(error, VersionExpiredError) and self._consumer is not None:
            return expired_for(error, self._consumer[1].name)
        if isinstance(error, MadeAnewError) and self._consumer is not None:
            return anew_for(error, self._consumer[1].name)
        return error


def _seconds(timeout: object) -> float:
    """Returns how long a step may wait. Raises `InvalidError` if this is not a number of seconds."""
    if isinstance(timeout, bool) or not isinstance(timeout, Real) or math.isnan(timeout):
        raise InvalidError(f"timeout is {timeout!r}", hint="give seconds, or None to wait without end")
    return float(timeout)


def _bound(metadata: Mapping[str, str]) -> int | None:
    """Returns the partition of the log that a version is bound to.

    Returns None if it has no marks that say so.
    """
    with suppress(DamagedError):
        marks = decode_marks(metadata)
        if marks is not None and marks.position is not None:
            return marks.position.log.partition
    return None

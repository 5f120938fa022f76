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
from dataclasses import replace
from functools import partial
from itertools import islice
from numbers import Real
from typing import TYPE_CHECKING, cast

from lakefold_reader.consumers.consumers import Consumer, Consumers
from lakefold_reader.format.changes import NOTHING
from lakefold_reader.formats import on_branch
from lakefold_reader.tail.change import Change, StepLimits
from lakefold_reader.tail.last_read import LastRead
from lakefold_reader.tail.newest_version import NewestVersion
from lakefold_reader.tail.wakeup import OutcomesTopic, Pace, Wakeup
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
    check_same,
    expired_for,
    replaced,
    start_of,
)
from lakefold_reader.versions.times import time_of
from lakefold_table.closing import Closing
from lakefold_table.errors import (
    InvalidError,
    LakefoldError,
    VersionExpiredError,
)

if TYPE_CHECKING:
    import os

    from lakefold_reader.format.source import Schema, Source
    from lakefold_reader.versions.cursor import Cursor
    from lakefold_table.format import VersionSummary


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
    last = LastRead.begin(source, seen, at, whole=start == EARLIEST)
    begun = Tail(source, last, newest=newest, follow=follow, pace=pace, stop=stop)
    begun.check_start(at)
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
        self,
        source: Source,
        last: LastRead,
        *,
        newest: int,
        follow: bool,
        pace: Pace,
        stop: Callable[[], bool],
    ) -> None:
        self._source = source
        self._follow = follow
        self._pace = pace
        self._stop = stop
        self._last = last
        self._returned_cursor = last.cursor
        self._newest = NewestVersion(source, last.cursor.version, newest, pace)
        self._known_end = -1
        self._kept_error: tuple[int, LakefoldError] | None = None
        self._versions = PrefetchedVersions(source)
        self._waiting: deque[Change] = deque()
        self._commits: _ConsumerCommits | None = None
        self._wakeup: Wakeup | None = None

    @property
    def cursor(self) -> Cursor:
        """The cursor of the change that was returned last. A new tail continues from here."""
        return self._returned_cursor

    def check_start(self, at: Cursor | None) -> None:
        """Checks where the tail begins. `at`: the cursor that the table must match.

        Raises `VersionExpiredError` if neither the version seen last nor the next version exists,
        `MadeAnewError` if the table is not that for which the cursor was given.
        """
        seen, whole = self._last.cursor.version, self._last.whole
        exists = seen >= self._source.versions.first
        step = self._source.summary(seen, whole=True) if exists and not whole else None
        if step is not None:
            if at is not None:
                check_same(self._source, at, step)
            self._move_to(step)
        elif not whole and not self._source.versions.exists(seen + 1):
            raise missing(self._source, seen + 1)
        self._returned_cursor = self._last.cursor

    def commit_by(self, consumers: Consumers, consumer: Consumer) -> None:
        """Sets the consumer that `commit` moves."""
        self._commits = _ConsumerCommits(consumers, consumer)

    def commit(self) -> None:
        """Records durably, under the consumer's name, that all changes returned so far were processed.

            tail = lakefold.tail("s3://lake/flights.lance", consumer="report", start="earliest")
            for change in tail:
                tail.commit()

        Takes five small requests to the store, none if nothing is new. Raises `InvalidError` if the tail
        has no consumer, `StopError` if another reader runs under the same name.
        """
        if self._commits is None:
            hint = "give the tail a consumer when it is made, or keep `cursor` yourself"
            raise InvalidError("this tail has no consumer", where=self._source.uri, hint=hint)
        self._commits.commit(self._returned_cursor)

    def wake_by(self, outcomes: OutcomesTopic) -> None:
        """Listens to the outcomes of the table, beginning with the first wait."""
        self._wakeup = Wakeup(outcomes, self._source)

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
        if self._wakeup is not None:
            self._wakeup.close()

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
        if self._last.cursor.version == self._known_end:
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
            version, whole = self._last.cursor.version + 1, self._last.schema is None
            self._raise_fault(version)
            step = self._versions.take(version, newest=self._newest.number, whole=whole)
            if step is not None:
                self._check_not_late(step)
                self._take(step)
                return True
            self._newest.miss()
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
        is_other = self._last.table_id and step.table_id and self._last.table_id != step.table_id
        if is_other or self._newest.was_just_missing:
            return
        try:
            after = self._versions.ahead(step.version + 1, newest=self._newest.number)
        except LakefoldError as error:
            self._keep_fault(step, error)
            return
        if after is None:
            self._known_end = step.version
        elif is_late(self._source, step, after):
            raise self._for_consumer(expired_late(self._source, step.version))

    def _keep_fault(self, step: VersionSummary, error: LakefoldError) -> None:
        """Keeps an error of the next version until its turn.

        Raises it at once if only the next version can show whether this is a late version.
        """
        seen = self._last.cursor
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
        if self._wakeup is None:
            self._pace.pause(misses, most)
        else:
            self._wakeup.pause(self._last.cursor, self._last.partition, self._pace, misses, most)

    def _take(self, step: VersionSummary) -> None:
        """Moves to a version, whose change waits then. If a Ctrl-C comes, both is done or nothing."""
        before = self._last
        try:
            self._waiting.append(self._change(step))
        except BaseException:
            if not self._waiting or self._waiting[-1].version != step.version:
                self._last = before
            raise

    def _change(self, step: VersionSummary) -> Change:
        # If the time can't be read, the version must not count as seen: it would not be reported again.
        timestamp = time_of(step.time_us)
        whole, schema = self._last.whole, self._move_to(step)
        self._last = replace(self._last, whole=False)
        return Change(
            version=step.version,
            timestamp=timestamp,
            operation=step.operation,
            cursor=self._last.cursor,
            _source=self._source,
            _summary=step,
            _schema=schema,
            _whole=whole,
        )

    def _move_to(self, step: VersionSummary) -> Schema:
        """Moves to this version, after checking that it belongs to the same table. Returns its schema."""
        try:
            self._last = self._last.after(self._source, step)
        except MadeAnewError as error:
            raise self._for_consumer(error) from None
        self._newest.read(step.version)
        return cast("Schema", self._last.schema)

    def _check_still_to_come(self, *, waits: bool) -> None:
        """Checks that the version that is waited for is still to come, and wasn't cleaned up."""
        self._newest.number = max(self._newest.number, self._versions.seen)
        try:
            self._newest.check_still_to_come(self._last.cursor, waits=waits)
        except (VersionExpiredError, MadeAnewError) as error:
            raise self._for_consumer(error) from None

    def _for_consumer(self, error: LakefoldError) -> LakefoldError:
        """Returns the error for a consumer if the tail has one: its start is set by a command."""
        if isinstance(error, VersionExpiredError) and self._commits is not None:
            return expired_for(error, self._commits.name)
        if isinstance(error, MadeAnewError) and self._commits is not None:
            return anew_for(error, self._commits.name)
        return error


class _ConsumerCommits:
    """Records the cursors up to which a consumer has processed a table."""

    def __init__(self, consumers: Consumers, consumer: Consumer) -> None:
        self._consumers = consumers
        self._consumer = consumer
        # The cursor of a commit that has not ended: a Ctrl-C may have come after it was recorded.
        self._doubtful: Cursor | None = None

    @property
    def name(self) -> str:
        """The name of the consumer."""
        return self._consumer.name

    def commit(self, cursor: Cursor) -> None:
        """Records a cursor. Raises `StopError` if another reader runs under the same name."""
        if self._doubtful is not None:
            stored = self._consumers.get(self.name)
            self._consumer = stored if stored.at == self._doubtful else self._consumer
        self._doubtful = cursor
        self._consumer = self._consumers.commit(self._consumer, cursor)
        self._doubtful = None


def _seconds(timeout: object) -> float:
    """Returns how long a step may wait. Raises `InvalidError` if this is not a number of seconds."""
    if isinstance(timeout, bool) or not isinstance(timeout, Real) or math.isnan(timeout):
        raise InvalidError(f"timeout is {timeout!r}", hint="give seconds, or None to wait without end")
    return float(timeout)

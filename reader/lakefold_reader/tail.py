"""Following a table version by version: asks for the next one by its name, and hands out what it changed.

A tail at version V asks for V+1. In steady state that is one read of a file that is mostly not there yet,
and never a listing. A version that Lakefold published is told by the first bytes of its file, so a step
costs what the change costs, whatever the size of the table.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_reader.changes import Change
from lakefold_reader.columns import schema_of
from lakefold_reader.cursor import Cursor
from lakefold_reader.source import missing, numbers_of, open_source, read_step, time_of
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from lakefold_reader.columns import TableSchema
    from lakefold_reader.source import Source, Step

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True)
class Pace:
    """How a tail waits for the next version. Times in seconds.

    It looks again after `first` and then ever more seldom, up to `longest`; each wait is cut by a random
    part of up to a half, so that many readers don't ask at once. A reader that was away for longer than
    `away`, or has found nothing for that long, makes sure by a listing that the version it waits for wasn't
    cleaned up.
    """

    first: float = 0.001
    longest: float = 0.05
    away: float = 60.0
    wait: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    def pause(self, misses: int) -> None:
        """Wait after this many misses in a row."""
        limit = min(self.longest, self.first * 2 ** min(misses - 1, 30))
        self.wait(limit * (1 - self.chance() / 2))


def tail(
    uri: str | os.PathLike[str],
    start: Cursor | str | int = LATEST,
    *,
    follow: bool = False,
    storage_options: Mapping[str, str] | None = None,
    pace: Pace | None = None,
    stop: Callable[[], bool] | None = None,
) -> Tail:
    """The changes of the table after `start`, one for each version, in order.

    `start`: a `Cursor` or its text; the number of the version seen last; "earliest" (the first change is
    then the whole content of the oldest version that is there); or "latest" (what comes after this call).
    Without `follow` it ends at the newest version; with it, it waits for the next one until `stop()` is
    true.

    Raises `NotATableError` where there is no table, `InvalidError` for a cursor of another table or a
    version that isn't there yet, `VersionExpiredError` where the next version was cleaned up (its `oldest`
    names the oldest one left). The same errors may come while it runs; after a `RetryError` it can be asked
    again.
    """
    return tail_of(open_source(uri, storage_options), start, follow=follow, pace=pace, stop=stop)


def tail_of(
    source: Source,
    start: Cursor | str | int = LATEST,
    *,
    follow: bool = False,
    pace: Pace | None = None,
    stop: Callable[[], bool] | None = None,
) -> Tail:
    """As `tail`, on a table that is open already."""
    numbers = numbers_of(source)
    at, seen = _start(start, numbers)
    if seen > numbers[-1]:
        raise _replaced(source, seen, numbers[-1])
    if seen + 1 < numbers[0]:
        raise missing(source, seen + 1)
    begun = Tail(source, seen, newest=numbers[-1], follow=follow, pace=pace or Pace(), stop=stop or _never)
    begun.begin(at, whole=start == EARLIEST, there=seen in numbers)
    return begun


class Tail(Iterator[Change]):
    """The changes of one table, as an iterator; `cursor` is where it stands. Made by `tail`."""

    def __init__(
        self, source: Source, seen: int, *, newest: int, follow: bool, pace: Pace, stop: Callable[[], bool]
    ) -> None:
        self._source = source
        self._follow = follow
        self._pace = pace
        self._stop = stop
        self._cursor = Cursor("", "", seen)
        self._newest = newest
        self._table_id = ""
        self._schema: TableSchema | None = None
        self._whole = False
        self._looked = pace.clock()

    @property
    def cursor(self) -> Cursor:
        """After which version it stands; a new tail goes on from here."""
        return self._cursor

    def begin(self, at: Cursor | None, *, whole: bool, there: bool) -> None:
        """Take the start: the cursor to hold the table against, and whether its version is still there."""
        self._whole = whole
        if at is not None:
            self._cursor, self._table_id = at, at.table_id
        step = read_step(self._source, self._cursor.version, whole=True) if there else None
        if step is None:
            return
        if at is not None and (at.table_id, at.branch) != (step.table_id, step.branch):
            raise _other_table(self._source, self._cursor, step.table_id)
        self._take(step)

    def __next__(self) -> Change:
        misses = 0
        while not self._stop():
            step = read_step(self._source, self._cursor.version + 1, whole=self._schema is None)
            if step is not None:
                return self._change(step)
            misses += 1
            self._prove_waiting()
            if not self._follow:
                break
            self._pace.pause(misses)
        raise StopIteration

    def _change(self, step: Step) -> Change:
        whole, self._whole = self._whole, False
        schema = self._take(step)
        return Change(
            version=step.version,
            timestamp=time_of(step.time_us),
            operation=step.operation,
            cursor=self._cursor,
            _source=self._source,
            _step=step,
            _schema=schema,
            _whole=whole,
        )

    def _take(self, step: Step) -> TableSchema:
        """Stand at this version, once it is sure to be one of the same table."""
        if self._table_id and step.table_id and self._table_id != step.table_id:
            raise _other_table(self._source, self._cursor, step.table_id)
        self._table_id = step.table_id or self._table_id
        branch = self._cursor.branch if step.branch is None else step.branch
        self._cursor = Cursor(step.table_id, branch, step.version)
        self._newest = max(self._newest, step.version)
        self._looked = self._pace.clock()
        if step.head is not None:
            schema = schema_of(step.head)
            self._schema = self._schema if self._schema == schema else schema
        if self._schema is None:
            raise AssertionError("the first version that a tail takes is read whole")
        return self._schema

    def _prove_waiting(self) -> None:
        """Makes sure that the version waited for is still to come, and wasn't cleaned up.

        That is known without asking, unless newer versions were seen or the reader has been away for long.
        """
        seen = self._cursor.version
        if self._newest <= seen and self._pace.clock() - self._looked <= self._pace.away:
            return
        numbers = numbers_of(self._source)
        self._looked = self._pace.clock()
        if numbers[-1] < seen:
            raise _replaced(self._source, seen, numbers[-1])
        if numbers[-1] > seen and seen + 1 not in numbers:
            raise missing(self._source, seen + 1)


def _start(start: Cursor | str | int, numbers: list[int]) -> tuple[Cursor | None, int]:
    """The cursor that was given (None: a version only) and the version that counts as seen."""
    if start == EARLIEST:
        return None, numbers[0] - 1
    if start == LATEST:
        return None, numbers[-1]
    if isinstance(start, int):
        if start < 0:
            raise InvalidError(f"{start} is no version", hint="versions count from 1; 0 has seen none")
        return None, start
    cursor = start if isinstance(start, Cursor) else Cursor.parse(start)
    return cursor, cursor.version


def _never() -> bool:
    return False


def _replaced(source: Source, seen: int, newest: int) -> InvalidError:
    return InvalidError(
        f"version {seen} is not there, the newest is {newest}",
        where=source.uri,
        hint="the table was restored or made anew: open it and decide where to start",
    )


def _other_table(source: Source, cursor: Cursor, table_id: str) -> InvalidError:
    known, found = cursor.table_id or "none", table_id or "none"
    return InvalidError(
        f"the cursor {cursor} belongs to another table or branch (table id {known}, here {found})",
        where=source.uri,
        hint='start from "earliest", "latest" or a version of this table',
    )

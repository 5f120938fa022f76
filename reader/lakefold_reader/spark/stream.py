"""Plans the batches of a streaming query on the driver: their ends, and what their tasks read.

Spark keeps one object for a query alive in a Python process, asks it for the end of a batch, then for the
partitions between two offsets. After a crash it asks a new object for the partitions of the same two offsets
again: they are determined by the offsets and the table alone, so a batch that is run again reads the same
rows. The same tail is used from batch to batch; in steady state the cost of a batch is that of its changes.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

from lakefold_reader.consumers.consumers import Consumers
from lakefold_reader.format.changes import Rewritten
from lakefold_reader.spark.changes import parts_taken
from lakefold_reader.spark.feed import FeedStart, Task, begin, content, tasks
from lakefold_reader.spark.offsets import Offset, backwards
from lakefold_reader.tail.tail import Tail, tail_of
from lakefold_reader.versions.late_versions import missing
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.start import MadeAnewError, check_same, replaced
from lakefold_table.errors import InvalidError, VersionExpiredError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_reader.format.source import ChangePart, FeedEnd, Source
    from lakefold_reader.spark.batch import Pinned
    from lakefold_reader.spark.options import Given
    from lakefold_reader.spark.partitions import Cut
    from lakefold_reader.tail.change import Change
    from lakefold_reader.versions.cursor import Cursor
    from lakefold_table.format import VersionSummary


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a batch takes; None: no limit."""

    versions: int | None = None
    rows: int | None = None
    bytes: int | None = None


def limit_of(given: Given) -> Limit:
    """Returns the limits that the user set."""
    names = ("maxVersionsPerTrigger", "maxRowsPerTrigger", "maxBytesPerTrigger")
    return Limit(*map(given.value, names))


class Stream:
    """A table as a streaming query follows it. `names`: the query's columns of the table's own."""

    def __init__(self, given: Given, pinned: Pinned, names: Sequence[str], cut: Cut) -> None:
        self._given = given
        self._pinned = pinned
        self._names = list(names)
        self._cut = cut
        self._tail: Tail | None = None
        self._content: tuple[int, list[ChangePart]] | None = None
        self._until: int | None = None
        self._feed_end: FeedEnd | None = None
        self._source: Source = pinned.source()

    def initial(self) -> Offset:
        """Returns the offset at which a new query begins. Raises the errors of `begin`."""
        start = begin(self._source, self._given) or FeedStart(self._pinned.version, whole=True)
        offset = Offset(self._cursor(start.after), 0 if start.whole else None)
        self.committed(offset)
        return offset

    def committed(self, end: Offset) -> None:
        """Moves the query's consumer, if it has one, to this offset. Raises as `Consumers.set`."""
        name = self._given.value("consumer")
        if name is not None:
            Consumers(self._source).set(name, end.cursor)

    def newest(self) -> Offset:
        """Returns the newest version, for a start at no known position."""
        return Offset(self._cursor(numbers_of(self._source)[-1]))

    def end_here(self) -> None:
        """Has the stream end at the version that is the newest now."""
        self._until = numbers_of(self._source)[-1]

    def latest(self, start: Offset, limit: Limit) -> Offset:
        """Returns where a batch that begins at `start` ends; `start` itself if there is nothing to read.

        Raises `VersionExpiredError`, and `MadeAnewError` if the table or the branch was created again.
        """
        with _for_a_checkpoint():
            return self._latest(start, limit)

    def _latest(self, start: Offset, limit: Limit) -> Offset:
        if start.fragments is not None:
            ended = self._through_content(start, start.fragments, limit)
            if ended.fragments is not None or limit != Limit():
                return ended
            start = ended
        self._content = None
        if self._until is not None and start.version > self._until:
            raise replaced(self._source, start.version, self._until)
        if start.version == self._until:
            return start
        tail = self._tail_at(start.cursor)
        try:
            return self._end(tail, limit)
        except VersionExpiredError as error:
            return self._end(self._over_the_gap(error), limit)

    def _end(self, tail: Tail, limit: Limit) -> Offset:
        """Returns the offset at which a batch ends that begins at the tail's cursor."""
        most = limit.versions
        if self._until is not None:
            remaining = self._until - tail.cursor.version
            if remaining <= 0:
                return Offset(tail.cursor)
            most = remaining if most is None else min(most, remaining)
        return Offset(tail.end(most, limit.rows, limit.bytes))

    def plan(self, start: Offset, end: Offset) -> list[Task]:
        """Returns what each task of the batch between these reads.

        Raises as `latest`, and `ChangedRowsError`.

        Raises `InvalidError` if the batch would end before it begins.
        """
        parts: list[ChangePart] = []
        with _for_a_checkpoint():
            if end.order < start.order:
                self._refuse(start, end)
            if start.fragments is not None:
                last = end.fragments if end.version == start.version else None
                parts += self._content_of(start.cursor)[start.fragments : last]
            if end.version > start.version:
                parts += self._changed(start.cursor, end.cursor)
        return tasks(parts, self._cut)

    def _refuse(self, start: Offset, end: Offset) -> NoReturn:
        """Raises for a batch that ends before it begins: `MadeAnewError` if that is the reason."""
        with suppress(VersionExpiredError):
            tail_of(self._source, start.cursor)
        raise backwards(start, end, self._source.uri)

    def close(self) -> None:
        """Ends the threads that read ahead."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _through_content(self, start: Offset, read: int, limit: Limit) -> Offset:
        """Returns how far into a version's whole content a batch goes.

        It goes fragment by fragment, and contains at least one.
        """
        parts = self._content_of(start.cursor)
        rows = size = 0
        for number in range(read, len(parts)):
            cost = parts[number].cost
            rows, size = rows + cost.rows, size + cost.bytes
            beyond = (limit.rows is not None and rows > limit.rows) or (
                limit.bytes is not None and size > limit.bytes
            )
            if beyond and number > read:
                return Offset(start.cursor, number)
        return Offset(start.cursor)

    def _content_of(self, cursor: Cursor) -> list[ChangePart]:
        """Returns a version's content. It is empty if the version is gone and the query skips lost data."""
        version = cursor.version
        if self._content is None or self._content[0] != version:
            stored = self._source.summary(version)
            if stored is not None:
                check_same(self._source, cursor, stored)
            try:
                self._content = version, content(self._source, version, self._pinned.version)
            except VersionExpiredError:
                if self._given.value("failOnDataLoss"):
                    raise
                self._content = version, []
        return self._content[1]

    def _changed(self, start: Cursor, end: Cursor) -> list[ChangePart]:
        """Returns the parts of the versions between these cursors that the query takes."""
        tail = self._tail_at(start)
        changes: list[Change] = []
        while tail.cursor.version < end.version:
            try:
                change = next(tail, None)
            except VersionExpiredError as error:
                tail = self._over_the_gap(error)
                continue
            if change is None:
                raise missing(self._source, tail.cursor.version + 1)
            if change.version == end.version:
                check_same(self._source, end, change.summary)
            self._check_schema(change)
            changes.append(change)
        takes = {change.version: parts_taken(change, self._given, self._source.uri) for change in changes}
        return [part for part in self._planned(changes) if takes[part.version](part)]

    def _planned(self, changes: Sequence[Change]) -> Iterator[ChangePart]:
        """Returns what the versions did. Versions older than the pinned version are shown in its columns."""
        if not changes:
            return
        steps = [change.summary for change in changes]
        older = changes[-1].version < self._pinned.version
        end = self._pinned_end() if older else self._source.format.feed.end_of(steps, changes[-1].columns)
        rewritten = Rewritten.SKIP if self._given.value("skipChangeCommits") else Rewritten.ROWS
        for stretch in _stretches(steps):
            yield from self._known_parts(stretch, end, rewritten)

    def _known_parts(
        self, steps: Sequence[VersionSummary], shown: FeedEnd, rewritten: Rewritten
    ) -> Sequence[ChangePart]:
        """Returns what consecutive versions did.

        If the query continues without lost data, changes that are not known are left out.
        """
        while steps:
            try:
                return [*self._source.format.feed.plan_summaries(self._source, steps, shown, rewritten)]
            except VersionExpiredError:
                # The version before the first is gone, and the change is known only by comparison with
                # it.
                if self._given.value("failOnDataLoss"):
                    raise
                steps = steps[1:]
        return ()

    def _pinned_end(self) -> FeedEnd:
        """Returns the pinned version as the end of a feed, even if the version is gone."""
        if self._feed_end is None:
            version = self._pinned.version
            try:
                self._feed_end = self._source.format.feed.end(self._source, version)
            except VersionExpiredError:
                self._feed_end = self._source.format.feed.pinned_end(version, self._pinned.schema)
        return self._feed_end

    def _tail_at(self, cursor: Cursor) -> Tail:
        """Returns the tail after this version, or after a gap if the query skips lost data."""
        if self._tail is None or self._tail.cursor != cursor:
            self.close()
            try:
                self._tail = tail_of(self._source, cursor)
            except VersionExpiredError as error:
                self._tail = self._over_the_gap(error)
        return self._tail

    def _over_the_gap(self, error: VersionExpiredError) -> Tail:
        """Returns a tail after the oldest version that is left.

        Raises the error if the query stops at lost data.
        """
        if self._given.value("failOnDataLoss") or not error.oldest:
            raise VersionExpiredError(
                error.message,
                oldest=error.oldest,
                where=error.where,
                hint="start with another checkpoint; or set failOnDataLoss to false to continue after the "
                f"oldest one left, {error.oldest}, without the versions between",
            ) from error
        self.close()
        self._tail = tail_of(self._source, error.oldest)
        return self._tail

    def _cursor(self, version: int) -> Cursor:
        """Returns the cursor of a reader that has seen this version."""
        return tail_of(self._source, version).cursor

    def _check_schema(self, change: Change) -> None:
        """Raises `InvalidError` if the query's columns don't mean what they did when it was started."""
        if change.version <= self._pinned.version or change.columns == self._pinned.schema:
            return
        expected, actual = self._pinned.schema.forms(), change.columns.forms()
        lost = [name for name in self._names if actual.get(name) != expected.get(name)]
        added = [name for name in actual if name not in expected]
        all_of_them = self._names == list(expected)
        if lost or (added and all_of_them):
            raise InvalidError(
                f"version {change.version} changed the columns {', '.join(lost or added)}",
                where=self._source.uri,
                hint="start the query again: it continues here with the table's columns of that time",
            )


@contextmanager
def _for_a_checkpoint() -> Iterator[None]:
    """Adds to a `MadeAnewError` what the user of a query can do: its checkpoint can't be used any more."""
    try:
        yield
    except MadeAnewError as error:
        hint = "start with another checkpoint: a query without one reads all that exists now"
        raise MadeAnewError(error.message, where=error.where, hint=hint) from error


def _stretches(steps: Sequence[VersionSummary]) -> list[Sequence[VersionSummary]]:
    """Returns the versions, split at gaps."""
    cuts = [at for at in range(1, len(steps)) if steps[at].version != steps[at - 1].version + 1]
    return [steps[start:end] for start, end in pairwise([0, *cuts, len(steps)])]

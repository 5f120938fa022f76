"""Plans a read of a version on the driver: the version, the columns, and the pieces of each task."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from lakefold_reader.format.changes import Rewritten
from lakefold_reader.format.source import ScanUnit, Schema, Source
from lakefold_reader.formats import in_its_format, open_source
from lakefold_reader.spark.feed import Task, begin, content, tasks
from lakefold_reader.spark.options import LATEST, Given
from lakefold_reader.spark.partitions import Cut, grouped
from lakefold_reader.spark.rows import FeedRows, VersionRows
from lakefold_reader.spark.types import readable
from lakefold_reader.versions.as_of import version_as_of
from lakefold_reader.versions.branches import branched, tagged
from lakefold_reader.versions.late_versions import check_not_late, missing
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.ranges import checked_range
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


@dataclass(frozen=True)
class Pinned:
    """The version that a whole read uses. The driver decides it once and sends it to every process."""

    uri: str
    version: int
    schema: Schema
    answers_filters: bool
    options: Mapping[str, str] = field(repr=False)
    format: str = ""

    def source(self) -> Source:
        """Returns the table. Nothing is read."""
        return open_source(self.uri, self.options, self.format)

    def feed_rows(self, target: pa.Schema, given: Given) -> FeedRows:
        """Returns how tasks read changes in these columns. Raises `InvalidError` if one doesn't exist."""
        feed = self.source().format.feed
        added = set(feed.schema(feed.columns(self.schema, [])).names)
        columns = feed.columns(self.schema, [name for name in target.names if name not in added])
        readable(feed.schema(columns), target)
        return FeedRows(self.uri, columns, self.options, given.value("misfits"), self.format)


def shown(pinned: Pinned, given: Given) -> pa.Schema:
    """Returns the Arrow schema of what the user selected: columns, and what the change feed adds to them."""
    columns = pinned.schema.chosen(given.value("columns"))
    if not given.value("readChangeFeed"):
        return columns.arrow
    return pinned.source().format.feed.schema(columns)


def pin(given: Given) -> Pinned:
    """Decides the version: the version that the options name, else the newest.

    For changes it is the last version that the options name; rows are given in its schema. Raises as
    `open_table`.
    """
    return in_its_format(open_source(given.path, given.storage), partial(_pinned, given=given))


def _pinned(table: Source, given: Given) -> Pinned:
    source, version = _named_version(table, given)
    numbers = numbers_of(source)
    chosen = numbers[-1] if version is None else version
    if chosen not in numbers:
        raise missing(source, chosen)
    summary = source.summary(chosen, whole=True)
    schema = None if summary is None else source.format.schema(summary)
    if summary is None or schema is None:
        raise missing(source, chosen)
    if version is not None:
        check_not_late(source, chosen, summary)
    answers_filters = source.format.answers_filters(summary)
    return Pinned(source.uri, chosen, schema, answers_filters, dict(source.options), source.format.name)


def rows_of(pinned: Pinned, target: pa.Schema, where: str | None) -> VersionRows:
    """Returns how every task reads these columns. Raises `InvalidError` if a column can't be read."""
    return VersionRows(
        uri=pinned.uri,
        version=pinned.version,
        schema=pinned.schema.chosen(readable(pinned.schema.arrow, target)),
        where=where,
        options=pinned.options,
        format=pinned.format,
    )


def pieces(pinned: Pinned, cut: Cut) -> list[Piece]:
    """Returns the pieces of each task.

    Raises `VersionExpiredError` if the version was cleaned up meanwhile.
    """
    source = pinned.source()
    return grouped(source.format.scan_units(source, pinned.version), lambda unit: unit.bytes, cut)


def planned_changes(pinned: Pinned, given: Given) -> list[Task]:
    """Returns the parts of the change feed up to the pinned version that each task reads.

    Raises `InvalidError` if no start is given, and as `FeedFormat.plan`.
    """
    source = pinned.source()
    start = None if given.value("startingVersion") == LATEST else begin(source, given)
    if start is None:
        hint = 'give a version\'s number, a time, or "earliest"'
        raise InvalidError("the change feed needs a start", where="startingVersion", hint=hint)
    if start.after > pinned.version:
        message = f"the feed would begin after version {start.after}, its last is {pinned.version}"
        raise InvalidError(message, where="startingVersion", hint="give an earlier start or a later end")
    parts = content(source, start.after, pinned.version) if start.whole else []
    after, last = checked_range(source, start.after, pinned.version)
    feed = source.format.feed
    parts += feed.plan(source, after, feed.end(source, last), Rewritten.ROWS)
    return tasks(parts, cut_of(given))


def cut_of(given: Given) -> Cut:
    """Returns the sizes of partitions that the options set."""
    return Cut(given.value("maxPartitionBytes"), given.value("minPartitions"))


Piece = tuple[ScanUnit, ...]
"""A piece of a version that one task reads."""


def _named_version(table: Source, given: Given) -> tuple[Source, int | None]:
    if given.value("tag") is not None:
        return tagged(table, given.value("tag"))
    branch = given.value("branch")
    source = table if branch is None else branched(table, branch)
    version = given.first("versionAsOf", "endingVersion")
    moment = given.first("timestampAsOf", "endingTimestamp")
    return source, version if moment is None else version_as_of(source, moment)

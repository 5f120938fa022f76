"""What the driver plans for one read of a version: which version, which columns, which fragments together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_reader.feed.feed import shown_columns
from lakefold_reader.feed.parts import Misfits
from lakefold_reader.feed.plan import plan_changes
from lakefold_reader.scan.columns import schema_of
from lakefold_reader.scan.scan import LEGACY
from lakefold_reader.snapshot.snapshot import version_as_of
from lakefold_reader.spark.feed import FeedRows, begin, content, tasks
from lakefold_reader.spark.options import LATEST
from lakefold_reader.spark.partitions import MAX_PARTITION_BYTES, Cut, grouped, size_of
from lakefold_reader.spark.rows import VersionRows
from lakefold_reader.spark.types import readable
from lakefold_reader.versions.branches import open_line, tagged
from lakefold_reader.versions.source import numbers_of, open_source, read_state, read_step
from lakefold_reader.versions.stray_files import check_in_line, missing
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from lakefold_reader.scan.columns import TableSchema
    from lakefold_reader.spark.feed import Task
    from lakefold_reader.spark.options import Given
    from lakefold_reader.versions.source import Source


@dataclass(frozen=True)
class Pinned:
    """The version that a read stays with, decided once on the driver. Goes to every process of the read."""

    uri: str
    version: int
    manifest: str
    schema: TableSchema
    file_version: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def answers_filters(self) -> bool:
        """Whether a scan picks the rows that a filter on its values would pick.

        In Lance's first file format, which a manifest may leave unnamed, a null of a number is read as 0,
        while a scan that skips pages takes some for null (Lance fact 13.4).
        """
        return self.file_version not in {"", LEGACY}

    def feed_rows(self, target: pa.Schema, given: Given) -> FeedRows:
        """How tasks read changes in these columns. Raises `InvalidError` for one that isn't there."""
        from lakefold_reader.feed.rows import CHANGE_FIELDS, feed_schema

        added = {field.name for field in CHANGE_FIELDS}
        names = [name for name in target.names if name not in added]
        columns = shown_columns(self.schema, names)
        readable(feed_schema(columns), target)
        return FeedRows(self.uri, columns, self.options, given.value("misfits") or Misfits.FAIL)


def shown(pinned: Pinned, given: Given) -> pa.Schema:
    """The Arrow schema of what the user asked for: columns, and what the change feed adds to them."""
    from lakefold_reader.feed.rows import feed_schema

    columns = pinned.schema.chosen(given.value("columns"))
    return feed_schema(columns) if given.says("readChangeFeed") else columns.arrow


def line_of(given: Given) -> Source:
    """The table, or the branch of it, that is read."""
    return open_line(given.path, given.value("branch"), given.storage)


def pin(given: Given) -> Pinned:
    """Decides the version: the one that is asked for, else the newest.

    For changes it is the last one that is asked for; its schema is the one that rows are given in. Raises as
    `open_table`.
    """
    source, version = _named(given)
    numbers = numbers_of(source)
    chosen = numbers[-1] if version is None else version
    if chosen not in numbers:
        raise missing(source, chosen)
    step = read_step(source, chosen, whole=True)
    if step is None or step.head is None:
        raise missing(source, chosen)
    if version is not None:
        check_in_line(source, chosen, step)
    path = source.versions.path(chosen)
    return Pinned(
        source.uri,
        chosen,
        path,
        schema_of(step.head),
        step.head.data_format.version,
        dict(source.options),
    )


def rows_of(pinned: Pinned, target: pa.Schema, where: str | None) -> VersionRows:
    """How every task reads the version in these columns. Raises `InvalidError` for one that it can't give."""
    return VersionRows(
        uri=pinned.uri,
        version=pinned.version,
        manifest=pinned.manifest,
        schema=pinned.schema.chosen(readable(pinned.schema.arrow, target)),
        where=where,
        options=pinned.options,
    )


def pieces(pinned: Pinned, cut: Cut) -> list[Piece]:
    """The fragments of each task. Raises `VersionExpiredError` where the version was cleaned up meanwhile."""
    state = read_state(open_source(pinned.uri, pinned.options), pinned.version)
    groups = grouped(list(state.fragments), size_of, cut)
    return [tuple(one.SerializeToString() for one in group) for group in groups]


def planned_changes(pinned: Pinned, given: Given) -> list[Task]:
    """The parts of the change feed up to the pinned version that each task reads.

    Raises `InvalidError` where no start is given, and as `plan_changes`.
    """
    source = open_source(pinned.uri, pinned.options)
    start = None if given.value("startingVersion") == LATEST else begin(source, given)
    if start is None:
        hint = 'give a version\'s number, a time, or "earliest"'
        raise InvalidError("the change feed needs a start", where="startingVersion", hint=hint)
    if start.after > pinned.version:
        message = f"the feed would begin behind version {start.after}, its last is {pinned.version}"
        raise InvalidError(message, where="startingVersion", hint="give an earlier start or a later end")
    parts = content(source, start.after, pinned.version) if start.whole else []
    parts += plan_changes(source, start.after, pinned.version)
    return tasks(parts, cut_of(given))


def cut_of(given: Given) -> Cut:
    """How partitions are to be cut."""
    return Cut(given.value("maxPartitionBytes") or MAX_PARTITION_BYTES, given.value("minPartitions") or 1)


Piece = tuple[bytes, ...]
"""The fragments of one task, encoded."""


def _named(given: Given) -> tuple[Source, int | None]:
    if given.value("tag") is not None:
        return tagged(open_source(given.path, given.storage), given.value("tag"))
    source = line_of(given)
    version = given.first("versionAsOf", "endingVersion")
    moment = given.first("timestampAsOf", "endingTimestamp")
    return source, version if moment is None else version_as_of(source, moment)

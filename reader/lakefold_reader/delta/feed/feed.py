"""Change feeds of Delta tables, behind the seam of `lakefold_reader.format`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lakefold_reader.delta.data_files import live_rows
from lakefold_reader.delta.effect import differing_rows, effect_of
from lakefold_reader.delta.feed.hidden_columns import returned
from lakefold_reader.delta.feed.plan import (
    FilePart,
    content_parts,
    plan_summaries,
    summaries_between,
)
from lakefold_reader.delta.feed.rows import FilePartReader, feed_schema
from lakefold_reader.delta.filters.condition import Condition
from lakefold_reader.delta.schema import DeltaSchema, schema_in
from lakefold_reader.delta.versions import content_of, metadata_at, read_state
from lakefold_reader.format.changes import ChangeType, Rewritten
from lakefold_reader.format.snapshots import FileTotal
from lakefold_reader.format.source import FeedEnd, PartReader, Schema, Source, VersionDifference
from lakefold_reader.versions.times import limited
from lakefold_table.delta.actions.table_actions import TableMetadata
from lakefold_table.delta.record_counts import record_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakefold_reader.format.changes import Misfits
    from lakefold_reader.format.source import BranchVersion
    from lakefold_table.format import VersionSummary


def difference_of(before: BranchVersion, after: BranchVersion) -> VersionDifference:
    """See `FeedFormat.difference`: by the files and their deletion vectors."""
    (old_state, old), (new_state, new) = read_state(*before), read_state(*after)
    schemas = schema_in(old.metadata, before.source.uri), schema_in(new.metadata, after.source.uri)
    names = {column.physical: column.field.name for column in schemas[1].columns}
    was, now = old.files, new.files
    both = [(was[path], now[path]) for path in sorted(was.keys() & now.keys())]
    gone = [was[path] for path in sorted(was.keys() - now.keys())]
    added = [now[path] for path in sorted(now.keys() - was.keys())]
    hidden = returned(old.metadata, new.metadata)
    if hidden:
        # Which rows have a value in a column that is there again is in the files alone.
        old_rows = [live_rows(file, record_count(file)) for file in (*gone, *(then for then, _ in both))]
        new_rows = [live_rows(file, record_count(file)) for file in (*added, *(file for _, file in both))]
    else:
        old_rows = [live_rows(file, record_count(file)) for file in gone]
        old_rows += [rows for then, file in both for rows in differing_rows(file, then, file)]
        new_rows = [live_rows(file, record_count(file)) for file in added]
        new_rows += [rows for then, file in both for rows in differing_rows(file, file, then)]
    old_us, new_us = limited(old_state.time_us), limited(new_state.time_us)
    return VersionDifference(
        FeedEnd(after.version, schemas[1]),
        {each.field.name: names[each.physical] for each in schemas[0].columns if each.physical in names},
        old.metadata.schema_text == new.metadata.schema_text,
        FileTotal.of(file.size for file in gone),
        FileTotal.of(file.size for file in added),
        [FilePart(before.version, old_us, ChangeType.DELETE, None, rows, hidden=hidden) for rows in old_rows],
        [FilePart(after.version, new_us, ChangeType.INSERT, None, rows) for rows in new_rows],
    )


class DeltaFeed:
    """See `FeedFormat`."""

    def end(self, source: Source, version: int) -> FeedEnd:
        """See `FeedFormat.end`."""
        return FeedEnd(version, schema_in(metadata_at(source, version), source.uri))

    def end_of(self, summaries: Sequence[VersionSummary], schema: Schema) -> FeedEnd:
        """See `FeedFormat.end_of`."""
        return FeedEnd(summaries[-1].version, schema)

    def pinned_end(self, version: int, schema: Schema) -> FeedEnd:
        """See `FeedFormat.pinned_end`."""
        return FeedEnd(version, schema)

    def plan(self, source: Source, after: int, end: FeedEnd, rewritten: Rewritten) -> Iterator[FilePart]:
        """See `FeedFormat.plan`. Each commit is read in its turn."""
        summaries = summaries_between(source, after, end.version)
        return plan_summaries(source, summaries, rewritten, cast("DeltaSchema", end.schema))

    def plan_summaries(
        self, source: Source, summaries: Sequence[VersionSummary], end: FeedEnd, rewritten: Rewritten
    ) -> Iterator[FilePart]:
        """See `FeedFormat.plan_summaries`."""
        return plan_summaries(source, summaries, rewritten, cast("DeltaSchema", end.schema))

    def plan_row(
        self, source: Source, summary: VersionSummary, end: FeedEnd, values: Mapping[str, pa.Scalar]
    ) -> Iterator[FilePart]:
        """See `FeedFormat.plan_row`: without new files whose statistics exclude such a row."""
        schema = cast("DeltaSchema", end.schema)
        condition = Condition(values, schema)
        added = {file.path: file for file in effect_of(content_of(summary)).added}
        for part in plan_summaries(source, [summary], Rewritten.ROWS, schema):
            file = added.get(part.rows.path)
            if file is None or condition.may_match(file):
                yield part

    def keeps_columns(self, summary: VersionSummary) -> bool:
        """See `FeedFormat.keeps_columns`."""
        return not any(isinstance(each, TableMetadata) for each in content_of(summary).actions)

    difference = staticmethod(difference_of)

    def plan_content(self, source: Source, version: int, to: int) -> Iterator[FilePart]:
        """See `FeedFormat.plan_content`. Rows of any version can be read in the columns of another."""
        del to
        return content_parts(source, version)

    def schema(self, columns: Schema) -> pa.Schema:
        """See `FeedFormat.schema`."""
        return feed_schema(cast("DeltaSchema", columns))

    def columns(self, schema: Schema, names: Sequence[str] | None) -> DeltaSchema:
        """See `FeedFormat.columns`."""
        return cast("DeltaSchema", schema).chosen(names)

    def reader(self, source: Source, columns: Schema, misfits: Misfits) -> PartReader:
        """See `FeedFormat.reader`."""
        return cast("PartReader", FilePartReader(source, cast("DeltaSchema", columns), misfits))

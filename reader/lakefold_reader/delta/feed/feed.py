"""Change feeds of Delta tables, behind the seam of `lakefold_reader.format`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lakefold_reader.delta.feed.plan import content_parts, plan_summaries, summaries_between
from lakefold_reader.delta.feed.rows import FilePartReader, feed_schema
from lakefold_reader.delta.schema import DeltaSchema, schema_in
from lakefold_reader.delta.versions import metadata_at
from lakefold_reader.format.source import FeedEnd, PartReader, Schema, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lakefold_reader.delta.feed.plan import FilePart
    from lakefold_reader.format.changes import Misfits, Rewritten
    from lakefold_table.format import VersionSummary


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
        return plan_summaries(source, summaries_between(source, after, end.version), rewritten)

    def plan_summaries(
        self, source: Source, summaries: Sequence[VersionSummary], end: FeedEnd, rewritten: Rewritten
    ) -> Iterator[FilePart]:
        """See `FeedFormat.plan_summaries`."""
        del end
        return plan_summaries(source, summaries, rewritten)

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

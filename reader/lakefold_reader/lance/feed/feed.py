"""Change feeds of Lance tables, behind the seam of `lakefold_reader.format`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lakefold_reader.format.changes import Rewritten
from lakefold_reader.lance.feed.columns import LastVersion, last_of
from lakefold_reader.lance.feed.plan import last_of_summaries, plan_changes, plan_summaries, plan_version
from lakefold_reader.lance.feed.two_versions import difference_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakefold_reader.format.changes import Misfits
    from lakefold_reader.format.source import FeedEnd, PartReader, Schema, Source
    from lakefold_reader.lance.feed.parts import FragmentPart
    from lakefold_reader.lance.scan.columns import TableSchema
    from lakefold_table.format import VersionSummary


class LanceFeed:
    """See `FeedFormat`."""

    end = staticmethod(last_of)

    def end_of(self, summaries: Sequence[VersionSummary], schema: Schema) -> LastVersion:
        """See `FeedFormat.end_of`."""
        return last_of_summaries(summaries, cast("TableSchema", schema))

    def pinned_end(self, version: int, schema: Schema) -> LastVersion:
        """See `FeedFormat.pinned_end`."""
        return LastVersion(version, cast("TableSchema", schema), version, None)

    def plan(self, source: Source, after: int, end: FeedEnd, rewritten: Rewritten) -> Iterator[FragmentPart]:
        """See `FeedFormat.plan`."""
        shown = cast("LastVersion", end)
        return plan_changes(source, after, end.version, rewritten=rewritten, shown=shown)

    def plan_summaries(
        self, source: Source, summaries: Sequence[VersionSummary], end: FeedEnd, rewritten: Rewritten
    ) -> Iterator[FragmentPart]:
        """See `FeedFormat.plan_summaries`."""
        return plan_summaries(source, summaries, cast("LastVersion", end), rewritten=rewritten)

    def plan_row(
        self, source: Source, summary: VersionSummary, end: FeedEnd, values: Mapping[str, pa.Scalar]
    ) -> Iterator[FragmentPart]:
        """See `FeedFormat.plan_row`. Fragments have no statistics."""
        del values
        return self.plan(source, summary.version - 1, end, Rewritten.ROWS)

    def keeps_columns(self, summary: VersionSummary) -> bool:
        """See `FeedFormat.keeps_columns`. Each version has its columns beside its fragments."""
        del summary
        return False

    difference = staticmethod(difference_of)

    def plan_content(self, source: Source, version: int, to: int) -> Iterator[FragmentPart]:
        """See `FeedFormat.plan_content`."""
        return plan_version(source, version, whole=True, to=to)

    def schema(self, columns: Schema) -> pa.Schema:
        """See `FeedFormat.schema`."""
        from lakefold_reader.format.feed_rows import check_free_names
        from lakefold_reader.lance.feed.rows import feed_schema

        shown = cast("TableSchema", columns)
        check_free_names(shown.names)
        return feed_schema(shown)

    def columns(self, schema: Schema, names: Sequence[str] | None) -> TableSchema:
        """See `FeedFormat.columns`."""
        from lakefold_reader.lance.feed.rows import shown_columns

        return shown_columns(cast("TableSchema", schema), names)

    def reader(self, source: Source, columns: Schema, misfits: Misfits) -> PartReader:
        """See `FeedFormat.reader`."""
        from lakefold_reader.lance.feed.rows import FragmentPartReader

        return cast("PartReader", FragmentPartReader(source, cast("TableSchema", columns), misfits))

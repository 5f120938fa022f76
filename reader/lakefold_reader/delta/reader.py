"""Delta tables behind the seam of `lakefold_reader.format`.

What reads Parquet files is loaded when the first Delta table is opened: most readers open none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, cast

from lakefold_reader.delta.versions import CommitContent, not_built, read_state, read_summary
from lakefold_reader.format.snapshots import Traffic
from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
from lakefold_table.delta.actions.table_actions import TableMetadata
from lakefold_table.delta.log_segment.names import FOLDER
from lakefold_table.delta.naming import detect
from lakefold_table.delta.record_counts import record_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakefold_reader.delta.schema import DeltaSchema
    from lakefold_reader.delta.snapshot import OpenedDelta
    from lakefold_reader.format.source import FeedFormat, Schema, Source
    from lakefold_table.delta.naming import CommitNaming
    from lakefold_table.format import VersionSummary
    from lakefold_table.marks.record import Record


class DeltaReader:
    """See `ReaderFormat`."""

    name = "delta"
    folder = FOLDER

    @property
    def feed(self) -> FeedFormat:
        """See `ReaderFormat.feed`."""
        raise not_built("the change feed")

    def detect(self, names: Iterable[str]) -> CommitNaming | None:
        """See `ReaderFormat.detect`."""
        return detect(names)

    def summary(
        self, source: Source, version: int, *, whole: bool, first: int | None
    ) -> VersionSummary | None:
        """See `ReaderFormat.summary`. A commit is read whole."""
        del whole, first
        return read_summary(source, version)

    def schema(self, summary: VersionSummary) -> DeltaSchema | None:
        """See `ReaderFormat.schema`."""
        from lakefold_reader.delta.schema import schema_of

        changed = (each for each in _content(summary).actions if isinstance(each, TableMetadata))
        metadata = next(changed, None)
        return None if metadata is None else schema_of(metadata.schema_text)

    def change(self, source: Source, summary: VersionSummary, schema: Schema, *, whole: bool) -> NoReturn:
        """See `ReaderFormat.change`."""
        del summary, schema, whole
        raise not_built("following versions", source.uri)

    def traffic(self, source: Source, summary: VersionSummary, record: Record | None) -> Traffic:
        """Returns the rows and files by the version's actions; None for rows that no statistics count."""
        del source, record
        actions = _content(summary).actions
        adds = [each for each in actions if isinstance(each, AddFile)]
        removes = [each for each in actions if isinstance(each, RemoveFile)]
        return Traffic(_rows(adds), _rows(removes), len(adds), len(removes))

    def open(self, source: Source, version: int) -> OpenedDelta:
        """See `ReaderFormat.open`."""
        from lakefold_reader.delta.snapshot import OpenedDelta

        return OpenedDelta(source, *read_state(source, version))

    def scan_units(self, source: Source, version: int) -> NoReturn:
        """See `ReaderFormat.scan_units`."""
        del version
        raise not_built("Spark's source", source.uri)

    def scan(
        self, source: Source, version: int, units: Sequence[object], schema: Schema, where: str | None
    ) -> Iterator[NoReturn]:
        """See `ReaderFormat.scan`."""
        del version, units, schema, where
        raise not_built("Spark's source", source.uri)

    def answers_filters(self, summary: VersionSummary) -> bool:
        """Returns False: filters are not built."""
        del summary
        return False

    def clean_up(self, source: Source, newest: int, versions: Sequence[int], *, dry_run: bool) -> NoReturn:
        """See `ReaderFormat.clean_up`."""
        del newest, versions, dry_run
        raise not_built("cleaning up versions", source.uri)

    def branch_root(self, branch: str) -> str:
        """Returns the main branch's root: Delta has no branches."""
        if branch:
            raise not_built("branches")
        return ""

    def check_branch_name(self, name: str) -> None:
        """Raises `NotBuiltError`: Delta has no branches."""
        del name
        raise not_built("branches")


def _content(summary: VersionSummary) -> CommitContent:
    return cast("CommitContent", summary.content)


def _rows(files: Sequence[AddFile | RemoveFile]) -> int | None:
    """Returns the rows in the files whose rows are new or gone, None if statistics don't count all."""
    counts = [record_count(file) for file in files if file.data_change]
    return None if any(count is None for count in counts) else sum(count or 0 for count in counts)

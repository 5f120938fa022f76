"""Delta tables behind the seam of `lakefold_reader.format`.

What reads Parquet files is loaded when the first Delta table is opened: most readers open none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from lakefold_reader.delta.versions import content_of, not_built, read_state, read_summary
from lakefold_reader.format.snapshots import Cleaned, VersionCounts
from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
from lakefold_table.delta.actions.table_actions import TableMetadata
from lakefold_table.delta.log_segment.names import FOLDER, detect
from lakefold_table.delta.record_counts import record_count
from lakefold_table.delta.sharing import replaces_content

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from lakefold_reader.delta.changed_rows import ChangedFiles
    from lakefold_reader.delta.feed.feed import DeltaFeed
    from lakefold_reader.delta.schema import DeltaSchema
    from lakefold_reader.delta.snapshot import OpenedDelta
    from lakefold_reader.delta.units import FileUnit
    from lakefold_reader.delta.versions import CommitContent
    from lakefold_reader.format.source import ScanUnit, Schema, Source
    from lakefold_table.format import VersionSummary
    from lakefold_table.marks.record import Record

_APPENDS: Final = frozenset({"WRITE", "STREAMING UPDATE"})
"""Operations that write no row again, unless they replace the rows for which a predicate holds."""


class DeltaReader:
    """See `ReaderFormat`."""

    name = "delta"
    folder = FOLDER
    first_version = 0
    has_refs = False
    detect = staticmethod(detect)

    @property
    def feed(self) -> DeltaFeed:
        """See `ReaderFormat.feed`."""
        from lakefold_reader.delta.feed.feed import DeltaFeed

        return DeltaFeed()

    def summary(
        self, source: Source, version: int, *, whole: bool, first: int | None
    ) -> VersionSummary | None:
        """See `ReaderFormat.summary`. A commit is read whole."""
        del first
        return read_summary(source, version, whole=whole)

    def schema(self, summary: VersionSummary) -> DeltaSchema | None:
        """See `ReaderFormat.schema`."""
        from lakefold_reader.delta.schema import schema_in

        content = content_of(summary)
        changed = (each for each in content.actions if isinstance(each, TableMetadata))
        metadata = next(changed, None)
        if metadata is None and content.metadata is not None:
            metadata = content.metadata()
        return None if metadata is None else schema_in(metadata)

    def change(self, source: Source, summary: VersionSummary, schema: Schema, *, whole: bool) -> ChangedFiles:
        """See `ReaderFormat.change`."""
        from lakefold_reader.delta.changed_rows import ChangedFiles

        return ChangedFiles(source, summary, cast("DeltaSchema", schema), whole=whole)

    def counts(self, source: Source, summary: VersionSummary, record: Record | None) -> VersionCounts:
        """Returns the rows and files by the version's actions; None for rows that no statistics count.

        Rows that were written again as they were are neither: they are known by a committer's answers, or by
        another client's metrics; rows of files that stay by their deletion vectors.
        """
        del source
        content = content_of(summary)
        adds = [each for each in content.actions if isinstance(each, AddFile)]
        removes = [each for each in content.actions if isinstance(each, RemoveFile)]
        rows = _changed_rows(content)
        if record is not None and summary.own and any(each.data_change for each in removes):
            answers = record.committed.values()
            rows = sum(each.rows_added for each in answers), sum(each.rows_deleted for each in answers)
        return VersionCounts(*rows, len(adds), len(removes))

    def open(self, source: Source, version: int) -> OpenedDelta:
        """See `ReaderFormat.open`."""
        from lakefold_reader.delta.snapshot import OpenedDelta

        return OpenedDelta(source, *read_state(source, version))

    def scan_units(self, source: Source, version: int) -> list[FileUnit]:
        """Returns the logical files of a version."""
        from lakefold_reader.delta.units import FileUnit

        _, snapshot = read_state(source, version)
        return [FileUnit.of(file) for _, file in sorted(snapshot.files.items())]

    def scan(
        self, source: Source, version: int, units: Sequence[ScanUnit], schema: Schema, where: str | None
    ) -> Iterator[pa.RecordBatch]:
        """See `ReaderFormat.scan`. Only data files are read."""
        from lakefold_reader.delta.units import batches_of

        del version
        files = [unit.file for unit in cast("Sequence[FileUnit]", units)]
        return batches_of(source, files, cast("DeltaSchema", schema), where)

    def answers_filters(self, summary: VersionSummary) -> bool:
        """Returns True: a row meets a filter by its values alone."""
        del summary
        return True

    def clean_up(
        self,
        source: Source,
        newest: int,
        versions: Sequence[int],
        *,
        begin: Callable[[Sequence[int]], None] | None,
    ) -> Cleaned:
        """See `ReaderFormat.clean_up`. The versions after the last checkpoint among them stay."""
        del newest
        from lakefold_reader.delta.clean_up import clean_up

        return clean_up(source, versions, begin)

    def branch_root(self, branch: str) -> str:
        """Returns the main branch's root: Delta has no branches."""
        if branch:
            raise not_built("branches")
        return ""

    def check_branch_name(self, name: str) -> None:
        """Raises `NotBuiltError`: Delta has no branches."""
        del name
        raise not_built("branches")


def _changed_rows(content: CommitContent) -> tuple[int | None, int | None]:
    """Returns how many rows are new and how many are gone, None for what is not known."""
    actions = content.actions
    adds = {each.path: each for each in actions if isinstance(each, AddFile) and each.data_change}
    removes = {each.path: each for each in actions if isinstance(each, RemoveFile) and each.data_change}
    new_files = [file for path, file in adds.items() if path not in removes]
    gone_files = [file for path, file in removes.items() if path not in adds]
    lost = [_deleted(adds[path]) - _deleted(removes[path]) for path in adds.keys() & removes.keys()]
    added, removed = _rows(new_files), _rows(gone_files)
    new = None if added is None else added + sum(max(0, -each) for each in lost)
    gone = None if removed is None else removed + sum(max(0, each) for each in lost)
    info = content.info
    parameters = info.extra.get("operationParameters")
    given = parameters if isinstance(parameters, dict) else {}
    appends = info.operation in _APPENDS and not given.get("predicate")
    if not gone_files or appends or replaces_content(info.operation, given):
        return new, gone
    if not new_files and gone is not None:
        return new, gone
    changed = None if new is None else info.rows_changed(new, gone)
    return changed or (None if new_files else new, None)


def _deleted(file: AddFile | RemoveFile) -> int:
    return 0 if file.deletion_vector is None else file.deletion_vector.cardinality


def _rows(files: Iterable[AddFile | RemoveFile]) -> int | None:
    counts = [record_count(file) for file in files]
    return None if None in counts else sum(count or 0 for count in counts)

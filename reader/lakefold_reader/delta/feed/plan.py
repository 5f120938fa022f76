"""Plans the change feed of a Delta table from the commits alone, version by version."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lakefold_reader.delta.data_files import live_rows, portable
from lakefold_reader.delta.effect import CommitEffect, effect_of, last_offset, offsets_of
from lakefold_reader.delta.feed.hidden_columns import dropped, lacking, returned
from lakefold_reader.delta.feed.unchanged_rows import rewrites
from lakefold_reader.delta.versions import content_of, metadata_at, read_state
from lakefold_reader.format.changes import ChangeType, ReadCost, Rewritten, RewrittenError
from lakefold_reader.format.source import ChangePart
from lakefold_reader.versions.late_versions import expired_late, is_late
from lakefold_reader.versions.ranges import expired
from lakefold_reader.versions.times import limited
from lakefold_table.delta.record_counts import record_count
from lakefold_table.delta.rows.row_moves import rows_left_out
from lakefold_table.marks.record import decode_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakefold_reader.delta.data_files import StoredRows
    from lakefold_reader.delta.feed.hidden_columns import Path
    from lakefold_reader.delta.feed.unchanged_rows import Rewrite
    from lakefold_reader.delta.schema import DeltaSchema
    from lakefold_reader.format.source import Source
    from lakefold_table.delta.actions.file_actions import AddFile, DeletionVector, RemoveFile
    from lakefold_table.format import VersionSummary
    from lakefold_table.marks.record import Record

ROW_BYTES: Final = 16
"""The least bytes of a row, by which rows are estimated if their number is not known."""
ORDER: Final = (
    ChangeType.DELETE,
    ChangeType.UPDATE_PREIMAGE,
    ChangeType.UPDATE_POSTIMAGE,
    ChangeType.INSERT,
)
"""The order of the parts of a version. If they are applied in it, a row is never in the table twice."""


@dataclass(frozen=True, slots=True)
class FilePart(ChangePart):
    """Some rows of a data file; see `ChangePart`.

    `in_change_file`: the file has changes of several kinds, and the rows are those of this kind. `rewrite`:
    if there is one, rows that it left as they were are none of the part. `hidden`: columns that the table
    lacked then, whatever the file has of them.
    """

    rows: StoredRows
    in_change_file: bool = False
    rewrite: Rewrite | None = None
    hidden: frozenset[Path] = frozenset()

    @property
    def row_count(self) -> int | None:
        """See `ChangePart.row_count`."""
        return None if self.in_change_file or self.rewrite is not None else self.rows.rows

    @property
    def cost(self) -> ReadCost:
        """How many rows they are, and the bytes of the data file; all of its rows if that is not known."""
        counted = self.rows.rows
        return ReadCost(self.rows.size // ROW_BYTES if counted is None else counted, self.rows.size)


def summaries_between(source: Source, after: int, to: int) -> Iterator[VersionSummary]:
    """Yields the versions after `after` up to `to`. Raises `VersionExpiredError` in its turn."""
    before: VersionSummary | None = None
    for version in range(after + 1, to + 1):
        summary = source.summary(version)
        if summary is None:
            raise expired(source, f"version {version} is gone: it was cleaned up")
        if before is not None:
            if is_late(source, before, summary):
                raise expired_late(source, before.version)
            yield before
        before = summary
    if before is not None:
        yield before


def plan_summaries(
    source: Source, summaries: Iterable[VersionSummary], rewritten: Rewritten, shown: DeltaSchema
) -> Iterator[FilePart]:
    """Yields what these versions did, for rows in the columns `shown`. Raises `RewrittenError` if chosen."""
    hidden: frozenset[Path] = frozenset()
    for summary in summaries:
        effect = effect_of(content_of(summary))
        changed = ChangedColumns.of(source, summary, effect, shown)
        before, hidden = hidden | changed.returned, (hidden | changed.dropped) - changed.returned
        is_first = summary.version == source.versions.first
        if effect.replaces and not is_first and rewritten is not Rewritten.ROWS:
            if rewritten is Rewritten.FAIL:
                raise RewrittenError(
                    f"version {summary.version} ({summary.operation}) replaced the table's content",
                    version=summary.version,
                    where=source.uri,
                    hint='read that version whole, or choose rewritten="rows" or "skip"',
                )
            continue
        for part in parts_of(source, summary, effect, changed):
            of_old_rows = part.change_type in (ChangeType.DELETE, ChangeType.UPDATE_PREIMAGE)
            lacking = before if of_old_rows else hidden
            yield replace(part, hidden=lacking) if lacking else part


@dataclass(frozen=True, slots=True)
class ChangedColumns:
    """The columns that a version dropped, and those that it brought back, with their values in data files.

    A dropped column counts only if the feed shows it, since a later version has it again.
    """

    dropped: frozenset[Path] = frozenset()
    returned: frozenset[Path] = frozenset()

    @classmethod
    def of(
        cls, source: Source, summary: VersionSummary, effect: CommitEffect, shown: DeltaSchema
    ) -> ChangedColumns:
        """Raises `VersionExpiredError` if the version before is needed and gone."""
        metadata = effect.metadata
        if metadata is None or not metadata.maps_columns or summary.version == source.versions.first:
            return cls()
        if not effect.replaces and not lacking(metadata, shown):
            return cls()
        before = metadata_at(source, summary.version - 1)
        return cls(dropped(before, metadata, shown), returned(before, metadata))


def parts_of(
    source: Source, summary: VersionSummary, effect: CommitEffect, changed: ChangedColumns | None = None
) -> Iterator[FilePart]:
    """Yields what a version did to rows, in the order of `ORDER`.

    `changed`: if there are any, all rows of files that stay have other values.
    """
    if changed is not None and (changed.dropped or changed.returned):
        effect, kept = _with_kept_files(source, summary.version, effect)
        time_us, offset = summary.time_us, last_offset(_record_of(source, summary))
        images = [
            FilePart(summary.version, time_us, kind, offset, rows)
            for kind in (ChangeType.UPDATE_PREIMAGE, ChangeType.UPDATE_POSTIMAGE)
            for rows in kept
        ]
        parts = [*images, *_changed_parts(source, summary, effect)]
        yield from sorted(parts, key=lambda part: ORDER.index(part.change_type))
    else:
        yield from _changed_parts(source, summary, effect)


def _with_kept_files(
    source: Source, version: int, effect: CommitEffect
) -> tuple[CommitEffect, list[StoredRows]]:
    """Returns what a version did to files other than those that stayed as they were, and these files' rows.

    A file with another deletion vector counts as another file.
    """
    was, now = read_state(source, version - 1)[1].files, read_state(source, version)[1].files
    both = [(was[path], now[path]) for path in sorted(was.keys() & now.keys())]
    other = [pair for pair in both if portable(pair[0].deletion_vector) != portable(pair[1].deletion_vector)]
    kept = [live_rows(after, record_count(after)) for before, after in both if (before, after) not in other]
    deleted = [live_rows(before, record_count(before)) for before, _ in other]
    restored = [live_rows(after, record_count(after)) for _, after in other]
    return replace(effect, deleted=deleted, restored=restored), kept


def _record_of(source: Source, summary: VersionSummary) -> Record | None:
    return decode_record(summary.properties, source.uri) if summary.own else None


def _changed_parts(source: Source, summary: VersionSummary, effect: CommitEffect) -> Iterator[FilePart]:
    record = _record_of(source, summary)
    last = last_offset(record)
    version, time_us = summary.version, summary.time_us
    by_path = {file.path: file for file in effect.removed}
    copies, left_out = rows_left_out(() if effect.replaces else effect.added, by_path)
    removed = [
        _gone(_described(source, version, file), record_count(file), left_out.get(file.path))
        for file in effect.removed
    ]
    new = [live_rows(file, record_count(file)) for file in effect.added]
    of_rewrites = (
        {} if effect.replaces else rewrites(removed, (rows for rows in new if rows.path not in copies))
    )
    for rows in removed:
        yield FilePart(version, time_us, ChangeType.DELETE, last, rows, rewrite=of_rewrites.get(rows.path))
    for deleted in effect.deleted:
        yield FilePart(version, time_us, ChangeType.DELETE, last, deleted)
    for kind in ORDER:
        for change_file in effect.change_files:
            yield FilePart(version, time_us, kind, last, live_rows(change_file), in_change_file=True)
    for restored in effect.restored:
        yield FilePart(version, time_us, ChangeType.INSERT, last, restored)
    for rows, offset in zip(new, offsets_of(effect.added, record), strict=True):
        if rows.path not in copies:
            rewrite = of_rewrites.get(rows.path)
            yield FilePart(version, time_us, ChangeType.INSERT, offset, rows, rewrite=rewrite)


def content_parts(source: Source, version: int) -> Iterator[FilePart]:
    """Yields the whole content of a version as inserts. Raises as `read_state`."""
    state, snapshot = read_state(source, version)
    for file in sorted(snapshot.files.values(), key=lambda each: each.path):
        rows = live_rows(file, record_count(file))
        yield FilePart(version, limited(state.time_us), ChangeType.INSERT, None, rows)


def _gone(file: AddFile | RemoveFile, count: int | None, left_out: DeletionVector | None) -> StoredRows:
    """Returns the rows of a removed file that are gone. `left_out`: no new file has these, all others one."""
    rows = live_rows(file, count)
    if left_out is None:
        return rows
    before = 0 if rows.without is None else rows.without.cardinality
    return replace(rows, within=portable(left_out), rows=left_out.cardinality - before)


def _described(source: Source, version: int, file: RemoveFile) -> AddFile | RemoveFile:
    """Returns a removed file with its partition values and size, which its action may lack."""
    if file.partition_values is not None and file.size is not None:
        return file
    before = read_state(source, version - 1)[1].files.get(file.path)
    if before is None:
        return file
    return replace(file, partition_values=before.partition_values, size=before.size)

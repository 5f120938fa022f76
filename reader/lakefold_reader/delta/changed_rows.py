"""The rows that a version of a Delta table inserted, and how much a reader has to read for them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from lakefold_reader.delta.effect import CommitEffect, count_of, effect_of, exact_offsets
from lakefold_reader.delta.feed.plan import content_parts, plan_summaries
from lakefold_reader.delta.versions import content_of, metadata_at
from lakefold_reader.format.changes import (
    NOTHING,
    ChangeType,
    Misfits,
    ReadCost,
    Rewritten,
    UnknownChangeError,
)
from lakefold_reader.row_stream import row_stream
from lakefold_table.errors import LakefoldError
from lakefold_table.marks.record import decode_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    import pyarrow as pa

    from lakefold_reader.delta.feed.plan import FilePart
    from lakefold_reader.delta.schema import DeltaSchema
    from lakefold_reader.format.source import ChangePart, Source
    from lakefold_table.format import VersionSummary


_APPENDS: Final = frozenset({"WRITE", "STREAMING UPDATE"})
"""The operations of entries that may share a version and only append."""


class ChangedFiles:
    """What a version did to the rows of its table. `whole`: all its rows count as inserted."""

    def __init__(self, source: Source, summary: VersionSummary, schema: DeltaSchema, *, whole: bool) -> None:
        self._source = source
        self._summary = summary
        self._schema = schema
        self._whole = whole

    @cached_property
    def only_inserts(self) -> bool:
        """See `VersionChange.only_inserts`. The version before is read if this one has new metadata."""
        return self._whole or (self._effect.only_adds and self._keeps_columns)

    @cached_property
    def rows(self) -> int | None:
        """See `VersionChange.rows`."""
        if not self._is_known:
            return None
        counts = [part.rows.rows for part in self._inserts]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def cost(self) -> ReadCost:
        """The rows and bytes of the files that the version added, and the rows that it deleted."""
        if self._whole:
            return sum((part.cost for part in self._inserts), start=NOTHING)
        effect = self._effect
        deleted = count_of(effect.removed) or 0
        gone = sum(rows.rows or 0 for rows in effect.deleted)
        size = sum(file.size for file in effect.added) + sum(file.size for file in effect.change_files)
        return ReadCost((count_of(effect.added) or 0) + deleted + gone, size)

    def inserted(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        """See `Change.inserted`."""
        from lakefold_reader.delta.feed.rows import FilePartReader

        schema = self._schema.chosen(columns)
        if not self._is_known:
            raise self._not_known()
        reader = FilePartReader(self._source, schema)
        parts = self._inserts
        batches = (batch for part in parts for batch in reader.stored(part))
        return row_stream(schema.arrow, batches)

    def appended(self, columns: Sequence[str] | None) -> pa.RecordBatchReader:
        """See `Change.appended`. Which files have new rows alone is known only if the version did no more."""
        return self.inserted(columns)

    def feed(self, columns: Sequence[str] | None, misfits: Misfits) -> pa.RecordBatchReader:
        """See `Change.feed`."""
        from lakefold_reader.delta.feed.rows import feed_of

        parts = self._inserts if self._whole else self._parts
        return feed_of(self._source, parts, self._schema.chosen(columns), misfits)

    def is_appended(self) -> Callable[[ChangePart], bool]:
        """See `VersionChange.is_appended`; entries that only append may share their version with others.

        Raises `UnknownChangeError` if it is not known which files they have added.
        """
        appending = None if self._effect.only_adds else self._appending()

        def appended(part: ChangePart) -> bool:
            is_insert = part.change_type is ChangeType.INSERT
            return is_insert and (appending is None or part.log_offset in appending)

        return appended

    def _appending(self) -> AbstractSet[int]:
        """Returns the offsets of the entries that only appended."""
        summary, effect = self._summary, self._effect
        record = decode_record(summary.properties, self._source.uri) if summary.own else None
        if record is None:
            return frozenset()
        offsets = {at for at, operation in record.operation_of.items() if operation in _APPENDS}
        if offsets and (effect.change_files or exact_offsets(effect.added, record) is None):
            raise self._not_known()
        return offsets

    @cached_property
    def _effect(self) -> CommitEffect:
        return effect_of(content_of(self._summary))

    @cached_property
    def _parts(self) -> list[FilePart]:
        return list(plan_summaries(self._source, [self._summary], Rewritten.ROWS, self._schema))

    @cached_property
    def _inserts(self) -> list[FilePart]:
        if self._whole:
            return list(content_parts(self._source, self._summary.version))
        return [part for part in self._parts if part.change_type is ChangeType.INSERT]

    @property
    def _is_known(self) -> bool:
        """Whether new rows can be distinguished from rows that another file had before."""
        effect = self._effect
        moves_rows = bool(effect.added) and bool(effect.removed or effect.deleted)
        return self._whole or effect.replaces or not moves_rows

    @property
    def _keeps_columns(self) -> bool:
        """Whether the columns of the version before still have their values. New columns are null there."""
        metadata, version = self._effect.metadata, self._summary.version
        if metadata is None or version == self._source.versions.first:
            return True
        from lakefold_reader.delta.feed.hidden_columns import returned
        from lakefold_reader.delta.schema import schema_in

        try:
            metadata_before = metadata_at(self._source, version - 1)
            before = schema_in(metadata_before).forms()
        except LakefoldError:
            # The version before is gone. It is not known which columns it had.
            return False
        now = self._schema.forms()
        keeps = all(now.get(name) == form for name, form in before.items())
        return keeps and not returned(metadata_before, metadata)

    def _not_known(self) -> UnknownChangeError:
        summary = self._summary
        return UnknownChangeError(
            f"version {summary.version} ({summary.operation}) does not record which rows it inserted",
            where=self._source.uri,
            hint="`feed` and `lakefold.changes` return what it deleted and inserted; a table with "
            "delta.enableChangeDataFeed = true records which rows its writers changed",
        )

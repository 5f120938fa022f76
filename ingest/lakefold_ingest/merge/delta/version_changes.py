"""A version of a Delta table on which an upsert or a delete is built: its proposals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa

from lakefold_ingest.delta.proposals import MERGE, begin_proposal
from lakefold_ingest.delta.replacement import check_removable
from lakefold_ingest.merge.delta.change_files import (
    change_files,
    inserted_files,
    rows_before,
)
from lakefold_ingest.merge.delta.deletions import DeltaDeletions, delete_rows
from lakefold_ingest.merge.delta.key_ranges import key_predicate
from lakefold_ingest.merge.delta.rows import DeltaRows
from lakefold_ingest.merge.matching import matched_in
from lakefold_ingest.merge.new_rows import RowsToWrite
from lakefold_ingest.merge.read_version import (
    OFFSET_BITS,
    OFFSET_WIDTH,
    ReadVersion,
    Rematch,
    offsets_by_number,
    united_rows,
)
from lakefold_ingest.merge.row_changes import FoundRows, RowChanges
from lakefold_ingest.rows.unused_files import remove_unused
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_reader.format.changes import ChangeType
from lakefold_table.bitmaps import Bitmap, decode_treemap, encode_treemap, numbers_of
from lakefold_table.delta.actions.file_actions import AddFile, ChangeFile
from lakefold_table.delta.actions.lines import lines_of, parse_actions
from lakefold_table.delta.actions.table_actions import CommitInfo
from lakefold_table.delta.conflicts.rules import ISOLATION, SERIALIZABLE, is_serializable
from lakefold_table.delta.table_features.row_tracking import PRESERVING
from lakefold_table.delta.validity import FEED, FEED_FEATURE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_ingest.delta.data_files import ParquetTarget
    from lakefold_ingest.delta.view import DeltaView
    from lakefold_ingest.merge.batch_keys import BatchKeys
    from lakefold_ingest.merge.merge_batch import MergeBatch
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.target import Target
    from lakefold_reader.format.source import Source
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

    Numbers = NDArray[np.uint64]

ANY_ROW: Final = "true"
"""The predicate of all rows."""


class DeltaReadVersion(DeltaRows, ReadVersion):
    """See `ReadVersion`."""

    def __init__(self, source: Source, snapshot: DeltaSnapshot, view: DeltaView) -> None:
        super().__init__(source, snapshot)
        self._view = view

    def matched_again(self, before: ReadVersion, keys: BatchKeys, matched: FoundRows) -> Rematch | None:
        """See `ReadVersion.matched_again`. Only files are read that the older version lacks."""
        if not isinstance(before, DeltaReadVersion) or not self._is_like(before):
            return None
        kept: list[tuple[Numbers, Numbers, NDArray[np.int64]]] = []
        unread = []
        older = _by_number(matched)
        for number in self.files_with(keys):
            file = self.files[number]
            old = before.numbers.get(file.path)
            deleted = None if old is None else self._deleted_since(before, before.files[old], file)
            if old is None or deleted is None:
                unread.append(number)
            elif old in older:
                positions, row_ids, choices = older[old]
                live = ~np.isin(positions, deleted)
                addresses = (np.uint64(number) << np.uint64(OFFSET_WIDTH)) + positions[live].astype(np.uint64)
                kept.append((addresses, row_ids[live], choices[live]))
        new = matched_in(self.scan(keys.names, unread), keys)
        is_same = not new.addresses.size and sum(each[0].size for each in kept) == matched.addresses.size
        return Rematch(FoundRows.of([*kept, (new.addresses, new.row_ids, new.choices)]), is_same)

    def _is_like(self, before: DeltaReadVersion) -> bool:
        ours, theirs = self.snapshot, before.snapshot
        return ours.metadata == theirs.metadata and ours.protocol == theirs.protocol

    def _deleted_since(
        self, before: DeltaReadVersion, older: AddFile, newer: AddFile
    ) -> NDArray[np.uint32] | None:
        """Returns the rows of a file that were deleted since, None if deleted ones are back."""
        if older.key == newer.key:
            return np.empty(0, np.uint32)
        then, now = before.deleted_rows(older), self.deleted_rows(newer)
        return numbers_of(now - then) if then <= now else None

    def write(self, target: Target, batch: MergeBatch, changes: RowChanges) -> Envelope:
        """See `ReadVersion.write`."""
        into, part = cast("ParquetTarget", target), Envelope()
        for path, rows in self._by_path(changes.deleted).items():
            part.delta.affected_rows[path] = encode_treemap({0: rows})
        if changes.deleted.size:
            check_removable(self._view)
        rows_to_write = RowsToWrite(
            self, into.fitting.schema, batch.source, changes.rewritings, changes.inserted
        )
        written: list[AddFile] = []
        change_data: Sequence[ChangeFile] = ()
        try:
            if rows_to_write.count:
                columns = batch.rows.column_names if changes.inserted.size else into.fitting.schema.names
                into = replace(into, fitting=self._view.ruled(into.fitting, columns))
                written.extend(self._write_rows(into, rows_to_write))
            if changes.deleted.size and self._has_feed:
                change_data = self._change_files(into, rows_to_write, changes)
        except BaseException as error:
            remove_unused(target, written, str(error))
            raise
        part.delta.actions = lines_of([*written, *change_data])
        self._add_reads(part, batch, changes)
        return part

    def _add_reads(self, part: Envelope, batch: MergeBatch, changes: RowChanges) -> None:
        """Adds what the merge has read beside the rows that it changes: see `is_serializable`."""
        keys, arrays = self.schema.chosen(batch.keys.names).columns, batch.keys.arrays
        if not self.is_serializable:
            if changes.inserted.size:
                rows = pa.array(changes.inserted)
                predicate = key_predicate(keys, [array.take(rows) for array in arrays])
                part.delta.read_predicates.append(predicate)
            return
        if changes.reads_all or batch.keys.count:
            predicate = ANY_ROW if changes.reads_all else key_predicate(keys, arrays)
            part.delta.read_predicates.append(predicate)
        for path, kept in self._by_path(changes.kept).items():
            part.delta.read_rows[path] = encode_treemap({0: kept})

    @property
    def is_serializable(self) -> bool:
        """Whether the table's isolation level is `Serializable`: then all that was read is judged.

        Otherwise the rows that change are, and the keys that are inserted.
        """
        return is_serializable(self.snapshot.metadata.configuration.get(ISOLATION))

    def _write_rows(self, target: ParquetTarget, rows: RowsToWrite) -> Iterator[AddFile]:
        """Writes new rows. With row tracking the rows that are moved keep their ids."""
        kept = self.kept_columns[:1]
        if not kept:
            return target.write(rows.batches())
        into = target.with_hidden(pa.schema([column.field for column in kept]))
        return into.write(_with_ids(target, rows, kept[0].field.name))

    def _change_files(
        self, target: ParquetTarget, rows: RowsToWrite, changes: RowChanges
    ) -> Sequence[ChangeFile]:
        moved = [rewriting.rows.addresses for rewriting in changes.rewritings]
        before = np.sort(np.concatenate([np.empty(0, np.uint64), *moved]))
        deleted = np.setdiff1d(changes.deleted, before)
        after = replace(rows, inserted=np.empty(0, np.int64))
        new = replace(rows, rewritings=())
        return change_files(
            target.fitted(),
            [
                (ChangeType.DELETE, rows_before(self, deleted)),
                (ChangeType.UPDATE_PREIMAGE, rows_before(self, before)),
                (ChangeType.UPDATE_POSTIMAGE, map(target.fitting.apply, after.batches())),
                (ChangeType.INSERT, map(target.fitting.apply, new.batches())),
            ],
        )

    def written(self, part: Envelope) -> Sequence[AddFile]:
        """See `ReadVersion.written`."""
        return [action for action in parse_actions(part.delta.actions) if isinstance(action, AddFile)]

    def proposal(
        self, target: Target, key: Key, parts: Sequence[Envelope], names: Sequence[str]
    ) -> Envelope | None:
        """See `ReadVersion.proposal`."""
        rows = united_rows(map(_affected, parts), "the file", self.source.uri)
        actions = [list(parse_actions(part.delta.actions)) for part in parts]
        if not rows and not any(actions):
            return None
        predicate = " AND ".join(f"target.{name} = source.{name}" for name in names)
        into = cast("ParquetTarget", target)
        files = [action for each in actions for action in each if isinstance(action, AddFile)]
        change_data = [action for each in actions for action in each if isinstance(action, ChangeFile)]
        removed = delete_rows(self, into, rows)
        if change_data:
            only_new = [
                file
                for each in actions
                if not any(isinstance(action, ChangeFile) for action in each)
                for file in each
                if isinstance(file, AddFile)
            ]
            change_data += inserted_files(self, into, only_new)
        envelope = self._begun(key, MERGE, predicate, removed, files, change_data)
        for part in parts:
            envelope.delta.read_predicates.extend(part.delta.read_predicates)
            for path, kept in part.delta.read_rows.items():
                both = decode_treemap(kept, "a part's rows")
                if path in envelope.delta.read_rows:
                    before = decode_treemap(envelope.delta.read_rows[path], "a part's rows")
                    both = {0: both.get(0, Bitmap()) | before.get(0, Bitmap())}
                envelope.delta.read_rows[path] = encode_treemap(both)
        return envelope

    def deletion(self, target: Target, key: Key, addresses: Numbers, predicate: str) -> Envelope:
        """See `ReadVersion.deletion`."""
        envelope = self.replacement(cast("ParquetTarget", target), key, addresses, (), predicate, "DELETE")
        if self.is_serializable:
            # Rows for which it does not hold are not changed, whatever others do to them.
            envelope.delta.read_predicates.append(predicate)
        return envelope

    def replacement(
        self,
        target: ParquetTarget,
        key: Key,
        addresses: Numbers,
        files: Sequence[AddFile],
        predicate: str,
        operation: str,
    ) -> Envelope:
        """Returns the proposal that deletes rows and adds files. `operation`: as Delta names it."""
        check_removable(self._view)
        removed = delete_rows(self, target, self._by_path(addresses))
        change_data: list[ChangeFile] = []
        if removed.keeps_rows and self._has_feed:
            change_data += change_files(target.fitted(), [(ChangeType.DELETE, rows_before(self, addresses))])
            change_data += inserted_files(self, target, files)
        return self._begun(key, operation, predicate, removed, files, change_data)

    def _begun(
        self,
        key: Key,
        operation: str,
        predicate: str,
        removed: DeltaDeletions,
        files: Sequence[AddFile],
        change_data: Sequence[ChangeFile],
    ) -> Envelope:
        envelope = begin_proposal(self.source.uri, key, self.version, operation)
        infos = [PRESERVING] if self.kept_columns else []
        if removed.copied:
            infos.append(CommitInfo.of_copied(removed.copied))
        envelope.delta.actions = lines_of([*infos, *removed.removes, *removed.adds, *files, *change_data])
        envelope.delta.operation_parameters["predicate"] = predicate
        removed.add_to(envelope)
        envelope.delta.names_read_rows = True
        if self.is_serializable:
            envelope.delta.isolation = SERIALIZABLE
        return envelope

    @property
    def _has_feed(self) -> bool:
        return FEED_FEATURE in self._view.features and self.snapshot.metadata.is_on(FEED)

    def _by_path(self, addresses: Numbers) -> dict[str, Bitmap]:
        rows = offsets_by_number(addresses)
        return {self.files[number].path: offsets for number, offsets in rows.items()}


def _with_ids(target: ParquetTarget, rows: RowsToWrite, name: str) -> Iterator[pa.RecordBatch]:
    ids, start = rows.moved_ids.astype(np.int64), 0
    for batch in rows.batches():
        fitted = target.fitting.apply(batch)
        moved = pa.array(ids[start : start + fitted.num_rows])
        start += fitted.num_rows
        column = pa.concat_arrays([moved, pa.nulls(fitted.num_rows - len(moved), pa.int64())])
        yield pa.RecordBatch.from_arrays([*fitted.columns, column], [*fitted.schema.names, name])


def _by_number(matched: FoundRows) -> dict[int, tuple[NDArray[np.uint32], Numbers, NDArray[np.int64]]]:
    """Returns the positions, row ids and choices of found rows by the number of their file."""
    numbers, starts = np.unique(matched.addresses >> np.uint64(OFFSET_WIDTH), return_index=True)
    positions = (matched.addresses & np.uint64(OFFSET_BITS)).astype(np.uint32)
    columns = (np.split(column, starts[1:]) for column in (positions, matched.row_ids, matched.choices))
    return dict(zip(numbers.tolist(), zip(*columns, strict=True), strict=False))


def _affected(part: Envelope) -> Mapping[str, Bitmap]:
    return {
        path: decode_treemap(data, "a part's rows").get(0, Bitmap())
        for path, data in part.delta.affected_rows.items()
    }

"""Merges the rows of a batch by their keys in several tasks, each of which has all rows of some of the keys.

A task finds its rows in the table and writes the new ones as files. The driver gets no rows: from each task
it gets the fragments, the offsets of the rows that are deleted or moved, and the hashes of the inserted keys.
It makes one Update of them all. No two tasks change the same row, because they have no key in common.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_ingest.merge.batch_keys import BadKeysError
from lakefold_ingest.merge.deletions import delete_rows, offsets_by_fragment
from lakefold_ingest.merge.matching import FoundRows, matched_rows
from lakefold_ingest.merge.merge_batch import merge_batch
from lakefold_ingest.merge.new_rows import changed_columns
from lakefold_ingest.merge.read_version import open_read_version
from lakefold_ingest.operations.upsert import (
    ATTEMPTS,
    UpsertRows,
    changes_of,
    check_conditions,
    check_waits,
    name_inserted_keys,
    target_of,
    write_rows,
)
from lakefold_ingest.proposals.envelopes import begin_envelope
from lakefold_ingest.rows.unused_files import remove_unused
from lakefold_ingest.writing.view import view_at
from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_table.bitmaps import Bitmap, decode_bitmap, encode_bitmap
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from lakefold_ingest.merge.clauses import Merge
    from lakefold_ingest.merge.read_version import ReadVersion
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.fragments import Target
    from lakefold_ingest.writing.operation import BatchColumns
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_ingest.writing.view import View

LOGGER = logging.getLogger("lakefold")


@dataclass(frozen=True, slots=True)
class MergedRows:
    """What a task found and wrote.

    `part`: an encoded envelope with nothing but the rows that are deleted or moved, the new fragments and the
    inserted keys. `fault`: message, location and hint of the reason why it stopped, or None; `bad_columns`
    and `bad_rows`: as in `BadKeysError`, if it is one.
    """

    part: bytes
    fault: tuple[str, str, str] | None = None
    bad_columns: tuple[str, ...] = ()
    bad_rows: int = 0


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What a task needs to merge its rows into a version of the table: the driver sends it to executors."""

    target: Target
    version: int
    merge: Merge

    def run(self, rows: pa.Table) -> MergedRows:
        """Merges all rows of the batch that have some of its keys. Nothing in the table changes by that.

        Rows that can't be merged are returned as a fault, not raised: Spark would run the task again, and
        then report a text of many lines. If the task fails, its files are removed.
        """
        try:
            return MergedRows(self._part(rows).SerializeToString())
        except InvalidError as error:
            reason = error.message, error.where, error.hint
            if isinstance(error, BadKeysError):
                return MergedRows(b"", reason, error.columns, error.rows)
            return MergedRows(b"", reason)

    def _part(self, rows: pa.Table) -> Envelope:
        merge, options = self.merge, self.target.storage_options
        view = view_at(self.target.uri, self.version, options)
        table = open_read_version(view, options)
        batch = UpsertRows(rows, merge).batch(view)
        changes = changes_of(table, batch, merge, matched_rows(table, batch.keys), FoundRows.of([]))
        part = Envelope()
        for number, offsets in offsets_by_fragment(changes.deleted).items():
            part.affected_rows[number] = encode_bitmap(offsets)
        update = part.lance.update
        changed = changed_columns(changes.rewritings, merge.keys)
        update.fields_for_preserving_frag_bitmap.extend(view.field_ids(changed))
        if changes.inserted.size:
            name_inserted_keys(update, view, batch, changes.inserted)
        update.new_fragments.extend(write_rows(self.target, table, view, batch, changes))
        return part


@dataclass(frozen=True, slots=True)
class UpsertParts:
    """An `Operation` that merges rows which are not on the driver. `columns` are those of the batch.

    `run` has the tasks run and returns what they return. Each task has all rows of the batch with some of its
    keys. Clauses for rows that the batch lacks need the whole batch in one place (`UpsertRows`).
    """

    columns: pa.Schema
    merge: Merge
    run: Callable[[MergeTask], Sequence[MergedRows]]
    attempts: int = ATTEMPTS

    @property
    def schema(self) -> pa.Schema | None:
        """The schema with which the table is created if it doesn't exist. None: it must exist."""
        return self.columns if self.merge.inserts else None

    @property
    def batch_columns(self) -> BatchColumns | None:
        """The columns of the batch, if a clause writes values of it."""
        return UpsertRows(self.columns.empty_table(), self.merge).batch_columns

    def content(self, view: View) -> str:
        """Returns "": what it would change depends on the table as it was before the batch was folded."""
        del view
        return ""

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Has the tasks write the files, and returns the envelope of them all; None if no row changes.

        Raises `InvalidError` and `BadKeysError` as `UpsertRows` does, before the tasks if it can. Files of
        tasks are removed if another one fails.
        """
        check_waits(settings)
        empty = merge_batch(self.columns.empty_table(), self.merge, view.schema, view.uri)
        check_conditions(self.merge, empty, view)
        table = open_read_version(view, settings.storage_options)
        results = self.run(MergeTask(target_of(view, settings), view.version, self.merge))
        parts = [Envelope.FromString(result.part) for result in results]
        try:
            _raise_fault(results)
            return _united(begin_envelope(view.uri, key, view.version), parts, table, self.merge)
        except BaseException as error:
            written = [fragment for part in parts for fragment in part.lance.update.new_fragments]
            remove_unused(view.uri, settings.storage_options, written, str(error))
            raise


def _raise_fault(results: Sequence[MergedRows]) -> None:
    """Raises the fault of the first task that has one. If keys are bad, it counts the rows of all tasks."""
    fault = next((result for result in results if result.fault is not None), None)
    if fault is None or fault.fault is None:
        return
    message, where, hint = fault.fault
    if not fault.bad_columns:
        raise InvalidError(message, where=where, hint=hint)
    rows = sum(result.bad_rows for result in results if result.bad_columns == fault.bad_columns)
    raise BadKeysError(message, columns=fault.bad_columns, rows=rows, examples=(), where=where, hint=hint)


def _united(
    envelope: Envelope, parts: Sequence[Envelope], table: ReadVersion, merge: Merge
) -> Envelope | None:
    """Adds what all tasks did to the envelope; writes the deletion files. Returns None if no row changes."""
    rows = _rows_of(parts, table.source.uri)
    updates = [part.lance.update for part in parts]
    fragments = [fragment for update in updates for fragment in update.new_fragments]
    if not fragments and not rows:
        return None
    inserted = sum(len(update.inserted_rows.exact.key_hashes) for update in updates)
    written = sum(fragment.physical_rows for fragment in fragments)
    LOGGER.info(
        "%s tasks change version %s of %s: %s rows updated, %s inserted, %s deleted",
        len(parts),
        table.version,
        table.source.uri,
        written - inserted,
        inserted,
        sum(map(len, rows.values())) - (written - inserted),
    )
    deleted = delete_rows(table, rows)
    deleted.add_affected(envelope)
    if not fragments:
        deleted.as_delete(envelope, f"merged by {', '.join(merge.keys)}")
        return envelope
    deleted.as_update(envelope, fragments)
    changed = {number for update in updates for number in update.fields_for_preserving_frag_bitmap}
    envelope.lance.update.fields_for_preserving_frag_bitmap.extend(sorted(changed))
    for update in updates:
        if update.HasField("inserted_rows"):
            into = envelope.lance.update.inserted_rows
            into.field_ids[:] = update.inserted_rows.field_ids
            into.exact.key_hashes.extend(update.inserted_rows.exact.key_hashes)
    return envelope


def _rows_of(parts: Sequence[Envelope], where: str) -> Mapping[int, Bitmap]:
    """Returns the rows that all tasks delete or move. Raises `InvalidError` if two have the same."""
    rows: dict[int, Bitmap] = {}
    for part in parts:
        for number, data in part.affected_rows.items():
            offsets, others = decode_bitmap(data, "a task's rows"), rows.get(number, Bitmap())
            if others & offsets:
                raise InvalidError(
                    f"rows of fragment {number} have a key that two tasks had",
                    where=where,
                    hint="cast the key columns of the batch to the table's types",
                )
            rows[number] = others | offsets
    return rows

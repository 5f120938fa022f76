"""Applies change events to the table: the last event of each key writes its row, or deletes it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakefold_ingest.cdc.change_format import ChangeEnvelope, ChangeFormat
from lakefold_ingest.cdc.debezium import needs_types, new_columns, read_debezium
from lakefold_ingest.cdc.events import Events, by_numbers, mask, read_rows
from lakefold_ingest.cdc.last_changes import LastChanges, last_changes
from lakefold_ingest.cdc.moves import row_keys
from lakefold_ingest.merge.formats import merge_format
from lakefold_ingest.merge.matching import matched_rows
from lakefold_ingest.merge.row_changes import FoundRows, Rewriting, RowChanges
from lakefold_ingest.merge.turns import keys_of, turn_of
from lakefold_ingest.operations.append import KeepsBadRows
from lakefold_ingest.operations.upsert import ATTEMPTS, check_waits, log_changes
from lakefold_ingest.rows.divided_rows import without_old_rows
from lakefold_ingest.rows.row_faults import RowFaults
from lakefold_ingest.rows.source_columns import check_keys, own_columns, own_rows
from lakefold_ingest.view import BatchColumns, View
from lakefold_ingest.writing.reused_key import batch_content
from lakefold_table.errors import InvalidError, NotATableError, OptionName

if TYPE_CHECKING:
    from lakefold_ingest.merge.key_numbers import KeyShare
    from lakefold_ingest.merge.merge_batch import MergeBatch
    from lakefold_ingest.merge.read_version import ReadVersion
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.divided_rows import RowKeys
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_log.read.turns import Turn
    from lakefold_protos.lakefold.log_pb2 import Envelope


@dataclass(frozen=True, slots=True)
class ApplyChanges(KeepsBadRows):
    """An `Operation` that applies the events of a batch. `rows` are the events, in `format`.

    The last event of a key counts. If the table keeps the columns that order the events, an event that is
    older than the row in the table has no effect. A deleted row leaves nothing behind, so an older event that
    comes in a later batch than its deletion inserts the row again (decision 0074). Raises `InvalidError` if
    `source`, the columns that only bad rows keep, has a key.
    """

    rows: pa.Table
    format: ChangeFormat
    attempts: int = ATTEMPTS
    bad_rows: list[pa.Table] = field(default_factory=list, compare=False)
    source: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.format.envelope is not ChangeEnvelope.DEBEZIUM:
            # Debezium's rows are in columns: these have names of their own.
            check_keys(self.format.keys, self.source)

    @property
    def schema(self) -> pa.Schema | None:
        """The schema with which the table is created if it doesn't exist: that of the rows in the events.

        Raises `InvalidError` if a column is missing, or messages have one that is refused, `NotATableError`
        if the events are JSON without schemas.
        """
        schema = self._schema
        if schema is None:
            message = "the table does not exist, and no schema of a message says which columns it has"
            hint = (
                "append rows first, or a frame without rows that has its columns: that creates the table. "
                "Messages with schemas (value.converter.schemas.enable=true) create it by "
                "lakefold.apply_changes and sink"
            )
            raise NotATableError(message, where=OptionName("envelope"), hint=hint)
        return schema

    @property
    def _schema(self) -> pa.Schema | None:
        return new_columns(self.rows, self.format) if self._is_json else self._row_schema()

    @property
    def batch_columns(self) -> BatchColumns:
        """The columns of the rows in the events. Raises `InvalidError` if JSON doesn't say their types."""
        schema = self._schema
        if schema is None:
            hint = (
                "have the connector send schemas (value.converter.schemas.enable=true), give op, before and "
                "after as columns (from_json in Spark), or leave it out"
            )
            message = "JSON doesn't say which types new columns have"
            raise InvalidError(message, where=OptionName("merge_schema"), hint=hint)
        return BatchColumns(schema, keys=self.format.keys)

    @property
    def _is_json(self) -> bool:
        return self.format.envelope is ChangeEnvelope.DEBEZIUM and needs_types(self.rows.schema)

    def _row_schema(self) -> pa.Schema:
        none = self.rows.slice(0, 0)
        return self.with_rows(none)._events(None, RowFaults(0)).rows.schema  # noqa: SLF001 - its own class

    def last_changes(self, table: pa.Schema, where: str, *, keeps_bad_rows: bool = False) -> LastChanges:
        """Returns the last event of each key, for a table with this schema; `where` names it in errors.

        Events that can't be applied are left out and put into `bad_rows`, or if these are not kept, raise
        `BadRowsError`. Raises `InvalidError` if their columns don't fit.
        """
        self.bad_rows.clear()
        faults = RowFaults(self.rows.num_rows)
        changes = last_changes(self._events(table, faults), self.format.keys, table, where, faults)
        rows, old_rows = without_old_rows(self.rows)
        if old_rows is not None:
            # The part that has the new key reports the event.
            faults.clear(np.flatnonzero(mask(old_rows)))
        if faults.rows.size and not keeps_bad_rows:
            raise faults.error(rows, where)
        if faults.rows.size:
            self.bad_rows.append(faults.described(rows, source=self.source))
        return changes

    def build(self, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        """Writes the files of the changes and returns the envelope; None if no row changes.

        Raises as `last_changes` and `ReadVersion` do.
        """
        check_waits(settings)
        table, target = merge_format(view).opened(view, settings)
        batch, _, becomes = self.changes(table, view, keeps_bad_rows=bool(settings.bad_records))
        log_changes(key, view, becomes)
        return table.proposal(target, key, [table.write(target, batch, becomes)], self.format.keys)

    def said(self, view: View, rows: int | None = None) -> str:
        """See `SaysContent.said`: the events that it was given."""
        del view, rows
        return batch_content("changes", self.rows.column_names, self.rows.num_rows)

    def with_rows(self, rows: pa.Table) -> ApplyChanges:
        """Returns the same operation for other events."""
        return ApplyChanges(rows, self.format, self.attempts, source=self.source)

    @property
    def key_names(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return self.format.keys

    def row_keys(self, table: pa.Schema) -> RowKeys:
        """Returns the keys of the rows that the events are about; nulls if an event has none.

        `table` is the table's schema. Raises `InvalidError` if the envelopes can't be read.
        """
        events = self._events(table, RowFaults(self.rows.num_rows))
        rows = events.rows
        return row_keys(events, rows.select([name for name in self.format.keys if name in rows.column_names]))

    def turn(self, view: View, key: Key) -> Turn:
        """See `ChangesKeys.turn`."""
        changed = keys_of(self.row_keys(view.schema).keys, view.schema)
        return turn_of(view, key, changed, self.rows)

    def check(self, columns: pa.Schema, where: str, *, keeps_bad_rows: bool = False) -> None:
        """See `ChecksColumns.check`: the events."""
        self.last_changes(columns, where, keeps_bad_rows=keeps_bad_rows)

    def changes(
        self,
        table: ReadVersion,
        view: View,
        share: KeyShare | None = None,
        *,
        keeps_bad_rows: bool = False,
    ) -> tuple[MergeBatch, FoundRows, RowChanges]:
        """Returns the last events, the rows of the table that have their keys, and what becomes of them.

        `share` has no effect: no event is about a row that it doesn't name. Raises as `last_changes` and
        `ReadVersion` do.
        """
        del share
        changes = self.last_changes(view.schema, view.uri, keeps_bad_rows=keeps_bad_rows)
        matched = matched_rows(table, changes.batch.keys)
        return changes.batch, matched, row_changes(table, changes, matched)

    def _events(self, table: pa.Schema | None, faults: RowFaults) -> Events:
        """Returns the events, with the columns in their rows that the table has, or is going to have."""
        own_columns(self.rows.schema, self.source)
        rows = own_rows(self.rows, self.source, self.format.order_by)
        if self.format.envelope is ChangeEnvelope.DEBEZIUM:
            events = read_debezium(rows, self.format, table, faults)
        else:
            events = read_rows(rows, self.format, faults)
        events = replace(events, order=by_numbers(events.order, table))
        return events.with_order_in_rows(self.format, None if table is None else table.names)


def row_changes(table: ReadVersion, changes: LastChanges, matched: FoundRows) -> RowChanges:
    """Returns what becomes of the rows `matched` of the table, and which rows are inserted."""
    written = changes.batch.rows.num_rows
    new = np.ones(written, np.bool_)
    new[matched.choices[matched.choices < written]] = False
    stored, kept = pa.table({}), np.empty(0, np.uint64)
    if changes.order.num_columns:
        stored = table.rows_at(matched.addresses, changes.order.column_names)
        newer = changes.is_newer(matched.choices, stored)
        kept = matched.addresses[~newer]
        matched, stored = matched.only(newer), stored.filter(pa.array(newer))
    rewritings = [Rewriting(rows, columns) for rows, columns in changes.grouped_by_columns(matched, stored)]
    return RowChanges(rewritings, matched.addresses, np.flatnonzero(new), kept)

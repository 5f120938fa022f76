"""The rows of a batch as a merge needs them: in the table's types, one for each key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakefold_ingest.merge.batch_keys import (
    EMPTY,
    KEY,
    ORDER,
    BatchKeys,
    check_present,
    missing_values,
    note_empty_keys,
)
from lakefold_ingest.rows.fitting import Fitting, fit
from lakefold_ingest.rows.row_faults import RowFaults, faults_of

if TYPE_CHECKING:
    from lakefold_ingest.merge.clauses import Merge


@dataclass(frozen=True, slots=True)
class MergeBatch:
    """The row that counts for each key of a batch, in the types of the table, and the keys of these rows.

    `beside`: columns of these rows that the table lacks and a condition may name.
    """

    rows: pa.Table
    keys: BatchKeys
    beside: pa.Table = field(default_factory=lambda: pa.table({}))

    @property
    def source(self) -> pa.Table:
        """The rows with all columns that a condition may name."""
        return pa.table(
            [*self.rows.columns, *self.beside.columns],
            schema=pa.schema([*self.rows.schema, *self.beside.schema]),
        )


def merge_batch(rows: pa.Table, merge: Merge, table: pa.Schema, where: str) -> MergeBatch:
    """Returns the batch for a table with the schema `table`; `where` names the table in errors.

    The table need not have columns that order the rows or are in conditions (`Merge.left_out`). Raises
    `InvalidError` if columns are missing or don't fit the table; `BadKeysError` if a key or an ordering
    column has nulls or NaN, or a key is in several rows that nothing orders.
    """
    stored, fitting = _fitted(rows, merge, table, where)
    check_present(rows, merge.keys, KEY, merge.keys, where)
    check_present(rows, merge.order_by, ORDER, merge.keys, where)
    fitted = pa.Table.from_batches([fitting.apply(batch) for batch in stored.to_batches()], fitting.schema)
    check_present(fitted, merge.keys, KEY, merge.keys, where, EMPTY)
    keys = BatchKeys(fitted.select(merge.keys), where)
    if merge.needs_one_row and not merge.order_by:
        keys.check_unique()
    last = keys.last_rows(rows.select(merge.order_by))
    beside = rows.select(merge.left_out(rows.column_names, table.names))
    if last.size == fitted.num_rows:
        return MergeBatch(fitted, keys, beside)
    chosen = pa.array(last)
    fitted = fitted.take(chosen)
    return MergeBatch(fitted, BatchKeys(fitted.select(merge.keys), where), beside.take(chosen))


def merge_faults(rows: pa.Table, merge: Merge, table: pa.Schema, where: str) -> RowFaults:
    """Returns the rows of a batch that can't be merged: without key or order, or with values that don't fit.

    Raises `InvalidError` if columns are missing or don't fit the table.
    """
    stored, fitting = _fitted(rows, merge, table, where)
    faults = faults_of(stored.combine_chunks().to_batches()[0], fitting) if rows.num_rows else RowFaults(0)
    for role, names in ((KEY, merge.keys), (ORDER, merge.order_by)):
        for name in names:
            missing = np.flatnonzero(missing_values(rows.column(name)))
            faults.add(missing, name, f"the {role} column has no value (null or NaN)")
    note_empty_keys(rows, merge.keys, fitting.schema, np.arange(rows.num_rows), faults)
    return faults


def _fitted(rows: pa.Table, merge: Merge, table: pa.Schema, where: str) -> tuple[pa.Table, Fitting]:
    """Returns the columns that are stored, and how they become rows of the table."""
    merge.check_columns(rows.column_names, table.names, where)
    stored = rows.drop_columns(merge.left_out(rows.column_names, table.names))
    given = set(rows.column_names)
    named = [field for field in table if field.name in given]
    # Rows that are inserted have all columns; those that are updated keep the others.
    return stored, fit(stored.schema, table if merge.inserts else pa.schema(named, table.metadata), where)

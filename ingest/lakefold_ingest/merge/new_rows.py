"""The rows that an upsert writes: changed rows of the table first, then the rows of the batch that are new.

Columns that an update doesn't change are read from the table, a few thousand rows at a time. So the memory
that is needed depends on the batch and not on how wide the table's rows are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakefold_ingest.merge.conditions import SOURCE, TARGET, evaluated
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from lakefold_ingest.merge.read_version import ReadVersion
    from lakefold_ingest.merge.row_changes import Rewriting

ROWS_AT_ONCE = 8192


@dataclass(frozen=True, slots=True)
class RowsToWrite:
    """All rows of an upsert, in the order in which they are written.

    `schema` is the table's, in storage types. `batch` has the batch's rows in these types, as far as it has
    the columns, and those that only expressions name; `inserted` are the indices of those that are inserted.
    """

    table: ReadVersion
    schema: pa.Schema
    batch: pa.Table
    rewritings: Sequence[Rewriting]
    inserted: NDArray[np.int64]

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.moved_ids.size + self.inserted.size

    @property
    def moved_ids(self) -> NDArray[np.uint64]:
        """The ids of the rows that are in the table already, in the order in which they are written."""
        ids = [rewriting.rows.row_ids for rewriting in self.rewritings]
        return np.concatenate([np.empty(0, np.uint64), *ids])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows in the columns of `schema`."""
        for rewriting in self.rewritings:
            for start in range(0, rewriting.rows.addresses.size, ROWS_AT_ONCE):
                part = slice(start, start + ROWS_AT_ONCE)
                yield from self._rewritten(rewriting, part).to_batches()
        for start in range(0, self.inserted.size, ROWS_AT_ONCE):
            rows = self.batch.take(pa.array(self.inserted[start : start + ROWS_AT_ONCE]))
            yield from self._in_schema(
                {name: rows.column(name) for name in rows.column_names}, len(rows)
            ).to_batches()

    def _rewritten(self, rewriting: Rewriting, part: slice) -> pa.Table:
        addresses = rewriting.rows.addresses[part]
        columns: dict[str, pa.ChunkedArray] = {}
        sides: dict[str, pa.Table] = {}
        if rewriting.in_batch:
            sides[SOURCE] = rows = self.batch.take(pa.array(rewriting.rows.choices[part]))
            columns = {name: rows.column(name) for name in rewriting.batch_columns}
        kept = [name for name in self.schema.names if name not in rewriting.columns]
        needed = self.schema.names if rewriting.assignments else kept
        if needed:
            old = self.table.rows_at(addresses, needed)
            columns |= {name: old.column(name) for name in kept}
            values = evaluated(rewriting.assignments or {}, sides | {TARGET: old}, addresses.size)
            columns |= {name: values.column(name) for name in values.column_names}
        return self._in_schema(columns, addresses.size)

    def _in_schema(self, columns: Mapping[str, pa.ChunkedArray], rows: int) -> pa.Table:
        arrays = [
            in_type(columns[field.name], field) if field.name in columns else pa.nulls(rows, field.type)
            for field in self.schema
        ]
        return pa.table(arrays, schema=self.schema)


def in_type(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Returns a column in the field's type. Raises `InvalidError` naming the field if a value doesn't fit."""
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise InvalidError(
            f"a value doesn't fit the table's {field.type}: {error}", where=field.name
        ) from error


def changed_columns(rewritings: Sequence[Rewriting], keys: Collection[str]) -> frozenset[str]:
    """Returns the columns whose values change in some row. A matched row's key stays as it is."""
    columns = frozenset[str]().union(*(rewriting.batch_columns for rewriting in rewritings)) - frozenset(keys)
    return columns.union(*(rewriting.assignments or () for rewriting in rewritings))

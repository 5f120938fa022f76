"""A condition that every row of a batch must satisfy, checked while the rows are written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakefold_ingest.merge.conditions import columns_in, satisfied
from lakefold_ingest.rows.task_files import MisfitRowsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakefold_ingest.rows.target import Target

MOST_EXAMPLE = 300
"""How many characters of an example an error shows."""


@dataclass(frozen=True, slots=True)
class RowCondition:
    """SQL as pylance reads it, on columns of the table. `columns`: those of the table, in storage types.

    `name` is the option that has the condition, for errors.
    """

    where: str
    columns: pa.Schema
    name: str

    def check(self) -> None:
        """Raises `InvalidError` if the condition can't be evaluated on the table's columns."""
        satisfied(self.where, self.columns.empty_table(), self.name)

    def fitted(self, target: Target, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the batches in the table's types, until one has a row that doesn't satisfy the condition.

        Then it counts the other such rows and raises `MisfitRowsError`. Write what it yields for
        `Target.fitted`.
        """
        misfits, example = 0, ""
        for batch in batches:
            rows = target.fitting.apply(batch)
            holds = satisfied(self.where, self._needed(rows), self.name)
            wrong = np.flatnonzero(~holds)
            if wrong.size and not misfits:
                example = json.dumps(rows.slice(int(wrong[0]), 1).to_pylist()[0], default=str)
            misfits += wrong.size
            if not misfits:
                yield rows
        if misfits:
            reason = f"rows of the batch don't satisfy {self.where!r}, for example {example[:MOST_EXAMPLE]}"
            hint = "leave such rows out, or replace more rows by another condition"
            raise MisfitRowsError(reason, rows=misfits, where=self.name, hint=hint)

    def _needed(self, rows: pa.RecordBatch) -> pa.Table:
        """Returns the columns that the condition needs. A column that the batch lacks is null in its rows."""
        arrays = {
            name: rows.column(name)
            if name in rows.schema.names
            else pa.nulls(rows.num_rows, self.columns.field(name).type)
            for name in columns_in([self.where], self.columns.names) or self.columns.names[:1]
        }
        return pa.table(arrays)

"""A condition on the rows of a batch that replace those of a Delta table for which it holds.

It is decided as for the rows that are removed, so that a batch which was written once is removed by the next
write with the condition. So a value of `char(n)` is compared with its spaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_ingest.delta.row_rules import holds
from lakefold_ingest.merge.conditions import RowCondition
from lakefold_reader.delta.columns import inner
from lakefold_reader.delta.filters.condition import Condition
from lakefold_reader.delta.schema import schema_of
from lakefold_table.delta.predicates.syntax import parse_predicate
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class DeltaRowCondition(RowCondition):
    """See `RowCondition`. Can be pickled.

    `schema_text`: that of the table's metadata. `is_of_partitions`: no row is read to remove files.
    """

    schema_text: str
    is_of_partitions: bool

    def met(self, rows: pa.RecordBatch | pa.Table) -> NDArray[np.bool_]:
        """See `RowCondition.met`."""
        try:
            if self.is_of_partitions:
                met = holds(parse_predicate(self.where), rows, self.columns)
                mask: NDArray[np.bool_] = met.to_numpy(zero_copy_only=False)
                return mask
            condition = Condition(self.where, schema_of(self.schema_text))
            fields = [column.field.with_nullable(nullable=True) for column in condition.columns]
            arrays = []
            for column in condition.columns:
                values = self._values(rows, column.stored.field.name)
                arrays.append(inner(values, column) if column.path else values)
            # A batch without columns would have no rows.
            number = pa.field("", pa.null())
            needed = [*arrays, pa.nulls(rows.num_rows)]
            return condition.mask(pa.RecordBatch.from_arrays(needed, schema=pa.schema([*fields, number])))
        except InvalidError as error:
            message = f"{self.where!r} can't be evaluated: {error.message}"
            raise InvalidError(message, where=self.name, hint=error.hint) from error

    def _values(self, rows: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
        """Returns a column of the table. It is null if the batch lacks it."""
        if name not in rows.schema.names:
            return pa.nulls(rows.num_rows, self.columns.field(name).type)
        values = rows.column(name)
        return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values

"""A condition on the rows of a batch that replace those of a Delta table for which it holds.

It is decided as for the rows that are removed, so that a batch which was written once is removed by the next
write with the condition. So a value of `char(n)` is compared with its spaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakefold_ingest.merge.conditions import RowCondition
from lakefold_reader.delta.columns import inner
from lakefold_reader.delta.filters.condition import Condition
from lakefold_reader.delta.schema import schema_of
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class DeltaRowCondition(RowCondition):
    """See `RowCondition`. Can be pickled.

    `schema_text`: that of the table's metadata. `partitions`: the names of its partition columns.
    """

    schema_text: str
    partitions: tuple[str, ...]

    def met(self, rows: pa.RecordBatch | pa.Table) -> NDArray[np.bool_]:
        """See `RowCondition.met`."""
        try:
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
        array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if name in self.partitions and (pa.types.is_string(array.type) or pa.types.is_binary(array.type)):
            # An empty text in a partition column is stored as null.
            return pc.if_else(pc.equal(pc.binary_length(array), 0), pa.scalar(None, array.type), array)
        return array

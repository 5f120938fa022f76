"""Numbers by which the rows of a batch are divided between tasks: rows with one key have one number.

Two values of a batch may be one value of the table: -0.0 and 0.0, or texts of Spark's that
are entries of a dictionary in the table. So the numbers are made from the keys in the table's types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakefold_ingest.merge.batch_keys import comparable
from lakefold_ingest.merge.key_hashes import key_hashes
from lakefold_ingest.rows.fitting import Fitting, plain_field
from lakefold_ingest.rows.row_faults import RowFaults, check_values
from lakefold_ingest.rows.staged_rows import buckets_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

NO_KEY = 0
"""The number of rows that have no key. Others may have it as well."""


@dataclass(frozen=True, slots=True)
class KeyShare:
    """Some of all possible keys: those with these `buckets`, in the types `kinds` of the table.

    A row of the table without a key belongs to one share as well.
    """

    kinds: pa.Schema
    buckets: range

    def has(self, columns: Sequence[pa.Array]) -> NDArray[np.bool_]:
        """Returns for each row of the key columns, which are in the order of `kinds`, whether it is one."""
        buckets = buckets_of(key_numbers(pa.table(list(columns), names=self.kinds.names), self.kinds))
        return (buckets >= self.buckets.start) & (buckets < self.buckets.stop)


def key_types(names: tuple[str, ...], table: pa.Schema) -> pa.Schema | None:
    """Returns the key columns in the types of the table, or None if it lacks one of them."""
    if not set(names).issubset(table.names):
        return None
    return pa.schema([plain_field(table.field(name)).with_nullable(False) for name in names])  # noqa: FBT003 - pyarrow takes it by position


def key_numbers(keys: pa.Table, kinds: pa.Schema | None) -> NDArray[np.int64]:
    """Returns a number for each row of these key columns, which is the same for equal keys.

    `kinds` are the `key_types` of the table. Rows that have no key, or one that the table can't have, get
    `NO_KEY`, and so do all rows if key columns are missing: the merge of the rows reports what is wrong.
    """
    numbers = np.full(keys.num_rows, NO_KEY, np.int64)
    if kinds is None or not set(kinds.names).issubset(keys.column_names):
        return numbers
    faults, rows = RowFaults(keys.num_rows), np.arange(keys.num_rows)
    for field in kinds:
        check_values(keys.column(field.name).combine_chunks(), rows, field, faults)
    good = np.setdiff1d(rows, faults.rows)
    chosen = keys.select(kinds.names)
    if good.size < rows.size:
        chosen = chosen.take(pa.array(good))
    fitting = Fitting(kinds, tuple(range(len(kinds))))
    fitted = pa.Table.from_batches([fitting.apply(each) for each in chosen.to_batches()], kinds)
    numbers[good] = key_hashes([comparable(column) for column in fitted.columns]).view(np.int64)
    return numbers

"""Rows of a batch as they are divided between parts by their keys: a row that has two keys goes to both.

A change event that gives a row another key is such a row. A column says for which of the two keys a part gets
it: the part deletes the row with the old key, or writes the row with the new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Indices = NDArray[np.int64]

OLD_ROW = "lakefold old row"
"""The column. True: the row is there for its old key, false: for its new key, null: for all its keys."""


@dataclass(frozen=True, slots=True)
class RowKeys:
    """The keys of the rows of a batch, one in each row of `keys`.

    `source`: the row of the batch that has each key; None: each row has one. `old_rows` is the column
    `OLD_ROW` of them; None: all of it is null.
    """

    keys: pa.Table
    source: Indices | None = None
    old_rows: pa.Array | None = None

    def rows_of(self, rows: pa.Table) -> pa.Table:
        """Returns the row of each key, with the column `OLD_ROW`. `rows` are those of the batch."""
        old_rows = pa.nulls(len(self.keys), pa.bool_()) if self.old_rows is None else self.old_rows
        taken = rows if self.source is None else rows.take(pa.array(self.source))
        return taken.append_column(OLD_ROW, old_rows)


def without_old_rows(rows: pa.Table) -> tuple[pa.Table, pa.Array | None]:
    """Returns the rows without the column `OLD_ROW`, and that column; None if there is none."""
    if OLD_ROW not in rows.column_names:
        return rows, None
    return rows.drop_columns([OLD_ROW]), rows.column(OLD_ROW).combine_chunks()


def undivided(rows: pa.Table) -> pa.Table:
    """Returns the rows without the column `OLD_ROW` if all of it is null."""
    whole, old_rows = without_old_rows(rows)
    return whole if old_rows is not None and old_rows.null_count == len(old_rows) else rows

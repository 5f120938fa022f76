"""Which rows of files that a version rewrote are as they were before.

A table without deletion vectors loses a row by a new file that has the others. The log says that all rows of
the old file are gone and those of the new file are new. Here equal rows of both are found: they are no
changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lakefold_reader.delta.data_files import DataFile
from lakefold_reader.format.value_numbers import joined, paired, value_numbers
from lakefold_table.errors import DamagedError
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from lakefold_reader.delta.data_files import StoredRows
    from lakefold_reader.delta.filters.condition import Condition
    from lakefold_reader.delta.schema import DeltaColumn
    from lakefold_reader.format.source import Source

    Numbers = NDArray[np.int64]


@value()
class Rewrite:
    """Files that a version removed, and files that it added, which may have rows of them."""

    removed: tuple[StoredRows, ...]
    added: tuple[StoredRows, ...]


def rewrites(removed: Iterable[StoredRows], added: Iterable[StoredRows]) -> dict[str, Rewrite]:
    """Returns by path the rewrite that a file is part of. Rows of other partitions can't be equal.

    Clients write a partition's value as different texts, e.g. 1.25 and 1.2500. So files whose text is on one
    side alone are compared with each other.
    """
    sides: dict[frozenset[tuple[str, str | None]], tuple[list[StoredRows], list[StoredRows]]] = {}
    for side, files in enumerate((removed, added)):
        for rows in files:
            values = frozenset((name, text or None) for name, text in rows.partition_values.items())
            sides.setdefault(values, ([], []))[side].append(rows)
    alone = [side for side in sides.values() if not all(side)]
    others = [rows for old, _ in alone for rows in old], [rows for _, new in alone for rows in new]
    both = [Rewrite(tuple(old), tuple(new)) for old, new in (*sides.values(), others) if old and new]
    return {rows.path: each for each in both for rows in (*each.removed, *each.added)}


def unchanged_rows(
    source: Source,
    rewrite: Rewrite,
    columns: Sequence[DeltaColumn],
    condition: Condition | None = None,
) -> dict[str, Numbers]:
    """Returns by path the indices of the rows, among those that a file has, that are in both sides.

    `columns`: all of the table. `condition`: only rows are compared and counted that meet it. If a file can't
    be read, no row counts as unchanged: to read it says why.
    """
    files = [DataFile(source, rows) for rows in (*rewrite.removed, *rewrite.added)]
    try:
        counts = [sum(batch.num_rows for batch in file.batches((), condition)) for file in files]
        ends = np.cumsum(counts)
        split = int(sum(counts[: len(rewrite.removed)]))
        numbers = np.zeros(int(ends[-1]), np.int64)
        for column in columns:
            if not np.intersect1d(numbers[:split], numbers[split:]).size:
                return {}
            arrays = [batch.column(0) for file in files for batch in file.batches([column], condition)]
            numbers = joined(numbers, value_numbers(arrays))
    except DamagedError:
        return {}
    same = paired(numbers, split)
    parts = zip((*rewrite.removed, *rewrite.added), np.split(same, ends[:-1]), strict=True)
    return {rows.path: np.flatnonzero(part) for rows, part in parts}

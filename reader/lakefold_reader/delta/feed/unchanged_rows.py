"""Which rows of files that a version rewrote are as they were before.

A table without deletion vectors loses a row by a new file that has the others. The log says that all rows of
the old file are gone and those of the new file are new. Here equal rows of both are found: they are no
changes. The rows are compared column by column, so one column of them is in memory at a time, and a number
for each row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyarrow import types

from lakefold_reader.delta.data_files import DataFile
from lakefold_table.errors import DamagedError
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from lakefold_reader.delta.data_files import StoredRows
    from lakefold_reader.delta.schema import DeltaColumn
    from lakefold_reader.format.source import Source

    Numbers = NDArray[np.int64]

ITEM_BYTES = 8


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


def unchanged_rows(source: Source, rewrite: Rewrite, columns: Sequence[DeltaColumn]) -> dict[str, Numbers]:
    """Returns by path the indices of the rows, among those that a file has, that are in both sides.

    `columns`: all of the table. If a file can't be read, no row counts as unchanged: to read it says why.
    """
    files = [DataFile(source, rows) for rows in (*rewrite.removed, *rewrite.added)]
    try:
        counts = [sum(batch.num_rows for batch in file.batches(())) for file in files]
        ends = np.cumsum(counts)
        split = int(sum(counts[: len(rewrite.removed)]))
        numbers = np.zeros(int(ends[-1]), np.int64)
        for column in columns:
            if not np.intersect1d(numbers[:split], numbers[split:]).size:
                return {}
            arrays = [batch.column(0) for file in files for batch in file.batches([column])]
            numbers = _joined(numbers, value_numbers(arrays))
    except DamagedError:
        return {}
    same = _paired(numbers, split)
    parts = zip((*rewrite.removed, *rewrite.added), np.split(same, ends[:-1]), strict=True)
    return {rows.path: np.flatnonzero(part) for rows, part in parts}


def value_numbers(arrays: Sequence[pa.Array]) -> Numbers:
    """Returns a number for each value of arrays of one type, which is the same for equal values."""
    if not arrays:
        return np.zeros(0, np.int64)
    kind = arrays[0].type
    valid = np.concatenate([_mask(array) for array in arrays]).astype(np.int64)
    if types.is_struct(kind):
        for part in zip(*(array.flatten() for array in arrays), strict=True):
            valid = _joined(valid, value_numbers(part))
        return valid
    if types.is_map(kind):
        items = pa.list_(kind.field(0))
        return value_numbers([array.cast(items) for array in arrays])
    if types.is_list(kind) or types.is_large_list(kind):
        # The items of an array are those of its values alone, so that their numbers are one after the other.
        numbers = value_numbers([array.flatten() for array in arrays]).tobytes()
        lengths = np.concatenate([_lengths(array) for array in arrays])
        offsets = np.concatenate([[0], np.cumsum(lengths)]) * ITEM_BYTES
        buffers = [None, pa.py_buffer(offsets.astype(np.int64).tobytes()), pa.py_buffer(numbers)]
        texts = pa.Array.from_buffers(pa.large_binary(), lengths.size, buffers)
        return _joined(valid, value_numbers([texts]))
    if types.is_null(kind):
        return valid
    encoded = pa.chunked_array(arrays, kind).dictionary_encode(null_encoding="encode")
    indices = [chunk.indices.to_numpy(zero_copy_only=False).astype(np.int64) for chunk in encoded.chunks]
    return np.concatenate([np.zeros(0, np.int64), *indices])


def _mask(array: pa.Array) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def _lengths(array: pa.Array) -> Numbers:
    """Returns the number of items of each list, 0 for null."""
    lengths: Numbers = np.where(_mask(array), np.diff(array.offsets.to_numpy().astype(np.int64)), 0)
    return lengths


def _joined(first: Numbers, second: Numbers) -> Numbers:
    """Returns a number for each pair, below the number of rows."""
    both = first * (int(second.max(initial=0)) + 1) + second
    numbers: Numbers = np.unique(both, return_inverse=True)[1].astype(np.int64)
    return numbers


def _paired(numbers: Numbers, split: int) -> NDArray[np.bool_]:
    """Returns which of the numbers are on both sides of `split`, each as often as on the side with fewer."""
    most = int(numbers.max(initial=-1)) + 1
    sides = (numbers[:split], numbers[split:])
    common = np.minimum(*(np.bincount(side, minlength=most) for side in sides))
    return np.concatenate([_nth(side) < common[side] for side in sides])


def _nth(numbers: Numbers) -> Numbers:
    """Returns for each number how many equal ones are before it."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    first = np.repeat(starts, np.diff(np.append(starts, ordered.size)))
    nth = np.empty(numbers.size, np.int64)
    nth[order] = np.arange(numbers.size) - first
    return nth

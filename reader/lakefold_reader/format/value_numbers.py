"""Numbers that stand for the values of rows, by which equal rows are found, whatever their types are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

ITEM_BYTES: Final = 8


def row_numbers(tables: Sequence[pa.Table], rows: int) -> Numbers:
    """Returns a number for each row of tables with the same columns, `rows` in all, one after the other.

    It is the same for equal rows.
    """
    numbers = np.zeros(rows, np.int64)
    for columns in zip(*(table.columns for table in tables), strict=True):
        numbers = joined(numbers, value_numbers([chunk for column in columns for chunk in column.chunks]))
    return numbers


def equal_rows(first: pa.Table, second: pa.Table) -> Numbers:
    """Returns for each row of `first` the index of an equal row of `second`, -1 without one.

    Each row of `second` is the equal of one row at most. Both have the same columns.
    """
    split = first.num_rows
    numbers = row_numbers([first, second], split + second.num_rows)
    sought, among = ((side, nth(side)) for side in (numbers[:split], numbers[split:]))
    width = int(max(sought[1].max(initial=0), among[1].max(initial=0))) + 1
    wanted, known = sought[0] * width + sought[1], among[0] * width + among[1]
    order = np.argsort(known)
    at = np.minimum(np.searchsorted(known[order], wanted), max(known.size - 1, 0))
    if not known.size:
        return np.full(split, -1, np.int64)
    return np.where(known[order][at] == wanted, order[at], -1)


def value_numbers(arrays: Sequence[pa.Array]) -> Numbers:
    """Returns a number for each value of arrays of one type, which is the same for equal values."""
    if not arrays:
        return np.zeros(0, np.int64)
    kind = arrays[0].type
    if isinstance(kind, pa.BaseExtensionType):
        return value_numbers([array.storage for array in arrays])
    if types.is_dictionary(kind):
        return value_numbers([array.dictionary_decode() for array in arrays])
    valid = np.concatenate([_mask(array) for array in arrays]).astype(np.int64)
    if types.is_struct(kind):
        for part in zip(*(array.flatten() for array in arrays), strict=True):
            valid = joined(valid, value_numbers(part))
        return valid
    if types.is_map(kind):
        items = pa.list_(kind.field(0))
        return value_numbers([array.cast(items) for array in arrays])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        # The items of an array are those of its values alone, so that their numbers are one after the other.
        numbers = value_numbers([array.flatten() for array in arrays]).tobytes()
        lengths = np.concatenate([_lengths(array) for array in arrays])
        offsets = np.concatenate([[0], np.cumsum(lengths)]) * ITEM_BYTES
        buffers = [None, pa.py_buffer(offsets.astype(np.int64).tobytes()), pa.py_buffer(numbers)]
        texts = pa.Array.from_buffers(pa.large_binary(), lengths.size, buffers)
        return joined(valid, value_numbers([texts]))
    if types.is_null(kind):
        return valid
    if types.is_float16(kind):
        return value_numbers([array.cast(pa.float32()) for array in arrays])
    encoded = pa.chunked_array(arrays, kind).dictionary_encode(null_encoding="encode")
    indices = [chunk.indices.to_numpy(zero_copy_only=False).astype(np.int64) for chunk in encoded.chunks]
    return np.concatenate([np.zeros(0, np.int64), *indices])


def _mask(array: pa.Array) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def _lengths(array: pa.Array) -> Numbers:
    """Returns the number of items of each list, 0 for null."""
    fixed = types.is_fixed_size_list(array.type)
    given = array.type.list_size if fixed else np.diff(array.offsets.to_numpy().astype(np.int64))
    lengths: Numbers = np.where(_mask(array), given, 0)
    return lengths


def joined(first: Numbers, second: Numbers) -> Numbers:
    """Returns a number for each pair, below the number of rows."""
    both = first * (int(second.max(initial=0)) + 1) + second
    numbers: Numbers = np.unique(both, return_inverse=True)[1].astype(np.int64)
    return numbers


def paired(numbers: Numbers, split: int) -> NDArray[np.bool_]:
    """Returns which of the numbers are on both sides of `split`, each as often as on the side with fewer."""
    most = int(numbers.max(initial=-1)) + 1
    sides = (numbers[:split], numbers[split:])
    common = np.minimum(*(np.bincount(side, minlength=most) for side in sides))
    return np.concatenate([nth(side) < common[side] for side in sides])


def nth(numbers: Numbers) -> Numbers:
    """Returns for each number how many equal ones are before it."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    first = np.repeat(starts, np.diff(np.append(starts, ordered.size)))
    ranks = np.empty(numbers.size, np.int64)
    ranks[order] = np.arange(numbers.size) - first
    return ranks

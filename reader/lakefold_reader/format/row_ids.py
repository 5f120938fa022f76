"""The ids of rows as a caller gives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Numbers = NDArray[np.uint64]


def row_ids_of(row_ids: object) -> Numbers:
    """Returns row ids as numbers. Raises `InvalidError` if they are not integers from 0 to 2^64 - 1."""
    import pyarrow as pa

    hint = "give values of _rowid: whole numbers from 0 on"
    try:
        array = _array_of(row_ids)
        numbers = array.cast(pa.uint64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise InvalidError(f"these are not row ids: {error}", hint=hint) from error
    if array.null_count or (len(array) and not pa.types.is_integer(array.type)):
        raise InvalidError(f"these are not row ids: {array.type} with {array.null_count} nulls", hint=hint)
    return cast("Numbers", numbers)


def _array_of(values: object) -> pa.Array:
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    listed = values if isinstance(values, np.ndarray | Sequence) else list(cast("Iterable[int]", values))
    try:
        return pa.array(listed)
    except OverflowError:
        # From 2^63 on Arrow doesn't choose a type that the ids fit.
        return pa.array(listed, pa.uint64())

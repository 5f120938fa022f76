"""Which files of a Delta table can have one of some keys, and a predicate of the keys that are inserted.

Files say the least and the greatest value of a column, and the value of a partition column. If these are
missing, or of a type whose values are not compared here, the file may have any of the keys.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakefold_table.delta.predicates.file_values import FileValues

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from lakefold_ingest.merge.batch_keys import BatchKeys
    from lakefold_reader.delta.schema import DeltaColumn
    from lakefold_table.delta.actions.file_actions import AddFile

Value = Any
"""A value of a key column."""
MOST_RANGES: Final = 32
"""In how many ranges of its values the predicate of a column lists the inserted keys at most."""


class KeyBounds:
    """The keys of a batch, to decide whether a file can have one of them. `columns`: the key columns."""

    def __init__(self, keys: BatchKeys, columns: Sequence[DeltaColumn], partitions: Collection[str]) -> None:
        """`partitions`: the physical names of the partition columns."""
        ordered = {
            column.physical: _ascending(array) for column, array in zip(columns, keys.arrays, strict=True)
        }
        self._keys = {name: values for name, values in ordered.items() if values is not None}
        self._types = {column.physical: column.kind for column in columns}
        self._partitions = partitions

    def may_have(self, file: AddFile) -> bool:
        """Returns whether the file can have a row with one of the keys. A null is not a key."""
        values = FileValues(file, self._types, self._partitions)
        keys_with_bounds = ((keys, values.bounds(name)) for name, keys in self._keys.items())
        return all(bounds is not None and _has_between(keys, *bounds) for keys, bounds in keys_with_bounds)


def _is_ordered(kind: pa.DataType) -> bool:
    tests = (types.is_integer, types.is_string, types.is_date, types.is_timestamp)
    return any(is_kind(kind) for is_kind in tests)


def _ascending(array: pa.Array) -> list[Value] | None:
    """Returns the values in ascending order, None if they can't be compared."""
    if not _is_ordered(array.type):
        return None
    try:
        return sorted(set(array.to_pylist()))
    except (OverflowError, ValueError):
        # Python has no times after the year 9999 or before the year 1.
        return None


def _has_between(ascending: Sequence[Value], least: Value, most: Value) -> bool:
    first = 0 if least is None else bisect_left(ascending, least)
    return first < len(ascending) and (most is None or ascending[first] <= most)


def key_predicate(columns: Sequence[DeltaColumn], arrays: Iterable[pa.Array]) -> str:
    """Returns a predicate, as Delta's clients read it, that all rows with these keys meet.

    A file in which none of its ranges can be has none of the keys. `arrays`: the values of the key columns.
    """
    parts = [_ranges(column, array) for column, array in zip(columns, arrays, strict=True)]
    conditions = [part for part in parts if part]
    return " AND ".join(f"({part})" for part in conditions) or "true"


def _ranges(column: DeltaColumn, array: pa.Array) -> str:
    """Returns the condition of one column, empty if its values can't be compared."""
    kind = array.type
    if not (_is_ordered(kind) or types.is_boolean(kind) or types.is_decimal(kind)):
        return ""
    name = "`" + column.field.name.replace("`", "``") + "`"
    values = pc.unique(array).sort() if not types.is_boolean(kind) else pc.unique(array)
    try:
        if len(values) <= MOST_RANGES:
            return f"{name} IN ({', '.join(_literal(each.as_py(), column) for each in values)})"
        ends = [
            [_literal(values[at].as_py(), column) for at in (first, last - 1)]
            for first, last in _split(values)
        ]
    except (OverflowError, ValueError):
        return ""
    return " OR ".join(f"{name} BETWEEN {least} AND {most}" for least, most in ends)


def _split(ascending: pa.Array) -> list[tuple[int, int]]:
    """Returns the first index and the one after the last of each range: integers are split at wide gaps."""
    count = len(ascending)
    if types.is_integer(ascending.type):
        gaps = np.diff(ascending.to_numpy(zero_copy_only=False).astype(np.float64))
        starts = np.sort(np.argsort(gaps)[-(MOST_RANGES - 1) :] + 1).tolist()
    else:
        starts = sorted({count * part // MOST_RANGES for part in range(1, MOST_RANGES)})
    return list(zip([0, *starts], [*starts, count], strict=True))


def _literal(value: Value, column: DeltaColumn) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | Decimal():
            return f"{value:f}" if isinstance(value, Decimal) else str(value)
        case dt.datetime():
            return f"{column.type_name.upper()} '{value.isoformat()}'"
        case dt.date():
            return f"DATE '{value.isoformat()}'"
        case _:
            return "'" + str(value).replace("'", "''") + "'"

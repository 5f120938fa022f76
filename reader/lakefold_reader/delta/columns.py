"""Columns of data files as columns of the table: other names, missing fields, wider types.

See Delta facts 8.2, 8.3 and 8.5.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakefold_table.delta.table_features.partition_values import is_null, value_to_read
from lakefold_table.delta.table_features.property_values import SHOWN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_reader.delta.schema import DeltaColumn

FIELD_ID: Final = b"PARQUET:field_id"
_MOST_DIGITS: Final = 76
"""Those of Arrow's decimals."""


class StoredFields:
    """The fields of a data file, or of a struct in it, by the columns that they store."""

    def __init__(self, fields: Iterable[pa.Field]) -> None:
        self._fields = list(fields)
        numbered = list(enumerate(self._fields))[::-1]
        # Of several with one name the first counts.
        self._by_name = {field.name: number for number, field in numbered}
        self._numbered = numbered

    @cached_property
    def _by_id(self) -> dict[bytes | None, int]:
        return {(field.metadata or {}).get(FIELD_ID): number for number, field in self._numbered}

    def number(self, column: DeltaColumn) -> int | None:
        """Returns the number of the field of a column, by the column's id, or else by its name."""
        if column.id is not None:
            return self._by_id.get(str(column.id).encode())
        return self._by_name.get(column.physical)

    def field(self, column: DeltaColumn) -> pa.Field | None:
        """Returns the field of a column."""
        number = self.number(column)
        return None if number is None else self._fields[number]


def shaped(values: pa.Array, column: DeltaColumn) -> pa.Array:
    """Returns stored values in the type of their column. Raises `pa.ArrowException` if one doesn't fit.

    A field of a struct that the data file lacks is null. A value of `char(n)` that was stored without its
    spaces gets them.
    """
    kind = column.field.type
    if pa.types.is_null(kind):
        return pa.nulls(len(values))
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        return _struct(values, column)
    if pa.types.is_map(kind) and pa.types.is_map(values.type):
        key, item = column.children
        offsets, (keys, items) = _own(values.offsets, values.keys, values.items)
        parts = shaped(keys, key), shaped(items, item)
        return pa.MapArray.from_arrays(offsets, *parts, type=kind, mask=_nulls(values))
    if pa.types.is_list(kind) and (pa.types.is_list(values.type) or pa.types.is_large_list(values.type)):
        offsets, (stored,) = _own(values.offsets, values.values)
        items = shaped(stored, column.children[0])
        return pa.ListArray.from_arrays(offsets, items, type=kind, mask=_nulls(values))
    if column.char_length is not None:
        return pc.utf8_rpad(pc.cast(values, kind), width=column.char_length, padding=" ")
    if values.type == kind:
        return values
    if pa.types.is_decimal(kind) and pa.types.is_integer(values.type):
        # Arrow refuses a decimal that has not all numbers of the stored type, such as INT32 for a byte.
        values = pc.cast(values, pa.decimal256(_MOST_DIGITS, kind.scale))
    # Files of old writers have times in nanoseconds (INT96).
    return pc.cast(
        values, kind, safe=not (pa.types.is_timestamp(kind) and pa.types.is_timestamp(values.type))
    )


def text_bytes(values: pa.Array, column: DeltaColumn) -> int:
    """Returns how many bytes Arrow reserves for the texts of `char(n)` in all of a column's stored values."""
    kind = column.field.type
    if column.char_length is not None:
        return len(values) * column.char_length
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        fields = StoredFields(values.type)
        pairs = [(fields.number(child), child) for child in column.children]
        return sum(text_bytes(values.field(number), child) for number, child in pairs if number is not None)
    if pa.types.is_map(kind) and pa.types.is_map(values.type):
        return sum(map(text_bytes, (values.keys, values.items), column.children))
    if pa.types.is_list(kind) and (pa.types.is_list(values.type) or pa.types.is_large_list(values.type)):
        return text_bytes(values.values, column.children[0])
    return 0


def inner(values: pa.Array, column: DeltaColumn) -> pa.Array:
    """Returns the values of a nested column from those of its column at the top level."""
    for step in (*column.path[1:], column)[: len(column.path)]:
        index = values.type.get_field_index(step.field.name.rpartition(".")[2])
        values = pc.struct_field(values, [index])
    return values


def partition_values(text: str | None, column: DeltaColumn, rows: int) -> pa.Array:
    """Returns the column of a partition's value. Raises as `partition_value`."""
    return pa.repeat(pa.scalar(partition_value(text, column), column.field.type), rows)


_WIDEST: Final = {
    **dict.fromkeys(("byte", "short", "integer"), ("long", pa.int64())),
    "float": ("double", pa.float64()),
    "date": ("timestamp_ntz", pa.timestamp("us")),
}
"""The type in which a column of another one may have had its values before, and Arrow's type of them."""


def older_values(text: str | None, column: DeltaColumn, rows: int) -> pa.Array:
    """Returns the column of a partition's value that doesn't fit the column's type, in an older one.

    That is a wider type of its kind, else text.
    """
    kind, arrow = _WIDEST.get(column.type_name, ("decimal(38,18)", pa.decimal128(38, 18)))
    value = None if text is None else value_to_read(text, kind)
    return pa.repeat(pa.scalar(text) if value is None else pa.scalar(value, arrow), rows)


def partition_value(text: str | None, column: DeltaColumn) -> Any | None:  # noqa: ANN401 - as `value_of`
    """Returns a partition's value, which is text in the log; empty text is null.

    Raises `ValueError` if the text is no value of the column's type.
    """
    if text is None or is_null(text, column.kind):
        return None
    full = text if column.char_length is None else text.ljust(column.char_length)
    value = value_to_read(full, column.type_name)
    if value is None:
        message = f"the value of the partition column {column.field.name!r} is {text[:SHOWN]!r}, which is no"
        raise ValueError(f"{message} {column.type_name}")
    return value


def _struct(values: pa.Array, column: DeltaColumn) -> pa.Array:
    fields = StoredFields(values.type)
    arrays = []
    for child in column.children:
        number = fields.number(child)
        arrays.append(
            pa.nulls(len(values), child.field.type) if number is None else shaped(values.field(number), child)
        )
    if not arrays:
        return pa.nulls(len(values), column.field.type)
    return pa.StructArray.from_arrays(arrays, fields=list(column.field.type), mask=values.is_null())


def _nulls(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None


def _own(offsets: pa.Array, *parts: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
    """Returns the offsets of lists from 0 on, and the items of these lists alone; they may be a slice."""
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return pc.subtract(offsets, offsets[0]).cast(pa.int32()), [
        part.slice(first, last - first) for part in parts
    ]

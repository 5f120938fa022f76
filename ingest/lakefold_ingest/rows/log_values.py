"""Values that the log of a Delta table has as texts: those of partition columns.

A field of Arrow says it in its metadata. An empty value becomes null here, as the log has it (Delta fact
8.7), so that keys are compared, and conditions evaluated, as the table keeps the row. A value that has no
such text is refused.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakefold_table.errors import InvalidError

IN_LOG: Final = b"lakefold:in_log"
"""The key of such a field's metadata."""
_EMPTY: Final = "Delta stores an empty value of a partition column as null: give such rows another value"
_LEAVE_OUT: Final = "correct or leave out such rows, or don't partition the table by this column"


def field_in_log(field: pa.Field) -> pa.Field:
    """Returns a field whose values the log has as texts."""
    return field.with_metadata({**(field.metadata or {}), IN_LOG: b"1"})


def is_in_log(field: pa.Field) -> bool:
    """Returns whether the log has the values of a column as texts."""
    return IN_LOG in (field.metadata or {})


def as_in_log(array: pa.Array, field: pa.Field) -> pa.Array:
    """Returns the values of a column, which have its type, as the log keeps them.

    Raises `InvalidError` naming the column if a value has no text, or is empty in a column without nulls.
    """
    if not is_in_log(field):
        return array
    kind = field.type
    if types.is_string(kind) or types.is_binary(kind):
        _check_text(array, field)
        empty = pc.equal(pc.binary_length(array), 0)
        if not pc.any(empty).as_py():
            return array
        if not field.nullable:
            raise InvalidError(
                "a value is empty, and the column is not nullable", where=field.name, hint=_EMPTY
            )
        return pc.if_else(empty, pa.scalar(None, kind), array)
    if types.is_date(kind) or types.is_timestamp(kind):
        _check_time(array, field)
    return array


def _check_text(array: pa.Array, field: pa.Field) -> None:
    try:
        array.cast(pa.string())
    except pa.ArrowInvalid as error:
        message = "bytes are not UTF-8, and the log of a Delta table has a partition's value as a text"
        raise InvalidError(message, where=field.name, hint=_LEAVE_OUT) from error


def _check_time(array: pa.Array, field: pa.Field) -> None:
    kind = array.type
    zone = dt.UTC if types.is_timestamp(kind) and kind.tz is not None else None
    ends = (dt.date.min, dt.date.max)
    if types.is_timestamp(kind):
        ends = (dt.datetime.min.replace(tzinfo=zone), dt.datetime.max.replace(tzinfo=zone))
    least, most = (pa.scalar(end, kind) for end in ends)
    if pc.any(pc.or_(pc.less(array, least), pc.greater(array, most))).as_py():
        message = "a time is not of the years 1 to 9999, as the values of partitions are"
        raise InvalidError(message, where=field.name, hint=_LEAVE_OUT)

"""Rows divided by the values of partition columns, and these values as the log and folders have them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types

from lakefold_table.delta.percent import encode_percent
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Values = tuple[str | None, ...]
"""The values of the partition columns as the log has them, in their order; None is null."""
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_MOST_FOLDER: Final = 180
"""The longest value in a folder's name. The name only helps people: the log has the whole value."""


def check_partition_columns(names: Sequence[str], columns: pa.Schema) -> None:
    """Raises `InvalidError` if a new table with these columns can't be partitioned by these."""
    for name in names:
        if name not in columns.names:
            hint = f"the columns are {', '.join(columns.names)}"
            raise InvalidError(f"there is no column {name!r}", where="partition_by", hint=hint)
        if types.is_nested(columns.field(name).type) and not types.is_dictionary(columns.field(name).type):
            message = f"{name} is {columns.field(name).type}, and files can't be partitioned by that"
            raise InvalidError(message, where="partition_by", hint="name columns of simple types")
    if len(set(names)) < len(names):
        raise InvalidError("a column is named twice", where="partition_by")
    if names and len(names) == len(columns):
        hint = "leave one column out: data files need one"
        raise InvalidError("these are all columns", where="partition_by", hint=hint)


def divided(rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Yields the rows of each partition, without the partition columns.

    Raises `InvalidError` if a value can't be that of a partition.
    """
    others = [name for name in rows.schema.names if name not in names]
    if not names:
        yield (), rows
        return
    if not rows.num_rows:
        return
    numbers = np.zeros(rows.num_rows, np.int64)
    for name in names:
        # A column that the batch lacks is null in its rows.
        if name in rows.schema.names:
            codes = rows.column(name).dictionary_encode(null_encoding="encode")
            # Numbered again, so that a product can't grow with each column.
            combined = numbers * (len(codes.dictionary) + 1) + codes.indices.to_numpy(zero_copy_only=False)
            _, numbers = np.unique(combined, return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    ends = [*starts[1:].tolist(), rows.num_rows]
    for start, end in zip(starts.tolist(), ends, strict=True):
        first = int(order[start])
        values = tuple(
            value_text(rows.column(name)[first].as_py(), rows.schema.field(name))
            if name in rows.schema.names
            else None
            for name in names
        )
        kept = rows.select(others)
        yield values, kept if len(starts) == 1 else kept.take(pa.array(order[start:end]))


def value_text(value: Any, field: pa.Field) -> str | None:  # noqa: ANN401 - a value of a column
    """Returns a value of a partition column as the log has it, None for null.

    The log has no empty text but null, as Delta's protocol says. Raises `InvalidError` if the column does not
    allow null.
    """
    text = _text(value)
    if not text and value is not None and not field.nullable:
        hint = "Delta stores an empty value of a partition column as null: give such rows another value"
        raise InvalidError("a value is empty, and the column is not nullable", where=field.name, hint=hint)
    return text or None


def _text(value: Any) -> str | None:  # noqa: ANN401 - a value of a column
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.decode("latin-1")
        case Decimal():
            return f"{value:f}"
        case dt.datetime():
            text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
            return text.replace("T", " ") if value.tzinfo is None else f"{text}Z"
        case dt.date():
            return value.isoformat()
        case float():
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value), repr(value))
        case _:
            return str(value)


def folder_of(names: Sequence[str], values: Values) -> str:
    """Returns the folder of a partition's files, with a slash at its end; empty without partitions."""
    parts = (
        f"{encode_percent(name)}={_NULL if value is None else _cut(encode_percent(value))}/"
        for name, value in zip(names, values, strict=True)
    )
    return "".join(parts)


def log_path(path: str) -> str:
    """Returns the path of a data file as the log has it (Delta fact 3.1)."""
    return "/".join(encode_percent(part).replace("%3D", "=") for part in path.split("/"))


def _cut(text: str) -> str:
    """Returns a percent-encoded text that is not too long for a name, without half of an escape."""
    if len(text) <= _MOST_FOLDER:
        return text
    cut = text[:_MOST_FOLDER]
    return cut if "%" not in cut[-2:] else cut[: cut.rindex("%")]

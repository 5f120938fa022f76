"""Rows divided by the values of partition columns, and these values as the log has them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_reader.delta.new_files.file_paths import Values


def check_partition_columns(names: Sequence[str], columns: pa.Schema) -> None:
    """Raises `InvalidError` if a new table with these columns can't be partitioned by these."""
    for name in names:
        if name not in columns.names:
            hint = f"the columns are {', '.join(columns.names)}"
            raise InvalidError(f"there is no column {name!r}", where=OptionName("partition_by"), hint=hint)
        if types.is_nested(columns.field(name).type) and not types.is_dictionary(columns.field(name).type):
            message = f"{name} is {columns.field(name).type}, and files can't be partitioned by that"
            raise InvalidError(message, where=OptionName("partition_by"), hint="name columns of simple types")
    if len(set(names)) < len(names):
        raise InvalidError("a column is named twice", where=OptionName("partition_by"))
    if names and len(names) == len(columns):
        hint = "leave one column out: data files need one"
        raise InvalidError("these are all columns", where=OptionName("partition_by"), hint=hint)


def divided(rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Yields the rows of each partition, without the partition columns and those that have no values."""
    others = [each.name for each in rows.schema if each.name not in names and not pa.types.is_null(each.type)]
    if not names:
        yield (), rows.select(others)
        return
    if not rows.num_rows:
        return
    numbers = np.zeros(rows.num_rows, np.int64)
    for name in names:
        # A column that the batch lacks is null in its rows.
        if name in rows.schema.names:
            codes = rows.column(name).dictionary_encode(null_encoding="encode")
            # The values are numbered again, so that the product does not grow with each column.
            combined = numbers * (len(codes.dictionary) + 1) + codes.indices.to_numpy(zero_copy_only=False)
            _, numbers = np.unique(combined, return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    ends = [*starts[1:].tolist(), rows.num_rows]
    for start, end in zip(starts.tolist(), ends, strict=True):
        first = int(order[start])
        values = tuple(
            value_text(rows.column(name)[first].as_py()) if name in rows.schema.names else None
            for name in names
        )
        kept = rows.select(others)
        yield values, kept if len(starts) == 1 else kept.take(pa.array(order[start:end]))


def value_text(value: Any) -> str | None:  # noqa: ANN401 - a value of a column
    """Returns a value of a partition column as the log has it, None for null and for an empty value."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.decode() or None
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
            return str(value) or None

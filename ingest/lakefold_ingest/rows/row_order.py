"""Puts the rows of each data file in an order, so that a filter on its columns reads few of them.

Spark can sort the partitions of a batch, but not those of a streaming frame; a process without Spark has to
sort its rows by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakefold_table.errors import InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


def check_order(columns: pa.Schema, sort_by: Sequence[str]) -> None:
    """Raises `InvalidError` if rows with these columns can't be sorted by those of `sort_by`."""
    missing = [name for name in sort_by if name not in columns.names]
    if missing:
        raise InvalidError(f"{', '.join(missing)} is not in the batch", where=OptionName("sort_by"))
    if not sort_by:
        return
    rows = columns.empty_table().select(list(sort_by))
    for name in sort_by:
        try:
            _order(rows, [name])
        except pa.ArrowException as error:
            message = f"rows can't be sorted by {name}: {error}"
            raise InvalidError(
                message, where=OptionName("sort_by"), hint="name columns of numbers, texts or times"
            ) from error


def files_in_order(
    batches: Iterable[pa.RecordBatch], sort_by: Sequence[str], most_rows: int, most_bytes: int
) -> Iterator[list[pa.RecordBatch]]:
    """Yields the rows of each file, in the order of the columns `sort_by`, nulls first.

    A file has `most_rows` rows, or about `most_bytes` bytes of rows, which are held in memory; the last one
    may have fewer. Rows that are equal in these columns stay in their order.
    """
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rest = batch
        while rest.num_rows:
            part = rest.slice(0, most_rows - rows)
            rest = rest.slice(part.num_rows)
            kept.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
            if rows == most_rows or size >= most_bytes:
                yield _sorted(kept, sort_by)
                kept, rows, size = [], 0, 0
    if kept:
        yield _sorted(kept, sort_by)


def _sorted(batches: Sequence[pa.RecordBatch], sort_by: Sequence[str]) -> list[pa.RecordBatch]:
    rows = pa.Table.from_batches(batches)
    ordered = rows.take(_order(rows.select(list(sort_by)), sort_by))
    return list(ordered.to_batches())


def _order(rows: pa.Table, sort_by: Sequence[str]) -> pa.Array:
    return pc.sort_indices(rows, sort_keys=[(name, "ascending", "at_start") for name in sort_by])

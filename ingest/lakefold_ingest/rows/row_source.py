"""Rows from any library that speaks Arrow: pyarrow, polars, pandas, duckdb and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator


class ArrowStream(Protocol):
    """An object with Arrow's stream interface: a table or data frame, or a stream of batches."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns a PyCapsule with an ArrowArrayStream."""


class RowSource:
    """The rows of a batch. They can be read again if a table or data frame holds them.

    Raises `InvalidError` if `rows` has no Arrow stream, or its stream was read before.
    """

    def __init__(self, rows: ArrowStream) -> None:
        self._rows = rows
        self._reader: pa.RecordBatchReader | None = _reader_of(rows)
        self._count: int | None = None
        self.schema: pa.Schema = self._reader.schema
        self.is_repeatable = not isinstance(rows, pa.RecordBatchReader)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows. Raises `InvalidError` if they are read again and the source has lost them."""
        reader, self._reader = self._reader or _reader_of(self._rows), None
        count = 0
        for batch in reader:
            count += batch.num_rows
            yield batch
        if self._count is not None and self._count != count:
            message = f"the rows were read again, and were {count} instead of {self._count}"
            raise InvalidError(message, where="rows", hint="pass a table or data frame, not a stream")
        self._count = count

    def table(self) -> pa.Table:
        """Returns all rows, which are held in memory then. Raises as `batches`."""
        return pa.Table.from_batches(self.batches(), self.schema)


def _reader_of(rows: ArrowStream) -> pa.RecordBatchReader:
    if not hasattr(rows, "__arrow_c_stream__"):
        message = f"rows of type {type(rows).__name__} have no Arrow stream (__arrow_c_stream__)"
        raise InvalidError(message, where="rows", hint="pass a pyarrow, polars, pandas or duckdb table")
    try:
        return pa.RecordBatchReader.from_stream(rows)
    except (pa.ArrowException, ValueError) as error:
        message = f"the rows can't be read as an Arrow stream: {error}"
        raise InvalidError(message, where="rows", hint="a stream can be read only once") from error

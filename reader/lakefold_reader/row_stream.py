"""Streams of rows that end with an error for good.

Arrow asks a source again after an error. A generator has ended then, so the stream would look complete, or go
on behind what it could not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa


def row_stream(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatchReader:
    """Returns a reader of these batches. After an error each further read raises it again."""
    import pyarrow as pa

    return pa.RecordBatchReader.from_batches(schema, _Batches(batches))


class _Batches:
    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._error: BaseException | None = None

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._error is not None:
            raise self._error
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            self._error = error
            raise

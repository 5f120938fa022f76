"""Rows of data files as batches: which rows of a file are read, and columns of several files side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows of a fragment's files are read: those at `offsets`, or all of so many `rows`."""

    rows: int
    offsets: NDArray[np.uint32] | None
    batch_rows: int

    def of(self, reader: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - pylance is published without types
        """Reads these rows of an open file."""
        if self.offsets is None:
            yield from reader.read_all(batch_size=self.batch_rows).to_batches()
            return
        for start in range(0, self.offsets.size, self.batch_rows):
            offsets = self.offsets[start : start + self.batch_rows]
            first, count = int(offsets[0]), offsets.size
            if int(offsets[-1]) - first + 1 == count:
                table = reader.read_range(first, count, batch_size=self.batch_rows)
            else:
                table = reader.take_rows(offsets, batch_size=self.batch_rows)
            yield from table.to_batches()

    def lengths(self) -> Iterator[int]:
        """The number of rows that each batch would have."""
        count = self.rows if self.offsets is None else self.offsets.size
        for start in range(0, count, self.batch_rows):
            yield min(self.batch_rows, count - start)


def side_by_side(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[list[pa.RecordBatch]]:
    """Batches of several streams over the same rows, each time of equal lengths."""
    heads = [next(stream, None) for stream in streams]
    while all(head is not None for head in heads):
        present = [head for head in heads if head is not None]
        length = min(head.num_rows for head in present)
        yield [head.slice(0, length) for head in present]
        heads = [
            head.slice(length) if head.num_rows > length else next(stream, None)
            for head, stream in zip(present, streams, strict=True)
        ]

"""The rows of a version of a Delta table, found and read by their addresses.

Files are numbered in the order of their paths. Only files are opened that can have the rows, by their
partition values and statistics, and only the columns that are needed are read.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lakefold_ingest.merge.delta.key_ranges import KeyBounds
from lakefold_ingest.merge.read_version import ADDRESS, OFFSET_BITS, OFFSET_WIDTH, ROW_ID
from lakefold_reader.delta.data_files import DataFile, live_rows
from lakefold_reader.delta.filters.condition import Condition
from lakefold_reader.delta.inside_paths import relative_to
from lakefold_reader.delta.row_tracking import kept_columns, row_ids
from lakefold_reader.delta.schema import DeltaColumn, DeltaSchema, schema_in
from lakefold_table.bitmaps import Bitmap
from lakefold_table.delta.record_counts import statistics_of
from lakefold_table.delta.rows.vectors import Vectors, file_of
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from lakefold_ingest.merge.batch_keys import BatchKeys
    from lakefold_reader.format.source import Source
    from lakefold_table.delta.actions.file_actions import AddFile
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

    Numbers = NDArray[np.uint64]

_HIDDEN: Final = (ADDRESS, ROW_ID)


class DeltaRows:
    """The rows of a version. `files`: its files by their number."""

    def __init__(self, source: Source, snapshot: DeltaSnapshot) -> None:
        self.source = source
        self.snapshot = snapshot
        self.files: list[AddFile] = sorted(snapshot.files.values(), key=lambda file: file.path)
        self._opened: tuple[int, DataFile] | None = None
        conflicting = [name for name in _HIDDEN if name in self.columns]
        if conflicting:
            message = f"rows are not found in tables with a column {conflicting[0]}"
            raise InvalidError(message, where=source.uri, hint="rename the column")

    @property
    def version(self) -> int:
        """The version's number."""
        return self.snapshot.version

    @cached_property
    def schema(self) -> DeltaSchema:
        """The table's schema."""
        return schema_in(self.snapshot.metadata, self.source.uri)

    @property
    def columns(self) -> list[str]:
        """The names of its columns at the top level."""
        return self.schema.names

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each file by its path."""
        return {file.path: number for number, file in enumerate(self.files)}

    @cached_property
    def kept_columns(self) -> tuple[DeltaColumn, ...]:
        """The columns in which moved rows keep their row ids and commit versions, with row tracking."""
        return kept_columns(self.snapshot, self.source.uri)

    def scan(
        self, columns: Sequence[str], files: Iterable[int], condition: Condition | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yields these columns, `_rowaddr` and `_rowid` of the rows of these files.

        If rows have no ids, `_rowid` is 0.
        """
        chosen = self.schema.chosen(columns).columns
        kept = self.kept_columns[:1]
        for number in files:
            file = self.files[number]
            rows = DataFile(self.source, live_rows(file)).positioned([*chosen, *kept], condition)
            for positions, batch in rows:
                addresses = (np.uint64(number) << np.uint64(OFFSET_WIDTH)) + positions.astype(np.uint64)
                ids = pa.array(np.zeros(positions.size, np.uint64))
                if kept:
                    stored = batch.column(len(chosen))
                    ids = row_ids(file, positions, stored, self.source.uri).cast(pa.uint64())
                arrays = [*batch.columns[: len(chosen)], pa.array(addresses), ids]
                yield pa.RecordBatch.from_arrays(arrays, [*columns, ADDRESS, ROW_ID])

    def scan_all(self, columns: Sequence[str], row_bytes: float) -> Iterator[pa.RecordBatch]:
        """See `ReadVersion.scan_all`. A batch has the rows of a row group."""
        del row_bytes
        return self.scan(columns, range(len(self.files)))

    def candidates(self, keys: BatchKeys, row_bytes: float) -> Iterator[pa.RecordBatch]:
        """See `ReadVersion.candidates`."""
        del row_bytes
        return self.scan(keys.names, self.files_with(keys))

    def files_with(self, keys: BatchKeys) -> Iterator[int]:
        """Yields the numbers of the files that can have one of these keys."""
        bounds = KeyBounds(keys, self.schema.chosen(keys.names).columns, self.schema.partitions)
        return (number for number, file in enumerate(self.files) if bounds.may_have(file))

    def rows_where(self, where: str) -> Numbers:
        """See `ReadVersion.rows_where`. The condition is one that `to_arrow` takes as a filter."""
        condition = Condition(where, self.schema)
        files = (number for number, file in enumerate(self.files) if condition.may_match(file))
        addresses = [
            batch.column(ADDRESS).to_numpy(zero_copy_only=False) for batch in self.scan([], files, condition)
        ]
        return np.concatenate([np.empty(0, np.uint64), *addresses])

    def rows_at(self, addresses: Numbers, columns: Sequence[str]) -> pa.Table:
        """See `ReadVersion.rows_at`."""
        chosen = self.schema.chosen(columns)
        numbers, starts = np.unique(addresses >> np.uint64(OFFSET_WIDTH), return_index=True)
        parts = np.split((addresses & np.uint64(OFFSET_BITS)).astype(np.int64), starts[1:])
        batches = [
            batch
            for number, positions in zip(numbers.tolist(), parts, strict=False)
            for batch in self._file(number).at(positions, chosen.columns)
        ]
        return pa.Table.from_batches(batches, chosen.arrow)

    def deleted_rows(self, file: AddFile) -> Bitmap:
        """Returns the positions of the rows of a file that are deleted.

        Raises `InvalidError` if its deletion vector is outside of the table.
        """
        if file.deletion_vector is None:
            return Bitmap()
        vector = relative_to(file.deletion_vector, self.source.uri)
        if vector is None:
            message = f"the deletion vector of {file.path!r} is not in the table's folder"
            hint = "rewrite the file first by the client that wrote it, e.g. by its OPTIMIZE"
            raise InvalidError(message, where=self.source.uri, hint=hint)
        path = file_of(vector)
        contents = {} if path is None else {path: self.source.storage.get(path)}
        return Vectors(contents).rows(vector, file.path)

    def physical_rows(self, file: AddFile) -> int:
        """Returns the number of rows in a data file, deleted ones included."""
        counted = statistics_of(file).stored_rows
        return self._file(self.numbers[file.path]).physical_rows if counted is None else counted

    def _file(self, number: int) -> DataFile:
        """Returns a file opened; the last one stays open, since rows are read in the order of addresses."""
        if self._opened is None or self._opened[0] != number:
            self._opened = number, DataFile(self.source, live_rows(self.files[number]))
        return self._opened[1]

"""A version of a Delta table, opened for reading: its metadata and its rows."""

from __future__ import annotations

from functools import cached_property
from typing import IO, TYPE_CHECKING

import numpy as np

from lakefold_reader.delta.data_files import DataFile, deleted_rows, live_rows
from lakefold_reader.delta.numbered_rows import NumberedRows, is_number
from lakefold_reader.delta.schema import DeltaSchema, schema_in
from lakefold_reader.delta.units import batches_of
from lakefold_reader.delta.versions import not_built
from lakefold_reader.format.row_ids import row_ids_of
from lakefold_reader.format.snapshots import (
    Feature,
    FragmentRows,
    FragmentSize,
    IndexInfo,
    Missing,
    NamedEvidence,
    Root,
    RowRange,
)
from lakefold_reader.row_stream import row_stream
from lakefold_table.delta.record_counts import record_count
from lakefold_table.delta.table_features.protocol_check import reader_features, writer_features

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakefold_reader.format.source import Source
    from lakefold_table.delta.actions.file_actions import AddFile
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot
    from lakefold_table.delta.state import DeltaState
    from lakefold_table.entry import Conflict


class OpenedDelta:
    """See `Snapshot`."""

    def __init__(self, source: Source, state: DeltaState, snapshot: DeltaSnapshot) -> None:
        self._source = source
        self._version = snapshot
        self.state = state

    @cached_property
    def schema(self) -> DeltaSchema:
        """See `Snapshot.schema`."""
        return schema_in(self._version.metadata, self._source.uri)

    @property
    def fragment_count(self) -> int:
        """The number of logical files of the version."""
        return len(self._version.files)

    def fragment_sizes(self) -> Iterator[FragmentSize]:
        """See `Snapshot.fragment_sizes`. Files without statistics record no rows."""
        for file in self._version.files.values():
            deleted = 0 if file.deletion_vector is None else file.deletion_vector.cardinality
            counted = record_count(file)
            yield FragmentSize(None if counted is None else counted + deleted, deleted, file.size)

    def data_files(self) -> Iterator[tuple[str, int | None]]:
        """See `Snapshot.data_files`."""
        return ((file.path, file.size) for file in self._version.files.values())

    def touched(self, conflict: Conflict) -> NamedEvidence:
        """See `Snapshot.touched`. The evidence names files by their paths, and columns by their names."""
        paths = {file.path for file in self._version.files.values()}
        columns = set(self.schema.names)
        return NamedEvidence(
            tuple(key for key in conflict.keys if key in paths),
            tuple(key for key in conflict.keys if key in columns),
        )

    def fragment_rows(self, names: Sequence[str]) -> dict[str, FragmentRows]:
        """See `Snapshot.fragment_rows`. The names are paths. A file without statistics records no rows."""
        wanted = frozenset(names)
        by_file: dict[str, FragmentRows] = {}
        for file in self._version.files.values():
            if file.path in wanted:
                vector, counted, deleted = file.deletion_vector, record_count(file), np.zeros(0, np.int64)
                if vector is not None:
                    # Statistics may say more rows than the file has, and so a vector may.
                    physical = DataFile(self._source, live_rows(file)).physical_rows
                    deleted = deleted_rows(self._source, vector, file.path, physical)
                by_file[file.path] = FragmentRows(
                    None if counted is None else counted + len(deleted), deleted
                )
        return by_file

    @cached_property
    def physical_rows(self) -> int:
        """See `Snapshot.physical_rows`. Data files whose statistics lack the number are read for it."""
        return sum(self._rows_in(file) for file in self._version.files.values())

    @property
    def config(self) -> Mapping[str, str]:
        """The table's properties."""
        properties = self._version.metadata.configuration
        return {name: text for name, text in properties.items() if text is not None}

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features that the table's protocol names, by name. They have no numbers."""
        readers, writers = reader_features(self._version.protocol), writer_features(self._version.protocol)
        return tuple(Feature(0, name, name in readers, name in writers) for name in sorted(writers))

    @property
    def roots(self) -> tuple[Root, ...]:
        """Returns none: paths outside of the table are those of single files."""
        return ()

    @property
    def storage_version(self) -> str:
        """Returns an empty text: data files are Parquet."""
        return ""

    def indices(self) -> tuple[IndexInfo, ...]:
        """Returns none: Delta has no indices."""
        return ()

    def count_rows(self, where: str | None) -> int:
        """See `Snapshot.count_rows`. With a filter only its columns are read."""
        if where is not None:
            none = self.schema.chosen([])
            return sum(batch.num_rows for batch in batches_of(self._source, self._files, none, where))
        deleted = (
            file.deletion_vector.cardinality
            for file in self._version.files.values()
            if file.deletion_vector is not None
        )
        return self.physical_rows - sum(deleted)

    def reader(
        self, columns: Sequence[str] | None, where: str | None, part: RowRange
    ) -> pa.RecordBatchReader:
        """See `Snapshot.reader`. The rows come file by file, in the order of the files' paths."""
        if columns is not None and any(is_number(name, self.schema) for name in columns):
            numbered = self._numbered.scan(columns, where)
            return row_stream(self._numbered.schema_of(columns), _part_of(numbered, part))
        schema = self.schema.chosen(columns)
        rows = batches_of(self._source, self._files, schema, where)
        return row_stream(schema.arrow, _part_of(rows, part))

    def take(self, row_ids: object, columns: Sequence[str] | None, missing: Missing) -> pa.Table:
        """See `Snapshot.take`. Ids say in which files rows are, unless they were written again."""
        return self._numbered.take(row_ids_of(row_ids), columns, missing)

    def blobs(self, column: str, row_ids: object) -> list[IO[bytes] | None]:
        """See `Snapshot.blobs`."""
        del column, row_ids
        raise not_built("reading blobs", self._source.uri)

    @cached_property
    def _numbered(self) -> NumberedRows:
        return NumberedRows(self._source, self._version, self._files, self.schema)

    @property
    def _files(self) -> list[AddFile]:
        return sorted(self._version.files.values(), key=lambda file: file.path)

    def _rows_in(self, file: AddFile) -> int:
        counted = record_count(file)
        if counted is None:
            return DataFile(self._source, live_rows(file)).physical_rows
        return counted + (0 if file.deletion_vector is None else file.deletion_vector.cardinality)


def _part_of(batches: Iterator[pa.RecordBatch], part: RowRange) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a range, in batches of at most the size that is wanted."""
    skip, remaining = part.offset or 0, part.limit
    for batch in batches:
        rest = batch.slice(min(skip, batch.num_rows))
        skip = max(0, skip - batch.num_rows)
        if remaining is not None:
            rest = rest.slice(0, remaining)
            remaining -= rest.num_rows
        most = part.batch_size or max(1, rest.num_rows)
        for start in range(0, rest.num_rows, most):
            yield rest.slice(start, most)
        if remaining == 0:
            return

"""Writes rows as Parquet files of a Delta table, which no version names yet.

It runs on executors and gets everything from the driver, so it never opens the table. A file is held in
memory until it is complete; then the table's store takes it durably.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import parquet

from lakefold_ingest.delta.partitions import divided, folder_of, log_path
from lakefold_ingest.delta.schemas import Retyped
from lakefold_ingest.delta.statistics import FileStatistics
from lakefold_ingest.rows.fitting import Fitting
from lakefold_table.delta.actions.file_actions import AddFile
from lakefold_table.delta.actions.lines import line_of, parse_actions
from lakefold_table.delta.actions.paths import file_path
from lakefold_table.errors import DamagedError, LocationError, RetryError
from lakefold_table.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lakefold_ingest.delta.partitions import Values
    from lakefold_ingest.delta.statistics import Path
    from lakefold_table.storage.base import Storage

ROW_GROUP_BYTES: Final = 64 * 1024 * 1024
"""About how many bytes of rows in memory a row group has."""
_MILLISECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ParquetTarget:
    """Where and how rows become Parquet files; see `Target`.

    `partitions`: the partition columns; `stored_partitions`: the same as the log names them. `stored`: the
    columns of data files by the names and with the ids that they have there, None if these are the table's
    names. `indexed`: the columns of which files get statistics, by their paths in data files. `codec`: the
    compression. A file ends after `max_rows_per_file` rows, or with `max_bytes_per_file` bytes of rows in
    memory, which is also the most that the files of all partitions have at once.
    """

    uri: str
    fitting: Fitting
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    partitions: tuple[str, ...] = ()
    stored_partitions: tuple[str, ...] = ()
    stored: pa.Schema | None = None
    indexed: tuple[Path, ...] = ()
    codec: str = "snappy"
    max_rows_per_file: int = 1024 * 1024
    max_bytes_per_file: int = 1024**3
    keeps_bad_rows: bool = False

    def fitted(self) -> ParquetTarget:
        """Returns the target for batches that have the table's types already."""
        schema = self.fitting.schema
        return replace(self, fitting=Fitting(schema, tuple(range(len(schema)))))

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[AddFile]:
        """See `Target.write`."""
        return _FileWriter(self).write(batches)

    def encoded(self, file: AddFile) -> bytes:
        """See `Target.encoded`."""
        return line_of(file).encode()

    def decoded(self, data: bytes) -> AddFile:
        """See `Target.decoded`."""
        action = next(parse_actions(data, self.uri))
        if not isinstance(action, AddFile):
            raise DamagedError("a task sent no add action", where=self.uri)
        return action

    def paths(self, file: AddFile) -> list[str]:
        """See `Target.paths`."""
        return [file_path(file.path).text]

    @property
    def stored_fields(self) -> pa.Schema:
        """The columns of data files."""
        if self.stored is not None:
            return self.stored
        names = [each for each in self.fitting.schema if each.name not in self.partitions]
        # The metadata of fields is Arrow's, of which Parquet and other readers know nothing.
        return pa.schema([each.remove_metadata() for each in names])


class _FileWriter:
    """Writes rows into files, one at a time for each partition."""

    def __init__(self, target: ParquetTarget) -> None:
        self._target = target
        self._storage = open_storage(target.uri, target.storage_options)
        self._open: dict[Values, _OpenFile] = {}

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[AddFile]:
        target = self._target
        for batch in batches:
            if not batch.num_rows:
                continue
            for values, rows in divided(target.fitting.apply(batch), target.partitions):
                yield from self._add(values, rows)
        for file in self._open.values():
            yield file.finish(self._storage)

    def _add(self, values: Values, rows: pa.RecordBatch) -> Iterator[AddFile]:
        target = self._target
        while rows.num_rows:
            file = self._open.setdefault(values, _OpenFile(target, values))
            part = rows.slice(0, target.max_rows_per_file - file.rows)
            rows = rows.slice(part.num_rows)
            file.add(part)
            if file.rows >= target.max_rows_per_file or file.bytes >= target.max_bytes_per_file:
                yield self._open.pop(values).finish(self._storage)
        while sum(file.bytes for file in self._open.values()) >= target.max_bytes_per_file:
            largest = max(self._open, key=lambda each: self._open[each].bytes)
            yield self._open.pop(largest).finish(self._storage)


class _OpenFile:
    """A Parquet file that is being written, in memory."""

    def __init__(self, target: ParquetTarget, values: Values) -> None:
        self._target = target
        self._values = values
        self._schema = target.stored_fields
        self._sink = pa.BufferOutputStream()
        self._writer = parquet.ParquetWriter(
            self._sink, self._schema, version="2.6", compression=target.codec, store_schema=False
        )
        self._statistics = FileStatistics(target.indexed)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self.rows = 0
        self.bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds rows, which have the table's types."""
        self._waiting.append(pa.record_batch(Retyped(rows, self._schema)))
        size = rows.nbytes
        self._waiting_bytes += size
        self.bytes += size
        self.rows += rows.num_rows
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write_group()

    def finish(self, storage: Storage) -> AddFile:
        """Stores the file. Returns the action that adds it to the table."""
        self._write_group()
        self._writer.close()
        data = self._sink.getvalue()
        target = self._target
        names = () if target.stored is not None else target.partitions
        folder = folder_of(names, self._values[: len(names)])
        suffix = "" if target.codec == "none" else f".{target.codec}"
        path = f"{folder}part-00000-{uuid.uuid4()}.c000{suffix}.parquet"
        try:
            storage.put(path, [data])
        except LocationError as error:
            raise RetryError(error.message, where=target.uri, hint=error.hint) from error
        return AddFile(
            log_path(path),
            dict(zip(target.stored_partitions, self._values, strict=True)),
            data.size,
            time.time_ns() // _MILLISECOND,
            data_change=True,
            stats=self._statistics.text(),
        )

    def _write_group(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._statistics.add(table)
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._waiting.clear()
        self._waiting_bytes = 0

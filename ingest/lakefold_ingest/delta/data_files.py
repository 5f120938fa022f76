"""Writes rows as Parquet files of a Delta table, which no version names yet.

It runs on executors and gets everything from the driver, so it never opens the table. A file is held in
memory until it is complete; then the table's store takes it durably.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_ingest.delta.partitions import divided
from lakefold_ingest.delta.row_rules import RuledFitting
from lakefold_ingest.rows.fitting import Fitting
from lakefold_ingest.rows.target import Target
from lakefold_ingest.rows.text_lengths import parts_of
from lakefold_reader.delta.new_files.file_paths import random_folder
from lakefold_reader.delta.new_files.parquet_writer import ROW_GROUP_BYTES, NewDataFile
from lakefold_table.delta.actions.file_actions import AddFile
from lakefold_table.delta.actions.lines import line_of, parse_actions
from lakefold_table.delta.actions.paths import file_path
from lakefold_table.errors import DamagedError
from lakefold_table.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakefold_reader.delta.new_files.file_paths import Values
    from lakefold_reader.delta.new_files.statistics import Path


@dataclass(frozen=True, slots=True)
class ParquetTarget(Target):
    """Where and how rows become Parquet files; see `Target`.

    `partitions`: the partition columns; `stored_partitions`: the same as the log names them. `stored`: the
    columns of data files by the names and with the ids that they have there, None if these are the table's
    names. `indexed`: the columns of which files get statistics, by their paths in data files. `codec`: the
    compression. `max_bytes_per_file` is also the most that the files of all partitions have at once in
    memory. `hidden`: columns that the batches have after those of the table, and that files store under the
    same names. `folder`: the one of the files, with a slash at its end; empty: that of the table.
    `prefix_length`: of the folder with a random name in which each file is, instead of one by the values of
    its partition; 0: there is none.
    """

    partitions: tuple[str, ...] = ()
    stored_partitions: tuple[str, ...] = ()
    stored: pa.Schema | None = None
    indexed: tuple[Path, ...] = ()
    codec: str = "snappy"
    hidden: pa.Schema | None = None
    folder: str = ""
    prefix_length: int = 0

    def with_hidden(self, hidden: pa.Schema, folder: str = "") -> ParquetTarget:
        """Returns the target for batches of fitted rows that have more columns."""
        schema = pa.schema([*self.fitting.schema, *hidden])
        return replace(self, fitting=schema_fitting(schema), hidden=hidden, folder=folder)

    def fitted(self) -> ParquetTarget:
        """Returns the target for batches that have the table's types already."""
        return replace(self, fitting=schema_fitting(self.fitting.schema))

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[AddFile]:
        """See `Target.write`."""
        return _FileWriter(self).write(batches)

    def writes_like(self, other: Target) -> bool:
        """See `Target.writes_like`. What the table requires of rows was checked as they were written.

        Files may have statistics of more columns than they would get now.
        """
        return (
            isinstance(other, ParquetTarget)
            and self.fitting.schema.equals(other.fitting.schema, check_metadata=True)
            and self.stored_fields.equals(other.stored_fields, check_metadata=True)
            and _form_of(self) == _form_of(other)
            and {*self.indexed} <= {*other.indexed}
        )

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
            return pa.schema([*self.stored, *(self.hidden or ())])
        names = [
            each
            for each in self.fitting.schema
            if each.name not in self.partitions and not pa.types.is_null(each.type)
        ]
        # The metadata of fields is Arrow's, of which Parquet and other readers know nothing.
        return pa.schema([each.remove_metadata() for each in names])


def schema_fitting(schema: pa.Schema) -> Fitting:
    """Returns how rows that have this schema already are written."""
    return Fitting(schema, tuple(range(len(schema))))


def _form_of(target: ParquetTarget) -> tuple[object, ...]:
    rules = target.fitting.rules if isinstance(target.fitting, RuledFitting) else ()
    return rules, target.partitions, target.stored_partitions


class _FileWriter:
    """Writes rows into files, one at a time for each partition."""

    def __init__(self, target: ParquetTarget) -> None:
        self._target = target
        self._storage = open_storage(target.uri, target.storage_options)
        self._open: dict[Values, NewDataFile] = {}

    def write(self, batches: Iterable[pa.RecordBatch]) -> Iterator[AddFile]:
        target = self._target
        for batch in batches:
            if not batch.num_rows:
                continue
            for part in parts_of(batch, target.fitting.schema):
                for values, rows in divided(target.fitting.apply(part), target.partitions):
                    yield from self._add(values, rows)
        for values, file in self._open.items():
            yield self._finished(values, file)

    def _add(self, values: Values, rows: pa.RecordBatch) -> Iterator[AddFile]:
        target = self._target
        group = min(ROW_GROUP_BYTES, target.file_bytes or ROW_GROUP_BYTES)
        most = max(1, group * rows.num_rows // max(1, rows.nbytes)) if target.file_bytes else rows.num_rows
        while rows.num_rows:
            file = self._open.get(values)
            if file is None:
                file = self._open[values] = NewDataFile(
                    target.stored_fields, target.codec, target.indexed, group_bytes=group
                )
            part = rows.slice(0, min(most, target.max_rows_per_file - file.rows))
            rows = rows.slice(part.num_rows)
            file.add(part)
            is_full = file.rows >= target.max_rows_per_file or file.bytes >= target.max_bytes_per_file
            if is_full or (target.file_bytes is not None and file.stored_bytes >= target.file_bytes):
                yield self._finished(values, self._open.pop(values))
        while sum(file.bytes for file in self._open.values()) >= target.max_bytes_per_file:
            largest = max(self._open, key=lambda each: self._open[each].bytes)
            yield self._finished(largest, self._open.pop(largest))

    def _finished(self, values: Values, file: NewDataFile) -> AddFile:
        target = self._target
        has_folders = target.stored is None and not target.prefix_length
        folders = target.partitions if has_folders else ()
        within = target.folder or random_folder(target.prefix_length)
        return file.finish(self._storage, folders, target.stored_partitions, values, within=within)

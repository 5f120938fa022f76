"""Rewrites logical files of a Delta table into one data file of the same partition.

Files are read in turn, without deleted rows, row group by row group, in the columns that the table has now.
The rows keep their order, and the new file says which rows it has from where. If the table tracks rows, their
ids and commit versions are written into the file. Memory is bounded by the largest row group that is read:
what is complete of the new file is on this machine's disk until it is stored.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import replace
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from lakefold_maintenance.delta.proposals import RewrittenFiles
from lakefold_reader.delta.data_files import DataFile, live_rows
from lakefold_reader.delta.new_files.file_paths import prefix_length, random_folder
from lakefold_reader.delta.new_files.parquet_writer import NewDataFile, codec_of
from lakefold_reader.delta.new_files.statistics import indexed_columns
from lakefold_reader.delta.new_files.stored_columns import check_levels, fields_in, stored_schema
from lakefold_reader.delta.row_tracking import kept_columns, row_ids, row_versions
from lakefold_reader.delta.schema import schema_in
from lakefold_table.delta.json_text import to_json
from lakefold_table.delta.rows.row_moves import ROWS_OF
from lakefold_table.delta.table_features.clustering import clustering_columns
from lakefold_table.delta.table_features.protocol_check import writer_features
from lakefold_table.storage.os_errors import failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_maintenance.delta.survey import DeltaSurvey
    from lakefold_maintenance.planning.plan import RewriteTask
    from lakefold_table.delta.actions.file_actions import AddFile


@contextmanager
def _spool() -> Iterator[IO[bytes]]:
    """Opens a temporary file for a new data file. Its errors name the folder of such files.

    An error of a file of the table that is gone is raised as it is.
    """
    try:
        with tempfile.TemporaryFile() as file:
            yield file
    except FileNotFoundError:
        raise
    except OSError as error:
        folder = tempfile.gettempdir()
        cause = failure(error, folder)
        hint = f"{cause.hint}; the variable TMPDIR names another folder for temporary files"
        raise type(cause)(cause.message, where=folder, hint=hint) from error


class DeltaRewriter:
    """See `TableRewriter`. The metadata of the version are read once for all tasks."""

    def __init__(self, survey: DeltaSurvey) -> None:
        metadata, uri = survey.snapshot.metadata, survey.source.uri
        self._survey = survey
        schema = schema_in(metadata, uri)
        self._partitions = schema.partitions
        # Values are copied as they are stored.
        columns = (each for each in schema.columns if each.physical not in schema.partitions)
        self._columns = [each.unpadded for each in columns]
        plain = pa.schema([column.field for column in self._columns])
        check_levels(plain, uri)
        stored = stored_schema(fields_in(metadata), plain) if metadata.maps_columns else plain
        clustering = clustering_columns(
            survey.snapshot.domains.values(), writer_features(survey.snapshot.protocol)
        )
        self._indexed = indexed_columns(metadata, stored, clustering)
        self._codec = codec_of(metadata, uri)
        # Paths of mapped columns would show names that nobody has given.
        self._prefix_length = prefix_length(metadata.configuration)
        self._folders = () if metadata.maps_columns or self._prefix_length else schema.partitions
        self._tracked = kept_columns(survey.snapshot, uri)
        self._stored = pa.schema([*stored, *(column.field for column in self._tracked)])

    def run(self, task: RewriteTask) -> RewrittenFiles:
        """See `TableRewriter.run`."""
        old = [self._survey.files[number] for number in task.fragment_ids]
        with _spool() as spool:
            new = NewDataFile(self._stored, self._codec, self._indexed, spool=spool)
            try:
                parts = [self._copy(file, new) for file in old]
                done = replace(task, rows=new.rows)
                if not new.rows:
                    return RewrittenFiles(done, old, ())
                values = tuple(old[0].partition_values.get(name) for name in self._partitions)
                added = new.finish(
                    self._survey.source.storage,
                    self._folders,
                    self._partitions,
                    values,
                    data_change=False,
                    within=random_folder(self._prefix_length),
                )
            finally:
                new.close()
        tag = to_json([part for part in parts if part[-1]])
        return RewrittenFiles(done, old, (replace(added, tags={ROWS_OF: tag}),))

    def _copy(self, file: AddFile, new: NewDataFile) -> tuple[str, int, int, int]:
        """Copies the rows of a file. Returns its part of the tag that says where rows were moved."""
        data = DataFile(self._survey.source, live_rows(file))
        before = new.rows
        for batch in self._batches(file, data):
            new.add(batch)
        return file.path, data.physical_rows, 0, new.rows - before

    def _batches(self, file: AddFile, data: DataFile) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a file as the new file stores them, in the names of the table."""
        if not self._tracked:
            yield from data.batches(self._columns)
            return
        count, uri = len(self._columns), self._survey.source.uri
        for positions, batch in data.positioned([*self._columns, *self._tracked]):
            ids, versions = batch.columns[count:]
            kept = (row_ids(file, positions, ids, uri), row_versions(file, versions, uri))
            yield pa.RecordBatch.from_arrays([*batch.columns[:count], *kept], schema=batch.schema)

"""The actions that delete rows of files: by deletion vectors, or by files that have the other rows.

A table whose property `delta.enableDeletionVectors` is not true gets no new deletion vectors. The files whose
rows are deleted are read then, and their other rows are written into new files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import pyarrow as pa

from lakefold_ingest.rows.unused_files import remove_unused
from lakefold_reader.delta.data_files import DataFile, live_rows
from lakefold_reader.delta.row_tracking import row_ids, row_versions
from lakefold_table.bitmaps import Bitmap, encode_treemap, numbers_of
from lakefold_table.delta.actions.file_actions import AddFile, DeletionVector, RemoveFile, removal_of
from lakefold_table.delta.deletion_vectors.serialisation import encode_rows
from lakefold_table.delta.deletion_vectors.storage import inline_vector, vector_file, vector_path
from lakefold_table.delta.record_counts import record_count, wide_statistics
from lakefold_table.delta.rows.row_moves import with_copied_rows
from lakefold_table.delta.rows.vectors import MOST_INLINE
from lakefold_table.delta.table_features.metadata_rules import DELETION_VECTORS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakefold_ingest.delta.data_files import ParquetTarget
    from lakefold_ingest.merge.delta.rows import DeltaRows
    from lakefold_protos.lakefold.log_pb2 import Envelope


@dataclass(frozen=True, slots=True)
class DeltaDeletions:
    """What a proposal says of the rows that it deletes or moves.

    `removes`: the files that have them; `adds`: the same files with new deletion vectors, or the files with
    their other rows. `affected`: the rows by path; empty if there are no new deletion vectors.
    """

    removes: Sequence[RemoveFile]
    adds: Sequence[AddFile]
    affected: Mapping[str, Bitmap]

    @property
    def copied(self) -> int:
        """How many rows of the files are in new files."""
        return 0 if self.affected else sum(record_count(file) or 0 for file in self.adds)

    @property
    def keeps_rows(self) -> bool:
        """Whether some rows of the files stay in the table."""
        return bool(self.adds)

    def add_to(self, envelope: Envelope) -> None:
        """Adds to an envelope what the committer needs to merge deletions, or to notice that it can't."""
        for path, rows in self.affected.items():
            envelope.delta.affected_rows[path] = encode_treemap({0: rows})
        if not self.affected:
            envelope.delta.read_files.extend(file.path for file in self.removes)


def delete_rows(version: DeltaRows, target: ParquetTarget, rows: Mapping[str, Bitmap]) -> DeltaDeletions:
    """Writes what it takes to delete these rows, by the path of their file, durably."""
    files = [version.files[version.numbers[path]] for path in sorted(rows)]
    removes = [replace(removal_of(file, data_change=True), stats=None) for file in files]
    deleted = {file.path: version.deleted_rows(file) | rows[file.path] for file in files}
    staying = [file for file in files if len(deleted[file.path]) < version.physical_rows(file)]
    if version.snapshot.metadata.is_on(DELETION_VECTORS):
        return DeltaDeletions(removes, _with_vectors(version, staying, deleted), rows)
    return DeltaDeletions(removes, _copied(version, target, staying, deleted), {})


def _with_vectors(
    version: DeltaRows, files: Sequence[AddFile], deleted: Mapping[str, Bitmap]
) -> list[AddFile]:
    """Returns the files with deletion vectors of these rows. Large vectors share a file."""
    encoded = {file.path: encode_rows({0: deleted[file.path]}) for file in files}
    large = [path for path, data in encoded.items() if len(data) > MOST_INLINE]
    vectors: dict[str, DeletionVector] = {
        file.path: inline_vector({0: deleted[file.path]}) for file in files if file.path not in large
    }
    if large:
        content, listed = vector_file([{0: deleted[path]} for path in large], uuid4())
        version.source.storage.put(str(vector_path(listed[0])), [content])
        vectors.update(zip(large, listed, strict=True))
    return [
        replace(
            file,
            data_change=True,
            deletion_vector=vectors[file.path],
            stats=wide_statistics(file, version.physical_rows(file)),
        )
        for file in files
    ]


def _copied(
    version: DeltaRows, target: ParquetTarget, files: Sequence[AddFile], deleted: Mapping[str, Bitmap]
) -> Sequence[AddFile]:
    """Writes the rows of these files that are not deleted into new files, which say which rows they have."""
    kept = version.kept_columns
    into = target.with_hidden(pa.schema([column.field for column in kept])) if kept else target.fitted()
    written: list[AddFile] = []
    try:
        written.extend(
            into.write(batch for file in files for batch in _others(version, file, deleted[file.path]))
        )
    except BaseException as error:
        remove_unused(target, written, str(error))
        raise
    sources = [(file, version.physical_rows(file), deleted[file.path]) for file in files]
    return with_copied_rows(written, sources)


def _others(version: DeltaRows, file: AddFile, deleted: Bitmap) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a file that are not deleted, with the ids and versions that they keep."""
    columns, kept, removed = version.schema.columns, version.kept_columns, numbers_of(deleted)
    uri = version.source.uri
    names = [*version.columns, *(column.field.name for column in kept)]
    for positions, batch in DataFile(version.source, live_rows(file)).positioned([*columns, *kept]):
        arrays = batch.columns[: len(columns)]
        if kept:
            ids, versions = batch.columns[len(columns) :]
            arrays += [row_ids(file, positions, ids, uri), row_versions(file, versions, uri)]
        rows = pa.RecordBatch.from_arrays(arrays, names)
        yield rows.filter(pa.array(~np.isin(positions, removed)))

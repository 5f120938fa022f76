"""The rows of data files: Parquet, with the values of partition columns, without deleted rows.

A file is read by row groups. If there is a condition, its columns are read first, and the others only of row
groups in which a row meets it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lakefold_reader.delta.columns import inner, partition_values, shaped, stored_field
from lakefold_reader.delta.stored_file import opened
from lakefold_reader.delta.versions import not_built
from lakefold_table.bitmaps import numbers_of
from lakefold_table.delta.actions.file_actions import AddFile, ChangeFile, DeletionVector, RemoveFile
from lakefold_table.delta.deletion_vectors.storage import ABSOLUTE, inline_rows, stored_rows, vector_path
from lakefold_table.errors import RESTORE, DamagedError
from lakefold_table.roots import below
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyarrow import parquet

    from lakefold_reader.delta.filters.condition import Condition
    from lakefold_reader.delta.schema import DeltaColumn
    from lakefold_reader.format.source import Source

    Shape = Callable[[pa.Array, DeltaColumn], pa.Array]

HALF: Final = 32
"""The bits of the lower half of a row's position, by which the bitmaps of a deletion vector are split."""


@value()
class StoredRows:
    """Some rows of a data file. Small, and can be pickled.

    `path`: as in the log. `partition_values`: by the physical names of columns. `without`: a deletion vector
    whose rows are not among them; `within`: one that has all of them; None: there is none. `rows`: how many
    they are, None if that is not known.
    """

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    without: DeletionVector | None = None
    within: DeletionVector | None = None
    rows: int | None = None


def live_rows(file: AddFile | RemoveFile | ChangeFile, rows: int | None = None) -> StoredRows:
    """Returns the rows of a logical file. `rows`: how many they are, if it is known."""
    vector = None if isinstance(file, ChangeFile) else file.deletion_vector
    values = dict(file.partition_values or {})
    return StoredRows(file.path, file.size or 0, values, portable(vector), None, rows)


def portable(vector: DeletionVector | None) -> DeletionVector | None:
    """Returns a deletion vector as it can be pickled: without members that are not known."""
    return None if vector is None else replace(vector, extra={})


def deleted_rows(source: Source, vector: DeletionVector, file: str) -> np.ndarray:
    """Returns the positions in a deletion vector. `file`: the path of its data file.

    Raises `DamagedError`.
    """
    where = below(source.uri, file)
    path = vector_path(vector, where)
    if vector.storage_type == ABSOLUTE:
        raise not_built("reading deletion vectors outside of the table", where)
    try:
        rows = (
            inline_rows(vector, where)
            if path is None
            else stored_rows(vector, source.storage.get(path), where)
        )
    except FileNotFoundError as error:
        message = "the file of a deletion vector is missing"
        raise DamagedError(message, where=where, hint=RESTORE) from error
    parts = [(high << HALF) + numbers_of(bitmap).astype(np.int64) for high, bitmap in rows.items()]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


class DataFile:
    """Some rows of a data file, opened."""

    def __init__(self, source: Source, rows: StoredRows, shape: Shape = shaped) -> None:
        """`shape` converts stored values into those of their column."""
        self._source = source
        self._rows = rows
        self._shape = shape
        self._where = below(source.uri, rows.path)
        self._last_group: tuple[int, dict[str, pa.Array]] = (-1, {})

    @cached_property
    def _file(self) -> parquet.ParquetFile:
        return opened(self._source, self._rows.path, self._rows.size)

    @property
    def physical_rows(self) -> int:
        """The rows in the file, deleted ones included."""
        return int(self._file.metadata.num_rows)

    def batches(
        self, columns: Sequence[DeltaColumn], condition: Condition | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows in these columns, in the order of the file.

        Raises `DamagedError`, and `InvalidError` if the condition can't be evaluated.
        """
        return (batch for _, batch in self.positioned(columns, condition))

    def positioned(
        self, columns: Sequence[DeltaColumn], condition: Condition | None = None
    ) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """Yields the same rows with their positions in the file."""
        mask = self._mask
        start = 0
        for group in range(self._file.metadata.num_row_groups):
            rows = self._file.metadata.row_group(group).num_rows
            positions = np.arange(start, start + rows)
            chosen = None if mask is None else mask[start : start + rows]
            start += rows
            if not rows or (chosen is not None and not chosen.any()):
                continue
            read: dict[str, pa.Array] = {}
            if condition is not None:
                met = condition.mask(self._values(group, rows, condition.columns, read))
                chosen = met if chosen is None else chosen & met
                if not chosen.any():
                    continue
            batch = self._values(group, rows, columns, read)
            if chosen is None or chosen.all():
                yield positions, batch
            else:
                yield positions[chosen], _filtered(batch, chosen)

    def at(self, positions: np.ndarray, columns: Sequence[DeltaColumn]) -> Iterator[pa.RecordBatch]:
        """Yields the rows at these positions, which ascend; deleted ones as well. Raises `DamagedError`.

        What was read of the last row group is kept for the next call.
        """
        start = 0
        for group in range(self._file.metadata.num_row_groups):
            rows = self._file.metadata.row_group(group).num_rows
            first, last = np.searchsorted(positions, (start, start + rows))
            if first < last:
                if self._last_group[0] != group:
                    self._last_group = group, {}
                batch = self._values(group, rows, columns, self._last_group[1])
                yield batch.take(pa.array(positions[first:last] - start))
            start += rows

    def _values(
        self, group: int, rows: int, columns: Sequence[DeltaColumn], read: dict[str, pa.Array]
    ) -> pa.RecordBatch:
        """Returns the values of these columns in a row group. `read`: stored columns that were read."""
        if not columns:
            return without_columns(rows)
        schema = self._file.schema_arrow
        given = self._rows.partition_values
        fields = {
            column.stored.field.name: stored_field(schema, column.stored)
            for column in columns
            if column.stored.physical not in given
        }
        try:
            names = {field.name for field in fields.values() if field is not None} - read.keys()
            if names:
                table = self._file.read_row_group(group, sorted(names), use_threads=False)
                read.update({name: _whole(table[name]) for name in names})
            arrays = []
            for column in columns:
                top = column.stored
                field = fields.get(top.field.name)
                if top.physical in given:
                    arrays.append(partition_values(given[top.physical], top, rows))
                elif field is None:
                    arrays.append(pa.nulls(rows, column.field.type))
                else:
                    stored = self._shape(read[field.name], top)
                    arrays.append(inner(stored, column) if column.path else stored)
        except FileNotFoundError as error:
            raise DamagedError("the data file is missing", where=self._where, hint=RESTORE) from error
        except (pa.ArrowException, OSError, ValueError) as error:
            message = f"the data file can't be read: {error}"
            raise DamagedError(message, where=self._where, hint=RESTORE) from error
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([column.field for column in columns]))

    @cached_property
    def _mask(self) -> np.ndarray | None:
        """Returns for each row of the file whether it is one of the rows. Returns None if all are."""
        without, within = self._rows.without, self._rows.within
        if without is None and within is None:
            return None
        mask = np.full(self.physical_rows, within is None)
        try:
            if within is not None:
                mask[deleted_rows(self._source, within, self._rows.path)] = True
            if without is not None:
                mask[deleted_rows(self._source, without, self._rows.path)] = False
        except IndexError as error:
            message = "its deletion vector has rows that the data file lacks"
            raise DamagedError(message, where=self._where, hint=RESTORE) from error
        return mask


def _filtered(batch: pa.RecordBatch, chosen: np.ndarray) -> pa.RecordBatch:
    return batch.filter(pa.array(chosen)) if batch.num_columns else without_columns(int(chosen.sum()))


def without_columns(rows: int) -> pa.RecordBatch:
    """Returns so many rows of which no column is read."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], ["rows"]).select([])


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined

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

from lakefold_reader.delta.columns import (
    StoredFields,
    inner,
    older_values,
    partition_values,
    shaped,
    text_bytes,
)
from lakefold_reader.delta.inside_paths import path_inside
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

MOST_TEXT_BYTES: Final = 1 << 30
"""About how many bytes texts with added spaces may have in a batch. Arrow's arrays have less than 2 GiB."""


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


def deleted_rows(
    source: Source, vector: DeletionVector, file: str, physical_rows: int | None = None
) -> np.ndarray:
    """Returns the positions in a deletion vector. `file`: the path of its data file.

    Raises `DamagedError`, also if it has rows that a file of `physical_rows` lacks. They may be billions.
    """
    where = below(source.uri, file)
    path = vector_path(vector, where)
    if path is not None and vector.storage_type == ABSOLUTE:
        path = path_inside(path, source.uri)
        if path is None:
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
    last = max(((high << HALF) + bitmap.max() for high, bitmap in rows.items() if bitmap), default=-1)
    if physical_rows is not None and last >= physical_rows:
        message = "its deletion vector has rows that the data file lacks"
        raise DamagedError(message, where=where, hint=RESTORE)
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
                parts = self._parts(group, rows, condition.columns, read)
                chosen = np.concatenate([_met(condition, first, batch, chosen) for first, batch in parts])
                if not chosen.any():
                    continue
            for first, batch in self._parts(group, rows, columns, read):
                part = slice(first, first + batch.num_rows)
                if chosen is None or chosen[part].all():
                    yield positions[part], batch
                elif chosen[part].any():
                    yield positions[part][chosen[part]], filtered(batch, chosen[part])

    def at(self, positions: np.ndarray, columns: Sequence[DeltaColumn]) -> Iterator[pa.RecordBatch]:
        """Yields the rows at these positions, which ascend; deleted ones as well. Raises `DamagedError`.

        The values that were read of the last row group are kept for the next call.
        """
        start = 0
        for group in range(self._file.metadata.num_row_groups):
            rows = self._file.metadata.row_group(group).num_rows
            first, last = np.searchsorted(positions, (start, start + rows))
            if first < last:
                if self._last_group[0] != group:
                    self._last_group = group, {}
                wanted = positions[first:last] - start
                for begin, batch in self._parts(group, rows, columns, self._last_group[1]):
                    low, high = np.searchsorted(wanted, (begin, begin + batch.num_rows))
                    if low < high:
                        yield batch.take(pa.array(wanted[low:high] - begin))
            start += rows

    def where_is(self, column: DeltaColumn, sought: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Returns the positions at which a column of whole numbers has one of these, and the numbers there.

        `sought`: ascending, from 0 on. The numbers are None if the file lacks the column. Only row groups are
        read that can have one, by their statistics.
        """
        field = self._fields.field(column)
        if field is None:
            return np.zeros(0, np.int64), None
        metadata = self._file.metadata
        leaf = next(n for n in range(metadata.num_columns) if metadata.schema.column(n).path == field.name)
        start, positions, numbers = 0, [np.zeros(0, np.int64)], [np.zeros(0, sought.dtype)]
        # Compared with signed numbers, unsigned ones would become floats, which lack the last digits.
        wanted = sought.astype(np.int64)
        for group in range(metadata.num_row_groups):
            rows, bounds = (
                metadata.row_group(group).num_rows,
                metadata.row_group(group).column(leaf).statistics,
            )
            low, high = 0, sought.size
            if bounds is not None and bounds.has_min_max:
                low = np.searchsorted(wanted, bounds.min)
                high = np.searchsorted(wanted, bounds.max, side="right")
            for first, batch in self._parts(group, rows, [column], {}) if low < high else ():
                values = batch.column(0).fill_null(-1).to_numpy(zero_copy_only=False)
                matching = np.flatnonzero(np.isin(values, wanted[low:high]))
                positions.append(start + first + matching)
                numbers.append(values[matching].astype(sought.dtype))
            start += rows
        return np.concatenate(positions), np.concatenate(numbers)

    def _parts(
        self, group: int, rows: int, columns: Sequence[DeltaColumn], read: dict[str, pa.Array]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yields the values of these columns in a row group, each batch with its first row in the group.

        There are several batches if texts with their spaces don't fit into one array of Arrow. `read`: stored
        columns that were read.
        """
        if not columns:
            yield 0, without_columns(rows)
            return
        given = self._rows.partition_values
        fields = {
            column.stored.field.name: self._fields.field(column.stored)
            for column in columns
            if column.stored.physical not in given
        }
        try:
            names = {field.name for field in fields.values() if field is not None} - read.keys()
            if names:
                table = self._file.read_row_group(group, sorted(names), use_threads=False)
                read.update({name: _whole(table[name]) for name in names})
            most = max(self._text_bytes(column.stored, rows, fields, read) for column in columns)
            step = min(rows, max(1, rows * MOST_TEXT_BYTES // max(most, 1)))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._unreadable(error) from error
        for first in range(0, rows, step):
            count = min(step, rows - first)
            try:
                arrays = [self._values(column, first, count, fields, read) for column in columns]
            except (pa.ArrowException, OSError, ValueError) as error:
                raise self._unreadable(error) from error
            kinds = pa.schema([column.field for column in columns])
            yield first, pa.RecordBatch.from_arrays(arrays, schema=kinds)

    def _text_bytes(
        self,
        top: DeltaColumn,
        rows: int,
        fields: Mapping[str, pa.Field | None],
        read: Mapping[str, pa.Array],
    ) -> int:
        """Returns how many bytes the texts with spaces have in a row group, in a column at the top level."""
        if top.physical in self._rows.partition_values:
            return rows * (top.char_length or 0)
        field = fields[top.field.name]
        return 0 if field is None else text_bytes(read[field.name], top)

    def _values(
        self,
        column: DeltaColumn,
        first: int,
        count: int,
        fields: Mapping[str, pa.Field | None],
        read: Mapping[str, pa.Array],
    ) -> pa.Array:
        top = column.stored
        if top.physical in self._rows.partition_values:
            return self._partition(self._rows.partition_values[top.physical], top, count)
        field = fields[top.field.name]
        if field is None:
            return pa.nulls(count, column.field.type)
        values = read[field.name]
        stored = self._shape(values if count == len(values) else values.slice(first, count), top)
        return inner(stored, column) if column.path else stored

    def _partition(self, text: str | None, top: DeltaColumn, count: int) -> pa.Array:
        """Returns a partition's value. In a feed it may be one of a type that the column had before."""
        try:
            return partition_values(text, top, count)
        except ValueError:
            if self._shape is shaped:
                raise
            return self._shape(older_values(text, top, count), top)

    def _unreadable(self, error: Exception) -> DamagedError:
        if isinstance(error, FileNotFoundError):
            return DamagedError("the data file is missing", where=self._where, hint=RESTORE)
        return DamagedError(f"the data file can't be read: {error}", where=self._where, hint=RESTORE)

    @cached_property
    def _fields(self) -> StoredFields:
        return StoredFields(self._file.schema_arrow)

    @cached_property
    def _mask(self) -> np.ndarray | None:
        """Returns for each row of the file whether it is one of the rows. Returns None if all are."""
        without, within = self._rows.without, self._rows.within
        if without is None and within is None:
            return None
        mask = np.full(self.physical_rows, within is None)
        for vector, chosen in ((within, True), (without, False)):
            if vector is not None:
                mask[deleted_rows(self._source, vector, self._rows.path, self.physical_rows)] = chosen
        return mask


def _met(condition: Condition, first: int, batch: pa.RecordBatch, chosen: np.ndarray | None) -> np.ndarray:
    """Returns which rows of a batch, the one at `first` and those after it, are chosen and meet a condition.

    It is evaluated on the chosen ones alone: it may be that it can't be on deleted rows.
    """
    if chosen is None:
        return condition.mask(batch)
    met = chosen[first : first + batch.num_rows].copy()
    met[met] = condition.mask(filtered(batch, met))
    return met


def filtered(batch: pa.RecordBatch, chosen: np.ndarray) -> pa.RecordBatch:
    """Returns the chosen rows of a batch, which may have no columns."""
    return batch.filter(pa.array(chosen)) if batch.num_columns else without_columns(int(chosen.sum()))


def without_columns(rows: int) -> pa.RecordBatch:
    """Returns `rows` rows of which no column is read."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], ["rows"]).select([])


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined

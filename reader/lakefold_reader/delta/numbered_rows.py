"""The rows of a version with their ids: read with all others, or taken by their ids.

An address is the number of a row's file, in the order of the files' paths, and the row's position in the
file. In a table that tracks rows a row has an id that stays: it is counted from the first id of its file, or
the file has it in a column if the row was written again. In others the id is the address, which holds for one
version.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lakefold_reader.delta.data_files import DataFile, deleted_rows, live_rows, without_columns
from lakefold_reader.delta.filters.condition import Condition
from lakefold_reader.delta.row_tracking import kept_columns, row_ids
from lakefold_reader.format.snapshots import Missing, RowsNotFoundError
from lakefold_table.delta.record_counts import statistics_of
from lakefold_table.errors import RESTORE, DamagedError
from lakefold_table.roots import below

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from lakefold_reader.delta.schema import DeltaColumn, DeltaSchema
    from lakefold_reader.format.source import Source
    from lakefold_table.delta.actions.file_actions import AddFile
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

    Numbers = NDArray[np.uint64]
    Indices = NDArray[np.int64]

ROW_ID, ADDRESS = "_rowid", "_rowaddr"
_NUMBERS: Final = (ROW_ID, ADDRESS)
_OFFSET_WIDTH: Final = np.uint64(32)
_UNKNOWN: Final = -1


def is_number(name: str, schema: DeltaSchema) -> bool:
    """Returns whether a column of rows is one of their ids or addresses, and not a column of the table."""
    return name in _NUMBERS and name not in schema.names


class NumberedRows:
    """The rows of a version. `files`: its files by their paths. `schema`: that of the table."""

    def __init__(
        self, source: Source, snapshot: DeltaSnapshot, files: Sequence[AddFile], schema: DeltaSchema
    ) -> None:
        self._source = source
        self._schema = schema
        self._files = files
        self._kept = kept_columns(snapshot, source.uri)[:1]
        self._without_ids: set[int] = set()

    def schema_of(self, columns: Sequence[str] | None) -> pa.Schema:
        """Returns the schema of these columns. Raises `InvalidError` if the table lacks one."""
        names = self._schema.names if columns is None else columns
        fields = iter(self._stored(names).arrow)
        return pa.schema(
            [pa.field(name, pa.uint64()) if self._is_number(name) else next(fields) for name in names]
        )

    def scan(self, columns: Sequence[str], where: str | None) -> Iterator[pa.RecordBatch]:
        """Yields the rows for which a filter holds, file by file. Raises as `files.batches_of`."""
        condition = None if where is None else Condition(where, self._schema)
        for number, file in enumerate(self._files):
            if condition is None or condition.may_match(file):
                data = DataFile(self._source, live_rows(file))
                for positions, batch in data.positioned(self._read_columns(columns), condition):
                    yield self._numbered(number, positions, batch, columns)

    def take(self, ids: Numbers, columns: Sequence[str] | None, missing: Missing) -> pa.Table:
        """Returns the rows with these ids in their order. See `Snapshot.take`."""
        names = self._schema.names if columns is None else columns
        schema = self.schema_of(names)
        unique, which = np.unique(ids, return_inverse=True)
        taken = _TakenRows(unique, names)
        self._take_by_position(taken)
        self._take_by_column(taken)
        taken.check(missing, self._source.uri)
        indices = taken.indices[which]
        return pa.Table.from_batches(taken.batches, schema).take(pa.array(indices[indices != _UNKNOWN]))

    def _take_by_position(self, taken: _TakenRows) -> None:
        """Takes the rows whose ids say in which files they are, if they were not written again."""
        bases, files = self._first_ids
        ranks = np.searchsorted(bases, taken.ids, side="right") - 1
        for rank in np.unique(ranks[ranks >= 0]).tolist():
            # Both ascend.
            start, end = np.searchsorted(ranks, (rank, rank + 1))
            for number in files[rank]:
                self._take_of(taken, number, np.arange(start, end), taken.ids[start:end] - bases[rank])

    def _take_by_column(self, taken: _TakenRows) -> None:
        """Takes the rows that were written again. Such a file has ids below its own first one."""
        unmatched = taken.unmatched
        for number, file in enumerate(self._files if self._kept and unmatched.size else ()):
            sought = unmatched[: np.searchsorted(unmatched, np.uint64(file.base_row_id or 0))]
            if sought.size and number not in self._without_ids:
                data = DataFile(self._source, live_rows(file))
                positions, kept = data.where_is(self._kept[0], sought)
                if kept is None:
                    self._without_ids.add(number)
                elif positions.size:
                    self._take_of(taken, number, np.searchsorted(taken.ids, kept), positions, data)
                    unmatched = taken.unmatched

    def _take_of(
        self,
        taken: _TakenRows,
        number: int,
        indices: Indices,
        positions: NDArray[np.int64] | Numbers,
        data: DataFile | None = None,
    ) -> None:
        """Takes rows at positions of a file, which ascend, as far as they have the ids at these indices."""
        file = self._files[number]
        counted = statistics_of(file).stored_rows
        if data is None and counted is not None and positions[0] >= counted:
            return
        data = data or DataFile(self._source, live_rows(file))
        present = positions < data.physical_rows
        indices, positions = indices[present], positions[present].astype(np.int64)
        columns = self._read_columns(taken.names)
        batches = list(data.at(positions, columns)) if columns and positions.size else []
        rows = pa.Table.from_batches(batches, pa.schema([column.field for column in columns]))
        kept = rows.column(len(columns) - 1).combine_chunks() if self._kept else None
        matched = self._ids(number, positions, kept) == taken.ids[indices]
        live = np.ones(positions.size, np.bool_)
        if file.deletion_vector is not None:
            deleted = deleted_rows(self._source, file.deletion_vector, file.path, data.physical_rows)
            live = ~np.isin(positions, deleted)
        taken.existing[indices[matched]] = True
        chosen = np.flatnonzero(matched & live)
        read = rows.take(pa.array(chosen)).to_batches() if columns else [without_columns(chosen.size)]
        ends = np.cumsum([batch.num_rows for batch in read])
        for batch, end in zip(read, ends.tolist(), strict=True):
            part = chosen[end - batch.num_rows : end]
            made = self._numbered(number, positions[part], batch, taken.names)
            taken.add(indices[part], made, below(self._source.uri, file.path))

    @cached_property
    def _first_ids(self) -> tuple[Numbers, list[list[int]]]:
        """The first ids of files, ascending, and for each the numbers of its files: empty ones share it."""
        numbers: dict[int, list[int]] = {}
        for number, file in enumerate(self._files):
            first = file.base_row_id if self._kept else number << int(_OFFSET_WIDTH)
            if first is not None:
                numbers.setdefault(first, []).append(number)
        return np.array(sorted(numbers), np.uint64), [numbers[first] for first in sorted(numbers)]

    def _numbered(
        self, number: int, positions: Indices, batch: pa.RecordBatch, names: Sequence[str]
    ) -> pa.RecordBatch:
        """Returns rows in these columns. `batch`: what was read of them, with the ids that they kept last."""
        kept = batch.column(batch.num_columns - 1) if self._kept else None
        stored = iter(batch.columns)
        arrays = []
        for name in names:
            if name == ADDRESS and self._is_number(name):
                arrays.append(pa.array(_addresses(number, positions)))
            elif self._is_number(name):
                arrays.append(pa.array(self._ids(number, positions, kept)))
            else:
                arrays.append(next(stored))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema_of(names))

    def _ids(self, number: int, positions: Indices, kept: pa.Array | None) -> Numbers:
        if kept is None:
            return _addresses(number, positions)
        ids = row_ids(self._files[number], positions, kept, self._source.uri)
        return np.asarray(ids.to_numpy(zero_copy_only=False), np.uint64)

    def _read_columns(self, names: Sequence[str]) -> Sequence[DeltaColumn]:
        """Returns what is read for these columns; last the ids that rows kept, if the table tracks rows."""
        return (*self._stored(names).columns, *self._kept)

    def _stored(self, names: Sequence[str]) -> DeltaSchema:
        return self._schema.chosen([name for name in names if not self._is_number(name)])

    def _is_number(self, name: str) -> bool:
        return is_number(name, self._schema)


class _TakenRows:
    """Rows that were taken by their ids, which ascend.

    `indices`: of their rows among those in `batches`. `existing`: which ids have a row, also a deleted one.
    """

    def __init__(self, ids: Numbers, names: Sequence[str]) -> None:
        self.ids = ids
        self.names = names
        self.indices: Indices = np.full(ids.size, _UNKNOWN, np.int64)
        self.existing = np.zeros(ids.size, np.bool_)
        self.batches: list[pa.RecordBatch] = []
        self._count = 0

    @property
    def unmatched(self) -> Numbers:
        """The ids that have no row yet, ascending."""
        ids: Numbers = self.ids[self.indices == _UNKNOWN]
        return ids

    def add(self, indices: Indices, batch: pa.RecordBatch, where: str) -> None:
        """Adds rows of the ids at these indices. Raises `DamagedError` if one has a row already."""
        if np.unique(indices).size < indices.size or (self.indices[indices] != _UNKNOWN).any():
            raise DamagedError("a row id belongs to two rows", where=where, hint=RESTORE)
        self.indices[indices] = np.arange(self._count, self._count + indices.size)
        self._count += indices.size
        self.batches.append(batch)

    def check(self, missing: Missing, where: str) -> None:
        """Raises `RowsNotFoundError` for the ids without a row, unless these are to be left out."""
        absent = self.indices == _UNKNOWN
        if absent.any() and missing != "skip":
            unknown, deleted = self.ids[absent & ~self.existing], self.ids[absent & self.existing]
            raise RowsNotFoundError(unknown.tolist(), deleted.tolist(), where=where)


def _addresses(number: int, positions: Indices) -> Numbers:
    return (np.uint64(number) << _OFFSET_WIDTH) + positions.astype(np.uint64)

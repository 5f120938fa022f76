"""Writes the rows of one process, and finds those that don't fit the table.

Rows are fitted as they are written. Only after a batch of them did not fit, its rows are checked one by one.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakefold_ingest.rows.json_values import check_json
from lakefold_ingest.rows.row_faults import BAD_ROWS, bad_rows_error, faults_of
from lakefold_ingest.rows.row_order import files_in_order
from lakefold_ingest.rows.text_lengths import parts_of
from lakefold_ingest.rows.unused_files import remove_unused
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakefold_ingest.rows.fitting import Fitting
    from lakefold_ingest.rows.target import Target, WrittenFile


class RowWriter:
    """Writes rows for one target. `written`: the files. If an error ends the writing, they are removed.

    `bad_rows`: those that don't fit, as `BAD_ROWS`. If the target keeps them, they are left out. If not, the
    first of them ends the writing with an error, and the others are looked for.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._bad: list[pa.Table] = []
        self.written: list[WrittenFile] = []

    @property
    def bad_rows(self) -> pa.Table:
        """The rows that don't fit."""
        return pa.concat_tables([BAD_ROWS.empty_table(), *self._bad])

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Writes rows. Raises `InvalidError` if they don't fit: see `bad_rows`, which may be empty."""
        try:
            self._write(self._parts(batches))
        except BaseException as error:
            remove_unused(self._target, self.written, str(error) or type(error).__name__)
            self.written = []
            raise

    def _parts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Iterable[pa.RecordBatch]]:
        target = self._target
        if not target.sort_by:
            return iter([batches])
        return files_in_order(batches, target.sort_by, target.max_rows_per_file, target.max_bytes_per_file)

    def _write(self, parts: Iterator[Iterable[pa.RecordBatch]]) -> None:
        """Writes rows; each part begins a file."""
        for part in parts:
            if self._target.keeps_bad_rows:
                for file in self._target.fitted().write(self._good(part)):
                    self.written.append(file)
                continue
            source = _Repeated(part)
            try:
                for file in self._target.write(source):
                    self.written.append(file)
            except InvalidError:
                for batch in chain(source.from_last(), chain.from_iterable(parts)):
                    self._fitted(batch, whole=False)
                raise

    def _good(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in parts_of(batch, self._target.fitting.schema):
                yield self._fitted(part, whole=True)

    def _fitted(self, batch: pa.RecordBatch, *, whole: bool) -> pa.RecordBatch:
        """Returns the rows that fit, and notes the others. Raises `InvalidError` if the batch doesn't fit."""
        source = self._target.source_columns if whole else ()
        return _fitted(batch, self._target.fitting, self._bad, source, whole=whole)


def check_rows(batches: Iterable[pa.RecordBatch], fitting: Fitting, where: str) -> None:
    """Raises `InvalidError` if rows don't fit a table, which `where` names: `BadRowsError` if it has rows."""
    bad: list[pa.Table] = []
    for batch in batches:
        _fitted(batch, fitting, bad, (), whole=False)
    if bad:
        raise bad_rows_error(pa.concat_tables(bad), where)


def _fitted(
    batch: pa.RecordBatch, fitting: Fitting, bad: list[pa.Table], source: tuple[str, ...], *, whole: bool
) -> pa.RecordBatch:
    """Returns the rows that fit, and adds the others to `bad`. Raises `InvalidError` as `RowWriter`."""
    try:
        rows = fitting.apply(batch)
        check_json(rows)
    except InvalidError:
        faults = faults_of(batch, fitting)
        if not faults.rows.size:
            raise
        bad.append(faults.described(pa.Table.from_batches([batch]), source=source, whole=whole))
        good = np.setdiff1d(np.arange(batch.num_rows), faults.rows)
        rows = fitting.apply(batch.take(pa.array(good)))
    return rows


class _Repeated:
    """Batches of which the last one can be read again."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._last: list[pa.RecordBatch] = []

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        self._last = [next(self._batches)]
        return self._last[0]

    def from_last(self) -> Iterator[pa.RecordBatch]:
        """Yields the last batch that was read, and the others."""
        yield from self._last
        yield from self._batches

"""Reads the rows of a change feed part by part, and shows them in the columns of the last version."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lakefold_reader.delta.columns import shaped
from lakefold_reader.delta.data_files import DataFile, filtered
from lakefold_reader.delta.feed.hidden_columns import hiding
from lakefold_reader.delta.feed.plan import ORDER
from lakefold_reader.delta.feed.unchanged_rows import unchanged_rows
from lakefold_reader.delta.filters.condition import Condition
from lakefold_reader.delta.schema import DeltaColumn, DeltaSchema
from lakefold_reader.format.changes import Misfits
from lakefold_reader.format.feed_rows import (
    CHANGE_FIELDS,
    added_values,
    check_free_names,
    has_values,
    shown_values,
    warn_of_misfits,
)
from lakefold_reader.row_stream import row_stream
from lakefold_table.errors import DamagedError
from lakefold_table.roots import below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from lakefold_reader.delta.data_files import Shape
    from lakefold_reader.delta.feed.plan import FilePart
    from lakefold_reader.delta.feed.unchanged_rows import Rewrite
    from lakefold_reader.format.source import Source

CHANGE_TYPE: Final = DeltaColumn(CHANGE_FIELDS[0], CHANGE_FIELDS[0].name, type_name="string")
"""The column of change files with the kind of change of each row."""


def _condition(text: str) -> Condition:
    return Condition(f"{CHANGE_TYPE.physical} {text}", DeltaSchema((CHANGE_TYPE,), (CHANGE_TYPE,)))


_KINDS: Final = ", ".join(f"'{kind}'" for kind in ORDER)
_OTHER: Final = _condition(f"IS NULL OR {CHANGE_TYPE.physical} NOT IN ({_KINDS})")
"""It also holds for each row of a file that lacks the column."""


def feed_schema(columns: DeltaSchema) -> pa.Schema:
    """Returns the Arrow schema of a feed with these columns: any may be null, in older rows.

    Raises `InvalidError` if a column has the name of a column that the feed adds.
    """
    check_free_names(columns.names)
    return pa.schema([*(pa.field(field.name, field.type) for field in columns.arrow), *CHANGE_FIELDS])


def feed_of(
    source: Source, parts: Iterable[FilePart], columns: DeltaSchema, misfits: Misfits
) -> pa.RecordBatchReader:
    """Returns the rows of these parts in these columns."""
    batches = chain.from_iterable(map(FilePartReader(source, columns, misfits).read, parts))
    return row_stream(feed_schema(columns), batches)


class FilePartReader:
    """Reads parts of a feed. `columns`: those of the feed's last version that are shown."""

    def __init__(self, source: Source, columns: DeltaSchema, misfits: Misfits = Misfits.FAIL) -> None:
        self._source = source
        self._chosen = columns
        self._columns = columns.columns
        self._whole = columns.whole.columns
        self._last_rewrite: tuple[Rewrite | None, Mapping[str, NDArray[np.int64]]] = (None, {})
        self._schema = feed_schema(columns)
        self._misfits = misfits
        self._checked: set[str] = set()

    def read(self, part: FilePart) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a part, in the schema `feed_schema(columns)`.

        Raises `VersionExpiredError` if the file was cleaned up meanwhile, `DamagedError` if it is missing or
        can't be read, `MisfitError` if a value doesn't fit the last version's type and misfits are not to be
        null.
        """
        skipped: Counter[str] = Counter()
        for batch in self.stored(part, partial(self._shaped, part, skipped)):
            arrays = [*batch.columns, *added_values(batch.num_rows, part, self._schema.names)]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        warn_of_misfits(self._source.uri, part.version, part.change_type, skipped)

    def has_row(self, part: FilePart, values: Mapping[str, pa.Scalar]) -> bool:
        """See `PartReader.has_row`. Of rewritten files only rows with these values are compared."""
        if part.rewrite is None:
            return any(has_values(batch, values) for batch in self.read(part))
        condition = Condition(values, self._chosen)
        batches = DataFile(self._source, part.rows).batches((), condition)
        count = sum(batch.num_rows for batch in batches)
        if not count:
            return False
        same = unchanged_rows(self._source, part.rewrite, hiding(self._whole, part.hidden), condition)
        return bool(count > len(same.get(part.rows.path, ())))

    def stored(self, part: FilePart, shape: Shape = shaped) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a part in the table's columns alone."""
        file = DataFile(self._source, part.rows, shape)
        if part.rewrite is not None:
            return self._changed(file, part, part.rewrite)
        if not part.in_change_file:
            return file.batches(hiding(self._columns, part.hidden))
        # A file has a part for each kind of change.
        if part.rows.path not in self._checked and any(True for _ in file.batches((), _OTHER)):
            message = f"it has rows whose {CHANGE_TYPE.physical} is no kind of change"
            where = below(self._source.uri, part.rows.path)
            raise DamagedError(message, where=where, hint="read on after the version that names this file")
        self._checked.add(part.rows.path)
        columns = hiding(self._columns, part.hidden)
        return file.batches(columns, _condition(f"= '{part.change_type}'"))

    def _changed(self, file: DataFile, part: FilePart, rewrite: Rewrite) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a file that a rewrite did not leave as they were."""
        if self._last_rewrite[0] is not rewrite:
            whole = hiding(self._whole, part.hidden)
            self._last_rewrite = rewrite, unchanged_rows(self._source, rewrite, whole)
        unchanged, start = self._last_rewrite[1].get(part.rows.path, np.zeros(0, np.int64)), 0
        for batch in file.batches(hiding(self._columns, part.hidden)):
            mask = np.ones(batch.num_rows, np.bool_)
            low, high = np.searchsorted(unchanged, (start, start + batch.num_rows))
            mask[unchanged[low:high] - start] = False
            start += batch.num_rows
            if mask.any():
                yield filtered(batch, mask)

    def _shaped(
        self, part: FilePart, skipped: Counter[str], values: pa.Array, column: DeltaColumn
    ) -> pa.Array:
        shape, versions = partial(shaped, column=column), (part.version, part.version)
        counted = None if self._misfits is Misfits.FAIL else skipped
        return shown_values(values, column.field, shape, versions, counted)

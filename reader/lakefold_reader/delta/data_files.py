"""The rows of data files: Parquet, with the values of partition columns, without deleted rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from lakefold_reader.delta.versions import not_built
from lakefold_table.bitmaps import numbers_of
from lakefold_table.delta.actions.paths import file_path
from lakefold_table.delta.deletion_vectors.storage import ABSOLUTE, inline_rows, stored_rows, vector_path
from lakefold_table.errors import RESTORE, DamagedError
from lakefold_table.roots import below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakefold_reader.format.source import Source
    from lakefold_table.delta.actions.file_actions import AddFile, DeletionVector
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

HALF: Final = 32
"""The bits of the lower half of a row's position, by which the bitmaps of a deletion vector are split."""


def check_scannable(snapshot: DeltaSnapshot, where: str) -> None:
    """Raises `NotBuiltError` if the rows of this version can't be read by this release."""
    if snapshot.metadata.maps_columns:
        raise not_built("reading rows of tables with column mapping", where)


def batches_of(
    source: Source, files: Iterable[AddFile], schema: pa.Schema, partition_columns: Iterable[str]
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of these logical files in this schema, file by file, in the order of their paths.

    A file is held in memory while its rows are yielded. Raises `DamagedError`, `NotBuiltError`.
    """
    partitions = frozenset(partition_columns)
    for file in sorted(files, key=lambda each: each.path):
        yield from _rows(source, file, schema, partitions).to_batches()


def row_count(source: Source, file: AddFile) -> int:
    """Returns the rows in a data file, those of its deletion vector included. The file is read."""
    return int(_opened(source, file).metadata.num_rows)


def _rows(source: Source, file: AddFile, schema: pa.Schema, partitions: frozenset[str]) -> pa.Table:
    opened = _opened(source, file)
    stored = set(opened.schema_arrow.names)
    wanted = [name for name in schema.names if name in stored and name not in partitions]
    where = below(source.uri, file.path)
    try:
        rows = opened.read(wanted, use_threads=False)
        vector = file.deletion_vector
        kept = None if vector is None else _kept(source, vector, opened.metadata.num_rows, where)
        columns = [
            _partition_value(file.partition_values.get(field.name), field, opened.metadata.num_rows)
            if field.name in partitions
            else rows[field.name].cast(field.type)
            if field.name in stored
            else pa.nulls(opened.metadata.num_rows, field.type)
            for field in schema
        ]
    except (pa.ArrowException, IndexError, OSError, ValueError) as error:
        raise DamagedError(f"the data file can't be read: {error}", where=where, hint=RESTORE) from error
    # An empty schema has no column that says how many rows there are.
    table = pa.table(columns, schema=schema) if columns else rows.select([])
    return table if kept is None else table.filter(kept)


def _opened(source: Source, file: AddFile) -> parquet.ParquetFile:
    path = file_path(file.path)
    where = below(source.uri, file.path)
    if path.absolute:
        raise not_built("reading data files outside of the table", where)
    try:
        return parquet.ParquetFile(pa.BufferReader(source.storage.get(path.text)))
    except FileNotFoundError as error:
        raise DamagedError("the data file is missing", where=where, hint=RESTORE) from error
    except (pa.ArrowException, OSError) as error:
        raise DamagedError(f"the file is no Parquet file: {error}", where=where, hint=RESTORE) from error


def _kept(source: Source, vector: DeletionVector, rows: int, where: str) -> pa.Array:
    """Returns for each row of a data file whether its deletion vector leaves it in the table."""
    path = vector_path(vector, where)
    if vector.storage_type == ABSOLUTE:
        raise not_built("reading deletion vectors outside of the table", where)
    deleted = (
        inline_rows(vector, where) if path is None else stored_rows(vector, source.storage.get(path), where)
    )
    mask = np.ones(rows, dtype=bool)
    for high, bitmap in deleted.items():
        mask[(high << HALF) + numbers_of(bitmap).astype(np.int64)] = False
    return pa.array(mask)


def _partition_value(text: str | None, field: pa.Field, rows: int) -> pa.Array:
    """Returns the column of a partition's value, which is text in the log; empty text is null."""
    if text is None or (not text and not pa.types.is_binary(field.type)):
        return pa.nulls(rows, field.type)
    if pa.types.is_timestamp(field.type):
        zone = pa.scalar(text.removesuffix("Z").replace("T", " "))
        value = pc.cast(zone, pa.timestamp("us")).cast(field.type)
    elif pa.types.is_binary(field.type):
        value = pa.scalar(text.encode("latin-1"), field.type)
    else:
        value = pc.cast(pa.scalar(text), field.type)
    return pa.repeat(value, rows)

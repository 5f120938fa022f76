"""Rows from any library that speaks Arrow: pyarrow, polars, pandas, duckdb and others.

Texts of polars and of delta-rs are views. Few of Arrow's functions take these, so they are made plain.
A frame of pandas that was filtered has an index without a name, which is no column of a table.
"""

from __future__ import annotations

import json
import math
import re
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakSet

import pyarrow as pa
from pyarrow import types

from lakefold_ingest.rows.row_checksum import RowChecksum
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator


_UNNAMED_INDEX: Final = re.compile(r"__index_level_\d+__")
"""How pandas names the levels of an index that have no name."""
_INSTEAD: Final = {
    "LazyFrame": "call its collect()",
    "FileSystemDataset": "pass its scanner().to_reader()",
    "Scanner": "pass its to_reader()",
    "list": "pass pyarrow.Table.from_pylist(rows), or pyarrow.Table.from_batches(rows)",
    "dict": "pass pyarrow.table(rows)",
    "generator": "pass pyarrow.RecordBatchReader.from_batches(schema, rows)",
}
"""What to pass in place of rows that have no stream, by the name of their type."""
AHEAD_BYTES: Final = 64 * 1024 * 1024
"""How much of a stream is read before a table is created for its rows. Of a table it is all."""
_begun: Final[WeakSet[pa.RecordBatchReader]] = WeakSet()
"""The streams that were read here, at least in part. They would give fewer rows, or none, if read again."""
_DETAIL: Final = ". Detail: Python exception: "
"""What Arrow puts before the traceback of an error of Python's that it passes on as a text."""
_LISTS: Final = (types.is_list, types.is_large_list, types.is_fixed_size_list)


class ArrowStream(Protocol):
    """An object with Arrow's stream interface: a table or data frame, or a stream of batches."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns a PyCapsule with an ArrowArrayStream."""


class RowSource:
    """The rows of a batch. They can be read again if a table or data frame holds them.

    `checks`: `checksum` is wanted. Raises `InvalidError` if `rows` has no Arrow stream, its stream was read
    before, or a column's name has a NUL.
    """

    def __init__(self, rows: ArrowStream, *, checks: bool = False) -> None:
        self._rows = rows
        self._reader: pa.RecordBatchReader | None = _reader_of(rows)
        self._count: int | None = None
        self._ahead: tuple[list[pa.RecordBatch], Iterator[pa.RecordBatch]] | None = None
        self._checks = checks
        self.checksum = ""
        """The checksum of the rows, once they were read; empty if it is not wanted."""
        self._given: pa.Schema = self._reader.schema
        for field in self._given:
            _check_name(field)
        fields = [field.with_type(_without_views(field.type)) for field in self._given]
        self.schema = pa.schema(fields, self._given.metadata)
        self.is_repeatable = not isinstance(rows, pa.RecordBatchReader)

    def ahead(self) -> list[pa.RecordBatch]:
        """Returns the first rows, all of a table, which `batches` yields as well. Raises as `batches`."""
        if self._ahead is None:
            most = math.inf if isinstance(self._rows, pa.Table) else AHEAD_BYTES
            held, size, rows = list[pa.RecordBatch](), 0, self._read()
            while size < most and (batch := next(rows, None)) is not None:
                held.append(batch)
                size += batch.nbytes
            self._ahead = held, rows
        return self._ahead[0]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows.

        Raises `InvalidError` if they can't be read, or are read again and the source has lost them, and the
        error that ended a `RecordBatchReader`, unless it is Arrow's.
        """
        ahead, self._ahead = self._ahead, None
        return self._read() if ahead is None else chain(*ahead)

    def _read(self) -> Iterator[pa.RecordBatch]:
        reader, self._reader = self._reader or _reader_of(self._rows), None
        if isinstance(self._rows, pa.RecordBatchReader):
            _begun.add(self._rows)
        count, checksum = 0, RowChecksum()
        for given in self._given_by(reader):
            batch = given if self.schema == self._given else given.cast(self.schema)
            count += batch.num_rows
            if self._checks:
                checksum.add(batch)
            yield batch
        if self._count is not None and self._count != count:
            message = f"the rows were read again, and were {count} instead of {self._count}"
            raise InvalidError(message, where="rows", hint="pass a table or data frame, not a stream")
        self._count = count
        self.checksum = str(checksum) if self._checks else ""

    def _given_by(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Yields what the reader has. A stream of another library gives the text of its error only."""
        try:
            yield from reader
        except (pa.ArrowException, OSError) as error:
            text, is_passed_on, _ = str(error).partition(_DETAIL)
            is_own = isinstance(self._rows, pa.RecordBatchReader) or hasattr(self._rows, "to_reader")
            if isinstance(error, OSError) and is_own and not is_passed_on:
                raise
            message = f"the rows can't be read: {text}"
            raise InvalidError(message, where="rows", hint="see why their source fails") from error

    def table(self) -> pa.Table:
        """Returns all rows, which are held in memory then. Raises as `batches`."""
        return pa.Table.from_batches(self.batches(), self.schema)


def _check_name(field: pa.Field) -> None:
    """Raises `InvalidError` if a name at any depth has a NUL, which ends names where Arrow passes them on."""
    if "\0" in field.name:
        message = "the name of a column can't contain the character NUL"
        raise InvalidError(message, where=repr(field.name), hint="rename the column")
    for number in range(field.type.num_fields):
        _check_name(field.type.field(number))


def _without_views(kind: pa.DataType) -> pa.DataType:
    """Returns the type with plain texts and bytes instead of views of such, at any depth.

    Views of lists stay, and no table takes them: Arrow's cast to lists loses values.
    """
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_views(kind.value_type), kind.ordered)
    if types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    if types.is_map(kind):
        key, item = (
            field.with_type(_without_views(field.type)) for field in (kind.key_field, kind.item_field)
        )
        return pa.map_(key, item, kind.keys_sorted)
    if not any(is_one(kind) for is_one in _LISTS):
        return kind
    inner = kind.value_field.with_type(_without_views(kind.value_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(inner, kind.list_size)
    return pa.large_list(inner) if types.is_large_list(kind) else pa.list_(inner)


def _reader_of(rows: ArrowStream) -> pa.RecordBatchReader:
    if not hasattr(rows, "__arrow_c_stream__"):
        message = f"rows of type {type(rows).__name__} have no Arrow stream (__arrow_c_stream__)"
        hint = _INSTEAD.get(type(rows).__name__, "pass a pyarrow, polars, pandas or duckdb table")
        raise InvalidError(message, where="rows", hint=hint)
    if isinstance(rows, pa.RecordBatchReader) and rows in _begun:
        message = "the stream was read before, and can't be read again"
        raise InvalidError(message, where="rows", hint="pass a table, or make the stream again")
    if isinstance(rows, pa.RecordBatchReader):
        # Its errors would be texts in a stream made of it.
        return rows
    if hasattr(rows, "to_reader"):
        # For a table of Lakefold's, as above. A table of pyarrow has columns of more than 63 levels.
        reader: pa.RecordBatchReader = rows.to_reader()
        return reader
    try:
        reader = pa.RecordBatchReader.from_stream(rows)
    except (pa.ArrowException, ValueError) as error:
        message = f"the rows can't be read as an Arrow stream: {error}"
        hint = "a stream can be read only once, and a column has at most 63 levels, or pass a pyarrow.Table"
        raise InvalidError(message, where="rows", hint=hint) from error
    is_pandas = any(each.__module__.startswith("pandas.") for each in type(rows).__mro__)
    return _without_unnamed_index(reader) if is_pandas else reader


def _without_unnamed_index(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Leaves out what pandas adds for levels of an index without a name. It holds all rows anyway."""
    index = json.loads((reader.schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", ())
    # A level is described, not named, if it is no column.
    levels = [name for name in index if isinstance(name, str) and _UNNAMED_INDEX.fullmatch(name)]
    return reader.read_all().drop_columns(levels).to_reader() if levels else reader

"""A data file of a table, of which no more is read than is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import parquet

from lakefold_reader.delta.ranges import FileRanges
from lakefold_reader.delta.versions import not_built, removed_file
from lakefold_table.delta.actions.paths import file_path
from lakefold_table.errors import RESTORE, DamagedError
from lakefold_table.roots import below

if TYPE_CHECKING:
    from lakefold_reader.format.source import Source

READ_WHOLE: Final = 1 << 20
"""A file of at most so many bytes is read by one request."""


def opened(source: Source, encoded: str, size: int) -> parquet.ParquetFile:
    """Opens the data file that a path of the log names. `size`: its bytes, as its action says.

    Raises `VersionExpiredError` if it was removed by a clean-up, `DamagedError` if it is missing otherwise or
    is no Parquet file, and `NotBuiltError` if it is outside of the table.
    """
    path, where = file_path(encoded, source.uri), below(source.uri, encoded)
    if path.absolute:
        # The log must not lead a reader, with its credentials, to the files of others.
        raise not_built("reading data files outside of the table", where)
    try:
        if size <= READ_WHOLE:
            return parquet.ParquetFile(pa.BufferReader(source.storage.get(path.text)))
        file = pa.PythonFile(FileRanges(source.storage, path.text, size), mode="r")
        return parquet.ParquetFile(file, pre_buffer=True)
    except FileNotFoundError as error:
        raise removed_file(source, encoded) from error
    except (pa.ArrowException, OSError) as error:
        raise DamagedError(f"the file is no Parquet file: {error}", where=where, hint=RESTORE) from error

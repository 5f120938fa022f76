"""Reads the ranges of a data file that are needed, and no more."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import parquet

from lakefold_reader.delta.inside_paths import path_inside
from lakefold_reader.delta.versions import not_built, removed_file
from lakefold_table.errors import RESTORE, DamagedError
from lakefold_table.roots import below

if TYPE_CHECKING:
    from lakefold_reader.format.source import Source
    from lakefold_table.storage.base import Storage

UNIT: Final = "us"
"""Times of old writers (INT96) are read in this unit. Nanoseconds begin in 1677, and wrap around before."""
READ_WHOLE: Final = 1 << 20
"""A file of at most this many bytes is read by one request."""


class FileRanges(io.RawIOBase):
    """A file of a store, read by ranges."""

    def __init__(self, storage: Storage, path: str, size: int) -> None:
        super().__init__()
        self._storage = storage
        self._path = path
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """Returns True: the file can be read."""
        return True

    def seekable(self) -> bool:
        """Returns True: the file can be read from any position."""
        return True

    def tell(self) -> int:
        """Returns the position of the next byte that is read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Sets the position of the next byte that is read, and returns it."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def size(self) -> int:
        """Returns how many bytes the file has."""
        return self._size

    def read(self, size: int | None = -1, /) -> bytes:
        """Reads `size` bytes by one request, or all that are left."""
        left = max(0, self._size - self._at)
        length = left if size is None or size < 0 else min(size, left)
        data = self._storage.get_range(self._path, self._at, length) if length else b""
        self._at += len(data)
        return data


def opened(source: Source, encoded: str, size: int) -> parquet.ParquetFile:
    """Opens the data file that a path of the log names. `size`: its bytes, as its action says.

    Raises `VersionExpiredError` if it was removed by a clean-up, `DamagedError` if it is missing otherwise or
    is not a Parquet file, and `NotBuiltError` if it is outside of the table.
    """
    path, where = path_inside(encoded, source.uri), below(source.uri, encoded)
    if path is None:
        # The log must not lead a reader, with its credentials, to the files of others.
        raise not_built("reading data files outside of the table", where)
    try:
        if size <= READ_WHOLE:
            whole = pa.BufferReader(source.storage.get(path))
            return parquet.ParquetFile(whole, coerce_int96_timestamp_unit=UNIT)
        file = pa.PythonFile(FileRanges(source.storage, path, size), mode="r")
        return parquet.ParquetFile(file, pre_buffer=True, coerce_int96_timestamp_unit=UNIT)
    except FileNotFoundError as error:
        raise removed_file(source, encoded) from error
    except (pa.ArrowException, OSError) as error:
        raise DamagedError(f"the file is not a Parquet file: {error}", where=where, hint=RESTORE) from error

"""A file of a store as a file of Python, for what reads only parts of it: a Parquet file by its columns."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakefold_table.storage.base import Storage


class FileRanges(io.RawIOBase):
    """A file of a store, read by ranges."""

    def __init__(self, storage: Storage, path: str, size: int) -> None:
        super().__init__()
        self._storage = storage
        self._path = path
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """Returns that it can be read."""
        return True

    def seekable(self) -> bool:
        """Returns that it can be read from anywhere."""
        return True

    def tell(self) -> int:
        """Returns where the next byte is read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Sets where the next byte is read, and returns it."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def size(self) -> int:
        """Returns how many bytes the file has."""
        return self._size

    def read(self, size: int | None = -1, /) -> bytes:
        """Reads so many bytes by one request, or all that are left."""
        left = max(0, self._size - self._at)
        length = left if size is None or size < 0 else min(size, left)
        data = self._storage.get_range(self._path, self._at, length) if length else b""
        self._at += len(data)
        return data

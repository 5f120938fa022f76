"""The rows of deletion vectors, from their actions or from files that were fetched; and new vectors."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final
from uuid import UUID

from lakefold_table.bitmaps import Bitmap
from lakefold_table.delta.deletion_vectors.serialisation import encode_rows
from lakefold_table.delta.deletion_vectors.storage import (
    RELATIVE,
    inline_rows,
    inline_vector,
    stored_rows,
    vector_file,
    vector_path,
)
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.format import NewFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_table.delta.actions.file_actions import AddFile, DeletionVector
    from lakefold_table.delta.record_counts import StatisticsSummary

MOST_INLINE: Final = 1024
"""The most bytes of a vector that is stored in its action. A larger one gets a file."""
MOST_FILE: Final = 64 << 20
"""The largest file of deletion vectors that is read."""


class NotFetchedError(Exception):
    """The file of a deletion vector was not requested: it is known only since an entry before was folded."""


class Vectors:
    """Reads deletion vectors. `contents`: of the files that were fetched, None for one that doesn't exist."""

    def __init__(self, contents: Mapping[str, bytes | None]) -> None:
        self._contents = contents

    def rows(self, vector: DeletionVector | None, where: str) -> Bitmap:
        """Returns the deleted rows of a file at `where`.

        Raises `NotFetchedError` if the vector's file was not requested, and `DamagedError` if it is missing,
        too large or malformed, or if the rows are beyond what one bitmap holds.
        """
        if vector is None:
            return Bitmap()
        path = vector_path(vector, where)
        if path is None:
            rows = inline_rows(vector, where)
        elif vector.storage_type != RELATIVE:
            raise DamagedError("its deletion vector is named by an absolute path", where=where)
        elif path not in self._contents:
            raise NotFetchedError(path)
        else:
            content = self._contents[path]
            if content is None:
                message = f"its deletion vector {path!r} is missing, or its file is too large to be read"
                raise DamagedError(message, where=where)
            rows = stored_rows(vector, content, where)
        if rows.keys() - {0}:
            raise DamagedError("its deletion vector has rows from 2^32 on", where=where)
        return rows.get(0, Bitmap())


def file_of(vector: DeletionVector | None) -> str | None:
    """Returns the path of the file in the table that holds a vector. Returns None if no such file does."""
    if vector is None or vector.storage_type != RELATIVE:
        return None
    try:
        return vector_path(vector)
    except DamagedError:
        return None


def new_vector(rows: Bitmap, path: str) -> tuple[DeletionVector, NewFile | None]:
    """Returns the vector with these rows of the file at `path`, and the file that holds it.

    A small one is in its action, without a file. A file is named by its content, so a replay names it alike.
    """
    by_key = {0: rows}
    data = encode_rows(by_key)
    if len(data) <= MOST_INLINE:
        return inline_vector(by_key), None
    name = UUID(bytes=hashlib.sha256(path.encode() + b"\0" + data).digest()[:16])
    content, (vector,) = vector_file([by_key], name)
    return vector, NewFile(str(vector_path(vector)), content)


def false_vector(
    files: Iterable[tuple[AddFile, StatisticsSummary]], contents: Mapping[str, bytes | None]
) -> Invalid | None:
    """Returns why no client could read a deletion vector of these files, or None.

    `contents`: the files of vectors that were read, by path.
    """
    for file, statistics in files:
        if file.deletion_vector is None:
            continue
        path = file_of(file.deletion_vector)
        content = None if path is None else contents.get(path)
        vectors = Vectors({} if path is None or content is None else {path: content})
        try:
            rows = vectors.rows(file.deletion_vector, f"the deletion vector of {file.path!r}")
        except NotFetchedError:
            # A replay, after the file was removed.
            continue
        except DamagedError as error:
            return Invalid(error.reason, "write the deletion vector before you propose it")
        if rows and statistics.stored_rows is not None and rows.max() >= statistics.stored_rows:
            message = f"the deletion vector of {file.path!r} has row {rows.max()}, the file has fewer"
            return Invalid(message, "use the positions of rows in the data file, from 0 on")
    return None

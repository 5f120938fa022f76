"""Finds the deleted rows of a fragment, and the files that must be fetched for that.

The files concerned are the proposed deletion file and the fragment's file in the table. Files under
another base (those of the table from which this table was cloned) are named by their whole URI.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from lakefold_table.bitmaps import Bitmap
from lakefold_table.errors import DamagedError
from lakefold_table.format import Requirements
from lakefold_table.lance.rows.deletions import BITMAP, decode_deletions, deletion_path
from lakefold_table.roots import below

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment, DeletionFile, Manifest
    from lakefold_table.lance.table_view import StoredVersion, TableView

CONTAINER_ROWS, CONTAINER_BYTES = 2**16, 2**13 + 64
ARRAY_ROW_BYTES, SPARE_BYTES = 5, 2**16
"""An array takes 4 bytes a row, a bitmap at most 8 KiB for each 65,536 rows; the rest is a reserve."""


def needs_of(
    state: StoredVersion | None, updated: Sequence[DataFragment], removed: Collection[int], *, all_rows: bool
) -> Requirements:
    """Returns the requirements: the proposed deletion files and those of the same fragments in the table.

    `all_rows`: which rows of a removed fragment were live is needed, not only how many.
    """
    if state is None:
        return Requirements()
    current = state.fragments.get({fragment.id for fragment in updated})
    contents: dict[str, int] = {}
    for number, file, rows in chain(
        (
            (fragment.id, file, current[fragment.id].physical_rows)
            for fragment in updated
            if fragment.id in current
            for file in (fragment.deletion_file, current[fragment.id].deletion_file)
        ),
        (
            (fragment.id, fragment.deletion_file, fragment.physical_rows)
            for fragment in state.fragments.each(removed)
            if all_rows or not fragment.deletion_file.num_deleted_rows
        ),
    ):
        location = deletion_location(state.head, number, file)
        if location:
            contents[location] = max(contents.get(location, 0), most_bytes(file, rows))
    return Requirements(contents=contents)


def most_bytes(file: DeletionFile, rows: int) -> int:
    """Returns how many bytes a deletion file of a fragment with `rows` rows may have, with a reserve."""
    if file.file_type == BITMAP:
        return SPARE_BYTES + (rows // CONTAINER_ROWS + 1) * CONTAINER_BYTES * 2
    return SPARE_BYTES + rows * ARRAY_ROW_BYTES


def deletion_location(head: Manifest, fragment_id: int, file: DeletionFile) -> str:
    """Returns the path of a deletion file in the table, or its whole URI if it is under another base.

    Returns an empty string if there is no file (an empty message), if its kind is unknown, or if its base
    isn't the root of a table.
    """
    if not file.ByteSize():
        return ""
    try:
        path = deletion_path(fragment_id, file)
    except DamagedError:
        return ""
    if not file.HasField("base_id"):
        return path
    roots = [base.path for base in head.base_paths if base.id == file.base_id and base.is_dataset_root]
    return below(roots[0], path) if roots else ""


def deleted_rows(table: TableView, fragment: DataFragment, rows: int | None = None) -> Bitmap:
    """Returns the rows that are marked in a fragment's deletion file.

    `rows`: how many rows the fragment has, if it doesn't say so itself. Raises `DamagedError` if the file is
    missing, too large or malformed.
    """
    if not fragment.HasField("deletion_file"):
        return Bitmap()
    file = fragment.deletion_file
    location = deletion_location(table.head, fragment.id, file)
    if not location:
        raise DamagedError("the kind or the base of the deletion file is unknown")
    data = table.content(location)
    if data is None:
        outside = ", or not below the committer's roots" if file.HasField("base_id") else ""
        raise DamagedError(f"{location} is missing or too large{outside}")
    return decode_deletions(file, data, fragment.physical_rows if rows is None else rows, location)

"""Which rows of a fragment are deleted: what the shell must bring to tell it, and the answer.

The proposed deletion file is read, and the one that the fragment has in the table. Files under another base
(those of the table that this one was cloned from) are named by their whole URI.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError
from lakefold_table.format import Requirements
from lakefold_table.lance.rows.bitmaps import Bitmap
from lakefold_table.lance.rows.deletions import BITMAP, decode_deletions, deletion_path
from lakefold_table.roots import below

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment, DeletionFile, Manifest
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder

CONTAINER_ROWS, CONTAINER_BYTES = 2**16, 2**13 + 64
ARRAY_ROW_BYTES, SPARE_BYTES = 5, 2**16
"""An array has 4 bytes a row, a bitmap at most 8 KiB for each 65,536 rows; the rest is room to spare."""


def needs_of(
    state: LanceState | None, updated: Sequence[DataFragment], removed: Collection[int], *, all_rows: bool
) -> Requirements:
    """The deletion files that are proposed, and those that the fragments have in the table.

    `all_rows`: it must be known which rows of a removed fragment were there, not only how many.
    """
    if state is None:
        return Requirements()
    there = state.fragments.get({one.id for one in updated})
    contents: dict[str, int] = {}
    for number, file, rows in chain(
        (
            (one.id, file, there[one.id].physical_rows)
            for one in updated
            if one.id in there
            for file in (one.deletion_file, there[one.id].deletion_file)
        ),
        (
            (one.id, one.deletion_file, one.physical_rows)
            for one in state.fragments.each(removed)
            if all_rows or not one.deletion_file.num_deleted_rows
        ),
    ):
        place = place_of(state.head, number, file)
        if place:
            contents[place] = max(contents.get(place, 0), most_bytes(file, rows))
    return Requirements(contents=contents)


def most_bytes(file: DeletionFile, rows: int) -> int:
    """The most bytes that a deletion file of a fragment of so many rows can have, with room to spare."""
    if file.file_type == BITMAP:
        return SPARE_BYTES + (rows // CONTAINER_ROWS + 1) * CONTAINER_BYTES * 2
    return SPARE_BYTES + rows * ARRAY_ROW_BYTES


def place_of(head: Manifest, fragment_id: int, file: DeletionFile) -> str:
    """Where a deletion file is: a path in the table, the whole URI of one under another base.

    Empty where there is none (an absent file has the id 0), where its kind isn't known, or where its base
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


def deleted_rows(table: VersionBuilder, fragment: DataFragment) -> Bitmap:
    """The rows that a fragment's deletion file marks. Raises `DamagedError` where it can't be told."""
    if not fragment.HasField("deletion_file"):
        return Bitmap()
    file = fragment.deletion_file
    place = place_of(table.head, fragment.id, file)
    if not place:
        raise DamagedError("its kind or its base isn't known")
    data = table.content(place)
    if data is None:
        reach = ", or not under the roots" if file.HasField("base_id") else ""
        raise DamagedError(f"{place} is missing or too large{reach}")
    return decode_deletions(file, data, fragment.physical_rows, place)

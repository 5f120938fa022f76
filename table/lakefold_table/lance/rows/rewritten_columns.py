"""Columns that an Update writes again in fragments that stay; which rows changed (Lance facts 6.4, 7.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.rows.bitmaps import Bitmap, decode_bitmap
from lakefold_table.lance.rows.row_versions import replaced_versions
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.schemas.fragment_files import files_fault, new_files

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.lance.version_builder import VersionBuilder


def columns_fault(
    table: VersionBuilder,
    there: DataFragment,
    proposed: DataFragment,
    fields_modified: Collection[int],
    dropped: frozenset[int],
) -> Invalid | None:
    """Why these can't be the fragment's data files; None where they can."""
    fault = files_fault(table, there, proposed, table.columns, dropped)
    if fault is not None:
        return fault
    named, roots = set(fields_modified), table.columns.roots
    written = {number for file in new_files(there, proposed) for number in file.fields} - dropped
    untold = {number for number in written if not {number, roots[number]} & named}
    if untold:
        return Invalid(
            f"fields {some(untold)} of fragment {there.id} are written anew but not among fields_modified",
            "name them: indices on them no longer describe the fragment",
        )
    return None


def changed_offsets(
    update: Transaction.Update, fragments: Mapping[int, DataFragment]
) -> Mapping[int, Bitmap] | Invalid:
    """The rows whose values changed, by fragment, as the transaction tells them for some."""
    told: dict[int, Bitmap] = {}
    for number, several in update.updated_fragment_offsets.items():
        told[number] = Bitmap(several.values)
    for number, data in update.updated_fragment_offset_bitmaps.items():
        try:
            told[number] = told.get(number, Bitmap()) | decode_bitmap(data, f"offsets of fragment {number}")
        except DamagedError as error:
            return Invalid(error.reason, "give the row offsets as a portable Roaring bitmap")
    others = told.keys() - fragments.keys()
    if others:
        return Invalid(
            f"changed rows are told of fragments {some(others)}, which aren't updated",
            "tell those of updated fragments",
        )
    beyond = [
        number for number, rows in told.items() if rows and rows.max() >= fragments[number].physical_rows
    ]
    if beyond:
        return Invalid(
            f"changed rows of fragments {some(beyond)} lie beyond their last row", "give physical row offsets"
        )
    return told


def touch(fragment: DataFragment, offsets: Bitmap, version: int) -> Invalid | None:
    """Notes in the fragment that these rows changed in this version; what hinders it."""
    if not fragment.HasField("inline_last_updated_at_versions") or not offsets:
        return None
    data, rows = fragment.inline_last_updated_at_versions, fragment.physical_rows
    try:
        changed = replaced_versions(data, rows, offsets, version, f"row versions of fragment {fragment.id}")
    except (DamagedError, InvalidError) as error:
        return Invalid(str(error), error.hint)
    fragment.inline_last_updated_at_versions = changed
    return None

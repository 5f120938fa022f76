"""Columns that an Update writes again in existing fragments, and the changed rows (Lance facts 6.4, 7.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.bitmaps import Bitmap, decode_bitmap
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.rows.row_versions import replaced_versions
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.schemas.fragment_files import files_fault, new_files

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.lance.schemas.columns import Columns
    from lakefold_table.lance.table_view import TableView


def columns_fault(
    table: TableView,
    columns: Columns,
    current: DataFragment,
    proposed: DataFragment,
    fields_modified: Collection[int],
    dropped: frozenset[int],
) -> Invalid | None:
    """Returns why these can't be the fragment's data files, None if they can."""
    fault = files_fault(table, current, proposed, columns, dropped)
    if fault is not None:
        return fault
    named, roots = set(fields_modified), columns.roots
    written = {number for file in new_files(current, proposed) for number in file.fields} - dropped
    unnamed = {number for number in written if not {number, roots[number]} & named}
    if unnamed:
        return Invalid(
            f"fields {some(unnamed)} of fragment {current.id} are written again, but not in fields_modified",
            "add them to fields_modified, so that indices on them no longer cover the fragment",
        )
    return None


def changed_offsets(
    update: Transaction.Update, fragments: Mapping[int, DataFragment]
) -> Mapping[int, Bitmap] | Invalid:
    """Returns the row offsets whose values changed, by fragment id, for fragments that the transaction names.

    Returns `Invalid` if they are malformed or outside of the updated fragments.
    """
    changed: dict[int, Bitmap] = {}
    for number, offsets in update.updated_fragment_offsets.items():
        changed[number] = Bitmap(offsets.values)
    for number, data in update.updated_fragment_offset_bitmaps.items():
        try:
            changed[number] = changed.get(number, Bitmap()) | decode_bitmap(
                data, f"offsets of fragment {number}"
            )
        except DamagedError as error:
            return Invalid(error.reason, "send the row offsets as a portable Roaring bitmap")
    others = changed.keys() - fragments.keys()
    if others:
        return Invalid(
            f"changed rows are listed for fragments {some(others)}, which aren't updated",
            "list only rows of updated fragments",
        )
    beyond = [
        number for number, rows in changed.items() if rows and rows.max() >= fragments[number].physical_rows
    ]
    if beyond:
        return Invalid(
            f"changed rows of fragments {some(beyond)} are beyond their last row", "use physical row offsets"
        )
    return changed


def record_change(fragment: DataFragment, offsets: Bitmap, version: int) -> Invalid | None:
    """Records in the fragment that these rows changed in this version. Returns a fault if it can't."""
    if not fragment.HasField("inline_last_updated_at_versions") or not offsets:
        return None
    data, rows = fragment.inline_last_updated_at_versions, fragment.physical_rows
    try:
        changed = replaced_versions(data, rows, offsets, version, f"row versions of fragment {fragment.id}")
    except (DamagedError, InvalidError) as error:
        return Invalid(str(error), error.hint)
    fragment.inline_last_updated_at_versions = changed
    return None

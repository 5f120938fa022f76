"""Rows that were deleted or moved while a Rewrite was being built: its new fragments still have them.

The Rewrite wrote all rows that were live in the version that it read. Those deleted meanwhile get deletion
files in the new fragments (decision 0063). A new fragment of which no row is left is not added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.bitmaps import Bitmap
from lakefold_table.entry import BUILD_AGAIN, Conflict, Invalid, Rejected
from lakefold_table.errors import DamagedError
from lakefold_table.format import NewFile, Requirements
from lakefold_table.lance.rows.deleted_rows import deleted_rows, deletion_location, most_bytes
from lakefold_table.lance.rows.merge_deletions import with_deletions
from lakefold_table.lance.rows.row_moves import TracedRows, moved_rows
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakefold_table.lance.table_view import StoredVersion, TableView

Group = Transaction.Rewrite.RewriteGroup


@dataclass(frozen=True, slots=True)
class MarkedGroups:
    """The groups of a Rewrite with deletion files for the rows that were lost meanwhile.

    `emptied`: the numbers of rows of new fragments that were left out, by group and by index in the group.
    """

    groups: Sequence[Group]
    files: tuple[NewFile, ...]
    emptied: Mapping[int, Mapping[int, int]]


def needs_of_stated(state: StoredVersion, stated: Iterable[DataFragment]) -> Requirements:
    """Returns the deletion files that a Rewrite read, and the present ones of the same fragments.

    Only those of fragments that have another deletion file now.
    """
    by_id = {fragment.id: fragment for fragment in stated}
    current = state.fragments.get(by_id)
    contents: dict[str, int] = {}
    for number, read in by_id.items():
        now = current.get(number, read)
        if number in current and now.deletion_file == read.deletion_file:
            continue
        for file in (read.deletion_file, now.deletion_file):
            location = deletion_location(state.head, number, file)
            if location:
                contents[location] = max(contents.get(location, 0), most_bytes(file, now.physical_rows))
    return Requirements(contents=contents)


def as_read(
    stated: Iterable[DataFragment], current: Mapping[int, DataFragment], lost: Collection[int]
) -> dict[int, DataFragment]:
    """Returns the old fragments as the Rewrite read them, by id; without those that are not in the table.

    Fragments that lost rows since have the stated deletion file, and may be gone altogether.
    """
    fragments = dict(current)
    for fragment in stated:
        if fragment.id not in lost:
            continue
        if fragment.id not in current:
            fragments[fragment.id] = fragment
            continue
        fragments[fragment.id] = read = DataFragment()
        read.CopyFrom(current[fragment.id])
        read.ClearField("deletion_file")
        if fragment.HasField("deletion_file"):
            read.deletion_file.CopyFrom(fragment.deletion_file)
    return fragments


def marked(
    table: TableView,
    groups: Sequence[Group],
    read: Mapping[int, DataFragment],
    current: Mapping[int, DataFragment],
    lost: Collection[int],
) -> MarkedGroups | Rejected | Invalid:
    """Returns the groups, whose new fragments have ids, without the rows that were lost since they were read.

    `read`: the old fragments as the Rewrite read them; `current`: as they are in the table.
    """
    complete: list[Group] = []
    files: list[NewFile] = []
    emptied: dict[int, dict[int, int]] = {}
    for number, group in enumerate(groups):
        rows = _lost_in_new(table, group, read, current, lost)
        if not isinstance(rows, dict):
            return rows
        new: list[DataFragment] = []
        for index, fragment in enumerate(group.new_fragments):
            deleted = rows.get(fragment.id)
            if deleted is None:
                new.append(fragment)
            elif len(deleted) == fragment.physical_rows:
                emptied.setdefault(number, {})[index] = fragment.physical_rows
            else:
                changed, file = with_deletions(fragment, deleted, table.version - 1)
                new.append(changed)
                files.append(file)
        complete.append(Group(old_fragments=group.old_fragments, new_fragments=new) if rows else group)
    return MarkedGroups(complete, tuple(files), emptied)


def _lost_in_new(
    table: TableView,
    group: Group,
    read: Mapping[int, DataFragment],
    current: Mapping[int, DataFragment],
    lost: Collection[int],
) -> dict[int, Bitmap] | Rejected | Invalid:
    """Returns the row offsets in a group's new fragments whose rows were deleted in the table since."""
    fresh: dict[int, TracedRows] = {}
    old = [read[fragment.id] for fragment in group.old_fragments]
    for fragment in old:
        if fragment.id not in lost:
            continue
        now = current.get(fragment.id)
        try:
            before = deleted_rows(table, fragment)
        except DamagedError as error:
            return _unreadable(
                fragment.id, f"that the Rewrite read can't be read: {error.reason}; {BUILD_AGAIN}"
            )
        try:
            after = Bitmap(range(fragment.physical_rows)) if now is None else deleted_rows(table, now)
        except DamagedError as error:
            return _unreadable(fragment.id, f"in the table can't be read: {error}; restore the file")
        if not before.issubset(after):
            return Invalid(
                f"rows {some(list((before - after)[:100]))} of fragment {fragment.id} are deleted in the "
                "proposal, but not in the table",
                "use the fragments as they are in the read version",
            )
        fresh[fragment.id] = TracedRows.of(fragment.id, after - before)
    as_written = Group(old_fragments=old, new_fragments=group.new_fragments)
    moved, _ = moved_rows(fresh, as_written, lambda fragment: deleted_rows(table, fragment))
    new = {fragment.id for fragment in group.new_fragments}
    return {number: followed.rows for number, followed in moved.items() if number in new}


def _unreadable(fragment_id: int, reason: str) -> Rejected:
    message = f"the deletion file of fragment {fragment_id} {reason}"
    return Rejected(Conflict(retryable=True, message=message, fragment_ids=(fragment_id,)))

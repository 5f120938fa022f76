"""Checks the deleted rows of a proposal against those of the table, and merges the two.

A deletion file lists all deleted rows of its fragment, so a file that was written from an older version would
restore rows that another writer has deleted since. If the proposal states which rows it deletes itself, both
sets are merged into a new file. If it doesn't, or if both deleted the same row, it is refused (Lance facts
5.4 and 8.4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment, DeletionFile
from lakefold_table.bitmaps import Bitmap
from lakefold_table.entry import BUILD_AGAIN, Conflict, Invalid, Rejected
from lakefold_table.errors import DamagedError
from lakefold_table.format import NewFile
from lakefold_table.lance.rows.deleted_rows import deleted_rows
from lakefold_table.lance.rows.deletions import (
    BITMAP,
    content_id,
    deletion_path,
    encode_deletions,
)
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.schemas.fragment_files import has_other_files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakefold_table.lance.change import Proposal
    from lakefold_table.lance.table_view import TableView

MAX_EVIDENCE = 1000
"""How many rows an outcome lists at most."""
ROW_BITS = 32


@dataclass(frozen=True, slots=True)
class FragmentDeletions:
    """The fragments that a proposal changes or removes, after the deletions are merged.

    `replaced`: fragments with their new deletion files, by id; `merged`: ids of those whose file is made
    here. `removed`: ids of fragments that are removed; `emptied`: those of them whose rows are all deleted
    once both sets are merged. `files`: the files made here. `rows`: how many rows are newly deleted; `fresh`:
    which rows, by fragment id, if the caller asked for them.
    """

    replaced: Mapping[int, DataFragment]
    merged: frozenset[int]
    removed: frozenset[int]
    emptied: frozenset[int]
    files: tuple[NewFile, ...]
    rows: int
    fresh: Mapping[int, Bitmap]

    @property
    def rebased(self) -> bool:
        """Whether the proposal's transaction must be changed to describe the result."""
        return bool(self.merged or self.emptied)

    def rebase(self, updated: Iterable[DataFragment]) -> None:
        """Replaces the merged fragments in a transaction's list of updated fragments.

        A fragment without remaining rows stays as it was proposed, and is removed by its id (Lance fact 5.4).
        """
        for fragment in updated:
            if fragment.id in self.merged:
                fragment.CopyFrom(self.replaced[fragment.id])


@dataclass(slots=True)
class _Collected:
    replaced: dict[int, DataFragment] = field(default_factory=dict)
    merged: set[int] = field(default_factory=set)
    emptied: set[int] = field(default_factory=set)
    files: list[NewFile] = field(default_factory=list)
    rows: int = 0
    fresh: dict[int, Bitmap] = field(default_factory=dict)


def deletions_of(
    table: TableView,
    proposal: Proposal,
    updated: Sequence[DataFragment],
    removed: Collection[int],
    *,
    needs_rows: bool = False,
) -> FragmentDeletions | Rejected | Invalid:
    """Returns what becomes of updated fragments, which get new deletion files, and of removed fragments.

    `needs_rows`: the caller needs to know which rows are newly deleted, not only how many. The data files of
    updated fragments are not checked here and stay the same.
    """
    removed_ids = frozenset(removed)
    touched = _touched_fault(table, updated, removed_ids, proposal.affected_rows)
    if touched is not None:
        return touched
    merger = _Merger(table, proposal, needs_rows=needs_rows)
    for fragment in table.each(removed_ids):
        fault = merger.remove(fragment)
        if fault is not None:
            return fault
    current = table.get({fragment.id for fragment in updated})
    for fragment in updated:
        fault = None if fragment.id in removed_ids else merger.update(current[fragment.id], fragment)
        if fault is not None:
            return fault
    collected = merger.collected
    return FragmentDeletions(
        collected.replaced,
        frozenset(collected.merged),
        removed_ids | collected.emptied,
        frozenset(collected.emptied),
        tuple(collected.files),
        collected.rows,
        collected.fresh,
    )


def _touched_fault(
    table: TableView,
    updated: Iterable[DataFragment],
    removed: Collection[int],
    affected: Mapping[int, Bitmap] | None,
) -> Invalid | None:
    """Returns why these fragments can't be changed.

    They must be in the table, and the affected rows must be rows of these fragments.
    """
    ids = [fragment.id for fragment in updated]
    touched = {*ids, *removed}
    if len(set(ids)) < len(ids):
        return Invalid("a fragment is updated twice in one transaction", "list each fragment once")
    missing = touched - table.present(touched)
    if missing:
        return Invalid(
            f"fragments {some(missing)} are not in the table", "name fragments of the version that was read"
        )
    others = (affected or {}).keys() - touched
    if others:
        return Invalid(
            f"affected rows are given for fragments {some(others)}, which the transaction doesn't change",
            "give only those of updated and removed fragments",
        )
    counts = {fragment.id: fragment.physical_rows for fragment in table.each(affected or ())}
    beyond = [number for number, rows in (affected or {}).items() if rows and rows.max() >= counts[number]]
    if beyond:
        return Invalid(
            f"affected rows of fragments {some(beyond)} are beyond their last row",
            "use physical row offsets",
        )
    return None


def same_files_fault(table: TableView, updated: Iterable[DataFragment]) -> Invalid | None:
    """Returns a fault if the proposed fragments have other data files than those in the table."""
    proposed = {fragment.id: fragment for fragment in updated}
    for number, current in table.get(proposed).items():
        if has_other_files(current, proposed[number]):
            return Invalid(
                f"fragment {number} has other data files in the proposal than in the table",
                "use the fragment as it is in the read version; deleting rows changes no data file",
            )
    return None


def _same_fragment_fault(current: DataFragment, proposed: DataFragment) -> Invalid | None:
    """Returns a fault if rows, overlays or row ids of a fragment differ from those in the table."""
    if proposed.physical_rows != current.physical_rows:
        return Invalid(
            f"fragment {current.id} has {current.physical_rows} rows in the table, not "
            f"{proposed.physical_rows}",
            "use the fragment as it is in the read version",
        )
    if proposed.overlays:
        return Invalid(
            f"the update of fragment {current.id} must not add overlays", "send them as a DataOverlay"
        )
    if proposed.inline_row_ids != current.inline_row_ids:
        return Invalid(
            f"fragment {current.id} has other row ids in the proposal than in the table",
            "use the fragment as it is in the read version; its row ids never change",
        )
    return None


class _Merger:
    """Compares the fragments of a proposal with those of the table, and collects the results."""

    def __init__(self, table: TableView, proposal: Proposal, *, needs_rows: bool) -> None:
        self._table = table
        self._merges = proposal.rebase.merges
        self._affected = proposal.affected_rows
        self._carried_to = proposal.carried_to
        self._needs_rows = needs_rows
        self.collected = _Collected()

    def remove(self, current: DataFragment) -> Rejected | Invalid | None:
        """Collects a fragment that is removed. Returns a refusal if it can't be."""
        affected = None if self._affected is None else self._affected.get(current.id)
        count_is_known = current.deletion_file.num_deleted_rows or not current.HasField("deletion_file")
        if count_is_known and affected is None and not self._needs_rows and current.id not in self._merges:
            self.collected.rows += current.physical_rows - current.deletion_file.num_deleted_rows
            return None
        deleted = _deleted_in_table(self._table, current)
        if isinstance(deleted, Rejected):
            return deleted
        if current.id in self._merges:
            clash = deleted if affected is None else deleted & affected
            if clash:
                return _both_deleted(current.id, clash)
        if affected is not None and len(deleted | affected) != current.physical_rows:
            return Invalid(
                f"fragment {current.id} is removed, but its affected rows are not all of its rows",
                "list all its rows as affected, or update the fragment instead",
            )
        if self._needs_rows:
            self._count(current.id, Bitmap(range(current.physical_rows)) - deleted)
        else:
            self.collected.rows += current.physical_rows - len(deleted)
        return None

    def update(self, current: DataFragment, proposed: DataFragment) -> Rejected | Invalid | None:
        """Collects a fragment that gets another deletion file. Returns a refusal if it can't.

        If columns of the fragment are written again, its affected rows may be those whose values change.
        """
        fault = _same_fragment_fault(current, proposed)
        if fault is not None:
            return fault
        columns = has_other_files(current, proposed)
        if columns and current.id in self._merges:
            return _rewritten_and_deleted(current.id)
        if current.id in self._carried_to:
            return self._add(current)
        try:
            rows = deleted_rows(self._table, proposed)
        except DamagedError as error:
            return Invalid(
                f"the proposed deletion file of fragment {current.id} can't be used: {error.reason}",
                "write the file before you send the transaction",
            )
        deleted = _deleted_in_table(self._table, current)
        if isinstance(deleted, Rejected):
            return deleted
        affected = None
        if self._affected is not None and not columns:
            affected = self._affected.get(current.id, Bitmap())
        if current.id in self._merges:
            return self._merge(current, deleted, rows, affected)
        return self._use_file(current, proposed, deleted, rows, affected)

    def _add(self, current: DataFragment) -> Rejected | Invalid | None:
        """Writes a file that adds the affected rows; the proposal has no deletion file for this fragment."""
        deleted = _deleted_in_table(self._table, current)
        if isinstance(deleted, Rejected):
            return deleted
        affected = (self._affected or {}).get(current.id, Bitmap())
        return self._merge(current, deleted, deleted | affected, affected)

    def _use_file(
        self,
        current: DataFragment,
        proposed: DataFragment,
        deleted: Bitmap,
        rows: Bitmap,
        affected: Bitmap | None,
    ) -> Invalid | None:
        """Uses the proposal's own file; the fragment's deleted rows are those that the writer saw."""
        if not deleted.issubset(rows):
            return Invalid(
                f"rows {some(_first(deleted - rows))} of fragment {current.id} are deleted in the table, "
                "but not in the proposed deletion file",
                "a deletion file lists all deleted rows: include those that were deleted before",
            )
        if affected is not None and deleted | affected != rows:
            return _contradiction(current.id, (deleted | affected) ^ rows)
        if len(rows) == current.physical_rows:
            return Invalid(
                f"all rows of fragment {current.id} are deleted",
                "list it among the removed fragments instead",
            )
        self._count(current.id, rows - deleted)
        fragment = _with_file(current, proposed.deletion_file if proposed.HasField("deletion_file") else None)
        self.collected.replaced[current.id] = fragment
        return None

    def _merge(
        self, current: DataFragment, deleted: Bitmap, rows: Bitmap, affected: Bitmap | None
    ) -> Rejected | Invalid | None:
        """Writes a file with the rows that the table and the proposal deleted."""
        if affected is None:
            return Rejected(
                Conflict(
                    retryable=True,
                    message=f"rows of fragment {current.id} were deleted since it was read, and the envelope "
                    f"has no affected rows; {BUILD_AGAIN}",
                    fragment_ids=(current.id,),
                )
            )
        clash = deleted & affected
        if clash:
            return _both_deleted(current.id, clash)
        unexplained = (rows - affected - deleted) | (affected - rows)
        if unexplained:
            return _contradiction(current.id, unexplained)
        merged_rows = deleted | affected
        self._count(current.id, affected)
        if len(merged_rows) == current.physical_rows:
            self.collected.emptied.add(current.id)
            return None
        self.collected.merged.add(current.id)
        self.collected.replaced[current.id] = self._written(current, merged_rows) if affected else current
        return None

    def _count(self, fragment_id: int, rows: Bitmap) -> None:
        self.collected.rows += len(rows)
        if self._needs_rows:
            self.collected.fresh[fragment_id] = rows

    def _written(self, current: DataFragment, rows: Bitmap) -> DataFragment:
        fragment, file = with_deletions(current, rows, self._table.version - 1)
        self.collected.files.append(file)
        return fragment


def with_deletions(fragment: DataFragment, rows: Bitmap, base: int) -> tuple[DataFragment, NewFile]:
    """Returns the fragment with these rows deleted, and its deletion file. `base`: the version before."""
    file = DeletionFile(
        file_type=BITMAP,
        read_version=base,
        id=content_id(fragment.id, base, rows),
        num_deleted_rows=len(rows),
    )
    written = NewFile(deletion_path(fragment.id, file), encode_deletions(rows, BITMAP))
    return _with_file(fragment, file), written


def _with_file(fragment: DataFragment, file: DeletionFile | None) -> DataFragment:
    changed = DataFragment()
    changed.CopyFrom(fragment)
    changed.ClearField("deletion_file")
    if file is not None:
        changed.deletion_file.CopyFrom(file)
    return changed


def _deleted_in_table(table: TableView, current: DataFragment) -> Bitmap | Rejected:
    """Returns the rows that are deleted in the table now.

    Returns a retryable refusal if the table's own file can't be read: that is not the proposal's fault.
    """
    try:
        return deleted_rows(table, current)
    except DamagedError as error:
        conflict = Conflict(
            retryable=True,
            message=f"the deletion file of fragment {current.id} in the table can't be read: {error}; "
            "restore the file, then send the proposal again",
            fragment_ids=(current.id,),
        )
        return Rejected(conflict)


def _both_deleted(fragment_id: int, rows: Bitmap) -> Rejected:
    first = _first(rows)
    conflict = Conflict(
        retryable=True,
        message=f"rows {some(first)} of fragment {fragment_id} were deleted or moved since it was read; "
        f"{BUILD_AGAIN}",
        fragment_ids=(fragment_id,),
        row_addresses=tuple(fragment_id << ROW_BITS | row for row in first),
    )
    return Rejected(conflict)


def _rewritten_and_deleted(fragment_id: int) -> Rejected:
    conflict = Conflict(
        retryable=True,
        message=f"columns of fragment {fragment_id} are written again, and rows of it were deleted or moved "
        f"since the read version; {BUILD_AGAIN}",
        fragment_ids=(fragment_id,),
    )
    return Rejected(conflict)


def _contradiction(fragment_id: int, rows: Bitmap) -> Invalid:
    return Invalid(
        f"affected rows and deletion file of fragment {fragment_id} differ in rows {some(_first(rows))}",
        "affected rows are those that the proposed deletion file adds to the one in the read version",
    )


def _first(rows: Bitmap) -> list[int]:
    return list(rows[:MAX_EVIDENCE])

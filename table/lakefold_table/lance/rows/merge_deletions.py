"""The deleted rows of a proposal against those of the table: held against each other, and joined.

A deletion file is always complete, so one that was written from an older version would bring rows back that
somebody else has deleted since. Where the proposal says which rows it deletes itself, both sets are joined in
a new file; where it doesn't, or where both deleted one row, it is refused (Lance facts 5.4 and 8.4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment, DeletionFile
from lakefold_table.entry import Conflict, Invalid, Rejected
from lakefold_table.errors import DamagedError
from lakefold_table.format import NewFile
from lakefold_table.lance.rows.bitmaps import Bitmap
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

    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.version_builder import VersionBuilder

MAX_EVIDENCE = 1000
"""How many rows an outcome lists."""
ROW_BITS = 32
RETRY = "build it again on the newest version"


@dataclass(frozen=True, slots=True)
class Deletions:
    """What the fragments that a proposal touches become.

    `replaced`: fragments with their new deletion files; `joined`: ids of those whose file was made here.
    `removed`: ids of fragments that go, among them those of which both together deleted all rows (`emptied`).
    `files`: the files made here. `rows`: how many rows are deleted that weren't before; `fresh`: which these
    are, by fragment, where that was asked for.
    """

    replaced: Mapping[int, DataFragment]
    joined: frozenset[int]
    removed: frozenset[int]
    emptied: frozenset[int]
    files: tuple[NewFile, ...]
    rows: int
    fresh: Mapping[int, Bitmap]

    @property
    def rebased(self) -> bool:
        """Whether the proposal's transaction no longer says what becomes of its fragments."""
        return bool(self.joined or self.emptied)

    def rebase(self, updated: Iterable[DataFragment]) -> None:
        """Has a transaction's list of updated fragments say what becomes of them.

        One of which nothing is left stays as it was proposed, and is removed by its id (Lance fact 5.4).
        """
        for one in updated:
            if one.id in self.joined:
                one.CopyFrom(self.replaced[one.id])


@dataclass(slots=True)
class _Found:
    replaced: dict[int, DataFragment] = field(default_factory=dict)
    joined: set[int] = field(default_factory=set)
    emptied: set[int] = field(default_factory=set)
    files: list[NewFile] = field(default_factory=list)
    rows: int = 0
    fresh: dict[int, Bitmap] = field(default_factory=dict)


def deletions_of(
    table: VersionBuilder,
    proposal: Proposal,
    updated: Sequence[DataFragment],
    removed: Collection[int],
    *,
    which: bool = False,
) -> Deletions | Rejected | Invalid:
    """What becomes of the fragments with new deletion files (`updated`) and of those that go (`removed`).

    `which`: the rows that are deleted must be known, not only their number. The data files of updated
    fragments are for the caller to look at; here they stay as they are.
    """
    gone = frozenset(removed)
    touched = _touched_fault(table, updated, gone, proposal.affected_rows)
    if touched is not None:
        return touched
    joining = _Joining(table, proposal.rebase.merges, proposal.affected_rows, which=which)
    for one in table.each(gone):
        fault = joining.remove(one)
        if fault is not None:
            return fault
    there = table.get({one.id for one in updated})
    for one in updated:
        fault = None if one.id in gone else joining.update(there[one.id], one)
        if fault is not None:
            return fault
    found = joining.found
    return Deletions(
        found.replaced,
        frozenset(found.joined),
        gone | found.emptied,
        frozenset(found.emptied),
        tuple(found.files),
        found.rows,
        found.fresh,
    )


def _touched_fault(
    table: VersionBuilder,
    updated: Iterable[DataFragment],
    removed: Collection[int],
    affected: Mapping[int, Bitmap] | None,
) -> Invalid | None:
    """Why the fragments that are touched can't be, or aren't those whose rows are said to be affected."""
    ids = [one.id for one in updated]
    touched = {*ids, *removed}
    if len(set(ids)) < len(ids):
        return Invalid("a fragment is updated twice in one transaction", "list each fragment once")
    missing = touched - table.there(touched)
    if missing:
        return Invalid(
            f"fragments {some(missing)} are not in the table", "name fragments of the version that was read"
        )
    others = (affected or {}).keys() - touched
    if others:
        return Invalid(
            f"affected rows are given for fragments {some(others)}, which the transaction leaves alone",
            "give those of updated and removed fragments",
        )
    counts = {one.id: one.physical_rows for one in table.each(affected or ())}
    beyond = [number for number, rows in (affected or {}).items() if rows and rows.max() >= counts[number]]
    if beyond:
        return Invalid(
            f"affected rows of fragments {some(beyond)} lie beyond their last row",
            "give physical row offsets",
        )
    return None


def same_files_fault(table: VersionBuilder, updated: Iterable[DataFragment]) -> Invalid | None:
    """Why the proposal's idea of its fragments' data files isn't the table's; None where it is."""
    proposed = {one.id: one for one in updated}
    for number, there in table.get(proposed).items():
        if has_other_files(there, proposed[number]):
            return Invalid(
                f"fragment {number} comes with other data files than it has in the table",
                "take the fragment from the version that was read; deleting rows changes no data file",
            )
    return None


def _same_fragment_fault(there: DataFragment, proposed: DataFragment) -> Invalid | None:
    """Why the proposal's idea of a fragment isn't the table's, its deleted rows and data files aside."""
    if proposed.physical_rows != there.physical_rows:
        return Invalid(
            f"fragment {there.id} has {there.physical_rows} rows, the proposal says {proposed.physical_rows}",
            "take the fragment from the version that was read",
        )
    if proposed.overlays:
        return Invalid(f"fragment {there.id} may bring no overlays", "send them as a DataOverlay")
    if proposed.inline_row_ids != there.inline_row_ids:
        return Invalid(
            f"fragment {there.id} comes with other row ids than it has in the table",
            "take the fragment from the version that was read: row ids never change",
        )
    return None


class _Joining:
    """Holds one proposal's fragments against the table's, one after the other."""

    def __init__(
        self,
        table: VersionBuilder,
        merges: Collection[int],
        affected: Mapping[int, Bitmap] | None,
        *,
        which: bool,
    ) -> None:
        self._table = table
        self._merges = merges
        self._affected = affected
        self._which = which
        self.found = _Found()

    def remove(self, there: DataFragment) -> Rejected | Invalid | None:
        """A fragment that goes as a whole."""
        affected = None if self._affected is None else self._affected.get(there.id)
        known = there.deletion_file.num_deleted_rows or not there.HasField("deletion_file")
        if known and affected is None and not self._which and there.id not in self._merges:
            self.found.rows += there.physical_rows - there.deletion_file.num_deleted_rows
            return None
        present = _present(self._table, there)
        if isinstance(present, Rejected):
            return present
        if there.id in self._merges:
            clash = present if affected is None else present & affected
            if clash:
                return _both_deleted(there.id, clash)
        if affected is not None and len(present | affected) != there.physical_rows:
            return Invalid(
                f"fragment {there.id} is removed, and its affected rows leave some of it",
                "list all its rows as affected, or update it",
            )
        if self._which:
            self._count(there.id, Bitmap(range(there.physical_rows)) - present)
        else:
            self.found.rows += there.physical_rows - len(present)
        return None

    def update(self, there: DataFragment, proposed: DataFragment) -> Rejected | Invalid | None:
        """A fragment that gets another deletion file.

        Of one whose columns are written anew, the rows said to be affected may be those whose values change.
        """
        fault = _same_fragment_fault(there, proposed)
        if fault is not None:
            return fault
        columns = has_other_files(there, proposed)
        if columns and there.id in self._merges:
            return _rewritten_meanwhile(there.id)
        try:
            rows = deleted_rows(self._table, proposed)
        except DamagedError as error:
            return Invalid(
                f"the proposed deletion file of fragment {there.id} can't be used: {error.reason}",
                "write it before the transaction is sent",
            )
        present = _present(self._table, there)
        if isinstance(present, Rejected):
            return present
        affected = None
        if self._affected is not None and not columns:
            affected = self._affected.get(there.id, Bitmap())
        if there.id in self._merges:
            return self._join(there, present, rows, affected)
        return self._take(there, proposed, present, rows, affected)

    def _take(
        self,
        there: DataFragment,
        proposed: DataFragment,
        present: Bitmap,
        rows: Bitmap,
        affected: Bitmap | None,
    ) -> Invalid | None:
        """The proposal's own file, where the fragment is as it was when that was written."""
        if not present.issubset(rows):
            return Invalid(
                f"rows {some(_first(present - rows))} of fragment {there.id} are deleted in the table, "
                "but not in the proposed deletion file",
                "deletion files are complete: write the rows that were deleted before as well",
            )
        if affected is not None and present | affected != rows:
            return _contradiction(there.id, (present | affected) ^ rows)
        if len(rows) == there.physical_rows:
            return Invalid(
                f"all rows of fragment {there.id} are deleted", "list it among the removed fragments instead"
            )
        self._count(there.id, rows - present)
        fragment = _with_file(there, proposed.deletion_file if proposed.HasField("deletion_file") else None)
        self.found.replaced[there.id] = fragment
        return None

    def _join(
        self, there: DataFragment, present: Bitmap, rows: Bitmap, affected: Bitmap | None
    ) -> Rejected | Invalid | None:
        """Both deleted rows of the fragment: a file with those of both, read back by nobody before."""
        if affected is None:
            return Rejected(
                Conflict(
                    retryable=True,
                    message=f"rows of fragment {there.id} were deleted after it was read, and the envelope "
                    f"doesn't say which rows are affected; {RETRY}",
                    fragment_ids=(there.id,),
                )
            )
        clash = present & affected
        if clash:
            return _both_deleted(there.id, clash)
        unexplained = (rows - affected - present) | (affected - rows)
        if unexplained:
            return _contradiction(there.id, unexplained)
        joined = present | affected
        self._count(there.id, affected)
        if len(joined) == there.physical_rows:
            self.found.emptied.add(there.id)
            return None
        self.found.joined.add(there.id)
        self.found.replaced[there.id] = self._written(there, joined) if affected else there
        return None

    def _count(self, fragment_id: int, rows: Bitmap) -> None:
        self.found.rows += len(rows)
        if self._which:
            self.found.fresh[fragment_id] = rows

    def _written(self, there: DataFragment, rows: Bitmap) -> DataFragment:
        base = self._table.version - 1
        file = DeletionFile(
            file_type=BITMAP,
            read_version=base,
            id=content_id(there.id, base, rows),
            num_deleted_rows=len(rows),
        )
        self.found.files.append(NewFile(deletion_path(there.id, file), encode_deletions(rows, BITMAP)))
        return _with_file(there, file)


def _with_file(fragment: DataFragment, file: DeletionFile | None) -> DataFragment:
    changed = DataFragment()
    changed.CopyFrom(fragment)
    changed.ClearField("deletion_file")
    if file is not None:
        changed.deletion_file.CopyFrom(file)
    return changed


def _present(table: VersionBuilder, there: DataFragment) -> Bitmap | Rejected:
    """The rows deleted in the table now. What can't be read there is not the proposal's fault."""
    try:
        return deleted_rows(table, there)
    except DamagedError as error:
        conflict = Conflict(
            retryable=True,
            message=f"the deletion file of fragment {there.id} in the table can't be read: {error}; "
            "restore it, then send the proposal again",
            fragment_ids=(there.id,),
        )
        return Rejected(conflict)


def _both_deleted(fragment_id: int, rows: Bitmap) -> Rejected:
    first = _first(rows)
    conflict = Conflict(
        retryable=True,
        message=f"rows {some(first)} of fragment {fragment_id} were deleted or moved meanwhile; {RETRY}",
        fragment_ids=(fragment_id,),
        row_addresses=tuple(fragment_id << ROW_BITS | row for row in first),
    )
    return Rejected(conflict)


def _rewritten_meanwhile(fragment_id: int) -> Rejected:
    conflict = Conflict(
        retryable=True,
        message=f"columns of fragment {fragment_id} are written anew, and rows of it were deleted or moved "
        f"meanwhile; {RETRY}",
        fragment_ids=(fragment_id,),
    )
    return Rejected(conflict)


def _contradiction(fragment_id: int, rows: Bitmap) -> Invalid:
    return Invalid(
        f"affected rows and deletion file of fragment {fragment_id} differ in rows {some(_first(rows))}",
        "affected rows are those that the deletion file adds to the one of the version that was read",
    )


def _first(rows: Bitmap) -> list[int]:
    return list(rows[:MAX_EVIDENCE])

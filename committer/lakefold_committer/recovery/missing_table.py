"""Distinguishes tables that never existed, tables that were dropped, and tables whose store is not mounted.

In all three cases the store contains nothing, but the outcomes topic has their outcomes. If an outcome
reports a proposal as committed into a table at this path, further proposals are refused only if a record says
that the table was dropped: an error of the store is never a reason to refuse a proposal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_committer.fold.binding import position_text
from lakefold_table.branch_names import main_of
from lakefold_table.errors import DamagedError, InvalidError, LocationError, RetryError, StopError
from lakefold_table.versions.drop_note import branches_at, read_dropped, was_dropped
from lakefold_table.versions.refs import Refs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_committer.fold.fold import FoldedTable
    from lakefold_committer.recovery.recovery_context import RecoveryContext
    from lakefold_table.entry import Entry
    from lakefold_table.marks.marks import Marks
    from lakefold_table.position import Position
    from lakefold_table.versions.stored_table import StoredTable


def answerable(
    stored: StoredTable, group: Sequence[Entry], recovery: RecoveryContext | None
) -> Sequence[Entry]:
    """Returns the first entries of a group that can be answered although the table has no version.

    Entries that create a table are returned, unless files of one that was there are being removed. If the
    first entry needs an existing table, the fold would refuse it. That is correct only if the table's
    store is not missing, so it is checked first. Raises as `check_absent` does.
    """
    for entry in group:
        if entry.begins_table:
            _check_removed(stored, entry)
    if recovery is None or recovery.outcome_index is None:
        return group
    creations = next((number for number, entry in enumerate(group) if not entry.begins_table), len(group))
    if not creations:
        check_absent(stored, group[0].envelope.branch, recovery)
    return group[:creations] or group


def _check_removed(stored: StoredTable, creation: Entry) -> None:
    """Raises `StopError` if files of a table that was dropped are being removed where an entry creates one.

    What is created before the last one is removed would be removed as well. A branch is listed until then,
    although it has no version.
    """
    begun = "" if creation.proposal is None else creation.proposal.begun_branch
    branch = creation.envelope.branch or begun
    main = main_of(stored.uri, branch)
    if not branch or main == stored.uri:
        _check_dropped(stored)
        return
    try:
        Refs(stored.address.at(main).open()).branch(branch)
    except (DamagedError, InvalidError):
        # Nothing lists it, or what lists it was damaged by others, which stops no branch.
        return
    raise StopError(
        f"the branch {branch} was deleted, and its files are being removed",
        where=stored.uri,
        hint="the new branch is created after that; if the removal was interrupted, "
        f"`lakefold branch {main} {branch} --delete` continues it",
    )


def _check_dropped(stored: StoredTable) -> None:
    """Raises `StopError` if `lakefold drop` still removes files here, or was killed before it had."""
    try:
        note = read_dropped(stored.address)
    except (DamagedError, InvalidError, LocationError):
        # The note is damaged, or outside of what this process may read: that stops no table.
        return
    # On a disk the files are removed in a folder beside this one.
    if note is not None and note.removing and not note.aside:
        raise StopError(
            "the table that was here was dropped, and its files are being removed",
            where=stored.uri,
            hint="the new table is created after that; if the removal was interrupted, "
            f"`lakefold drop {stored.uri}` continues it",
        )


def check_absent(
    stored: StoredTable,
    branch: str,
    recovery: RecoveryContext | None,
    *,
    problem: str = "there is no table",
) -> None:
    """Raises `StopError` if the table existed and no record says that it was dropped.

    `branch`: the branch's name if the entry names one; entries that name the branch's root as their table
    don't, so the tables are asked below which it may be a branch. `problem`: what is at its URI now, for the
    message. Raises `RetryError` if the outcomes can't be read now.
    """
    uri = stored.uri
    outcome_index = None if recovery is None else recovery.outcome_index
    last = None if outcome_index is None else outcome_index.last_committed(uri)
    if last is None:
        return
    try:
        dropped = was_dropped(stored.address, last.position)
    except LocationError:
        # The table's folder and its parent can't be read, so nothing records a drop.
        dropped = False
    drop_hint = f"lakefold drop {main_of(uri, branch)}"
    for main, name in _branches_at(uri, branch):
        if _exists(stored, main):
            dropped = dropped or not _lists(stored, main, name)
            drop_hint = f"lakefold branch {main} {name} --delete"
    if dropped:
        return
    raise StopError(
        f"{problem}, yet {position_text(last.position)} was folded into version {last.version} of table "
        f"{last.table_id} here: its store can't be reached, or the table was deleted",
        where=uri,
        hint="restore the table: was it moved, is its file system mounted? If it was deleted on purpose, "
        f"record that: {drop_hint}",
    )


def is_dropped(stored: StoredTable, table: FoldedTable) -> bool:
    """Returns whether a table, or branch, that was opened has been dropped since.

    If so, the caller need not wait for it and opens what is stored at its path now. Returns False if the
    store can't be read.
    """
    position, branch = _last_folded(table.marks), "" if table.state is None else table.state.branch
    try:
        if position is None or stored.versions.numbers():
            return False
        if was_dropped(stored.address, position):
            return True
        main = main_of(table.uri, branch)
        return bool(branch) and _exists(stored, main) and not _lists(stored, main, branch)
    except (RetryError, LocationError):
        return False


def _last_folded(marks: Marks) -> Position | None:
    """Returns the last position that was folded. If the table was detached, the position before that.

    The version by which `lakefold drop` begins is a move without a position, after the one that detached it.
    """
    before = (move.before for move in reversed(marks.moves) if move.before is not None)
    return marks.position or next(before, None)


def _branches_at(uri: str, branch: str) -> list[tuple[str, str]]:
    """Returns the branches that may be at `uri`: the root of the table and the branch's name, if known."""
    if branch:
        return [(main_of(uri, branch), branch)]
    return [(main, name) for main, name in branches_at(uri) if name]


def _lists(stored: StoredTable, main: str, branch: str) -> bool:
    """Returns whether the table at `main` lists the branch. If not, it was deleted."""
    return branch in Refs(stored.address.at(main).open()).branches()


def _exists(stored: StoredTable, main: str) -> bool:
    other = stored.at(main)
    try:
        return other.versions.latest() >= other.versions.first
    except LocationError:
        return False

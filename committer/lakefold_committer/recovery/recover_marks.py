"""Recovers a table's valid marks: those of the newest version that a committer made (positions-grow).

Each version contains marks. But a foreign client may have rolled them back (a Restore) or removed them (a
metadata replace), and a clone contains those of another table. So the versions are read from the newest one
back to the first that a committer made. Only a summary of each is kept. So foreign versions take time,
but no memory. Of the marks in a clone's first version only the keys count, and only those of a branch.

If the committer's version was removed meanwhile, the marks can still be verified in two cases. If no later
version can have changed the metadata, the newest version contains the marks unchanged. Otherwise the
committed offset says up to where entries were answered, and older marks say which keys were folded at least:
keys missing in them belong to versions that a Restore removed together with their rows. If the marks were
removed, the keys are unknown, and nothing is guessed.

A version may also be a late one: its put was still under way while others committed and cleaned up, so its
name became free again. If no later version changed the metadata, the newest version would contain the
marks of that file. If it contains others, the version counts as removed. If it contains none, nothing follows
from it, since clients that don't know a table's metadata drop them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_committer.fold.fold import FoldedTable
from lakefold_table.errors import DamagedError, StopError, VersionExpiredError
from lakefold_table.marks.marks import Marks, decode_marks, own_marks, with_keys_of
from lakefold_table.marks.record import is_own
from lakefold_table.marks.rollbacks import after_foreign, rolled_back
from lakefold_table.versions.succession import Link, Succession, link_of, succession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_committer.recovery.recovery_context import RecoveryContext
    from lakefold_table.format import State, VersionSummary
    from lakefold_table.versions.stored_table import StoredTable


def recover_marks(stored: StoredTable, newest: State, recovery: RecoveryContext | None = None) -> FoldedTable:
    """Returns the newest state with the marks that count. Raises `StopError` if none can be verified."""
    uri = stored.uri
    if is_own(newest.properties, newest.version):
        return FoldedTable(uri, newest, own_marks(newest, uri))
    if newest.is_clone:
        return FoldedTable(uri, newest, _keys_of_branch(newest))
    carried = _marks_in(newest)
    claimed = newest.version if carried is None else max(carried.version, stored.versions.first)
    later: list[VersionSummary] = []
    for version in range(newest.version - 1, claimed - 1, -1):
        try:
            older = stored.read_summary(version)
        except VersionExpiredError as error:
            marks = _verified(stored, newest, carried, version, later, recovery)
            if marks is None:
                raise _unverifiable(version, uri) from error
            return FoldedTable(uri, newest, marks)
        if is_own(older.properties, version):
            table = _carried(stored, version, later[::-1], newest)
            alone = _left_alone(stored, newest, later)
            if not _is_late(stored, version, replace(link_of(newest), keeps_marks=alone)):
                return table
            marks = _verified(stored, newest, carried, version, later, recovery)
            if marks is None:
                raise _late(version, uri)
            return FoldedTable(uri, newest, marks)
        if older.begins_clone:
            return FoldedTable(uri, newest, _keys_of_branch(stored.read_state(version)))
        later.append(older)
    return _unmarked(stored, newest)


def _keys_of_branch(first: State) -> Marks:
    """Returns the marks with which a branch begins: the keys of its rows. A clone elsewhere has none."""
    return with_keys_of(Marks(), first.metadata) if first.branch else Marks()


def check_follows(before: State, newest: State, uri: str) -> None:
    """Raises `StopError` if version `newest` can't have been made from version `before`."""
    if succession(link_of(before), link_of(newest)) is Succession.APART:
        raise _late(before.version, uri)


def _is_late(stored: StoredTable, own: int, newest: Link) -> bool:
    before = link_of(stored.read_state(own))
    return succession(before, newest) is Succession.APART


def carried_marks(newest: State, uri: str) -> FoldedTable:
    """Returns the newest state with the marks that it contains, unverified, for a verb that accepts them."""
    return FoldedTable(uri, newest, _marks_in(newest) or Marks())


def _marks_in(newest: State) -> Marks | None:
    """Returns the marks that a foreign version contains, unverified. Returns None if none can be decoded."""
    try:
        return decode_marks(newest.metadata)
    except DamagedError:
        return None


def _verified(
    stored: StoredTable,
    newest: State,
    carried: Marks | None,
    removed: int,
    later: Sequence[VersionSummary],
    recovery: RecoveryContext | None,
) -> Marks | None:
    """Returns the marks if they can be verified without version `removed`, else None.

    `carried` are the marks of the newest version. `removed` is the newest version that was removed, and
    `later` are the summaries of the versions after it, without the newest version.
    """
    if carried is None or carried.version < stored.versions.first or carried.version >= newest.version:
        return None
    if newest.proves_marks or (removed == carried.version and _left_alone(stored, newest, later)):
        made: list[State | VersionSummary] = [*reversed(later), newest]
        for each in made:
            if each.restored is not None and each.keeps_metadata:
                carried = rolled_back(carried, each.version, each.restored, None)
        return carried
    bound = carried.position
    if recovery is None or bound is None or bound.log != recovery.log or carried.branch != newest.branch:
        return None
    offset = max(bound.offset, recovery.answered - 1)
    fingerprint = carried.fingerprint if offset == bound.offset else None
    return replace(carried, position=replace(bound, offset=offset), fingerprint=fingerprint)


def _unmarked(stored: StoredTable, newest: State) -> FoldedTable:
    """Returns a table whose newest version has no marks: never folded, or a foreign client removed them.

    Raises `StopError` if the newest version shows that they may be lost.
    """
    first = stored.versions.first
    numbers = [number for number in stored.versions.numbers() if number < newest.version]
    for number in reversed(numbers):
        if stored.own_properties(number) is not None:
            between = [_older(stored, version) for version in range(number + 1, newest.version)]
            return _carried(stored, number, between, newest)
    lost = newest.lost_marks(has_all=newest.version == first or first in numbers)
    if lost:
        hint = "restore the commits from a copy, or bind the table again: lakefold adopt --unproven"
        raise StopError(lost, where=stored.uri, hint=hint)
    return FoldedTable(stored.uri, newest)


def _left_alone(stored: StoredTable, newest: State, between: Sequence[VersionSummary]) -> bool:
    """Returns whether neither these versions nor the newest can have changed the metadata."""
    summaries = [*between, stored.read_summary(newest.version)]
    return all(summary.keeps_metadata for summary in summaries)


def _carried(stored: StoredTable, own: int, between: Sequence[VersionSummary], newest: State) -> FoldedTable:
    """Returns the newest version with the marks of the committer's version `own`.

    `between` are the summaries of the versions between the two.
    """
    state = stored.read_state(own)
    marks = own_marks(state, stored.uri)
    for summary in between:
        if summary.restored is not None:
            older = None if summary.keeps_metadata else stored.read_state(summary.version)
            metadata = None if older is None else older.metadata
            marks = rolled_back(marks, summary.version, summary.restored, metadata)
    marks = after_foreign(marks, newest)
    return FoldedTable(stored.uri, stored.format.follow_foreign(state, newest, between), marks)


def _older(stored: StoredTable, version: int) -> VersionSummary:
    try:
        return stored.read_summary(version)
    except VersionExpiredError as error:
        raise _unverifiable(version, stored.uri) from error


def _late(version: int, uri: str) -> StopError:
    return StopError(
        f"the file of version {version} holds marks that no later version carries, though none changed the "
        "table's metadata: it was written late, after other clients had removed the version of that name",
        where=uri,
        hint="move the file elsewhere; if the table's marks can't be verified then, bind it again: lakefold "
        "adopt",
    )


def _unverifiable(version: int, uri: str) -> StopError:
    return StopError(
        f"version {version} is gone, so the table's marks can't be verified: a foreign client committed "
        "after the last version that a committer made, and that version was removed",
        where=uri,
        hint="append rows to it through its log, whose committer knows what it has answered, and run this "
        "again; or restore the version, or bind the table again: lakefold adopt",
    )

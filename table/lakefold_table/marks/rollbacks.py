"""Finds the keys that a Restore left out of the table: their rows are gone, but the keys stay folded.

A Restore takes over the metadata of the older version too, and with it that version's marks, which list
exactly what had been folded by then. A key that was folded since and isn't among them has lost its rows. So
the versions of keys need not be remembered, and any number of Restores can follow each other, also a Restore
that takes back another.

A Restore of a Delta table, also of another client, takes over no marks, which its commits or a domain have.
There the versions of the keys decide.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError
from lakefold_table.marks.batches import AppMark
from lakefold_table.marks.intervals import Interval, less
from lakefold_table.marks.marks import Marks, decode_marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_table.format import State


def rolled_back(marks: Marks, by: int, to: int, metadata: Mapping[str, str] | None) -> Marks:
    """Returns the marks to keep after version `by` restored version `to`, whose metadata it has.

    If that metadata contains no marks of this branch, or marks of a later version, the versions of the keys
    decide, as far as they are known. None: the Restore took over no metadata. Then it is one of all Restores
    since the marks were published, and those before it are in `marks` already.
    """
    if metadata is None:
        return _by_versions(marks, by, to)
    then = _marks_of_branch(metadata, marks)
    if then is not None and then.version > to:
        return _by_versions(marks, by, to)
    apps = {
        name: _app_rolled_back(mark, by, None if then is None else then.apps.get(name, AppMark()), to)
        for name, mark in marks.apps.items()
    }
    promoted = () if then is None else then.promoted
    reverts = marks.reverts.restored(to, by)
    uuids = _uuids(marks, by, then, to)
    return replace(marks, apps=apps, uuids_rolled_back=uuids, promoted=promoted, reverts=reverts)


def after_foreign(marks: Marks, state: State) -> Marks:
    """Returns the marks to keep after a version of another client, whose metadata may be older."""
    if state.restored is None:
        return marks
    metadata = None if state.keeps_metadata else state.metadata
    return rolled_back(marks, state.version, state.restored, metadata)


def _marks_of_branch(metadata: Mapping[str, str], now: Marks) -> Marks | None:
    try:
        then = decode_marks(metadata)
    except DamagedError:
        return None
    # A branch's versions of before its first fold have the marks that it began with, of another branch.
    is_ours = then is not None and (then.table_id, then.branch) == (now.table_id, now.branch)
    return then if is_ours or now.branch else None


def _app_rolled_back(
    mark: AppMark, by: int, then: AppMark | None, to: int, before: tuple[tuple[int, int, int], ...] = ()
) -> AppMark:
    remaining = _folded_up_to(mark, to) if then is None else then.folded
    left_out = [(first, last, by) for first, last in less(mark.folded, remaining)]
    before = before if then is None else then.rolled_back
    return replace(mark, rolled_back=tuple(sorted((*left_out, *before))))


def _by_versions(marks: Marks, by: int, to: int) -> Marks:
    """Returns the marks if only the versions of keys say which the Restore left out.

    Those that a Restore up to version `to` left out are still missing.
    """
    kept = {
        name: tuple(part for part in mark.rolled_back if part[2] <= to) for name, mark in marks.apps.items()
    }
    apps = {name: _app_rolled_back(mark, by, None, to, kept[name]) for name, mark in marks.apps.items()}
    uuids = {uuid: restore for uuid, restore in marks.uuids_rolled_back.items() if restore <= to}
    promoted = tuple((*each[:3], each[3] if each[3] <= to else 0) for each in marks.promoted if each[2] <= to)
    uuids |= _uuids(marks, by, None, to)
    reverts = marks.reverts.restored(to, by)
    return replace(marks, apps=apps, uuids_rolled_back=uuids, promoted=promoted, reverts=reverts)


def _folded_up_to(mark: AppMark, version: int) -> Iterable[Interval]:
    """Returns the ids that were folded in this version or before, as far as their versions are known.

    A batch whose version isn't remembered was folded before all batches whose version is: so it counts as
    folded by this version if any of these does.
    """
    if not mark.recent or mark.recent[0][1] > version:
        return ()
    return less(mark.folded, sorted((batch, batch) for batch, at in mark.recent if at > version))


def _uuids(marks: Marks, by: int, then: Marks | None, to: int) -> dict[str, int]:
    if then is None:
        return {uuid: by for uuid, version in marks.uuids if version > to}
    old, before = set(then.uuids), then.uuids_rolled_back
    restored_by = {pair[0]: before.get(pair[0], 0) if pair in old else by for pair in marks.uuids}
    return {uuid: version for uuid, version in restored_by.items() if version}

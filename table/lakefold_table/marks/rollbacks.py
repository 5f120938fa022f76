"""Which keys a Restore left out of the table: their rows went with it, but the keys stay folded.

A Restore brings back the metadata of the older version, too, and with it the marks of then, which say exactly
what had been folded. A key that was folded since and isn't among them lost its rows. So nothing needs to be
remembered of versions, and it makes no difference how many Restores came one after the other, or whether one
brought back what another had taken away.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_table.errors import DamagedError
from lakefold_table.marks.batches import MAX_ROLLED_BACK, AppMark, less
from lakefold_table.marks.marks import Marks, decode_marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_table.format import State
    from lakefold_table.marks.batches import Interval


def rolled_back(marks: Marks, by: int, to: int, metadata: Mapping[str, str]) -> Marks:
    """The marks that count, after version `by` restored version `to`, whose metadata it carries.

    If that metadata holds no marks of this line, the versions of the keys decide, as far as they are known.
    """
    then = _marks_of_line(metadata, marks)
    apps = {
        name: _app_rolled_back(mark, by, None if then is None else then.apps.get(name, AppMark()), to)
        for name, mark in marks.apps.items()
    }
    return replace(marks, apps=apps, uuids_rolled_back=_uuids(marks, by, then, to))


def after_foreign(marks: Marks, state: State) -> Marks:
    """The marks that count after a version of another client's, whose metadata may be older."""
    return rolled_back(marks, state.version, state.restored, state.metadata) if state.restored else marks


def without_repeats(marks: Marks) -> Marks:
    """The marks as rules before 4 keep them: nothing of rollbacks, no digests of contents."""
    apps = {
        name: replace(mark, contents=(), rolled_back=()) if mark.contents or mark.rolled_back else mark
        for name, mark in marks.apps.items()
    }
    return replace(marks, apps=apps, uuid_contents=(), uuids_rolled_back={})


def _marks_of_line(metadata: Mapping[str, str], now: Marks) -> Marks | None:
    try:
        then = decode_marks(metadata)
    except DamagedError:
        return None
    is_ours = then is not None and (then.table_id, then.branch) == (now.table_id, now.branch)
    return then if is_ours else None


def _app_rolled_back(mark: AppMark, by: int, then: AppMark | None, to: int) -> AppMark:
    kept = _folded_up_to(mark, to) if then is None else then.folded
    gone = [(first, last, by) for first, last in less(mark.folded, kept)]
    before = () if then is None else then.rolled_back
    return replace(mark, rolled_back=tuple(sorted((*gone, *before))[-MAX_ROLLED_BACK:]))


def _folded_up_to(mark: AppMark, version: int) -> Iterable[Interval]:
    """The ids that were folded in this version or before, as far as their versions are known.

    A batch whose version isn't remembered was folded before all that are: so it was folded by then if any of
    these was.
    """
    if not mark.recent or mark.recent[0][1] > version:
        return ()
    return less(mark.folded, sorted((batch, batch) for batch, at in mark.recent if at > version))


def _uuids(marks: Marks, by: int, then: Marks | None, to: int) -> dict[str, int]:
    if then is None:
        return {uuid: by for uuid, version in marks.uuids if version > to}
    known, before = set(then.uuids), then.uuids_rolled_back
    gone = {one[0]: before.get(one[0], 0) if one in known else by for one in marks.uuids}
    return {uuid: version for uuid, version in gone.items() if version}

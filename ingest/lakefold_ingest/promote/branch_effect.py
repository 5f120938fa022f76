"""What was done to the rows of a branch between two of its versions, and where its rows are on main.

Files that both versions have are left out. Rows of the others are followed, so that a row that only moved, as
by a compaction, is neither removed nor added. A branch begins with the rows of the main branch at the same
addresses. Rows that were promoted before are on the main branch in the order in which they were written.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from lakefold_ingest.revert.entries import record_at
from lakefold_ingest.revert.following import FollowedRows, follow, lineage_of
from lakefold_ingest.revert.row_history import LOST, NO_ADDRESSES, addresses_in, indices_in
from lakefold_reader.lance.versions import read_state
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.ranges import expired
from lakefold_table.errors import PreconditionError
from lakefold_table.values import value

if TYPE_CHECKING:
    from lakefold_ingest.revert.lance.history import LanceRowHistory
    from lakefold_ingest.revert.row_history import Addresses, Mask

INSTEAD: Final = "send the batches to the main branch, or to a new branch that begins at its newest version"
"""What to do if a branch can't be promoted."""


@value()
class BranchEffect:
    """What a version of a branch has that an older one hasn't, and the other way round.

    `removed`: rows of the older version, ascending. `added`: rows of the newer one, first those with the ids
    of removed rows, which are `same_ids` many; both parts ascend. `before` and `after`: where rows that moved
    were, and where they are; the latter ascend. `replaced_by`: the version that replaced all rows; 0: none.
    """

    removed: Addresses
    added: Addresses
    same_ids: int
    before: Addresses
    after: Addresses
    replaced_by: int = 0


def branch_effect(branch: LanceRowHistory, since: int, until: int) -> BranchEffect:
    """Returns what became of the rows of version `since`. Raises as `RowHistory`."""
    old, new = branch.differing(since, until)
    lineage = lineage_of(branch.replacements(since), since, until)
    now = np.full(old.size, LOST)
    if lineage.stretches and old.size and new.size:
        now = follow(branch, old, lineage.stretches, numbers_of(branch.source)).now
    is_moved = now != LOST
    order = np.argsort(now[is_moved])
    before, after = old[is_moved][order], now[is_moved][order]
    removed, added = old[~is_moved], np.setdiff1d(new, after, assume_unique=True)
    ids_before, ids = branch.row_ids(removed, since), branch.row_ids(added, until)
    keeps = np.zeros(added.size, np.bool_)
    if ids_before is not None and ids is not None:
        keeps = np.isin(ids, ids_before)
    added = np.concatenate([added[keeps], added[~keeps]])
    return BranchEffect(removed, added, int(keeps.sum()), before, after, lineage.replaced_by)


class PromotedRows:
    """Finds rows of a branch in the newest version of the main branch. `begin`: the version it began at."""

    def __init__(self, branch: LanceRowHistory, main: LanceRowHistory, begin: int) -> None:
        self._branch = branch
        self._main = main
        self._begin = begin
        self.effect = cache(lambda since, until: branch_effect(branch, since, until))

    def located(self, rows: Addresses, until: int, version: int) -> FollowedRows:
        """Returns where rows of the branch's version `until` are, which the main branch's `version` has.

        Raises `PreconditionError` if all rows of the main branch were replaced since.
        """
        if not rows.size or not until or until == self._begin:
            return self._followed(rows, version or self._begin)
        record = record_at(self._main.source, version)
        if record is None or record.promotes is None:
            raise expired(self._main.source, f"version {version}, which has the rows of a promote, is gone")
        since, since_version = record.promotes.since, record.promotes.since_version
        effect = self.effect(since or self._begin, until)
        order = np.argsort(effect.added)
        is_new, at = indices_in(rows, effect.added[order])
        ((answer),) = record.committed.values()
        ids = range(answer.first_fragment_id, answer.first_fragment_id + answer.num_fragment_ids)
        fragments = read_state(self._main.source, version).fragments.get(ids)
        written = [addresses_in(each, np.arange(fragments[each].physical_rows)) for each in ids]
        here = np.concatenate([NO_ADDRESSES, *written])[order[at[is_new]]]
        earlier = rows[~is_new]
        is_moved, at = indices_in(earlier, effect.after)
        earlier = np.where(is_moved, effect.before[at] if effect.before.size else earlier, earlier)
        return _joined(is_new, self._followed(here, version), self.located(earlier, since, since_version))

    def _followed(self, rows: Addresses, version: int) -> FollowedRows:
        """Returns where rows of a version of the main branch are in its newest one."""
        main = self._main
        lineage = lineage_of(main.replacements(version), version, main.newest)
        by = lineage.replaced_by or lineage.undone_by
        if by:
            message = f"version {by} of the main branch replaced its rows or restored an earlier version"
            raise PreconditionError(message, where=main.source.uri, hint=INSTEAD)
        if not rows.size:
            return FollowedRows(rows, np.zeros(0, np.int64), rows)
        return follow(main, rows, lineage.stretches, numbers_of(main.source))


def _joined(is_first: Mask, first: FollowedRows, second: FollowedRows) -> FollowedRows:
    """Returns both in the order in which `is_first` has them."""
    order = np.argsort(np.concatenate([np.flatnonzero(is_first), np.flatnonzero(~is_first)]))
    return FollowedRows(
        np.concatenate([first.now, second.now])[order],
        np.concatenate([first.lost_in, second.lost_in])[order],
        np.concatenate([first.last, second.last])[order],
    )

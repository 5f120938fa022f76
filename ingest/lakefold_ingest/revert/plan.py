"""Which rows go and which come back if entries are undone, and which rows later entries changed.

Rows that the entries added go, if they are in the newest version. Rows that they removed come back, unless
they had added them themselves. A row that a later entry changed is a conflict; a row that they only added and
a later entry deleted is none, as it is gone already.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from lakefold_ingest.revert.conflicts import RowConflict
from lakefold_ingest.revert.earlier_reverts import EarlierReverts
from lakefold_ingest.revert.effects import Effects, EntryEffect
from lakefold_ingest.revert.entries import NamedVersion, entry_text
from lakefold_ingest.revert.following import (
    VersionLineage,
    first_version_with,
    follow,
)
from lakefold_ingest.revert.named_entries import EntrySearch
from lakefold_ingest.revert.row_history import (
    UNKNOWN_ENTRY,
    Addresses,
    RowHistory,
    indices_in,
    joined,
)
from lakefold_ingest.revert.undone import Undone
from lakefold_reader.format.value_numbers import equal_rows
from lakefold_table.errors import PreconditionError
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from lakefold_ingest.revert.conflicts import LaterChange
    from lakefold_ingest.revert.entries import LoggedEntries

MOST_ROUNDS: Final = 1000
"""How often entries that built on undone ones are added to these at most."""


@value()
class RevertFigures:
    """What becomes of the rows of undone entries of a version.

    `added`: rows that they added or changed; `live` of them are in the newest version, `moved` of these at
    another place. `removed`: rows that they deleted or changed; `returned` of them come back. `undone_by`:
    the version that left them out already, or replaced all rows since; 0: none did. `dependent`: it wasn't
    named, it built on one that was.
    """

    version: int
    entries: tuple[str, ...]
    added: int
    live: int
    moved: int
    removed: int
    returned: int
    undone_by: int = 0
    dependent: bool = False


@value()
class RevertPlan:
    """What it takes to undo entries, on version `newest`.

    `removed`: rows of it that go; `returned`: rows that come back, by the version that has them. `conflicts`:
    what later entries did to rows of the entries; none of those is among the others. `uncertain`: versions
    with conflicts of which it isn't known which removed rows they are about. `reverts`: those with which a
    revert or a Restore conflicts. `keys`: the columns that identify a row that comes back; empty if they
    aren't known, or differ from entry to entry.
    """

    newest: int
    entries: tuple[NamedVersion, ...]
    figures: tuple[RevertFigures, ...]
    removed: Addresses
    returned: tuple[tuple[int, Addresses], ...]
    conflicts: tuple[RowConflict, ...]
    uncertain: tuple[int, ...] = ()
    reverts: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()

    @property
    def changes_nothing(self) -> bool:
        """Whether no row goes or comes back."""
        return not self.removed.size and not any(rows.size for _, rows in self.returned)


def plan_revert(
    history: RowHistory,
    named: Sequence[NamedVersion],
    log: LoggedEntries,
    *,
    keys: tuple[str, ...] = (),
    with_dependents: bool = False,
) -> RevertPlan:
    """Returns what it takes to undo entries.

    `keys`: the columns that identify a row (empty: as the table or the entries say it). With
    `with_dependents` entries that built on them are undone as well; then there are no conflicts. Raises
    `PreconditionError` if it is not known what an entry did, `VersionExpiredError` if a version is gone that
    shows it.
    """
    planner = _Planner(Effects(history, log, keys), log)
    undone = {each.version: each for each in named}
    for _ in range(MOST_ROUNDS):
        conflicts, plan = planner.plan(list(undone.values()), named)
        if not conflicts or not with_dependents:
            return plan
        for each in planner.dependents(conflicts):
            before = undone.get(each.version)
            undone[each.version] = each if before is None else _both(before, each)
    message = f"more than {MOST_ROUNDS} entries were built one on the other"
    raise PreconditionError(message, where=history.source.uri, hint="restore a version instead")


def _both(first: NamedVersion, second: NamedVersion) -> NamedVersion:
    if first.offsets is None or second.offsets is None:
        return replace(first, offsets=None)
    keys = tuple(dict.fromkeys((*first.keys, *second.keys)))
    return replace(first, offsets=first.offsets | second.offsets, keys=keys)


class _Planner:
    def __init__(self, effects: Effects, log: LoggedEntries) -> None:
        self._history = effects.history
        self._effects = effects
        self._earlier = EarlierReverts(effects)
        self._log = log
        self._operations: dict[int, str] = {}

    @cached_property
    def _search(self) -> EntrySearch:
        return EntrySearch(self._history.source, self._history.newest, self._log)

    def plan(
        self, undone: Sequence[NamedVersion], named: Sequence[NamedVersion]
    ) -> tuple[Sequence[RowConflict], RevertPlan]:
        """Returns the conflicts and the plan without them."""
        history = self._history
        self._earlier.begin(undone)
        steps = sorted(self._followed(undone), key=lambda each: each.version)
        every = [*steps, *self._earlier.undone_before(steps)]
        conflicts: list[RowConflict] = []
        backwards = sorted(every, key=lambda each: each.version, reverse=True)
        for each in backwards:
            conflicts += self._lost_rows(each, every)
        removed = np.unique(joined([each.followed.now[each.live] for each in steps]))
        for each in backwards:
            conflicts += self._inserted_again(each, every, removed)
            self._check_columns(each)
        ours = {each.version for each in named}
        figures = tuple(self._figures(each, dependent=each.version not in ours) for each in steps)
        returned = tuple((each.version - 1, each.returned) for each in every if each.returned.size)
        entries = tuple(each.named for each in steps)
        uncertain = tuple(each.version for each in every if each.is_uncertain)
        keys = {self._effects.key_columns(version + 1) for version, _ in returned}
        plan = RevertPlan(
            history.newest,
            entries,
            figures,
            removed,
            returned,
            tuple(conflicts),
            uncertain,
            self._reverts_in(conflicts),
            keys.pop() if len(keys) == 1 else (),
        )
        return conflicts, plan

    def _reverts_in(self, conflicts: Iterable[RowConflict]) -> tuple[int, ...]:
        """Returns the reverts that changed rows of undone reverts and Restores."""
        reverts = {each.version for each in self._earlier.standing}
        built = [each for each in conflicts if each.later_version in reverts]
        return tuple(sorted({each.later_version for each in built if self._earlier.turns(each.version)}))

    def dependents(self, conflicts: Iterable[RowConflict]) -> Iterator[NamedVersion]:
        """Yields the entries that conflicts are with. Raises `PreconditionError` if one isn't known."""
        later = dict.fromkeys((each.later_version, each.later_offset) for each in conflicts)
        for version, offset in later:
            record = self._effects.of(version).record
            if offset is None and (record is not None or not self._effects.of(version).rows.removed.size):
                message = f"it is not known which entry up to version {version} changed rows that are undone"
                hint = "leave these rows as they are now: --keep-later (keep_later=True)"
                raise PreconditionError(message, where=self._history.source.uri, hint=hint)
            if offset is None or record is None:
                yield self._search.by_version(version)
            else:
                yield self._search.entry_in(version, record, offset)

    def _followed(self, undone: Sequence[NamedVersion]) -> Iterator[Undone]:
        """Yields where the rows of each version are. Restores in between are looked for if it matters."""
        effects = {each.version: self._effects.of_entries(each) for each in undone}
        newest = self._history.newest
        straight = {
            version: follow(self._history, effect.added, [(version, newest)], self._effects.versions)
            for version, effect in effects.items()
        }
        matters = any(effect.removed.size for effect in effects.values()) or any(
            followed.lost_in.any() for followed in straight.values()
        )
        for each in sorted(undone, key=lambda each: each.version):
            version, effect = each.version, effects[each.version]
            lineage = (
                self._earlier.lineage(version, newest) if matters else VersionLineage(((version, newest),))
            )
            followed = straight[version]
            if not lineage.stretches:
                nothing = EntryEffect(effect.added[:0], effect.removed[:0], np.empty(0, np.int64))
                empty = follow(self._history, nothing.added, [], self._effects.versions)
                yield Undone(each, nothing, lineage, empty)
                continue
            if len(lineage.stretches) > 1:
                followed = follow(self._history, effect.added, lineage.stretches, self._effects.versions)
            if followed.lost_in.any():
                self._earlier.follow(followed, newest)
            yield Undone(each, effect, lineage, followed)

    def _check_columns(self, undone: Undone) -> None:
        """Raises `PreconditionError` if rows would come back without columns that the entry dropped."""
        if not undone.returned.size:
            return
        versions = (undone.version - 1, undone.version)
        before, after = ({*(self._history.column_names(each) or ())} for each in versions)
        dropped = sorted(before - after)
        if dropped:
            message = (
                f"version {undone.version} dropped the columns {', '.join(dropped)}, so the rows that it "
                "removed would come back without them"
            )
            hint = "restore the version before it, also but for some batches"
            raise PreconditionError(message, where=self._history.source.uri, hint=hint)

    def _lost_rows(self, undone: Undone, others: Sequence[Undone]) -> Iterator[RowConflict]:
        """Yields the conflicts of added rows that are gone, and notes which rows don't come back."""
        followed, kept = undone.followed, np.zeros(undone.effect.added.size, np.bool_)
        for version in np.unique(followed.lost_in[followed.lost_in > 0]).tolist():
            rows = np.flatnonzero(followed.lost_in == version)
            last = followed.last[rows]
            by_undone = np.zeros(rows.size, np.bool_)
            for other in (each for each in others if each.version == version):
                is_removed, at = indices_in(last, other.effect.removed)
                other.cancelled[at[is_removed]] = True
                kept[rows[is_removed]] = other.kept[at[is_removed]]
                by_undone |= is_removed
            rows, last = rows[~by_undone], last[~by_undone]
            changed = self._effects.of(version).changes(last)
            clash = changed | undone.updated[rows]
            kept[rows[clash]] = True
            if clash.any():
                undone.has_clash = True
                changes = np.where(changed, "changed", "deleted")[clash].tolist()
                yield from self._conflicts(undone, rows[clash], version, last[clash], changes)
        undone.keep(kept)

    def _conflicts(
        self,
        undone: Undone,
        rows: NDArray[np.int64],
        later: int,
        last: Addresses,
        changes: Sequence[LaterChange],
    ) -> Iterator[RowConflict]:
        names = self._names(undone.effect.added[rows], undone.version, undone.version)
        owners = self._effects.of(later).entry_of(last)
        for name, owner, change in zip(names, owners.tolist(), changes, strict=True):
            yield self._conflict(undone.version, name, change, later, owner)

    def _conflict(self, version: int, row: str, change: LaterChange, later: int, owner: int) -> RowConflict:
        offset = None if owner == UNKNOWN_ENTRY else owner
        if later not in self._operations:
            summary = self._history.source.summary(later)
            self._operations[later] = "" if summary is None else summary.operation
        entry = entry_text(self._effects.of(later).record, offset)
        return RowConflict(version, row, change, later, offset, entry, self._operations[later])

    def _names(self, rows: Addresses, at: int, version: int) -> list[str]:
        """Returns rows of version `at` in words: their keys if they are known, else their places."""
        keys = self._effects.key_columns(version)
        if not keys:
            return [self._history.location(address) for address in rows.tolist()]
        order, names = np.argsort(rows), [""] * rows.size
        table = self._history.rows(rows[order], at, keys)
        for index, values in zip(order.tolist(), table.to_pylist(), strict=True):
            names[index] = ", ".join(f"{name}={text!r}" for name, text in values.items())
        return names

    def _inserted_again(
        self, undone: Undone, others: Sequence[Undone], removed: Addresses
    ) -> Iterator[RowConflict]:
        """Yields the conflicts of rows that come back and whose keys the table has again.

        It has the rows that later ones of `others` bring back as well.
        """
        keys = self._effects.key_columns(undone.version)
        successors = undone.effect.successors
        if not keys or successors is None:
            return
        gone = (successors < 0) | ~undone.live[successors] if undone.live.size else successors < 0
        if not (gone & ~undone.kept & ~undone.cancelled).any():
            return
        newest = self._history.newest
        later = [(each.version - 1, each.returned) for each in others if each.version > undone.version]
        for at, rows in ((newest, np.setdiff1d(self._history.added_after(undone.version), removed)), *later):
            fresh = rows if at == newest else rows[~self._history.is_live(rows, at, undone.version)]
            deleted = np.flatnonzero(gone & ~undone.kept & ~undone.cancelled)
            yield from self._with_same_keys(undone, deleted, at, fresh, keys)

    def _with_same_keys(
        self, undone: Undone, deleted: NDArray[np.int64], at: int, among: Addresses, keys: tuple[str, ...]
    ) -> Iterator[RowConflict]:
        """Yields the conflicts of removed rows whose keys rows of version `at` have. They stay away."""
        if not among.size or not deleted.size:
            return
        before = self._history.rows(undone.effect.removed[deleted], undone.version - 1, keys)
        same = equal_rows(before, self._history.rows(among, at, keys))
        again, rows = deleted[same >= 0], among[same[same >= 0]]
        undone.kept[again] = True
        names = self._names(undone.effect.removed[again], undone.version - 1, undone.version)
        order = np.argsort(rows)
        first = np.empty(rows.size, np.int64)
        versions = [each for each in self._effects.versions if undone.version <= each <= at]
        first[order] = first_version_with(self._history, rows[order], versions)
        for name, address, later in zip(names, rows.tolist(), first.tolist(), strict=True):
            effects = self._effects.of(later)
            is_added, index = indices_in(np.array([address], np.uint64), effects.rows.added)
            owner = int(effects.rows.added_by[index[0]]) if is_added[0] else UNKNOWN_ENTRY
            yield self._conflict(undone.version, name, "inserted again", later, owner)

    def _figures(self, undone: Undone, *, dependent: bool) -> RevertFigures:
        named, effect, live = undone.named, undone.effect, undone.live
        record = self._effects.of(named.version).record
        keys = tuple(str(key) for key in named.keys if str(key))
        others = tuple(entry_text(record, offset) for offset in sorted(named.offsets or ()))
        return RevertFigures(
            named.version,
            keys or others,
            effect.added.size,
            int(live.sum()),
            int((live & (undone.followed.now != effect.added)).sum()),
            effect.removed.size,
            undone.returned.size,
            undone.lineage.undone_by or undone.lineage.replaced_by,
            dependent,
        )

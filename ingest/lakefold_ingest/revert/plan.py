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
import pyarrow as pa

from lakefold_ingest.revert.conflicts import RowConflict
from lakefold_ingest.revert.effects import EntryEffect, VersionEffects
from lakefold_ingest.revert.entries import EVERY_ENTRY, NamedVersion, Offsets, entry_text
from lakefold_ingest.revert.following import (
    FollowedRows,
    VersionLineage,
    first_version_with,
    follow,
    lineage_of,
)
from lakefold_ingest.revert.named_entries import EntrySearch
from lakefold_ingest.revert.row_history import (
    LOST,
    NO_ADDRESSES,
    UNKNOWN_ENTRY,
    Addresses,
    RowHistory,
    indices_in,
    joined,
)
from lakefold_reader.format.value_numbers import equal_rows
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.proposals import counting_marks
from lakefold_table.errors import PreconditionError
from lakefold_table.marks.marks import Marks
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from lakefold_ingest.revert.conflicts import LaterChange
    from lakefold_ingest.revert.entries import LoggedEntries
    from lakefold_ingest.revert.row_history import Mask, ReplacedContent
    from lakefold_table.marks.reverts import Revert, UndoneEntries

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
    with conflicts of which it isn't known which removed rows they are about. `keys`: the columns that
    identify a row that comes back; empty if they aren't known, or differ from entry to entry.
    """

    newest: int
    entries: tuple[NamedVersion, ...]
    figures: tuple[RevertFigures, ...]
    removed: Addresses
    returned: tuple[tuple[int, Addresses], ...]
    conflicts: tuple[RowConflict, ...]
    uncertain: tuple[int, ...] = ()
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
    planner = _Planner(history, log, keys)
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


def _named(entries: UndoneEntries) -> NamedVersion:
    """Returns entries that the marks list as undone."""
    return NamedVersion(entries.version, frozenset(entries.offsets) or EVERY_ENTRY)


def _both(first: NamedVersion, second: NamedVersion) -> NamedVersion:
    if first.offsets is None or second.offsets is None:
        return replace(first, offsets=None)
    keys = tuple(dict.fromkeys((*first.keys, *second.keys)))
    return replace(first, offsets=first.offsets | second.offsets, keys=keys)


class _Undone:
    """The undone entries of a version, and where the rows are that they added.

    `kept`: removed rows that don't come back, as later entries changed what took their place. `cancelled`:
    removed rows that other undone entries had added.
    """

    def __init__(
        self, named: NamedVersion, effect: EntryEffect, lineage: VersionLineage, followed: FollowedRows
    ) -> None:
        self.named = named
        self.version = named.version
        self.effect = effect
        self.lineage = lineage
        self.followed = followed
        self.kept = np.zeros(effect.removed.size, np.bool_)
        self.cancelled = np.zeros(effect.removed.size, np.bool_)
        self.has_clash = False

    @property
    def live(self) -> Mask:
        """Which of the added rows are in the newest version."""
        live: Mask = self.followed.now != LOST
        return live

    @property
    def is_uncertain(self) -> bool:
        """Whether later entries changed rows of it, and which removed rows that is about isn't known."""
        return self.has_clash and self.effect.successors is None

    @property
    def returned(self) -> Addresses:
        """The rows that come back."""
        return self.effect.removed[~self.kept & ~self.cancelled]

    def keep(self, added: Mask) -> None:
        """Has the rows stay away whose successors are among these of the added rows."""
        successors = self.effect.successors
        if successors is not None and added.size:
            self.kept |= (successors >= 0) & added[successors]

    @property
    def updated(self) -> Mask:
        """Which of the added rows took the place of removed ones, or may have done so."""
        effect = self.effect
        if effect.successors is None:
            return np.ones(effect.added.size, np.bool_)
        updated = np.zeros(effect.added.size, np.bool_)
        updated[effect.successors[effect.successors >= 0]] = True
        return updated


class _Planner:
    def __init__(self, history: RowHistory, log: LoggedEntries, keys: tuple[str, ...]) -> None:
        self._history = history
        self._log = log
        self._keys = keys
        self._versions = [number for number in numbers_of(history.source) if number <= history.newest]
        self._effects: dict[int, VersionEffects] = {}
        self._operations: dict[int, str] = {}
        self._replacements: Sequence[ReplacedContent] = ()
        self._known_from: int | None = None
        self._kept: dict[int, Addresses] = {}
        self._copies: dict[int, list[tuple[Addresses, Addresses]]] = {}
        self._undone: dict[int, NamedVersion] = {}

    @cached_property
    def _search(self) -> EntrySearch:
        return EntrySearch(self._history.source, self._history.newest, self._log)

    @cached_property
    def _marks(self) -> Marks:
        return counting_marks(self._history.source, self._versions) or Marks()

    def plan(
        self, undone: Sequence[NamedVersion], named: Sequence[NamedVersion]
    ) -> tuple[Sequence[RowConflict], RevertPlan]:
        """Returns the conflicts and the plan without them."""
        history = self._history
        self._undone = {each.version: each for each in undone}
        self._check_reverts()
        steps = sorted(self._followed(undone), key=lambda each: each.version)
        every = [*steps, *self._undone_before(steps)]
        conflicts: list[RowConflict] = []
        for each in sorted(every, key=lambda each: each.version, reverse=True):
            conflicts += self._lost_rows(each, every)
        removed = joined([each.followed.now[each.live] for each in steps])
        for each in every:
            conflicts += self._inserted_again(each, removed)
            self._check_columns(each)
        ours = {each.version for each in named}
        figures = tuple(self._figures(each, dependent=each.version not in ours) for each in steps)
        returned = tuple((each.version - 1, each.returned) for each in every if each.returned.size)
        entries = tuple(each.named for each in steps)
        uncertain = tuple(each.version for each in every if each.is_uncertain)
        keys = {self._key_columns(version + 1) for version, _ in returned}
        plan = RevertPlan(
            history.newest,
            entries,
            figures,
            removed,
            returned,
            tuple(conflicts),
            uncertain,
            keys.pop() if len(keys) == 1 else (),
        )
        return conflicts, plan

    def dependents(self, conflicts: Iterable[RowConflict]) -> Iterator[NamedVersion]:
        """Yields the entries that conflicts are with. Raises `PreconditionError` if one isn't known."""
        later = dict.fromkeys((each.later_version, each.later_offset) for each in conflicts)
        for version, offset in later:
            record = self._of(version).record
            if offset is None and (record is not None or not self._of(version).rows.removed.size):
                message = f"it is not known which entry up to version {version} changed rows that are undone"
                hint = "leave these rows as they are now: --keep-later (keep_later=True)"
                raise PreconditionError(message, where=self._history.source.uri, hint=hint)
            if offset is None or record is None:
                yield NamedVersion(version)
            else:
                yield self._search.entry_in(version, record, offset)

    def _of(self, version: int) -> VersionEffects:
        if version not in self._effects:
            self._effects[version] = VersionEffects(self._history, version, self._versions, self._log)
        return self._effects[version]

    def _followed(self, undone: Sequence[NamedVersion]) -> Iterator[_Undone]:
        """Yields where the rows of each version are. Restores in between are looked for if it matters."""
        effects = {each.version: self._effect(each.version, each.offsets) for each in undone}
        newest = self._history.newest
        straight = {
            version: follow(self._history, effect.added, [(version, newest)], self._versions)
            for version, effect in effects.items()
        }
        matters = any(effect.removed.size for effect in effects.values()) or any(
            followed.lost_in.any() for followed in straight.values()
        )
        for each in sorted(undone, key=lambda each: each.version):
            version, effect = each.version, effects[each.version]
            lineage = self._lineage(version, newest) if matters else VersionLineage(((version, newest),))
            followed = straight[version]
            if not lineage.stretches:
                nothing = EntryEffect(effect.added[:0], effect.removed[:0], np.empty(0, np.int64))
                empty = follow(self._history, nothing.added, [], self._versions)
                yield _Undone(each, nothing, lineage, empty)
                continue
            if len(lineage.stretches) > 1:
                followed = follow(self._history, effect.added, lineage.stretches, self._versions)
            if followed.lost_in.any():
                self._follow_brought_back(followed, newest)
            yield _Undone(each, effect, lineage, followed)

    def _lineage(self, begin: int, end: int) -> VersionLineage:
        """Returns the lineage of version `end`. What was undone, or is to be, replaced nothing."""
        if self._known_from is None or begin < self._known_from:
            self._known_from, self._replacements = begin, self._history.replacements(begin)
        undone = {entries.version for revert in self._reverts(end) for entries in revert.entries}
        undone.update(self._undone)
        return lineage_of([each for each in self._replacements if each.version not in undone], begin, end)

    @property
    def _standing(self) -> Iterator[Revert]:
        """The reverts that stand, without those that are to be undone."""
        return self._reverts(self._history.newest)

    def _reverts(self, end: int) -> Iterator[Revert]:
        """Yields the reverts that stood in version `end`; if that is the newest, but those to be undone."""
        for each in self._marks.reverts.each:
            stood = each.version <= end and not 0 < each.undone_by <= end
            if stood and (end < self._history.newest or each.version not in self._undone):
                yield each

    def _effect(self, version: int, offsets: Offsets) -> EntryEffect:
        """Returns what entries did. If the version doesn't say which row took the place of which, keys do."""
        effect = self._of(version).of(offsets)
        keys = self._key_columns(version) if effect.successors is None else ()
        if not keys:
            return effect
        before = self._history.rows(effect.removed, version - 1, keys)
        successors = equal_rows(before, self._history.rows(effect.added, version, keys))
        return EntryEffect(effect.added, effect.removed, successors)

    def _entries_effect(self, entries: UndoneEntries) -> EntryEffect:
        named = _named(entries)
        return self._effect(named.version, named.offsets)

    def _follow_brought_back(self, followed: FollowedRows, end: int) -> None:
        """Follows rows to `end` that an entry removed and its own revert brought back, by their values."""
        following = set[tuple[int, int]]()
        named = set(self._undone) if end == self._history.newest else set[int]()
        while True:
            lost = set(followed.lost_in.tolist()) - named
            steps = (
                (revert, at)
                for revert in self._reverts(end)
                for at, entries in enumerate(revert.entries)
                if entries.version in lost and (revert.version, at) not in following
            )
            revert, at = next(steps, (None, 0))
            if revert is None:
                return
            following.add((revert.version, at))
            removed, again = self._brought_back(revert)[at]
            rows = np.flatnonzero(followed.lost_in == revert.entries[at].version)
            is_removed, index = indices_in(followed.last[rows], removed)
            rows, copies = rows[is_removed], again[index[is_removed]]
            rows, copies = rows[copies != LOST], copies[copies != LOST]
            rows, copies = rows[np.argsort(copies)], np.sort(copies)
            stretches = self._lineage(revert.version, end).stretches
            on = follow(self._history, copies, stretches, self._versions)
            followed.now[rows], followed.lost_in[rows], followed.last[rows] = on.now, on.lost_in, on.last

    def _brought_back(self, revert: Revert) -> list[tuple[Addresses, Addresses]]:
        """Returns for each entry that a revert undid the rows that it had removed, and where these are now.

        That is as of the version of the revert, and `LOST` for rows that it didn't bring back.
        """
        if revert.version not in self._copies:
            parts = [(each.version, self._entries_effect(each).removed) for each in revert.entries]
            again = self._of(revert.version).rows.added
            tables = [self._history.rows(removed, version - 1) for version, removed in parts]
            index = equal_rows(pa.concat_tables(tables), self._history.rows(again, revert.version))
            copies = np.full(index.size, LOST)
            copies[index >= 0] = again[index[index >= 0]]
            ends = np.cumsum([removed.size for _, removed in parts])[:-1]
            split = np.split(copies, ends)
            self._copies[revert.version] = [
                (removed, addresses) for (_, removed), addresses in zip(parts, split, strict=True)
            ]
        return self._copies[revert.version]

    def _undone_before(self, undone: Sequence[_Undone]) -> Iterator[_Undone]:
        """Yields entries that were undone before, with the rows of theirs that the ones to undo had removed.

        Such rows don't come back, as the entry that added them is undone. What these rows had replaced does:
        when the entry was undone, a later one had changed them, and that is undone now.
        """
        work = list(undone)
        self._kept.clear()
        while work:
            later = work.pop()
            forgotten = self._marks.reverts.forgotten
            if forgotten > later.version and later.effect.removed.size:
                message = f"which batches were undone up to version {forgotten} is not known any more"
                hint = "restore a version instead, or write the rows again as they are to be"
                raise PreconditionError(message, where=self._history.source.uri, hint=hint)
            for revert in (each for each in self._standing if each.version > later.version):
                for at, entries in enumerate(revert.entries):
                    if entries.version < later.version and entries.version not in self._undone:
                        removed = self._with_removed_rows(entries, later.version, later.effect.removed)
                        parts = [each for each in (removed, self._kept_away(revert, at, later)) if each]
                        work += parts
                        yield from parts

    def _with_removed_rows(self, entries: UndoneEntries, later: int, removed: Addresses) -> _Undone | None:
        """Returns undone entries with only those rows that version `later` removed; None if it has none."""
        lineage = self._lineage(entries.version, later - 1)
        if not lineage.stretches or not removed.size:
            return None
        effect = self._entries_effect(entries)
        followed = follow(self._history, effect.added, lineage.stretches, self._versions)
        self._follow_brought_back(followed, later - 1)
        is_taken, _ = indices_in(followed.now, removed)
        if not is_taken.any():
            return None
        if effect.successors is None:
            message = f"which rows version {entries.version} changed isn't known, and it was undone before"
            hint = "undo the revert of it by its version first, and then both together"
            raise PreconditionError(message, where=self._history.source.uri, hint=hint)
        taken = np.flatnonzero(is_taken)
        replaced = (effect.successors >= 0) & is_taken[effect.successors]
        successors = np.searchsorted(taken, effect.successors[replaced])
        rows = EntryEffect(effect.added[taken], effect.removed[replaced], successors)
        at = followed.now[taken]
        gone = FollowedRows(np.full_like(at, LOST), np.full(taken.size, later), at)
        return _Undone(_named(entries), rows, lineage, gone)

    def _kept_away(self, revert: Revert, at: int, later: _Undone) -> _Undone | None:
        """Returns entries that a revert undid, with the rows that it left away because of a later entry.

        That entry has rows with their keys. Raises `PreconditionError` if it had replaced all rows.
        """
        entries = revert.entries[at]
        replaces = later.version in {each.version for each in self._replacements}
        keys = self._key_columns(entries.version) if later.effect.added.size and not replaces else ()
        if not keys and not replaces:
            # Without this, the rows of each revert that stands would be read for each plan.
            return None
        effect, (removed, copies) = self._entries_effect(entries), self._brought_back(revert)[at]
        is_gone = copies == LOST
        if effect.successors is not None:
            is_gone &= effect.successors < 0
        kept = np.setdiff1d(removed[is_gone], self._kept.get(entries.version, NO_ADDRESSES))
        if kept.size and replaces:
            message = f"version {revert.version} left rows away that version {later.version} had replaced"
            hint = f"undo version {revert.version} first, or restore a version"
            raise PreconditionError(message, where=self._history.source.uri, hint=hint)
        if kept.size:
            before = self._history.rows(kept, entries.version - 1, keys)
            after = self._history.rows(later.effect.added, later.version, keys)
            kept = kept[equal_rows(before, after) >= 0]
        if not kept.size:
            return None
        self._kept[entries.version] = joined([self._kept.get(entries.version, NO_ADDRESSES), kept])
        rows = EntryEffect(NO_ADDRESSES, kept, np.full(kept.size, -1))
        lineage = VersionLineage(((entries.version, self._history.newest),))
        return _Undone(_named(entries), rows, lineage, follow(self._history, rows.added, [], self._versions))

    def _check_reverts(self) -> None:
        """Raises `PreconditionError` if a revert is to be undone on which a later one was built.

        It was if it undid an entry that had removed rows of what the first one undid: those rows didn't come
        back, and would be missing.
        """
        standing = list(self._standing)
        for revert in (each for each in self._marks.reverts.standing if each.version in self._undone):
            for later in (each for each in standing if each.version > revert.version):
                for entries in later.entries:
                    removed = self._entries_effect(entries).removed
                    for before in revert.entries if removed.size else ():
                        is_between = before.version < entries.version < revert.version
                        if is_between and self._with_removed_rows(before, entries.version, removed):
                            message = (
                                f"version {later.version} was built on the revert in version {revert.version}"
                            )
                            hint = f"undo version {later.version} first, or both: their entries by name"
                            raise PreconditionError(message, where=self._history.source.uri, hint=hint)

    def _check_columns(self, undone: _Undone) -> None:
        """Raises `PreconditionError` if rows would come back without columns that the entry dropped."""
        if not undone.returned.size:
            return
        before, after = (self._column_names(each) for each in (undone.version - 1, undone.version))
        dropped = sorted(before - after)
        if dropped:
            message = (
                f"version {undone.version} dropped the columns {', '.join(dropped)}, so the rows that it "
                "removed would come back without them"
            )
            hint = "restore the version before it, also but for some batches"
            raise PreconditionError(message, where=self._history.source.uri, hint=hint)

    def _column_names(self, version: int) -> set[str]:
        source = self._history.source
        summary = source.summary(version, whole=True)
        schema = None if summary is None else source.format.schema(summary)
        return set() if schema is None else set(schema.names)

    def _lost_rows(self, undone: _Undone, others: Sequence[_Undone]) -> Iterator[RowConflict]:
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
            changed = self._of(version).changes(last)
            clash = changed | undone.updated[rows]
            kept[rows[clash]] = True
            if clash.any():
                undone.has_clash = True
                changes = np.where(changed, "changed", "deleted")[clash].tolist()
                yield from self._conflicts(undone, rows[clash], version, last[clash], changes)
        undone.keep(kept)

    def _conflicts(
        self,
        undone: _Undone,
        rows: NDArray[np.int64],
        later: int,
        last: Addresses,
        changes: Sequence[LaterChange],
    ) -> Iterator[RowConflict]:
        names = self._names(undone.effect.added[rows], undone.version, undone.version)
        owners = self._of(later).entry_of(last)
        for name, owner, change in zip(names, owners.tolist(), changes, strict=True):
            yield self._conflict(undone.version, name, change, later, owner)

    def _conflict(self, version: int, row: str, change: LaterChange, later: int, owner: int) -> RowConflict:
        offset = None if owner == UNKNOWN_ENTRY else owner
        if later not in self._operations:
            summary = self._history.source.summary(later)
            self._operations[later] = "" if summary is None else summary.operation
        entry = entry_text(self._of(later).record, offset)
        return RowConflict(version, row, change, later, offset, entry, self._operations[later])

    def _names(self, rows: Addresses, at: int, version: int) -> list[str]:
        """Returns rows of version `at` in words: their keys if they are known, else their places."""
        keys = self._key_columns(version)
        if not keys:
            return [self._history.location(address) for address in rows.tolist()]
        order, names = np.argsort(rows), [""] * rows.size
        table = self._history.rows(rows[order], at, keys)
        for index, values in zip(order.tolist(), table.to_pylist(), strict=True):
            names[index] = ", ".join(f"{name}={text!r}" for name, text in values.items())
        return names

    def _key_columns(self, version: int) -> tuple[str, ...]:
        keys = self._keys or self._history.key_columns(version)
        revert = next((each for each in self._marks.reverts.each if each.version == version), None)
        if revert is not None and not keys:
            # It has the keys of what it undid, if that has the same ones.
            of_entries = {self._key_columns(entries.version) for entries in revert.entries}
            keys = of_entries.pop() if len(of_entries) == 1 else ()
        return keys if set(keys) <= set(self._history.columns) else ()

    def _inserted_again(self, undone: _Undone, removed: Addresses) -> Iterator[RowConflict]:
        """Yields the conflicts of rows that come back and whose keys the table has again."""
        keys = self._key_columns(undone.version)
        successors = undone.effect.successors
        if not keys or successors is None:
            return
        gone = (successors < 0) | ~undone.live[successors] if undone.live.size else successors < 0
        deleted = np.flatnonzero(gone & ~undone.kept & ~undone.cancelled)
        among = (
            np.setdiff1d(self._history.added_after(undone.version), removed) if deleted.size else removed[:0]
        )
        if not among.size:
            return
        before = self._history.rows(undone.effect.removed[deleted], undone.version - 1, keys)
        same = equal_rows(before, self._history.rows(among, self._history.newest, keys))
        again, rows = deleted[same >= 0], among[same[same >= 0]]
        undone.kept[again] = True
        names = self._names(undone.effect.removed[again], undone.version - 1, undone.version)
        order = np.argsort(rows)
        first = np.empty(rows.size, np.int64)
        first[order] = first_version_with(self._history, rows[order], undone.version, self._versions)
        for name, address, later in zip(names, rows.tolist(), first.tolist(), strict=True):
            effects = self._of(later)
            is_added, at = indices_in(np.array([address], np.uint64), effects.rows.added)
            owner = int(effects.rows.added_by[at[0]]) if is_added[0] else UNKNOWN_ENTRY
            yield self._conflict(undone.version, name, "inserted again", later, owner)

    def _figures(self, undone: _Undone, *, dependent: bool) -> RevertFigures:
        named, effect, live = undone.named, undone.effect, undone.live
        record = self._of(named.version).record
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

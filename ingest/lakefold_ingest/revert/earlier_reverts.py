"""What earlier reverts did to the rows of entries that are undone.

Without it a row of an undone batch would come back with the delete that had removed it, and a row that a
revert has brought back would stay when its batch is undone.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakefold_ingest.revert.effects import EntryEffect
from lakefold_ingest.revert.entries import EVERY_ENTRY, NamedVersion
from lakefold_ingest.revert.following import FollowedRows, VersionLineage, follow, lineage_of
from lakefold_ingest.revert.row_history import LOST, NO_ADDRESSES, Addresses, indices_in, joined
from lakefold_ingest.revert.undone import Undone
from lakefold_reader.format.value_numbers import equal_rows
from lakefold_table.errors import PreconditionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_ingest.revert.effects import Effects
    from lakefold_ingest.revert.row_history import ReplacedContent
    from lakefold_table.marks.reverts import Revert, UndoneEntries


def _named(entries: UndoneEntries) -> NamedVersion:
    """Returns entries that the marks list as undone."""
    return NamedVersion(entries.version, frozenset(entries.offsets) or EVERY_ENTRY)


class EarlierReverts:
    """The reverts up to the newest version, as the plan to undo some entries needs them."""

    def __init__(self, effects: Effects) -> None:
        self._history = effects.history
        self._effects = effects
        self._marks = effects.marks.reverts
        self._replacements: Sequence[ReplacedContent] = ()
        self._known_from: int | None = None
        self._undone = frozenset[int]()
        self._kept: dict[int, Addresses] = {}
        self._own_copies: dict[int, Sequence[Addresses]] = {}
        self._other_copies: dict[tuple[int, int, int], Addresses] = {}

    def begin(self, undone: Sequence[NamedVersion]) -> None:
        """Begins a plan to undo these entries.

        Raises `PreconditionError` if a revert is among them on which a later one was built: that undid an
        entry that had removed rows of what the first one undid, or for whose rows the first one left some
        away. Those would be missing, or be in the table still. The same holds for a revert that stands again
        as the Restore before which it was is undone.
        """
        self._undone = frozenset(each.version for each in undone)
        self._kept.clear()
        now = self._marks.standing()
        known = {each.version for each in now} | {named.version for each in now for named in each.entries}
        turned = {each.version for each in now if each.version in self._undone}
        turned |= {each.version for each in self.standing} - known
        for revert in (each for each in self._marks.each if each.version in turned):
            for later in (each for each in self.standing if each.version > revert.version):
                pairs = product(later.entries, self._undone_by(revert))
                for entries, (by, at) in pairs:
                    is_older = by.entries[at].version < entries.version < revert.version
                    if is_older and self._has_rows_of(entries, by, at, later.version - 1):
                        message = (
                            f"version {later.version} was built on the revert in version {revert.version}"
                        )
                        hint = f"undo version {later.version} first, or both: their entries by name"
                        raise self._unmet(message, hint)

    @property
    def standing(self) -> Sequence[Revert]:
        """The reverts that stand, without those that are to be undone."""
        return self._reverts(self._history.newest)

    def _reverts(self, end: int) -> Sequence[Revert]:
        """Returns the reverts that stood in version `end`; if that is the newest, but those to be undone."""
        return self._marks.standing(end, self._undone if end == self._history.newest else ())

    def turns(self, version: int) -> bool:
        """Returns whether a version is a revert or a Restore."""
        replacements = {each.version for each in self._replaced_after(version - 1)}
        return version in replacements | {each.version for each in self._marks.each}

    def lineage(self, begin: int, end: int) -> VersionLineage:
        """Returns the lineage of version `end`. What was undone, or is to be, replaced nothing."""
        undone = {entries.version for revert in self._reverts(end) for entries in revert.entries}
        undone |= self._undone
        replacements = [each for each in self._replaced_after(begin) if each.version not in undone]
        return lineage_of(replacements, begin, end)

    def _replaced_after(self, begin: int) -> Sequence[ReplacedContent]:
        if self._known_from is None or begin < self._known_from:
            self._known_from, self._replacements = begin, self._history.replacements(begin)
        return self._replacements

    def follow(self, followed: FollowedRows, end: int) -> None:
        """Follows rows to `end` that an entry removed and reverts brought back, by their values."""
        reverts = self._reverts(end)
        while True:
            lost = set(followed.lost_in.tolist())
            steps = (
                (by, at, back)
                for by in reverts
                for at, entries in enumerate(by.entries)
                if entries.version in lost
                for back in reverts
                if back.version >= by.version
            )
            if not any(self._follow_copies(followed, end, *step) for step in steps):
                return

    def _follow_copies(self, followed: FollowedRows, end: int, by: Revert, at: int, back: Revert) -> bool:
        """Follows rows that entries removed, which `by` undid, from where `back` has them. Whether it has."""
        removed, again = self._effects.of_entries(_named(by.entries[at])).removed, self._copies(by, at, back)
        rows = np.flatnonzero(followed.lost_in == by.entries[at].version)
        is_removed, index = indices_in(followed.last[rows], removed)
        rows, copies = rows[is_removed], again[index[is_removed]]
        rows, copies = rows[copies != LOST], copies[copies != LOST]
        rows, copies = rows[np.argsort(copies)], np.sort(copies)
        stretches = self.lineage(back.version, end).stretches if rows.size else ()
        on = follow(self._history, copies, stretches, self._effects.versions)
        followed.now[rows], followed.lost_in[rows], followed.last[rows] = on.now, on.lost_in, on.last
        return bool(rows.size)

    def _copies(self, by: Revert, at: int, back: Revert) -> Addresses:
        """Returns where `back` has the rows that entries had removed, which `by` undid; `LOST` for others.

        If `by` left some away because of another entry, a later revert that undid this one has them.
        """
        own, name = self._copies_in(by)[at], (by.version, at, back.version)
        if back.version == by.version:
            return own
        if name not in self._other_copies:
            again = self._effects.of(back.version).rows.added
            others, copies = np.setdiff1d(again, joined(self._copies_in(back))), np.full(own.size, LOST)
            left = own == LOST
            if others.size and left.any():
                entries = by.entries[at]
                removed = self._effects.of_entries(_named(entries)).removed[left]
                before = self._history.rows(removed, entries.version - 1)
                index = equal_rows(before, self._history.rows(others, back.version))
                copies[left] = np.where(index >= 0, others[index], LOST)
            self._other_copies[name] = copies
        return self._other_copies[name]

    def _copies_in(self, revert: Revert) -> Sequence[Addresses]:
        """Returns for each entry that a revert undid where it has the rows that the entry had removed."""
        if revert.version not in self._own_copies:
            parts = [
                (each.version, self._effects.of_entries(_named(each)).removed) for each in revert.entries
            ]
            again = self._effects.of(revert.version).rows.added
            tables = [self._history.rows(removed, version - 1) for version, removed in parts]
            index = equal_rows(pa.concat_tables(tables), self._history.rows(again, revert.version))
            copies = np.full(index.size, LOST)
            copies[index >= 0] = again[index[index >= 0]]
            ends = np.cumsum([removed.size for _, removed in parts])[:-1]
            self._own_copies[revert.version] = np.split(copies, ends)
        return self._own_copies[revert.version]

    def undone_before(self, undone: Sequence[Undone]) -> Iterator[Undone]:
        """Yields entries that were undone before, with the rows of theirs that the ones to undo had removed.

        Such rows don't come back, as the entry that added them is undone. What these rows had replaced does:
        when the entry was undone, a later one had changed them, and that is undone now.
        """
        work = list(undone)
        standing = {each.version: each for each in self.standing}
        while work:
            later = work.pop()
            forgotten = self._marks.forgotten
            if forgotten > later.version and later.effect.removed.size:
                message = f"which batches were undone up to version {forgotten} is not known any more"
                hint = "restore a version instead, or write the rows again as they are to be"
                raise self._unmet(message, hint)
            since = [each for version, each in standing.items() if version > later.version]
            # A revert that was undone and had again counts from then on.
            for version, at in sorted(
                {(by.version, at) for each in since for by, at in self._undone_by(each)}
            ):
                by = standing.get(version)
                if by is not None and by.entries[at].version < later.version:
                    removed = self._with_removed_rows(by.entries[at], later.version, later.effect.removed)
                    kept = self._kept_away(by, at, later.version, later.effect.added)
                    parts = [each for each in (removed, kept) if each]
                    work += parts
                    yield from parts

    def _undone_by(self, revert: Revert) -> Iterator[tuple[Revert, int]]:
        """Yields what a revert undid, and what reverts among that had undone: which did, at which index."""
        for at, entries in enumerate(revert.entries):
            yield revert, at
            for each in self._marks.each:
                if each.version == entries.version:
                    yield from self._undone_by(each)

    def _has_rows_of(self, later: UndoneEntries, revert: Revert, at: int, end: int) -> bool:
        """Returns whether entries had removed rows of what a revert undid, or kept some away up to `end`."""
        effect = self._effects.of_entries(_named(later))
        removed = self._with_removed_rows(revert.entries[at], later.version, effect.removed)
        return removed is not None or bool(self._left_away(revert, at, later.version, effect.added, end).size)

    def _with_removed_rows(self, entries: UndoneEntries, later: int, removed: Addresses) -> Undone | None:
        """Returns undone entries with only those rows that version `later` removed; None if it has none."""
        stretches = self.lineage(entries.version, later - 1).stretches if removed.size else ()
        if not stretches:
            return None
        effect = self._effects.of_entries(_named(entries))
        followed = follow(self._history, effect.added, stretches, self._effects.versions)
        self.follow(followed, later - 1)
        is_taken, _ = indices_in(followed.now, removed)
        if not is_taken.any():
            return None
        if effect.successors is None:
            message = f"which rows version {entries.version} changed isn't known, and it was undone before"
            raise self._unmet(message, "undo the revert of it by its version first, and then both together")
        taken = np.flatnonzero(is_taken)
        replaced = (effect.successors >= 0) & is_taken[effect.successors]
        successors = np.searchsorted(taken, effect.successors[replaced])
        rows = EntryEffect(effect.added[taken], effect.removed[replaced], successors)
        at = followed.now[taken]
        gone = FollowedRows(np.full_like(at, LOST), np.full(taken.size, later), at)
        return Undone(_named(entries), rows, VersionLineage(stretches), gone)

    def _kept_away(self, revert: Revert, at: int, later: int, added: Addresses) -> Undone | None:
        """Returns entries that a revert undid, with the rows that it left away because of version `later`.

        Raises `PreconditionError` if that had replaced all rows.
        """
        entries = revert.entries[at]
        known = self._kept.get(entries.version, NO_ADDRESSES)
        kept = np.setdiff1d(self._left_away(revert, at, later, added, self._history.newest), known)
        if not kept.size:
            return None
        if self._is_replacement(later, entries.version):
            message = f"version {revert.version} left rows away that version {later} had replaced"
            hint = f"undo version {revert.version} first, or restore a version"
            raise self._unmet(message, hint)
        self._kept[entries.version] = joined([known, kept])
        rows = EntryEffect(NO_ADDRESSES, kept, np.full(kept.size, -1))
        lineage = VersionLineage(((entries.version, self._history.newest),))
        nothing = follow(self._history, rows.added, [], self._effects.versions)
        return Undone(_named(entries), rows, lineage, nothing)

    def _left_away(self, revert: Revert, at: int, later: int, added: Addresses, end: int) -> Addresses:
        """Returns the deleted rows that a revert left away and no later one up to `end` brought back.

        Those whose keys rows have that version `later` added; or all, if that had replaced all rows.
        """
        entries = revert.entries[at]
        replaces = self._is_replacement(later, entries.version)
        keys = self._effects.key_columns(entries.version) if added.size and not replaces else ()
        if not keys and not replaces:
            # Without this, the rows of each revert that stands would be read for each plan.
            return NO_ADDRESSES
        effect = self._effects.of_entries(_named(entries))
        is_gone = np.ones(effect.removed.size, np.bool_)
        if effect.successors is not None:
            is_gone &= effect.successors < 0
        for back in (each for each in self._marks.standing(end) if each.version >= revert.version):
            is_gone &= self._copies(revert, at, back) == LOST
        kept: Addresses = effect.removed[is_gone]
        if not kept.size or replaces:
            return kept
        before = self._history.rows(kept, entries.version - 1, keys)
        return kept[equal_rows(before, self._history.rows(added, later, keys)) >= 0]

    def _is_replacement(self, version: int, begin: int) -> bool:
        return any(each.version == version for each in self._replaced_after(begin))

    def _unmet(self, message: str, hint: str) -> PreconditionError:
        return PreconditionError(message, where=self._history.source.uri, hint=hint)

"""What the entries of a version did to rows, each apart from the others of its version.

Files that were added belong to one entry, by the version's record. Rows that were removed belong to the only
entry that removed any. If several did, the log says which removed which: a proposal names them by their
addresses in the version that it was built on.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lakefold_ingest.merge.read_version import OFFSET_WIDTH
from lakefold_ingest.revert.entries import NamedVersion, Offsets, record_at, removers
from lakefold_ingest.revert.following import follow
from lakefold_ingest.revert.row_history import (
    UNKNOWN_ENTRY,
    Addresses,
    Mask,
    RemovedAndAdded,
    RowHistory,
    indices_in,
)
from lakefold_reader.format.value_numbers import equal_rows
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.proposals import counting_marks
from lakefold_table.errors import LakefoldError, PreconditionError
from lakefold_table.marks.marks import Marks
from lakefold_table.marks.record import position_at
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lakefold_ingest.revert.entries import LoggedEntries
    from lakefold_table.marks.record import Record


@value()
class EntryEffect:
    """What entries of a version did. The addresses are as of `RemovedAndAdded`.

    `successors`: for each removed row the index in `added` of the row that took its place, -1 for a row that
    was deleted. None: rows were removed and added, and what they have to do with each other is not known.
    """

    added: Addresses
    removed: Addresses
    successors: NDArray[np.int64] | None


class VersionEffects:
    """The entries of one version, and what they did. What was found out is kept."""

    def __init__(
        self, history: RowHistory, version: int, versions: Sequence[int], log: LoggedEntries
    ) -> None:
        self.version = version
        self._history = history
        self._versions = versions
        self._log = log
        self._owners: dict[int, Addresses] | None = None

    @cached_property
    def record(self) -> Record | None:
        """What the version records; None if no committer made it."""
        return record_at(self._history.source, self.version)

    @cached_property
    def rows(self) -> RemovedAndAdded:
        """The rows that the version changed, whichever entry did it."""
        return self._history.version_rows(self.version)

    @cached_property
    def whole(self) -> EntryEffect:
        """What all entries of the version did."""
        return self._paired(self.rows.added, self.rows.removed)

    def of(self, offsets: Offsets) -> EntryEffect:
        """Returns what the entries at these offsets did.

        Raises `PreconditionError` if it is not known which rows are theirs.
        """
        record = self.record
        if offsets is None or record is None or offsets >= record.committed.keys():
            return self.whole
        by = self.rows.added_by
        if (by == UNKNOWN_ENTRY).any():
            by = self._added_by_the_log(record)
        added = self.rows.added[np.isin(by, list(offsets))]
        return self._paired(added, self._removed_by(record, offsets))

    def changes(self, last: Addresses) -> Mask:
        """Returns which rows the version changed, and didn't merely delete; any that isn't known."""
        whole = self.whole
        is_known, at = indices_in(last, whole.removed)
        if whole.successors is None:
            return np.full(last.size, bool(whole.added.size))
        changed = ~is_known
        changed[is_known] = whole.successors[at[is_known]] >= 0
        return changed

    def entry_of(self, removed: Addresses) -> NDArray[np.int64]:
        """Returns the offsets of the entries that removed these rows, `UNKNOWN_ENTRY` if it isn't known."""
        owners = np.full(removed.size, UNKNOWN_ENTRY, np.int64)
        record = self.record
        if record is None:
            return owners
        offsets = [*record.committed] if len(record.committed) == 1 else removers(record)
        if len(offsets) == 1:
            owners[:] = offsets[0]
            return owners
        try:
            for offset, rows in self._by_the_log(record).items():
                owners[np.isin(removed, rows)] = offset
        except LakefoldError:
            # It is named by its version then.
            return owners
        return owners

    def _removed_by(self, record: Record, offsets: frozenset[int]) -> Addresses:
        them = set(removers(record))
        if not them and self.rows.removed.size:
            raise self._unknown("removed")
        if them <= offsets:
            return self.rows.removed
        if them.isdisjoint(offsets):
            return self.rows.removed[:0]
        owned = self._by_the_log(record)
        parts = [owned.get(offset, self.rows.removed[:0]) for offset in offsets]
        return np.unique(np.concatenate(parts))

    def _added_by_the_log(self, record: Record) -> NDArray[np.int64]:
        """Returns the offset of the entry that added each row, by the files that the proposals name."""
        by = np.full(self.rows.added.size, UNKNOWN_ENTRY, np.int64)
        entries = self._log.entries([position_at(record, offset) for offset in sorted(record.committed)])
        numbers = self.rows.added >> np.uint64(OFFSET_WIDTH)
        for offset, entry in entries.items():
            theirs = np.array(list(self._history.numbers_added(entry.envelope)), np.uint64)
            by[np.isin(numbers, theirs)] = offset
        if (by == UNKNOWN_ENTRY).any():
            raise self._unknown("added")
        return by

    def _by_the_log(self, record: Record) -> dict[int, Addresses]:
        """Returns the rows that each entry removed, by its proposal."""
        if self._owners is None:
            offsets = removers(record)
            entries = self._log.entries([position_at(record, offset) for offset in offsets])
            if entries.keys() != set(offsets):
                raise self._unknown("removed")
            self._owners = {}
            for offset in offsets:
                stated = self._history.affected(entries[offset].envelope)
                if stated is None:
                    raise self._unknown("removed")
                read, rows = stated
                followed = follow(self._history, rows, [(read, self.version - 1)], self._versions)
                self._owners[offset] = np.intersect1d(followed.now, self.rows.removed)
        return self._owners

    def _paired(self, added: Addresses, removed: Addresses) -> EntryEffect:
        successors = np.full(removed.size, -1, np.int64)
        if not added.size or not removed.size:
            return EntryEffect(added, removed, successors)
        history, version = self._history, self.version
        before, after = history.row_ids(removed, version - 1), history.row_ids(added, version)
        if before is not None and after is not None:
            _, old, new = np.intersect1d(before, after, return_indices=True)
            successors[old] = new
            return EntryEffect(added, removed, successors)
        columns = history.pair_columns(version)
        if columns is None or not set(columns) <= set(history.columns):
            return EntryEffect(added, removed, None)
        if columns:
            before_rows = history.rows(removed, version - 1, columns)
            successors = equal_rows(before_rows, history.rows(added, version, columns))
        return EntryEffect(added, removed, successors)

    def _unknown(self, what: str) -> PreconditionError:
        message = (
            f"several entries share version {self.version}, and neither it nor the log says which of them "
            f"{what} which rows"
        )
        hint = f"undo all of them: --version {self.version} (version={self.version}); or restore a version"
        return PreconditionError(message, where=self._history.source.uri, hint=hint)


class Effects:
    """What entries of any version did, with the keys of their rows. What was found out is kept.

    `keys`: the columns that identify a row; empty: as the table or the entries say it.
    """

    def __init__(self, history: RowHistory, log: LoggedEntries, keys: tuple[str, ...]) -> None:
        self.history = history
        self.versions = [number for number in numbers_of(history.source) if number <= history.newest]
        self._log = log
        self._keys = keys
        self._known: dict[int, VersionEffects] = {}

    @cached_property
    def marks(self) -> Marks:
        """The marks that count in the newest version."""
        return counting_marks(self.history.source, self.versions) or Marks()

    def of(self, version: int) -> VersionEffects:
        """Returns what the entries of a version did."""
        if version not in self._known:
            self._known[version] = VersionEffects(self.history, version, self.versions, self._log)
        return self._known[version]

    def of_entries(self, named: NamedVersion) -> EntryEffect:
        """Returns what entries did. If the version doesn't say which row took the place of which, keys do."""
        version = named.version
        effect = self.of(version).of(named.offsets)
        keys = self.key_columns(version) if effect.successors is None else ()
        if not keys:
            return effect
        before = self.history.rows(effect.removed, version - 1, keys)
        successors = equal_rows(before, self.history.rows(effect.added, version, keys))
        return EntryEffect(effect.added, effect.removed, successors)

    def key_columns(self, version: int) -> tuple[str, ...]:
        """Returns the columns that identify a row of what a version did; none if they aren't known."""
        keys = self._keys or self.history.key_columns(version)
        revert = next((each for each in self.marks.reverts.each if each.version == version), None)
        if revert is not None and not keys:
            # It has the keys of what it undid, if that has the same ones.
            of_entries = {self.key_columns(entries.version) for entries in revert.entries}
            keys = of_entries.pop() if len(of_entries) == 1 else ()
        return keys if set(keys) <= set(self.history.columns) else ()

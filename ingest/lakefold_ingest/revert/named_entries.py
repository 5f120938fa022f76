"""Finds the entries that a user names: by batches, by a version, or by positions in the log.

The records of the table's own versions are enough if an entry is alone in its version, or all entries of its
version are named. If others share its version, the log shows which is which.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from lakefold_ingest.revert.entries import EntryKey, LoggedEntries, NamedVersion, record_at
from lakefold_reader.versions.at_position import version_at_position
from lakefold_reader.versions.branches import main_and_branch
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.proposals import ProposalName, counting_marks, find
from lakefold_table.errors import InvalidError, PreconditionError, VersionExpiredError
from lakefold_table.marks.batches import AppMark
from lakefold_table.marks.intervals import joined, less
from lakefold_table.marks.marks import Marks, decode_marks
from lakefold_table.marks.record import position_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakefold_reader.format.source import Source
    from lakefold_table.entry import Entry
    from lakefold_table.marks.record import Record

SEARCHED = 10_000
"""In how many of the newest versions a batch is looked for that the marks don't lead to."""
_OTHER_WAYS = "restore a version instead, or write the rows again as they are to be"


class EntrySearch:
    """Searches the versions of a branch up to `newest`. `log` reads entries that share a version."""

    def __init__(self, source: Source, newest: int, log: LoggedEntries) -> None:
        self._source = source
        self._log = log
        self._numbers = [number for number in numbers_of(source) if number <= newest]
        self._marks = counting_marks(source, self._numbers) or Marks()

    def by_batches(self, batches: Iterable[tuple[str, int]]) -> list[NamedVersion]:
        """Returns where these batches are.

        Raises `InvalidError` if one was never folded here, `PreconditionError` if it was undone before,
        `VersionExpiredError` if its version was cleaned up.
        """
        by_version: dict[int, list[tuple[str, int]]] = {}
        for app_id, batch_id in dict.fromkeys(batches):
            by_version.setdefault(self._version_of(app_id, batch_id), []).append((app_id, batch_id))
        return [self._batches_in(version, keys) for version, keys in sorted(by_version.items())]

    def by_version(self, version: int) -> NamedVersion:
        """Returns all entries of a version. Raises `VersionExpiredError` if it is gone."""
        self._check_version(version, f"version {version}")
        record = record_at(self._source, version)
        keys = () if record is None else self._all_keys(version, record)
        self._check_not_undone(keys, version)
        return self._standing(NamedVersion(version, keys=keys))

    def by_positions(self, first: int, last: int) -> list[NamedVersion]:
        """Returns the entries from one offset of the table's log to another, both included."""
        position = self._marks.position
        if position is None:
            message = "the table is bound to no log, so no position is known"
            raise InvalidError(message, where=self._source.uri, hint="name batches or a version")
        if not 0 <= first <= last <= position.offset:
            message = f"the positions {first}-{last} are not among those that were folded"
            raise InvalidError(message, where=str(position), hint="`lakefold log` lists them")
        begin = version_at_position(self._source, first)
        named = []
        for version in self._numbers[bisect_left(self._numbers, begin) :]:
            record = record_at(self._source, version)
            if record is None or record.log != position.log:
                continue
            if record.first_offset > last:
                break
            offsets = frozenset(offset for offset in record.committed if first <= offset <= last)
            if offsets:
                named.append(self._offsets_in(version, record, offsets))
        if not named:
            message = f"no version has an entry from {first} to {last}"
            raise InvalidError(message, where=str(position), hint="`lakefold log` lists them")
        return named

    def entry_in(self, version: int, record: Record, offset: int) -> NamedVersion:
        """Returns one entry of a version."""
        return self._offsets_in(version, record, frozenset((offset,)))

    def _offsets_in(self, version: int, record: Record, offsets: frozenset[int]) -> NamedVersion:
        if offsets == frozenset(record.committed):
            keys = self._all_keys(version, record)
        else:
            entries = self._entries(record, offsets)
            keys = tuple(EntryKey.of(entries[offset]) for offset in sorted(offsets & entries.keys()))
        self._check_not_undone(keys, version)
        return self._standing(NamedVersion(version, offsets, keys))

    def _standing(self, named: NamedVersion) -> NamedVersion:
        """Returns entries that no revert undid, whatever the marks have of their keys; else it raises."""
        if by := self._marks.reverts.undone_by(named.version, named.offsets or ()):
            what = str(named.keys[0]) if len(named.keys) == 1 else f"version {named.version}"
            raise self._undone(what, by)
        return named

    def _version_of(self, app_id: str, batch_id: int) -> int:
        mark = self._marks.apps.get(app_id)
        text = f"the batch {app_id}:{batch_id}"
        if mark is None or not mark.has(batch_id):
            hint = "`lakefold log` lists the batches; a branch has its own: name it by --branch (branch=)"
            raise InvalidError(f"{text} was not folded into this table", where=self._source.uri, hint=hint)
        self._check_not_undone([EntryKey(app_id, batch_id)])
        version = mark.version_of(batch_id) or self._first_with(app_id, batch_id)
        self._check_version(version, text)
        return version

    def _first_with(self, app_id: str, batch_id: int) -> int:
        """Returns the first version whose marks have a batch that the newest marks know without a version."""
        own = [number for number in self._numbers if number <= self._marks.version]
        low, high = -1, len(own) - 1
        while high - low > 1:
            middle = (low + high) // 2
            summary = self._source.summary(own[middle], whole=True)
            carried = None if summary is None or summary.metadata is None else decode_marks(summary.metadata)
            mark = None if carried is None else carried.apps.get(app_id)
            low, high = (low, middle) if mark is not None and mark.has(batch_id) else (middle, high)
        if self._has(own[high], app_id, batch_id):
            return own[high]
        sought = ProposalName(f"{app_id}:{batch_id}", app_id=app_id, batch_id=batch_id)
        return find(self._source, sought, at_most=SEARCHED).committed_in or 0

    def _has(self, version: int, app_id: str, batch_id: int) -> bool:
        record = record_at(self._source, version)
        if record is None:
            return False
        return record.has_promoted(app_id, batch_id) or any(
            each.app_id == app_id and each.first <= batch_id <= each.last for each in record.apps
        )

    def _check_version(self, version: int, what: str) -> None:
        """Raises `VersionExpiredError` if a version or the one before is gone."""
        first, oldest = self._source.versions.first, self._numbers[0]
        missing = [each for each in (version, version - 1) if each >= first and each not in self._numbers]
        if version and not missing:
            return
        if version > self._numbers[-1]:
            message = f"{what} does not exist, the newest version is {self._numbers[-1]}"
            raise InvalidError(message, where=self._source.uri, hint="`lakefold log` lists the versions")
        if version and version <= oldest and main_and_branch(self._source)[1]:
            message = f"{what} is older than what was written to the branch, so it can't be undone there"
            hint = "undo it where the branch was made from, or on a new branch, before anything else"
            raise InvalidError(message, where=self._source.uri, hint=hint)
        which = f"version {missing[0]}" if missing and version else "the version that has it"
        message = f"{what} can't be undone: {which} was cleaned up, and with it what it changed"
        raise VersionExpiredError(message, oldest=oldest, where=self._source.uri, hint=_OTHER_WAYS)

    def _check_not_undone(self, keys: Iterable[EntryKey], version: int = 0) -> None:
        """Raises `PreconditionError` if one was undone, but by this version: a promote may leave some out."""
        for key in keys:
            by = self._marks.rolled_back_by(key.app_id, key.batch_id, key.uuid)
            if by not in {0, version}:
                raise self._undone(str(key), by)

    def _undone(self, what: str, by: int) -> PreconditionError:
        message = f"{what} was undone before, in version {by}"
        hint = f"to have it again, undo what undid it: --version {by} (version={by})"
        return PreconditionError(message, where=self._source.uri, hint=hint)

    def _batches_in(self, version: int, batches: Sequence[tuple[str, int]]) -> NamedVersion:
        record = record_at(self._source, version)
        keys = tuple(EntryKey(*batch) for batch in batches)
        if record is None:
            message = f"version {version} doesn't record which batches it has"
            raise InvalidError(message, where=self._source.uri, hint="name the version")
        if record.promotes is not None:
            branch = record.promotes.branch
            message = f"version {version} has batches of the branch {branch}, which were promoted together"
            hint = f"undo all of them: --version {version} (version={version})"
            raise PreconditionError(message, where=self._source.uri, hint=hint)
        if len(record.committed) == len(batches):
            return self._standing(NamedVersion(version, frozenset(record.committed), keys))
        offsets = {
            (entry.app_id, entry.batch_id): offset
            for offset, entry in self._entries(record, frozenset(record.committed)).items()
        }
        missing = [f"{app}:{batch}" for app, batch in batches if (app, batch) not in offsets]
        if missing:
            message = (
                f"{len(record.committed)} entries share version {version}, and the log has those of "
                f"{', '.join(missing)} no more, so it is not known which rows are theirs"
            )
            hint = f"undo all of them (--version {version}, version={version}), or {_OTHER_WAYS}"
            raise PreconditionError(message, where=self._source.uri, hint=hint)
        named = frozenset(offsets[batch] for batch in batches)
        return self._standing(NamedVersion(version, named, keys))

    def _entries(self, record: Record, offsets: frozenset[int]) -> Mapping[int, Entry]:
        return self._log.entries([position_at(record, offset) for offset in sorted(offsets)])

    def _all_keys(self, version: int, record: Record) -> tuple[EntryKey, ...]:
        """Returns the keys of all entries of a version, as far as its record and the marks have them."""
        keys = [EntryKey(uuid=uuid) for uuid, at in self._marks.uuids if at == version]
        if record.promotes is not None:
            keys += map(EntryKey.named, (*record.promotes.keys, *record.promotes.left_out))
        for each in record.apps:
            mark = self._marks.apps.get(each.app_id, AppMark())
            if each.count == each.last - each.first + 1:
                keys += [EntryKey(each.app_id, batch) for batch in range(each.first, each.last + 1)]
            else:
                keys += [EntryKey(each.app_id, batch) for batch, at in mark.recent if at == version]
        return tuple(keys)


def keys_brought_back(source: Source, numbers: Sequence[int], version: int) -> Iterator[EntryKey]:
    """Yields the keys that were undone before a revert or a Restore, and were not in its version any more.

    `numbers`: the versions that exist, ascending.
    """
    numbers = numbers[: bisect_right(numbers, version)]
    after, summary = counting_marks(source, numbers), source.summary(version)
    restores = summary is not None and summary.restored is not None
    if after is None or not (restores or version in {each.version for each in after.reverts.each}):
        return
    before = counting_marks(source, numbers[:-1]) or Marks()
    for app_id, mark in before.apps.items():
        left_out = joined(sorted(part[:2] for part in mark.rolled_back))
        now = joined(sorted(part[:2] for part in after.apps.get(app_id, AppMark()).rolled_back))
        for first, last in less(left_out, now):
            yield EntryKey(app_id, first, last_batch_id=last if last > first else 0)
    yield from (
        EntryKey(uuid=uuid) for uuid in before.uuids_rolled_back if uuid not in after.uuids_rolled_back
    )

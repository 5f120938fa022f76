"""Which of many names are not tables: they are checked together, and refused together.

A client may send proposals for any number of names. To open a table takes several requests and two tasks,
even if no table exists. So names under which no table is open are checked many at a time: on a local disk
with a system call for each, in a bucket with a listing for all in the same folder. A name under which nothing
is stored is not a table, and what was proposed for it is refused at once. Every other name, and every
proposal that may create a table, is left to the queue that opens the table.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from lakefold_committer.fold.fold import Folded, FoldedTable, FoldInputs, fold
from lakefold_committer.loop.unopened_tables import bucket_of
from lakefold_committer.tables.branches import branch_location
from lakefold_table.branch_names import root_of
from lakefold_table.entry import Entry, Invalid, Outcome, Undecodable
from lakefold_table.errors import LakefoldError
from lakefold_table.format import Fetched
from lakefold_table.roots import folder_and_name
from lakefold_table.storage import open_canonical
from lakefold_table.uri import FILE, Location

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from lakefold_committer.recovery.recovery_context import ReportedVersions
    from lakefold_log.codec.envelope import Decoded, UnknownKind
    from lakefold_table.formats import Formats
    from lakefold_table.storage.base import Storage

WORTH_LISTING: Final = 4
"""A folder of a bucket is listed if at least this many names in it are to be checked."""
MOST_LISTED: Final = 10_000
"""A folder of a bucket with more objects than this is not listed: its tables are opened to check them."""
_INPUTS: Final = FoldInputs(epoch=0)


@dataclass(frozen=True, slots=True)
class CheckedNames:
    """What is known of the names of some messages after a check.

    `refused`: the outcomes of those whose name is not a table, by offset. `existing`: the hashes
    (`bucket_of`) of names in the same folders under which something is stored. Their messages go before the
    others.
    """

    refused: Mapping[int, Outcome] = field(default_factory=dict)
    existing: Collection[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Folder:
    """What a folder of a bucket held when it was listed last: names, and the hashes of their locations."""

    names: frozenset[str]
    buckets: frozenset[int]


class NameCheck:
    """Checks names for a partition. `check` is for one thread at a time, `may_exist` for any.

    `refusal` returns why a table may not be folded into, by its URI. `outcome_index`: what was reported of
    tables that are gone (None: nothing was).
    """

    def __init__(
        self,
        formats: Formats,
        refusal: Callable[[str], Invalid | None],
        outcome_index: ReportedVersions | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        store: Callable[[str], Storage] | None = None,
    ) -> None:
        self._formats = formats
        self._refusal = refusal
        self._outcome_index = outcome_index
        self._store = store or partial(open_canonical, storage_options=storage_options)
        self._listed: dict[Location, _Folder] = {}

    def may_exist(self, location: Location) -> bool:
        """Returns whether something is stored at a location, as far as known without asking a remote store.

        Only the order in which names are checked depends on it.
        """
        if location.scheme == FILE:
            return os.path.lexists(f"/{location.path}")
        folder = self._listed.get(_above(location))
        return folder is not None and bool(location.segments) and location.segments[-1] in folder.names

    def check(self, reads: Sequence[Decoded]) -> CheckedNames:
        """Checks the names of these messages, each name once.

        Raises nothing if a store can't be reached: its names stay unknown, and opening its tables shows why.
        """
        messages = {
            location: same for location, same in _by_location(reads).items() if self._may_refuse(same)
        }
        absent, self._listed = self._absent(messages)
        refused = (outcome for location in absent for outcome in self._refused(_entries(messages[location])))
        existing = frozenset[int]().union(*(folder.buckets for folder in self._listed.values()))
        return CheckedNames({outcome.position.offset: outcome for outcome in refused}, existing)

    def _may_refuse(self, reads: Sequence[Decoded]) -> bool:
        """Returns whether none of these may create a table, and none is a claim, which has to be fetched."""
        entries = _entries(reads)
        return len(entries) == len(reads) and not any(
            entry.begins_table or entry.is_claim or self._refusal(entry.envelope.table) for entry in entries
        )

    def _absent(
        self, messages: Mapping[Location, Sequence[Decoded]]
    ) -> tuple[Sequence[Location], dict[Location, _Folder]]:
        """Returns the locations at which nothing is stored, and the folders that were listed for that."""
        absent = [
            location for location in messages if location.scheme == FILE and _is_nothing(f"/{location.path}")
        ]
        listed: dict[Location, _Folder] = {}
        for folder, inside in _by_folder(messages).items():
            entry = _entries(messages[inside[0]])[0]
            listing = self._listing(folder, folder_and_name(_root(entry))[0])
            if listing is not None:
                listed[folder] = listing
                absent += [location for location in inside if location.segments[-1] not in listing.names]
        return absent, listed

    def _listing(self, folder: Location, uri: str) -> _Folder | None:
        """Returns what a folder of a bucket holds. Returns None if that takes more than a few requests."""
        try:
            folders = self._store(uri).some_folders("", MOST_LISTED)
        except LakefoldError:
            return None
        if folders is None:
            return None
        names, before = frozenset(folders), self._listed.get(folder)
        if before is not None and before.names == names:
            return before
        locations = (replace(folder, segments=(*folder.segments, name)) for name in names)
        return _Folder(names, frozenset(map(bucket_of, locations)))

    def _refused(self, entries: Sequence[Entry]) -> Sequence[Outcome]:
        """Returns the outcomes of the entries for a name, or nothing if it may have had a table once."""
        roots = {_root(entry) for entry in entries}
        try:
            if self._outcome_index is not None and any(map(self._outcome_index.last_committed, roots)):
                return ()
        except LakefoldError:
            return ()
        results = map(self._folded, entries)
        return [outcome for folded in results if folded.publication is None for outcome in folded.outcomes]

    def _folded(self, entry: Entry) -> Folded:
        table_format = self._formats.of_entry(entry)
        return fold(table_format, FoldedTable(_root(entry)), [entry], Fetched(), _INPUTS)


def _by_location(reads: Iterable[Decoded]) -> dict[Location, list[Decoded]]:
    """Returns the messages that name a table by its location, since a location has several spellings."""
    messages: defaultdict[Location, list[Decoded]] = defaultdict(list)
    for read in reads:
        if isinstance(read, Undecodable):
            continue
        location = branch_location(*_address(read))
        if isinstance(location, Location):
            messages[location].append(read)
    return messages


def _address(read: Entry | UnknownKind) -> tuple[str, str]:
    if isinstance(read, Entry):
        return read.envelope.table, read.envelope.branch
    return read.table, read.branch


def _by_folder(locations: Iterable[Location]) -> dict[Location, list[Location]]:
    """Returns the locations in buckets by their folder, for folders with enough of them to list it."""
    folders: defaultdict[Location, list[Location]] = defaultdict(list)
    for location in locations:
        if location.scheme != FILE and not location.external and location.segments:
            folders[_above(location)].append(location)
    return {folder: inside for folder, inside in folders.items() if len(inside) >= WORTH_LISTING}


def _above(location: Location) -> Location:
    return replace(location, segments=location.segments[:-1])


def _entries(reads: Iterable[Decoded]) -> list[Entry]:
    return [read for read in reads if isinstance(read, Entry)]


def _root(entry: Entry) -> str:
    return root_of(entry.envelope.table, entry.envelope.branch)


def _is_nothing(path: str) -> bool:
    """Returns whether the path doesn't exist. Returns False if that can't be checked."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return False

"""Which of many names are no tables: found out together, and refused together.

Anybody may send proposals for any number of names. To open a table takes several requests and two tasks, also
if nothing is there. So names that no table is open under are looked at many at a time: on a local disk with
one system call for each, in a bucket with one listing for all that lie in the same folder. A name under which
nothing lies at all is no table, and what was proposed for it is refused at once. Every other name, and every
proposal that may begin a table, is left to the line that opens it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from lakefold_committer.fold.fold import Folded, Table, Terms, fold
from lakefold_committer.loop.unopened_tables import bucket_of
from lakefold_committer.tables.branches import line_of
from lakefold_table.branch_names import root_of
from lakefold_table.entry import Entry, Undecodable
from lakefold_table.errors import LakefoldError
from lakefold_table.format import Fetched
from lakefold_table.roots import folder_and_name
from lakefold_table.storage import open_canonical
from lakefold_table.storage.base import ListsSomeFolders, RecordsElsewhere
from lakefold_table.uri import FILE, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from lakefold_committer.recovery.recovery_context import ReportedVersions
    from lakefold_log.codec.envelope import Decoded, UnknownKind
    from lakefold_table.entry import Invalid, Outcome
    from lakefold_table.formats import Formats
    from lakefold_table.storage.base import Storage

WORTH_LISTING: Final = 4
"""So many names in one folder of a bucket are looked at by listing it."""
MOST_LISTED: Final = 10_000
"""A folder of a bucket that holds more is not listed: its names are looked at one by one."""
_TERMS: Final = Terms(epoch=0)


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at the names of some messages found.

    `refused`: the outcomes of those whose name is no table, by offset. `there`: the hashes (`bucket_of`) of
    names in the same folders that something lies under; their messages needn't wait behind the others.
    """

    refused: Mapping[int, Outcome] = field(default_factory=dict)
    there: Collection[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Folder:
    """What a folder of a bucket held when it was listed last: names, and the hashes of their places."""

    names: frozenset[str]
    buckets: frozenset[int]


class Survey:
    """Looks at names for one partition. `look` is for one thread at a time, `seems_there` for any.

    `refusal`: why a table may not be folded into, by URI. `witness`: what was reported of tables that are
    gone (None: nothing was).
    """

    def __init__(
        self,
        formats: Formats,
        refusal: Callable[[str], Invalid | None],
        witness: ReportedVersions | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        store: Callable[[str], Storage] | None = None,
    ) -> None:
        self._formats = formats
        self._refusal = refusal
        self._witness = witness
        self._store = store or partial(open_canonical, storage_options=storage_options)
        self._listed: dict[Place, _Folder] = {}

    def seems_there(self, place: Place) -> bool:
        """Whether something lies at a place, as far as that is known without a request over a network.

        Nothing is decided by it but who is looked at first.
        """
        if place.scheme == FILE:
            return os.path.lexists(f"/{place.path}")
        folder = self._listed.get(_above(place))
        return folder is not None and bool(place.segments) and place.segments[-1] in folder.names

    def look(self, reads: Sequence[Decoded]) -> Looked:
        """Looks at the names of these messages, each name once.

        Raises nothing if a store can't be reached: nothing is known of its names then, and opening them says
        why.
        """
        entries = {place: found for place, found in _by_place(reads).items() if self._may_refuse(found)}
        absent, self._listed = self._absent(entries)
        refused = (outcome for place in absent for outcome in self._refused(_entries(entries[place])))
        there = frozenset[int]().union(*(folder.buckets for folder in self._listed.values()))
        return Looked({one.position.offset: one for one in refused}, there)

    def _may_refuse(self, reads: Sequence[Decoded]) -> bool:
        """Whether nothing of this may begin a table, or has to be brought before it can be judged."""
        entries = _entries(reads)
        return len(entries) == len(reads) and not any(
            one.begins_table or one.is_claim or self._refusal(one.envelope.table) for one in entries
        )

    def _absent(
        self, places: Mapping[Place, Sequence[Decoded]]
    ) -> tuple[Sequence[Place], dict[Place, _Folder]]:
        """The places at which nothing lies at all, and the folders that were listed to find that out."""
        absent = [one for one in places if one.scheme == FILE and _is_nothing(f"/{one.path}")]
        listed: dict[Place, _Folder] = {}
        for folder, inside in _by_folder(places).items():
            one = _entries(places[inside[0]])[0]
            found = self._listing(folder, folder_and_name(_root(one))[0])
            if found is not None:
                listed[folder] = found
                absent += [place for place in inside if place.segments[-1] not in found.names]
        return absent, listed

    def _listing(self, folder: Place, uri: str) -> _Folder | None:
        """What lies in a folder of a bucket. Returns None if that can't be found out in a few requests."""
        try:
            storage = self._store(uri)
            if not isinstance(storage, ListsSomeFolders) or isinstance(storage, RecordsElsewhere):
                return None
            found = storage.some_folders("", MOST_LISTED)
        except LakefoldError:
            return None
        if found is None:
            return None
        names, before = frozenset(found), self._listed.get(folder)
        if before is not None and before.names == names:
            return before
        places = (replace(folder, segments=(*folder.segments, name)) for name in names)
        return _Folder(names, frozenset(map(bucket_of, places)))

    def _refused(self, entries: Sequence[Entry]) -> Sequence[Outcome]:
        """The outcomes of one name's entries if there is no table; none of them if there was a table once."""
        roots = {_root(one) for one in entries}
        try:
            if self._witness is not None and any(map(self._witness.last_committed, roots)):
                return ()
        except LakefoldError:
            return ()
        folded = [
            fold(self._formats.of_entry(one), Table(_root(one)), [one], Fetched(), _TERMS) for one in entries
        ]
        return [outcome for one in folded if one.publication is None for outcome in one.outcomes]

    def _folded(self, entry: Entry) -> Folded:
        table_format = self._formats.of_entry(entry)
        return fold(table_format, Table(_root(entry)), [entry], Fetched(), _TERMS)


def _by_place(reads: Iterable[Decoded]) -> dict[Place, list[Decoded]]:
    """The messages that name a table, by the place of its line: one place may be spelled in two ways."""
    found: defaultdict[Place, list[Decoded]] = defaultdict(list)
    for read in reads:
        if isinstance(read, Undecodable):
            continue
        place = line_of(*_address(read))
        if isinstance(place, Place):
            found[place].append(read)
    return found


def _address(read: Entry | UnknownKind) -> tuple[str, str]:
    if isinstance(read, Entry):
        return read.envelope.table, read.envelope.branch
    return read.table, read.branch


def _by_folder(places: Iterable[Place]) -> dict[Place, list[Place]]:
    """The places in buckets by the folder that they lie in, if there are enough of them to list it."""
    found: defaultdict[Place, list[Place]] = defaultdict(list)
    for place in places:
        if place.scheme != FILE and not place.external and place.segments:
            found[_above(place)].append(place)
    return {folder: inside for folder, inside in found.items() if len(inside) >= WORTH_LISTING}


def _above(place: Place) -> Place:
    return replace(place, segments=place.segments[:-1])


def _entries(reads: Iterable[Decoded]) -> list[Entry]:
    return [one for one in reads if isinstance(one, Entry)]


def _root(entry: Entry) -> str:
    return root_of(entry.envelope.table, entry.envelope.branch)


def _is_nothing(path: str) -> bool:
    """Whether nothing lies there. Of what can't be looked at nothing is known."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return False

"""Brings the files that the fold asks for: sizes, contents, older versions, versions of other tables.

What isn't there is an observation, not an error: the fold decides what it means for an entry. Only a store
that can't be reached raises.
"""

from __future__ import annotations

from array import array
from enum import Enum
from typing import TYPE_CHECKING, Final

from lakefold_committer.recovery.stored_versions import read_state
from lakefold_table.errors import DamagedError, InvalidError, NotATableError, PlaceError, VersionExpiredError
from lakefold_table.roots import folder_and_name
from lakefold_table.storage import open_canonical, open_storage
from lakefold_table.storage.base import SyncsOthers
from lakefold_table.uri import canonical, is_under
from lakefold_table.versions.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakefold_table.format import AnyFormat, NewFile, State, Tail
    from lakefold_table.position import Position
    from lakefold_table.storage.base import Storage
UP: Final = ".."


class Look(Enum):
    """At which files of proposals a look is taken for their sizes.

    `UNSAID`: at those whose sizes nobody says, since the table takes them from the store; not at those that
    are listed in portions, which are too many to ask a far store for, and readers do without. `NONE`: at no
    file, for who knows from elsewhere what was found.
    """

    ALL = "all"
    UNSAID = "unsaid"
    NONE = "none"


class Prefetcher:
    """What may be read for one table: its own files, and those of tables under `roots` (None: anywhere).

    `options`: how other tables are reached, as pylance's storage options.
    """

    def __init__(
        self,
        table_format: AnyFormat,
        versions: Versions,
        roots: Sequence[str] | None = None,
        *,
        look: Look = Look.ALL,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._format = table_format
        self._versions = versions
        self._roots = roots
        self._look = look
        self._options = options
        self._unwritten: dict[str, bytes] = {}
        self._syncs = versions.storage if isinstance(versions.storage, SyncsOthers) else None

    def sync(self, paths: Collection[str]) -> None:
        """Makes files of the table durable that proposals name, as far as they are there.

        Writers on a local disk may leave them to the system, and a power cut would take them from a version
        that was told as Committed. Raises `RetryError` if the disk fails.
        """
        if self._syncs is not None:
            self._syncs.sync_others([path for path in paths if path not in self._unwritten])

    def remember(self, files: Iterable[NewFile]) -> None:
        """Takes files for written that are still to be: those of versions that were folded in memory."""
        self._unwritten.update((file.path, file.data) for file in files)

    def forget(self, files: Iterable[NewFile]) -> None:
        """They are written by now."""
        for file in files:
            self._unwritten.pop(file.path, None)

    def forget_all(self) -> None:
        """None of them will be written, unless another version needs it."""
        self._unwritten.clear()

    def sizes(self, paths: Collection[str], unsaid: Collection[str] = ()) -> Mapping[str, int | None]:
        """The size of each file; one whose path the store refuses counts as missing.

        Such a path is too long, or a link in it leaves the root: what a message names may not stop a
        committer. `unsaid`: those of the paths whose sizes nobody said.
        """
        if self._look is not Look.ALL:
            paths = unsaid if self._look is Look.UNSAID else ()
        if not paths:
            return {}
        storage = self._versions.storage
        try:
            return storage.sizes(paths)
        except PlaceError:
            return {path: _size(storage, path) for path in paths}

    def listed(self, wanted: Mapping[Position, Iterable[Sequence[str]]]) -> Mapping[Position, array[int]]:
        """The sizes of files that are listed in portions, in their order; -1 where one is not there."""
        if self._look is not Look.ALL:
            return {}
        found: dict[Position, array[int]] = {}
        for position, portions in wanted.items():
            found[position] = sizes = array("q")
            for paths in portions:
                there = self.sizes(paths)
                # They are read only once, and too many to be kept until the version is put.
                self.sync([path for path, size in there.items() if size is not None])
                sizes.extend(-1 if size is None else size for size in map(there.__getitem__, paths))
        return found

    def folders(self, wanted: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """The sizes of the files in each folder, by name; nothing in one that the store refuses."""
        return {} if self._look is Look.NONE else {folder: self._listing(folder) for folder in wanted}

    def tails(self, wanted: Mapping[str, int]) -> Mapping[str, Tail | None]:
        """The end of each file, None where it isn't there."""
        if self._look is Look.NONE:
            return {}
        return {path: self._tail(path, most) for path, most in wanted.items()}

    def contents(self, wanted: Mapping[str, int]) -> Mapping[str, bytes | None]:
        """The bytes of each file, None where it isn't there or has more bytes than are wanted of it."""
        return {path: self._content(path, most) for path, most in wanted.items()}

    def schemas(self, numbers: Collection[int]) -> Mapping[int, object]:
        """The schema of each older version, None where it is gone or damaged."""
        states = {number: self._state(self._versions, number) for number in numbers}
        return {number: None if state is None else state.schema for number, state in states.items()}

    def states(self, wanted: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], object]:
        """Whole versions of this table or of others; None where one is gone, damaged or not to be read."""
        found: dict[tuple[str, int], object] = {}
        for root, number in wanted:
            versions = self._versions if not root else self._elsewhere(root)
            found[root, number] = None if versions is None else self._state(versions, number)
        return found

    def outside(self, bases: Collection[str]) -> Collection[str]:
        """Those of the bases that do not lie under the roots.

        Nothing is read or written there, but whoever reads the table will. What has a `..` lies outside, and
        so does what a symbolic link leads to there. Plain paths are taken as they are, as pylance does
        (decision 0032).
        """
        return frozenset(base for base in bases if not self._may_hold(base))

    def neighbours(self, wanted: Collection[str]) -> Collection[str]:
        """Those of the roots at which tables lie, among what lies below `roots`.

        On object stores, a request each. Where the store refuses for good, no committer with these rights
        folds a table. Raises `RetryError` if the store can't be reached.
        """
        if self._look is Look.NONE:
            return frozenset()
        return frozenset(root for root in wanted if self._holds_table(root))

    def _holds_table(self, root: str) -> bool:
        if self._roots is not None and not is_under(root, self._roots):
            return False
        try:
            storage = open_canonical(root, self._options)
            return Versions(storage, self._format.folder, self._format.detect).has_any()
        except InvalidError:
            return False

    def _may_hold(self, base: str) -> bool:
        if self._roots is None:
            return True
        if UP in base.split("/"):
            # Whoever looks at links first comes to another place than who doesn't.
            return False
        try:
            return is_under(canonical(base), self._roots)
        except InvalidError:
            return False

    def _state(self, versions: Versions, number: int) -> State | None:
        try:
            return read_state(self._format, versions, number)
        except (VersionExpiredError, DamagedError, NotATableError, InvalidError):
            return None

    def _content(self, path: str, most: int) -> bytes | None:
        unwritten = self._unwritten.get(path)
        if unwritten is not None:
            return unwritten
        storage: Storage | None = self._versions.storage
        if "://" in path or path.startswith("/"):
            root, path = folder_and_name(path)
            storage = self._storage(root)
        try:
            size = None if storage is None else storage.size(path)
            return None if storage is None or size is None or size > most else storage.get(path)
        except (PlaceError, FileNotFoundError):
            return None

    def _listing(self, folder: str) -> Mapping[str, int]:
        try:
            return {one.path.rpartition("/")[2]: one.size for one in self._versions.storage.list(folder)}
        except PlaceError:
            return {}

    def _tail(self, path: str, most: int) -> Tail | None:
        try:
            return self._versions.storage.get_tail(path, most)
        except (PlaceError, FileNotFoundError):
            return None

    def _elsewhere(self, root: str) -> Versions | None:
        storage = self._storage(root)
        return None if storage is None else Versions(storage, self._format.folder, self._format.detect)

    def _storage(self, root: str) -> Storage | None:
        try:
            storage = open_storage(root, self._options)
        except InvalidError:
            return None
        return storage if self._roots is None or is_under(storage.uri, self._roots) else None


def _size(storage: Storage, path: str) -> int | None:
    try:
        return storage.size(path)
    except PlaceError:
        return None

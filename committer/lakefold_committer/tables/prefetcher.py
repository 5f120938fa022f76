"""Fetches what the fold needs: sizes and contents of files, older versions, versions of other tables.

A file that doesn't exist is a result, not an error: the fold decides what it means for an entry. Only a store
that can't be reached raises.
"""

from __future__ import annotations

import time
from array import array
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Final

from lakefold_committer.fold.tagging import name_fault, target_of
from lakefold_committer.recovery.recover_marks import recover_marks
from lakefold_committer.tables.previews import NOTHING, Previews
from lakefold_table.branch_names import MAIN, main_of, root_of
from lakefold_table.errors import (
    DamagedError,
    InvalidError,
    LocationError,
    NotATableError,
    StopError,
    VersionExpiredError,
)
from lakefold_table.roots import below, folder_and_name
from lakefold_table.storage import open_storage
from lakefold_table.tag_proposal import NO_TAGS, KnownTags, TagTarget
from lakefold_table.uri import canonical, is_under
from lakefold_table.version_mark import mark_of, mark_of_head
from lakefold_table.versions.refs import Refs, UnknownRefError
from lakefold_table.versions.version_removals import VersionRemovals

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakefold_committer.fold.fold import Folded
    from lakefold_protos.lakefold.log_pb2 import Tag
    from lakefold_table.format import AnyFormat, State, Tail
    from lakefold_table.marks.marks import Marks
    from lakefold_table.position import Position
    from lakefold_table.storage.base import Storage
    from lakefold_table.tag_proposal import TagChange
    from lakefold_table.versions.stored_table import StoredTable

UP: Final = ".."


class SizeCheck(Enum):
    """The files of proposals whose sizes are checked.

    `UNKNOWN`: those whose sizes the proposal doesn't contain, since the table takes them from the store.
    Files that are listed in portions are not among them: they are too many for a remote store, and readers
    don't need their sizes. `NONE`: no file, because what was fetched is already known.
    """

    ALL = "all"
    UNKNOWN = "unknown"
    NONE = "none"


class Prefetcher:
    """Reads what a fold needs: files of the table, and files of tables below `roots` (None: of any table).

    `previews`: what counts as stored.
    """

    def __init__(
        self,
        stored: StoredTable,
        roots: Sequence[str] | None = None,
        *,
        size_check: SizeCheck = SizeCheck.ALL,
        formats: Iterable[AnyFormat] | None = None,
        previews: Previews = NOTHING,
    ) -> None:
        self._stored = stored
        self._formats = (stored.format,) if formats is None else tuple(formats)
        self._roots = roots
        self._size_check = size_check
        self._unwritten: dict[str, bytes] = {}
        self._unpublished: set[int] = set()
        self._tags: dict[str, TagChange] = {}
        self._previews = previews

    def sync(self, paths: Collection[str]) -> None:
        """Makes the files of the table that proposals name durable, as far as they exist.

        Writers on a local disk may leave them to the operating system, and a power cut would lose the files
        of a version that was reported as Committed. Raises `RetryError` if the disk fails.
        """
        self._stored.storage.sync_others([path for path in paths if path not in self._unwritten])

    def remember(self, folded: Folded) -> None:
        """Adds what was folded in memory: its version, files and tags count as written, before they are."""
        if folded.publication is not None:
            self._unpublished.add(folded.publication.version)
            self._unwritten.update((file.path, file.data) for file in folded.publication.before)
        self._tags.update((tag.name, tag) for tag in folded.tags)

    def forget(self, folded: Folded) -> None:
        """Removes what was written meanwhile."""
        if folded.publication is not None:
            self._unpublished.discard(folded.publication.version)
            for file in folded.publication.before:
                self._unwritten.pop(file.path, None)
        for tag in folded.tags:
            # A later group may have changed it again, which is not written yet.
            if self._tags.get(tag.name) is tag:
                del self._tags[tag.name]

    def forget_all(self) -> None:
        """Removes all that was to be written, since it won't be."""
        self._unwritten.clear()
        self._unpublished.clear()
        self._tags.clear()

    def sizes(self, paths: Collection[str], unknown_sizes: Collection[str] = ()) -> Mapping[str, int | None]:
        """Returns the size of each file, None if it is missing or the store refuses its path.

        The store refuses a path that is too long, or in which a link leads out of the root. No path in a
        message may stop a committer. `unknown_sizes`: the paths whose sizes the proposal doesn't contain.
        """
        if self._size_check is not SizeCheck.ALL:
            paths = unknown_sizes if self._size_check is SizeCheck.UNKNOWN else ()
        if not paths:
            return {}
        return stored_sizes(self._stored.storage, paths)

    def restored(self, files: Mapping[str, int]) -> Mapping[str, int | None]:
        """Returns the sizes of files that come back, each with its version, None if it is gone.

        It counts as gone if a clean-up removes its version or a later one.
        """
        if not files or self._size_check is SizeCheck.NONE:
            return {}
        going = max(VersionRemovals(self._stored.storage).begun(""), default=-1)
        sizes = stored_sizes(self._stored.storage, files)
        return {path: sizes[path] if version > going else None for path, version in files.items()}

    def listed(self, portions: Mapping[Position, Iterable[Sequence[str]]]) -> Mapping[Position, array[int]]:
        """Returns the sizes of files that are listed in portions, in their order, -1 if one doesn't exist."""
        if self._size_check is not SizeCheck.ALL:
            return {}
        sizes: dict[Position, array[int]] = {}
        for position, lists in portions.items():
            sizes[position] = array("q")
            for paths in lists:
                by_path = self.sizes(paths)
                # They are read only once, and too many to be kept until the version is put.
                self.sync([path for path, size in by_path.items() if size is not None])
                listed = map(by_path.__getitem__, paths)
                sizes[position].extend(-1 if size is None else size for size in listed)
        return sizes

    def folders(self, paths: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """Returns the sizes of the files in each folder, by name; nothing if the store refuses the folder."""
        return (
            {} if self._size_check is SizeCheck.NONE else {folder: self._listing(folder) for folder in paths}
        )

    def tails(self, lengths: Mapping[str, int]) -> Mapping[str, Tail | None]:
        """Returns the end of each file, None if it doesn't exist."""
        if self._size_check is SizeCheck.NONE:
            return {}
        return {path: self._tail(path, most) for path, most in lengths.items()}

    def contents(self, limits: Mapping[str, int]) -> Mapping[str, bytes | None]:
        """Returns the bytes of each file. None: it doesn't exist, or is larger than its limit."""
        together: Mapping[str, bytes | None] = {}
        own = {path: most for path, most in limits.items() if self._is_own(path)}
        # If the store refuses one of the paths, each is read by itself.
        with suppress(InvalidError):
            together = self._stored.storage.get_together(own)
        return {
            path: together[path] if path in together else self._content(path, most)
            for path, most in limits.items()
        }

    def schemas(self, numbers: Collection[int]) -> Mapping[int, object]:
        """Returns the schema of each older version, None if it is gone or damaged."""
        states = {number: self._state(self._stored, number) for number in numbers}
        return {number: None if state is None else state.schema for number, state in states.items()}

    def states(self, numbers: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], State | None]:
        """Returns versions of this table or of others, None if one is gone, damaged or may not be read."""
        states: dict[tuple[str, int], State | None] = {}
        for root, number in numbers:
            stored = self._stored if not root else self._other(root)
            state = None if stored is None else self._state(stored, number)
            expires = stored is not None and state is not None and self._expires(stored, state)
            states[root, number] = None if expires else state
        return states

    def _expires(self, stored: StoredTable, state: State) -> bool:
        """Returns whether a clean-up removes a version."""
        if stored.format.refs is None or self._size_check is SizeCheck.NONE:
            return False
        main = main_of(stored.uri, state.branch)
        storage = stored.storage if main == stored.uri else self._storage(main)
        return storage is not None and state.version in VersionRemovals(storage).begun(state.branch)

    def deleted(self, states: Mapping[tuple[str, int], State | None]) -> Mapping[str, Position]:
        """Returns those roots of others' `states` at which a branch was deleted, and by which entry."""
        if self._size_check is SizeCheck.NONE:
            return {}
        roots = [root for (root, _), state in states.items() if root and state is not None and state.branch]
        return self._deleted({root: root for root in roots})

    @property
    def is_stored(self) -> bool:
        """Whether a version of the table is stored: not if a dry run has created it."""
        first = self._stored.versions.first
        return self._previews.stored(self._stored.uri, first) >= first

    def outside(self, bases: Collection[str]) -> Collection[str]:
        """Returns the bases that are not below the roots.

        The committer reads and writes nothing in a base, but readers of the table do. A path with `..` counts
        as outside, and so does a path that a symbolic link leads out of the roots. Plain paths are taken as
        they are, as pylance does (decision 0032).
        """
        return frozenset(base for base in bases if not self._may_hold(base))

    def neighbours(self, paths: Collection[str]) -> Collection[str]:
        """Returns the paths at which tables are stored, among those below `roots`.

        On object stores each takes a request for each format. If the store refuses a request for good, no
        committer with these rights folds a table there. Raises `RetryError` if the store can't be reached.
        """
        if self._size_check is SizeCheck.NONE:
            return frozenset()
        return frozenset(path for path in paths if self._holds_table(path))

    def times(self, paths: Collection[str]) -> Mapping[str, int]:
        """Returns when each file was stored, in microseconds since 1970.

        It is now if the store doesn't say it, or a version that was folded in memory isn't written yet.
        """
        if self._size_check is SizeCheck.NONE:
            return {}
        stored_at = self._stored.storage.stored_at
        now = time.time_ns() // 1000
        return {path: stored_at(path) or now for path in paths}

    def tags(self, proposed: Sequence[Tag]) -> KnownTags:
        """Returns the tags and versions that these proposals name, as far as they exist."""
        files = self._stored.format.refs
        if not proposed or files is None or self._size_check is SizeCheck.NONE:
            return NO_TAGS
        refs = Refs(self._stored.storage)
        sound = [tag for tag in proposed if name_fault(files, tag) is None]
        targets = {target_of(tag) for tag in sound if not tag.delete}
        named: dict[str, TagTarget | None] = {}
        for name in {tag.name for tag in sound}:
            # If the store refuses the path for good, that is the answer: no message may stop a committer.
            with suppress(LocationError):
                named[name] = self._tag(refs, name)
        main = self._stored.uri
        removals = VersionRemovals(self._stored.storage)
        begun = {branch: removals.begun(branch) for branch in {target.branch for target in targets}}
        versions = {
            target: self._mark(main, target)
            for target in targets
            if target.version not in begun[target.branch] and self._has_version(refs, target)
        }
        branches = {target.branch: root_of(main, target.branch) for target in versions if target.branch}
        return KnownTags(named, versions, self._deleted(branches))

    def needed_by(self, branch: str) -> Sequence[str] | None:
        """Returns the tags and branches that need a branch, None if they can't be read.

        `branch`: the one whose versions are folded.
        """
        if self._size_check is SizeCheck.NONE:
            return ()
        uri = self._stored.uri
        main = main_of(uri, branch)
        storage = None if main == uri else self._storage(main)
        try:
            return None if storage is None else Refs(storage).needing(branch, self._previews.refs(main))
        except (DamagedError, LocationError):
            return None

    def _deleted(self, roots: Mapping[str, str]) -> dict[str, Position]:
        """Returns the positions of the entries that deleted branches, by the keys of the branches' `roots`.

        A branch that can't be read was not deleted: it must stop no other table.
        """
        deleted: dict[str, Position] = {}
        for key, root in roots.items():
            with suppress(DamagedError, InvalidError, NotATableError, StopError):
                stored = self._other(root)
                marks = None if stored is None else self._newest_marks(stored)
                if marks is not None and marks.deleted_by is not None:
                    deleted[key] = marks.deleted_by
        return deleted

    def _newest_marks(self, stored: StoredTable) -> Marks | None:
        unwritten = self._previews.marks(stored.uri)
        newest = self._state(stored, stored.versions.latest()) if unwritten is None else None
        if newest is None:
            return unwritten
        # A version of another client may carry the marks of the branch that it cloned.
        return recover_marks(stored, newest).marks

    def _tag(self, refs: Refs, name: str) -> TagTarget | None:
        unwritten = self._tags.get(name)
        if unwritten is not None:
            return unwritten.target
        try:
            tag = refs.tag(name)
        except DamagedError:
            return TagTarget("", 0)
        except UnknownRefError:
            return None
        return TagTarget.of(tag.branch, tag.version)

    def _has_version(self, refs: Refs, target: TagTarget) -> bool:
        if not target.branch and target.version in self._unpublished:
            return True
        if self._previews.state(root_of(self._stored.uri, target.branch), target.version):
            return True
        try:
            return refs.has_version(target.version, target.branch or MAIN)
        except LocationError:
            return False
        except DamagedError:
            # A branch that can't be read must not stop the main branch.
            if target.branch:
                return False
            raise

    def _holds_table(self, root: str) -> bool:
        if self._roots is not None and not is_under(root, self._roots):
            return False
        try:
            other = self._stored.at(root)
            return any(other.in_format(each).versions.has_any() for each in self._formats)
        except InvalidError:
            return False

    def _mark(self, main: str, target: TagTarget) -> str:
        """Returns the mark of a version that exists, "" if it can't be read."""
        unwritten = self._previews.state(root_of(main, target.branch), target.version)
        if unwritten is not None:
            return mark_of(unwritten)
        try:
            stored = self._other(root_of(main, target.branch)) if target.branch else self._stored
            if stored is None:
                return ""
            head = stored.own_head(target.version)
            if head is not None:
                return mark_of_head(head)
            return mark_of(stored.read_summary(target.version))
        except (VersionExpiredError, DamagedError, NotATableError, InvalidError):
            return ""

    def _may_hold(self, base: str) -> bool:
        if self._roots is None:
            return True
        if UP in base.split("/"):
            # Readers that resolve links first get another path than those that don't.
            return False
        try:
            return is_under(canonical(base), self._roots)
        except InvalidError:
            return False

    def _state(self, stored: StoredTable, number: int) -> State | None:
        unwritten = self._previews.state(stored.uri, number)
        try:
            return unwritten or stored.read_state(number)
        except (VersionExpiredError, DamagedError, NotATableError, InvalidError):
            return None

    def _is_own(self, path: str) -> bool:
        """Returns whether this is the path of a file in the table that is in its store."""
        return path not in self._unwritten and "://" not in path and not path.startswith("/")

    def _content(self, path: str, most: int) -> bytes | None:
        unwritten = self._unwritten.get(path)
        if unwritten is not None:
            return unwritten
        storage: Storage | None = self._stored.storage
        if "://" in path or path.startswith("/"):
            root, path = folder_and_name(path)
            storage = self._storage(root)
            unwritten = None if storage is None else self._previews.file(below(storage.uri, path))
            if unwritten is not None:
                return unwritten
        try:
            return None if storage is None else storage.get_together({path: most})[path]
        except LocationError:
            return None

    def _listing(self, folder: str) -> Mapping[str, int]:
        try:
            listing = self._stored.storage.list(folder)
            return {file.path.rpartition("/")[2]: file.size for file in listing}
        except LocationError:
            return {}

    def _tail(self, path: str, most: int) -> Tail | None:
        try:
            return self._stored.storage.get_tail(path, most)
        except (LocationError, FileNotFoundError):
            return None

    def _other(self, root: str) -> StoredTable | None:
        storage, own = self._storage(root), self._stored
        return None if storage is None else own.on(storage, own.format, own.options)

    def _storage(self, root: str) -> Storage | None:
        try:
            storage = open_storage(root, self._stored.options)
        except InvalidError:
            return None
        return storage if self._roots is None or is_under(storage.uri, self._roots) else None


def stored_sizes(storage: Storage, paths: Collection[str]) -> Mapping[str, int | None]:
    """Returns the size of each file, None if it is missing or the store refuses its path."""
    try:
        return storage.sizes(paths)
    except LocationError:
        return {path: _size(storage, path) for path in paths}


def _size(storage: Storage, path: str) -> int | None:
    try:
        return storage.size(path)
    except LocationError:
        return None

"""Tags and branches of a table on its store: list and resolve them; create, move and remove tags.

All their files are below the root of the main branch. Moving a tag replaces its file: if two clients do it at
the same time, the later write counts, as with every Lance client. Creating a ref is a conditional put.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeVar

from lakefold_table.branch_names import MAIN, TREE, branch_root, check_branch_name
from lakefold_table.errors import (
    DamagedError,
    InvalidError,
    NotPublishedYetError,
    RetryError,
    VersionExpiredError,
)
from lakefold_table.formats import BUILT_IN
from lakefold_table.ref_files import Branch, Tag
from lakefold_table.roots import below
from lakefold_table.storage.base import DoubtfulPutError, Put, Storage
from lakefold_table.whole_numbers import version_number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from lakefold_table.version_names import Naming

__all__ = ["Branch", "RefChanges", "RefTarget", "Refs", "Tag", "UnknownRefError"]

T = TypeVar("T")
MANIFESTS: Final = BUILT_IN.manifests
REFS: Final = BUILT_IN.refs
DATA = "data"
ID_DIGITS = 32
"""The length of a fork's id in a branch's lineage."""


class UnknownRefError(InvalidError):
    """The table has no tag, or no branch, of this name.

    try:
        lakefold.open("s3://lake/flights.lance", tag="release-3")
    except lakefold.UnknownRefError as error:
        print(error.hint)
    """


@dataclass(frozen=True, slots=True)
class RefTarget:
    """What a name refers to: a version, and the folder of its table relative to the root of the main branch.

    The folder is empty for the main branch itself.
    """

    folder: str
    version: int


@dataclass(frozen=True, slots=True)
class RefChanges:
    """Changes of tags and branches that are not written, by their names.

    `tags`: the branch whose version a tag names, empty for the main branch and if the tag is removed.
    `branches`: the branch that a new one was made from, empty for the main branch.
    """

    tags: dict[str, str] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)


class Refs:
    """The tags and branches of a table. The root of its main branch is the store's root.

    `now_ns` returns the time for new tags, in nanoseconds since 1970.
    """

    def __init__(self, storage: Storage, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._storage = storage
        self._now_ns = now_ns
        self._namings: dict[str, Naming] = {}

    def tags(self) -> dict[str, Tag]:
        """Returns all tags by name. Raises `DamagedError` if a tag can't be read."""
        return self._all(REFS.tags, REFS.tag_path, REFS.decode_tag)

    def branches(self) -> dict[str, Branch]:
        """Returns all branches by name, without the main branch.

        Raises `DamagedError` if a branch can't be read.
        """
        return self._all(REFS.branches, REFS.branch_path, REFS.decode_branch)

    def tag(self, name: str) -> Tag:
        """Returns a tag.

        Raises `UnknownRefError` if it doesn't exist, `InvalidError` for an impossible name.
        """
        REFS.check_tag_name(name)
        path = REFS.tag_path(name)
        return REFS.decode_tag(self._file(path, "tag", name), self._where(path))

    def branch(self, name: str) -> Branch:
        """Returns what a branch's file says. Raises as `tag` does."""
        check_branch_name(name)
        path = REFS.branch_path(name)
        return REFS.decode_branch(self._file(path, "branch", name), self._where(path))

    def resolve_tag(self, name: str) -> RefTarget:
        """Returns the version that a tag names; it may no longer exist. Raises as `tag` does."""
        tag = self.tag(name)
        if tag.branch is not None and tag.branch != MAIN:
            check_branch_name(tag.branch)
        return RefTarget(branch_root(tag.branch), tag.version)

    def resolve_branch(self, name: str) -> str:
        """Returns the folder of a branch's table, relative to the main branch's root; "" for `main`.

        Raises `UnknownRefError` if the branch has no version. Its own file isn't read: a Lance client opens a
        branch that has none.
        """
        if name == MAIN:
            return ""
        check_branch_name(name)
        folder = branch_root(name)
        if not self._numbers(f"{folder}/")[1]:
            raise self._unknown("branch", name)
        return folder

    def unrecorded(self) -> dict[str, Branch | None]:
        """Returns the branches without a file, as their first versions describe them (None if they don't).

        The client that made such a branch died before it wrote the file, or the file alone was removed. Lists
        the folders of `tree/` in turn, and reads a version of each such branch.
        """
        branches: dict[str, Branch | None] = {}
        recorded, waiting = self.branches(), [TREE]
        while waiting:
            folder = waiting.pop()
            inside = self._storage.folders(folder)
            name, is_table = folder.removeprefix(TREE).lstrip("/"), MANIFESTS.folder in inside
            waiting += [
                f"{folder}/{name}" for name in inside if not (is_table and (name[0] == "_" or name == DATA))
            ]
            if is_table and name not in recorded and self._numbers(f"{folder}/")[1]:
                branches[name] = self._described(f"{folder}/", name)
        return branches

    def record_branch(self, name: str) -> bool:
        """Writes the file that describes a branch, if it is missing, from the branch's first version.

        Returns whether the branch has a file now: False if that version is gone, or is not a clone. A branch
        exists without a file, but a Lance client lists only branches with one, and cleans up files that only
        other branches use. Every client writes the same file for the same branch.
        """
        folder = self.resolve_branch(name)
        path = REFS.branch_path(name)
        if self._storage.size(path) is not None:
            return True
        branch = self._described(f"{folder}/", name)
        if branch is not None:
            self._put_new(path, REFS.encode_branch(branch))
        return branch is not None

    def needing(self, branch: str, unwritten: RefChanges | None = None) -> list[str]:
        """Returns the tags and branches because of which a branch can't be deleted, as texts for people.

        Those are the tags that name a version of it, and the branches that were made from it. `unwritten`:
        changes that count as written. Raises `DamagedError` if one of the other files can't be read.
        """
        changed = unwritten or RefChanges()
        stored_tags = self._all(REFS.tags, REFS.tag_path, REFS.decode_tag, but=changed.tags)
        tags = {**{name: tag.branch for name, tag in stored_tags.items()}, **changed.tags}
        parents = {name: each and each.parent for name, each in self.unrecorded().items()}
        recorded = {name: each.parent for name, each in self.branches().items()}
        parents |= sorted({**recorded, **changed.branches}.items())
        return [
            *(f"tag {name}" for name, named in sorted(tags.items()) if named == branch),
            *(f"branch {name}" for name, parent in parents.items() if parent == branch),
        ]

    def forget_branch(self, name: str) -> None:
        """Removes the file of a branch, so that it is no longer listed. Does nothing if it is missing."""
        check_branch_name(name)
        self._storage.delete(REFS.branch_path(name))

    def has_version(self, version: int, branch: str) -> bool:
        """Returns whether a branch exists and has this version. No name and number raises an error."""
        try:
            if branch != MAIN:
                check_branch_name(branch)
            version = version_number(version)
        except InvalidError:
            return False
        return self._stored_size(version, branch) is not None

    def newest(self, branch: str) -> int:
        """Returns the newest version of a branch, 0 if it has none. The branch is empty for the main one."""
        return max(self._numbers(_below(branch))[1], default=0)

    def set_tag(
        self,
        name: str,
        version: int,
        *,
        branch: str | None,
        at_ns: int,
        is_new: bool,
        is_late: Callable[[], bool],
    ) -> bool:
        """Makes a tag name this version, unless another client changes the tag meanwhile.

        The rest of the tag's file is kept, as far as it can be read. `at_ns`: the time of the change, in
        nanoseconds since 1970. `is_new`: a tag that exists and names another version is not changed. Returns
        False without a change in both cases, and if `is_late` returns True, which is called after the tag
        was read. Raises `VersionExpiredError` if the version doesn't exist, `RetryError` if something that is
        no file has the tag's path.
        """
        path, branch = REFS.tag_path(name), _branch_in_file(branch)
        size = self._size_of(version, branch)
        data, etag = self._stored(path)
        old = self._decoded_tag(path, data)
        is_same = old is not None and (old.version, _branch_in_file(old.branch)) == (version, branch)
        if is_new and data is not None and not is_same:
            return False
        old = old or Tag(version, branch, at_ns)
        moved = replace(old, version=version, branch=branch, manifest_size=size, updated_ns=at_ns)
        if is_late():
            return False
        if data is None:
            is_put = self._put_new(path, REFS.encode_tag(moved))
            if not is_put and self._stored(path)[0] is None:
                message = "the tag's file can't be created or read"
                hint = "remove what is stored at this path: it is no file, or it was removed just now"
                raise RetryError(message, where=self._where(path), hint=hint)
            return is_put
        return self._replace(path, etag, REFS.encode_tag(moved))

    def pin(
        self, name: str, version: int, *, branch: str | None, size: int, metadata: Mapping[str, str]
    ) -> None:
        """Makes a tag name this version, whether the tag existed or not, without listing anything.

        `size`: the bytes of the version's manifest, which the caller knows to exist. Raises `InvalidError`
        for a name that no new tag can have.
        """
        REFS.check_new_tag_name(name)
        now = self._now_ns()
        try:
            created = self.tag(name).created_ns
        except UnknownRefError:
            created = now
        tag = Tag(version, _branch_in_file(branch), created, now, size, dict(metadata))
        self._storage.put(REFS.tag_path(name), [REFS.encode_tag(tag)])

    def delete_tag(self, name: str) -> None:
        """Removes a tag, even if it can't be read. Raises `UnknownRefError` if it doesn't exist."""
        REFS.check_tag_name(name)
        self._file(REFS.tag_path(name), "tag", name)
        self._storage.delete(REFS.tag_path(name))

    def _all(
        self,
        folder: str,
        path_of: Callable[[str], str],
        decode: Callable[[bytes, str], T],
        *,
        but: Collection[str] = (),
    ) -> dict[str, T]:
        refs: dict[str, T] = {}
        for listed in self._storage.list(folder):
            name = REFS.ref_name(listed.path.rpartition("/")[2])
            if name is None or path_of(name) != listed.path or name in but:
                continue
            try:
                refs[name] = decode(self._storage.get(listed.path), self._where(listed.path))
            except FileNotFoundError:
                continue
        return dict(sorted(refs.items()))

    def _described(self, below: str, name: str) -> Branch | None:
        """Returns a branch as its first version describes it, or None."""
        naming, numbers = self._numbers(below)
        path = f"{below}{naming.path(min(numbers))}"
        origin = REFS.decode_origin(self._storage.get(path), self._where(path))
        if origin is None or origin.name != name:
            return None
        try:
            size = self._size_of(origin.version, origin.parent)
        except InvalidError:
            size = 0
        step = (origin.version, sha256(origin.uuid.encode()).hexdigest()[:ID_DIGITS])
        before = () if origin.parent is None else self._lineage(origin.parent)
        lineage = None if before is None else (*before, step)
        return Branch(origin.version, origin.parent, lineage, origin.created_s, size)

    def _lineage(self, name: str) -> tuple[tuple[int, str], ...] | None:
        try:
            return self.branch(name).lineage
        except (InvalidError, DamagedError):
            return None

    def _size_of(self, version: int, branch: str | None) -> int:
        """Returns the size of a version's manifest in bytes.

        Raises `VersionExpiredError` if it doesn't exist.
        """
        size = self._stored_size(version, branch)
        if size is None:
            self.resolve_branch(branch or MAIN)
            raise self._gone(version, branch, self._numbers(_below(branch))[1])
        return size

    def _stored_size(self, version: int, branch: str | None) -> int | None:
        """Returns the size of a version's manifest, None if it or the branch doesn't exist.

        Lists a branch's versions only once: there may be a hundred thousand of them, and as many tags. Raises
        `InvalidError` for an impossible name.
        """
        if branch and branch != MAIN:
            check_branch_name(branch)
        below = _below(branch)
        naming = self._namings.get(below)
        if naming is None:
            naming = self._namings[below] = self._numbers(below)[0]
        return self._storage.size(f"{below}{naming.path(version)}")

    def _numbers(self, below: str) -> tuple[Naming, list[int]]:
        """Returns how the versions of a branch are named, and their numbers. `below`: its folder."""
        names = self._storage.names(f"{below}{MANIFESTS.folder}")
        naming = REFS.naming(names)
        return naming, [number for number in map(naming.parse, names) if number is not None]

    def _gone(self, version: int, branch: str | None, numbers: Sequence[int]) -> VersionExpiredError:
        oldest, name = min(numbers, default=0), branch or MAIN
        if numbers and max(numbers) < version < MANIFESTS.first_detached:
            where = self._storage.uri
            return NotPublishedYetError(version, newest=max(numbers), oldest=oldest, where=where)
        what = "detached version" if version >= MANIFESTS.first_detached else "version"
        hint = f"versions {oldest} to {max(numbers)} may exist" if numbers else "it has no versions"
        return VersionExpiredError(
            f"{what} {version} of {name} does not exist", oldest=oldest, where=self._storage.uri, hint=hint
        )

    def _put_new(self, path: str, data: bytes) -> bool:
        """Returns whether the file is ours. If the answer was lost, it is read back."""
        try:
            return self._storage.put_if_absent(path, [data]) is Put.STORED
        except DoubtfulPutError:
            return self._read_back(path) == data

    def _stored(self, path: str) -> tuple[bytes | None, str]:
        """Returns a file, None if it doesn't exist, and its etag, which is empty if the store gives none."""
        try:
            return self._storage.get_with_etag(path)
        except FileNotFoundError:
            return None, ""

    def _decoded_tag(self, path: str, data: bytes | None) -> Tag | None:
        try:
            return None if data is None else REFS.decode_tag(data, self._where(path))
        except DamagedError:
            return None

    def _replace(self, path: str, etag: str, data: bytes) -> bool:
        """Replaces a file, if it still has this etag and the store supports such a condition."""
        if etag:
            try:
                return self._storage.replace(path, etag, [data])
            except DoubtfulPutError:
                return self._read_back(path) == data
            except InvalidError:
                # The server supports no such condition. If it allows no writes, the put raises it again.
                pass
        self._storage.put(path, [data])
        return True

    def _read_back(self, path: str) -> bytes:
        try:
            return self._storage.get(path)
        except FileNotFoundError as error:
            raise RetryError("the store lost the tag's file", where=self._where(path)) from error

    def _file(self, path: str, what: str, name: str) -> bytes:
        try:
            return self._storage.get(path)
        except FileNotFoundError as error:
            raise self._unknown(what, name) from error

    def _unknown(self, what: str, name: str) -> UnknownRefError:
        hint = "list the table's tags and branches: lakefold refs TABLE"
        return UnknownRefError(f"the {what} {name} does not exist", where=self._storage.uri, hint=hint)

    def _where(self, path: str) -> str:
        return below(self._storage.uri, path)


def _below(branch: str | None) -> str:
    """Returns how the paths of a branch's files begin; main may be empty or absent."""
    folder = branch_root(branch or MAIN)
    return f"{folder}/" if folder else ""


def _branch_in_file(branch: str | None) -> str | None:
    """Returns the branch as a tag's file names it: None for the main branch."""
    return None if branch == MAIN else branch

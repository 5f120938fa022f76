"""Tags and branches of a table on its store: list them, make, move and remove tags, find what one names.

All of them lie below the root of the main line, whichever branch they are about. Moving a tag replaces its
file: of two who do it at once the later one counts, as with every Lance client; making one is a conditional
put.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

from lakefold_table.branch_names import MAIN, TREE, branch_root, check_branch_name
from lakefold_table.errors import DamagedError, InvalidError, RetryError, VersionExpiredError
from lakefold_table.lance.manifests.codec import decode_head
from lakefold_table.lance.manifests.naming import VERSIONS, Scheme, detect, is_detached
from lakefold_table.lance.refs.files import Branch, Tag, decode_branch, decode_tag, encode_branch, encode_tag
from lakefold_table.lance.refs.names import (
    BRANCHES,
    TAGS,
    branch_path,
    check_new_tag_name,
    check_tag_name,
    ref_name,
    tag_path,
)
from lakefold_table.roots import below
from lakefold_table.storage.base import DoubtfulPutError, ListsFolders, Put
from lakefold_table.whole import version_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakefold_table.storage.base import Storage

T = TypeVar("T")
DATA = "data"
ID_DIGITS = 32
"""How long the id of a fork is in a branch's lineage."""


class UnknownRefError(InvalidError):
    """There is no tag, or no branch, of this name."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a name leads to: a version, and the folder of its table relative to the root of the main line.

    The folder is empty for the main line itself.
    """

    folder: str
    version: int


class Refs:
    """The tags and branches of the table whose main line has its root at a store's root.

    `now_ns` gives the time for new tags, in nanoseconds since 1970.
    """

    def __init__(self, storage: Storage, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._storage = storage
        self._now_ns = now_ns

    def tags(self) -> dict[str, Tag]:
        """All tags by name. Raises `DamagedError` where one can't be read."""
        return self._all(TAGS, tag_path, decode_tag)

    def branches(self) -> dict[str, Branch]:
        """All branches by name, without the main line. Raises `DamagedError` where one can't be read."""
        return self._all(BRANCHES, branch_path, decode_branch)

    def tag(self, name: str) -> Tag:
        """One tag. Raises `UnknownRefError` where there is none, `InvalidError` for a name none can have."""
        check_tag_name(name)
        path = tag_path(name)
        return decode_tag(self._file(path, "tag", name), self._where(path))

    def branch(self, name: str) -> Branch:
        """What is written of one branch. Raises as `tag` does."""
        check_branch_name(name)
        path = branch_path(name)
        return decode_branch(self._file(path, "branch", name), self._where(path))

    def resolve_tag(self, name: str) -> Target:
        """The version that a tag names; it may be gone. Raises as `tag` does."""
        tag = self.tag(name)
        if tag.branch is not None and tag.branch != MAIN:
            check_branch_name(tag.branch)
        return Target(branch_root(tag.branch), tag.version)

    def resolve_branch(self, name: str) -> str:
        """The folder of a branch's table, relative to the root of the main line; empty for `main`.

        Raises `UnknownRefError` where no version of such a branch is there. The branch's own file isn't
        asked for: a Lance client opens a branch that has none.
        """
        if name == MAIN:
            return ""
        check_branch_name(name)
        folder = branch_root(name)
        names = self._storage.names(f"{folder}/{VERSIONS}")
        if detect(names) is None:
            raise self._unknown("branch", name)
        return folder

    def unrecorded(self) -> dict[str, Branch | None]:
        """The branches that are there without a file, as their first versions tell; None where that can't.

        Whoever made one died before its file, or removed that alone. Lists the folders of `tree/`, one after
        the other, and reads a version of each such branch; none where the store lists no folders.
        """
        found: dict[str, Branch | None] = {}
        if not isinstance(self._storage, ListsFolders):
            return found
        known, waiting = self.branches(), [TREE]
        while waiting:
            folder = waiting.pop()
            inside = self._storage.folders(folder)
            name, is_table = folder.removeprefix(TREE).lstrip("/"), VERSIONS in inside
            waiting += [
                f"{folder}/{one}" for one in inside if not (is_table and (one[0] == "_" or one == DATA))
            ]
            if is_table and name not in known and detect(self._storage.names(f"{folder}/{VERSIONS}")):
                found[name] = self._begun(f"{folder}/", name)
        return found

    def record_branch(self, name: str) -> bool:
        """Whether a branch has a file that describes it; writes it as the branch's first version tells.

        False where that can't tell: it is gone, or is no clone. A branch is there without a file, but a Lance
        client lists only branches with one, and cleans up what only the others use. The same branch gets the
        same file, whoever writes it.
        """
        folder = self.resolve_branch(name)
        path = branch_path(name)
        if self._storage.size(path) is not None:
            return True
        branch = self._begun(f"{folder}/", name)
        if branch is not None:
            self._put_new(path, encode_branch(branch))
        return branch is not None

    def create_tag(
        self,
        name: str,
        version: int,
        *,
        branch: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Tag:
        """Name a version of the main line, or of a branch.

        Raises `InvalidError` where there is such a tag or the name can't be one, `VersionExpiredError` where
        the version isn't there.
        """
        check_new_tag_name(name)
        version = version_number(version)
        size = self._size_of(version, branch)
        now = self._now_ns()
        tag = Tag(version, _line(branch), now, now, size, dict(metadata or {}))
        path = tag_path(name)
        if not self._put_new(path, encode_tag(tag)):
            hint = "move it, or choose another name"
            raise InvalidError(f"there is a tag {name} already", where=self._where(path), hint=hint)
        return tag

    def update_tag(self, name: str, version: int, *, branch: str | None = None) -> Tag:
        """Move a tag to another version; what else is written of it stays. Raises as `create_tag` does."""
        old = self.tag(name)
        version = version_number(version)
        size = self._size_of(version, branch)
        moved = replace(
            old, version=version, branch=_line(branch), manifest_size=size, updated_ns=self._now_ns()
        )
        self._storage.put(tag_path(name), [encode_tag(moved)])
        return moved

    def pin(
        self, name: str, version: int, *, branch: str | None, size: int, metadata: Mapping[str, str]
    ) -> None:
        """Let a tag name this version, whether there was such a tag or not, and list nothing.

        `size`: the bytes of the version's manifest, from whoever knows that it is there. Raises
        `InvalidError` for a name that no new tag can have.
        """
        check_new_tag_name(name)
        now = self._now_ns()
        try:
            created = self.tag(name).created_ns
        except UnknownRefError:
            created = now
        tag = Tag(version, _line(branch), created, now, size, dict(metadata))
        self._storage.put(tag_path(name), [encode_tag(tag)])

    def replace_tag_metadata(self, name: str, metadata: Mapping[str, str]) -> Tag:
        """Give a tag this metadata in place of what it had. Raises as `tag` does."""
        tag = replace(self.tag(name), metadata=dict(metadata))
        self._storage.put(tag_path(name), [encode_tag(tag)])
        return tag

    def delete_tag(self, name: str) -> None:
        """Remove a tag, also one that can't be read. Raises `UnknownRefError` where there is none."""
        check_tag_name(name)
        self._file(tag_path(name), "tag", name)
        self._storage.delete(tag_path(name))

    def _all(
        self, folder: str, path_of: Callable[[str], str], decode: Callable[[bytes, str], T]
    ) -> dict[str, T]:
        found: dict[str, T] = {}
        for listed in self._storage.list(folder):
            name = ref_name(listed.path.rpartition("/")[2])
            if name is None or path_of(name) != listed.path:
                continue
            try:
                found[name] = decode(self._storage.get(listed.path), self._where(listed.path))
            except FileNotFoundError:
                continue
        return dict(sorted(found.items()))

    def _begun(self, below: str, name: str) -> Branch | None:
        """A branch as its first version tells, None where that can't."""
        names = self._storage.names(f"{below}{VERSIONS}")
        scheme = detect(names) or Scheme.V2
        first = min(number for number in map(scheme.parse, names) if number is not None)
        path = f"{below}{scheme.path(first)}"
        head, transaction = decode_head(self._storage.get(path), self._where(path))
        if transaction is None or transaction.clone.branch_name != name:
            return None
        clone = transaction.clone
        parent = clone.ref_name or None
        try:
            size = self._size_of(clone.ref_version, parent)
        except InvalidError:
            size = 0
        step = (clone.ref_version, sha256(transaction.uuid.encode()).hexdigest()[:ID_DIGITS])
        before = () if parent is None else self._lineage(parent)
        lineage = None if before is None else (*before, step)
        return Branch(clone.ref_version, parent, lineage, head.timestamp.seconds, size)

    def _lineage(self, name: str) -> tuple[tuple[int, str], ...] | None:
        try:
            return self.branch(name).lineage
        except (InvalidError, DamagedError):
            return None

    def _size_of(self, version: int, branch: str | None) -> int:
        """The size of a version's manifest in bytes. Raises `VersionExpiredError` where it isn't there."""
        folder = self.resolve_branch(branch or MAIN)
        below = f"{folder}/" if folder else ""
        names = self._storage.names(f"{below}{VERSIONS}")
        size = self._storage.size(f"{below}{(detect(names) or Scheme.V2).path(version)}")
        if size is None:
            raise self._gone(version, branch, names)
        return size

    def _gone(self, version: int, branch: str | None, names: Sequence[str]) -> VersionExpiredError:
        numbers = [number for scheme in Scheme for number in map(scheme.parse, names) if number is not None]
        oldest, line = min(numbers, default=0), branch or MAIN
        what = "detached version" if is_detached(version) else "version"
        hint = f"versions {oldest} to {max(numbers, default=0)} may be there" if numbers else "there is none"
        return VersionExpiredError(
            f"{what} {version} of {line} is not there", oldest=oldest, where=self._storage.uri, hint=hint
        )

    def _put_new(self, path: str, data: bytes) -> bool:
        """Whether the file is ours; a lost answer is settled by reading back."""
        try:
            return self._storage.put_if_absent(path, [data]) is Put.STORED
        except DoubtfulPutError:
            return self._read_back(path) == data

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
        return UnknownRefError(f"there is no {what} {name}", where=self._storage.uri, hint=hint)

    def _where(self, path: str) -> str:
        return below(self._storage.uri, path)


def _line(branch: str | None) -> str | None:
    """How a tag names the branch of its version: the main line by no name."""
    return None if branch == MAIN else branch

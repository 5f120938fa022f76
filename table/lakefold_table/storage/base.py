"""The calls that a table needs of a store, and nothing more: a few calls on whole objects.

They are few, so that each store can be verified. Correctness depends on a single one, `put_if_absent`. Every
implementation passes the same behaviour suite (`tests/contracts/`). Paths are relative to the store's root,
with `/` between segments.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Protocol

from lakefold_table.errors import InvalidError, LocationError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

Buffer = bytes | bytearray | memoryview
MOST_WHOLE: Final = 2 << 30
"""The most bytes of an object, and of all files of a version, that are held in memory at once.

No manifest of Lance can be longer, and a checkpoint of Delta of this size lists some ten million files.
"""


class Put(Enum):
    """The result of a conditional put whose answer arrived."""

    STORED = "stored"
    EXISTS = "exists"


class DoubtfulPutError(Exception):
    """The answer of a conditional put was lost: the object may have been stored or not.

    Read back to find out.
    """


@dataclass(frozen=True, slots=True)
class Listed:
    """An object of a listing: its path relative to the store's root and its size in bytes."""

    path: str
    size: int


class Storage(Protocol):
    """A store of objects below a root. Each kind of store inherits from it.

    What has a body here is right for every store, and a store overrides it if it can do better. Every call
    raises `RetryError` if the store can't be reached or reports a fault that may pass, and `InvalidError` if
    it refuses for good (no permission, a path that leaves the root).
    """

    uri: str
    """The canonical URI of the root."""

    cheap_size: bool
    """Whether `size` takes microseconds (a local disk), so that checking each file is cheap."""

    lists_in_order: bool = False
    """Whether the first names of a folder are listed without going through all of them.

    Lance clients know the same stores, and write no hint of the newest version there.
    """

    calls_sure_last: bool = False
    """Whether `put_once_sure` writes the whole object, durably, before it calls `sure`."""

    records_versions: bool = False
    """Whether another store records the versions, even after their files were removed.

    So `put_if_absent` never stores the same version twice.
    """

    def get(self, path: str) -> bytes:
        """Returns the whole object. Raises `FileNotFoundError` if it doesn't exist.

        Raises `InvalidError`, before it reads it, if it has more than `MOST_WHOLE` bytes.
        """

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Returns `length` bytes from `start`, fewer at the object's end. Raises `FileNotFoundError`."""

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """Returns the last `length` bytes (the whole object if it is shorter) and the object's size."""

    def get_together(self, limits: Mapping[str, int]) -> dict[str, bytes | None]:
        """Returns each object, by its path; None if it doesn't exist or has more bytes than its limit.

        For several small objects. Raises `InvalidError` if one of them can't be read: a path or a link leaves
        the root, for instance.
        """
        contents: dict[str, bytes | None] = dict.fromkeys(limits)
        for path, most in limits.items():
            size = self.size(path)
            if size is not None and size <= most:
                with suppress(FileNotFoundError):
                    contents[path] = self.get(path)
        return contents

    def get_with_etag(self, path: str) -> tuple[bytes, str]:
        """Returns what `get` does, and an etag that no other content under this name has.

        The etag is empty if the server gives none.
        """

    def size(self, path: str) -> int | None:
        """Returns the object's size in bytes, or None if it doesn't exist."""

    def sizes(self, paths: Iterable[str]) -> dict[str, int | None]:
        """Returns `size` for each path, as fast as this store can (in parallel over a network)."""
        return {path: self.size(path) for path in paths}

    def stored_at(self, path: str) -> int | None:
        """Returns when the object was stored, in microseconds since 1970 by the store's clock.

        Returns None if the object doesn't exist or the store doesn't say. It is shown to people who want to
        know how long something took. The first in-commit timestamp of a Delta table is later than it
        (Delta fact 6.6).
        """

    def obstacle(self, path: str) -> str:  # noqa: ARG002 - only a folder can have an object's name, on a disk
        """Returns what has this name if it is not an object ("a folder").

        Returns "" if nothing has it, or an object.
        """
        return ""

    def check_conditions(self) -> None:
        """Raises `InvalidError` if the server stores an object under a name that is taken.

        Called before the first version is put: a server may not keep what `put_if_absent` promises. One that
        passed is not tried again in this process. Raises `RetryError` if it could not be tried now.
        """
        return

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """Stores the joined buffers under a name that is not taken yet, durably, atomically.

        A version is committed by such a put (Lance fact 12.1). If it returns `STORED`, the object survives a
        crash of the machine. If it returns `EXISTS`, nothing was written, and the object that has the name
        survives a crash too, so that the caller may act on what it reads there. Raises `DoubtfulPutError` if
        the answer was lost.
        """

    def put_once_sure(self, path: str, buffers: Sequence[Buffer], sure: Callable[[], None]) -> Put:
        """Does the same as `put_if_absent`, but calls `sure` before, as late as the store can.

        If it `calls_sure_last`, the object is written then and has no name yet. What `sure` raises is raised,
        and the object then doesn't exist. It may be called more than once.
        """
        sure()
        return self.put_if_absent(path, buffers)

    def put_together(self, objects: Sequence[tuple[str, Sequence[Buffer]]]) -> Sequence[Put]:
        """Puts each pair of a path and buffers as `put_if_absent` does, in any order. Returns how each ended.

        A put whose answer was lost counts as `EXISTS`: the caller has to read what has the name, if anything.
        When this returns, all objects survive a crash of the machine, those that existed before too. If it
        raises, any of them may have been stored.
        """
        return [put_or_exists(self, path, buffers) for path, buffers in objects]

    def put(self, path: str, buffers: Sequence[Buffer]) -> None:
        """Stores the joined buffers under this name, durably, replacing any such object atomically."""

    def begin_put(self, path: str, buffers: Sequence[Buffer]) -> Callable[[], None]:
        """Begins to store the joined buffers under this name, replacing any such object atomically.

        The function that is returned waits until the whole object can be read, and raises what `put` would
        raise. On a local disk a crash of the machine may remove the object or leave it empty: use it only for
        objects whose content is stored durably elsewhere.
        """
        self.put(path, buffers)
        return at_once

    def replace(self, path: str, etag: str, buffers: Sequence[Buffer]) -> bool:
        """Puts the object as `put` does if it still has this etag (of `get_with_etag`), atomically.

        Returns False if it has another or is gone. Raises `DoubtfulPutError` if the answer was lost. A server
        that doesn't know such a condition may ignore it or refuse the request (`InvalidError`).
        """

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yields the objects directly inside the folder `prefix` (no recursion), in the order of their names.

        The empty prefix is the root. A folder that doesn't exist holds no objects. Sizes are fetched while
        the iterator is read, so taking the first few of many thousands is cheap even if each size costs a
        call.
        """

    def names(self, prefix: str) -> Sequence[str]:
        """Returns the names of the objects that `list` would yield, in any order, without their sizes.

        For folders of a hundred thousand objects.
        """
        return [listed.path.rpartition("/")[2] for listed in self.list(prefix)]

    def first_names(self, prefix: str, count: int) -> Sequence[str]:
        """Returns the first of the names that `list` would yield, at most `count`, in their order."""
        return sorted(self.names(prefix), key=str.encode)[:count]

    def folders(self, prefix: str) -> Sequence[str]:
        """Returns the names of the folders directly inside `prefix`, in any order, without links."""

    def some_folders(self, prefix: str, most: int) -> Sequence[str] | None:  # noqa: ARG002 - of no use here
        """Returns what `folders` does, or None if more than `most` names are directly inside.

        Names of objects count as well. A folder that is not named held no object when it was listed. Returns
        None as well if the store can't list them a thousand at a time, over a network.
        """
        return None

    def everything(self) -> Iterator[str]:
        """Yields the paths of all objects below the root, however deep, in any order."""
        left = [""]
        for folder in left:
            below = f"{folder}/" if folder else ""
            left.extend(below + name for name in self.folders(folder))
            yield from (below + name for name in self.names(folder))

    def anything_at_root(self, besides: Collection[str] = ()) -> bool:
        """Returns whether any object exists below the root: whether the folder is in use.

        `besides`: names directly at the root that don't count, with all below them.
        """

    def delete(self, path: str) -> None:
        """Removes the object. Does nothing if it doesn't exist."""

    def forget_versions(self) -> None:
        """Removes the records of the versions of the table at the root, but not those of its branches.

        For a store that `records_versions`. The newest is removed last. A file of a version counts as that
        version without a record.
        """
        return

    def make_durable(self, paths: Iterable[str]) -> None:
        """Makes these objects survive a crash of the machine, whichever process wrote them.

        Other writers (Lance clients on a local disk, a committer that died between publishing and syncing)
        may leave objects that can be read and that a power cut still removes. Call it before reporting
        outside the table that what they hold is committed. Raises `FileNotFoundError` if an object is
        missing.
        """

    def sync_others(self, paths: Collection[str]) -> None:  # noqa: ARG002 - only a disk may lose what it has
        """Makes those of the objects that exist survive a crash of the machine.

        For the thousands of files that proposals name: each is synced once, and so are the folders that hold
        them. Paths that don't exist or are not objects are skipped.
        """
        return


def at_once() -> None:
    """Returns at once: for what begins or waits for nothing."""


def etag_of(data: bytes) -> str:
    """Returns an etag of this content, for stores that have none of their own (S3 has one)."""
    return blake2b(data, digest_size=16).hexdigest()


def check_whole(size: int, where: str) -> None:
    """Raises `InvalidError` if `size` bytes are more than are read into memory at once."""
    if size > MOST_WHOLE:
        message = f"{size:,} bytes are to be read, and no more than {MOST_WHOLE:,} are held in memory at once"
        hint = "restore a version before it, and compact the table, so that its log gets shorter"
        raise InvalidError(message, where=where, hint=hint)


def put_or_exists(storage: Storage, path: str, buffers: Sequence[Buffer]) -> Put:
    """Puts an object. Returns `EXISTS` if the answer was lost: the caller has to read back."""
    try:
        return storage.put_if_absent(path, buffers)
    except DoubtfulPutError:
        return Put.EXISTS


def read_into(files: dict[str, bytes | None], storage: Storage, paths: Iterable[str]) -> None:
    """Reads files that a version needs into `files`, as `content_at`: None for one that is gone.

    A path that the store refuses names no file. Raises `InvalidError` if all of `files` have more than
    `MOST_WHOLE` bytes.
    """
    size = sum(len(data) for data in files.values() if data is not None)
    for path in paths:
        try:
            data = content_at(storage, path)
        except (FileNotFoundError, LocationError):
            files[path] = None
            continue
        size += len(data)
        check_whole(size, f"{storage.uri}/{path}")
        files[path] = data


def content_at(storage: Storage, path: str) -> bytes:
    """Returns the content of a file; of a path that ends with `/` the names in that folder, one in each line.

    Raises `FileNotFoundError`, and as `Storage.get`.
    """
    if not path.endswith("/"):
        return storage.get(path)
    names = storage.names(path.removesuffix("/"))
    return "\n".join(name for name in names if "\n" not in name).encode(errors="replace")

"""What a table needs of a store, and nothing more: a few calls over whole objects.

So few that each store can be proven. The one call that correctness hangs on is `put_if_absent`. Every
implementation passes the same behaviour suite (`tests/contracts/`); paths are relative to the store's root,
with `/` between segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

Buffer = bytes | bytearray | memoryview


class Put(Enum):
    """How a conditional put ended, where that is known."""

    STORED = "stored"
    EXISTS = "exists"


class DoubtfulPutError(Exception):
    """The answer of a conditional put was lost: the object may be there or not. Read back to settle it."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One object of a listing: its path relative to the store's root and its size in bytes."""

    path: str
    size: int


class Storage(Protocol):
    """A store of objects below one root.

    Every call raises `RetryError` where the store can't be reached or answers with a passing fault, and
    `InvalidError` where it refuses for good (no permission, a path that leaves the root).
    """

    @property
    def uri(self) -> str:
        """The canonical URI of the root."""
        ...

    @property
    def cheap_size(self) -> bool:
        """Whether `size` costs microseconds (a local disk), so that checking each file is free."""
        ...

    def get(self, path: str) -> bytes:
        """The whole object. Raises `FileNotFoundError` where there is none."""
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start`; shorter where the object ends. Raises `FileNotFoundError`."""
        ...

    def get_tail(self, path: str, length: int) -> tuple[bytes, int]:
        """The last `length` bytes (the whole object where it is shorter) and the object's size in bytes."""
        ...

    def size(self, path: str) -> int | None:
        """The object's size in bytes, None where there is none."""
        ...

    def sizes(self, paths: Iterable[str]) -> dict[str, int | None]:
        """`size` for each path, as fast as this store can (in parallel where a call waits for a network)."""
        ...

    def stored_at(self, path: str) -> int | None:
        """When the object was stored, in microseconds since 1970 by the store's clock.

        None where there is no such object, or where the store doesn't say. For people who ask how long
        something took; nothing is decided by it.
        """
        ...

    def put_if_absent(self, path: str, buffers: Sequence[Buffer]) -> Put:
        """Store the joined buffers under a name nobody has taken yet, durably, in one step that all can see.

        A version is committed by such a put (Lance fact 12.1).
        When it returns `STORED`, the object survives a crash of the machine. `EXISTS`: nothing was written,
        and what stands there survives a crash too, so that a loser may act on what it reads.
        Raises `DoubtfulPutError` where the answer was lost.
        """
        ...

    def put(self, path: str, buffers: Sequence[Buffer]) -> None:
        """Store the joined buffers under this name, durably, replacing what is there in one step."""
        ...

    def list(self, prefix: str) -> Iterator[Listed]:
        """The objects directly inside the folder `prefix` (no recursion), in the order of their names.

        The empty prefix is the root. A folder that doesn't exist holds no objects. Sizes are asked for as the
        iterator goes on, so taking the first few of many thousands is cheap where each size costs a call.
        """
        ...

    def names(self, prefix: str) -> Sequence[str]:
        """The names of the objects that `list` would give, in any order, and nothing asked about each.

        For folders of a hundred thousand objects.
        """
        ...

    def anything_at_root(self, besides: Collection[str] = ()) -> bool:
        """Whether anything lies below the root: tells an empty place from a folder of something else.

        `besides`: names directly at the root that don't count, with all below them.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove the object; no error where there is none."""
        ...

    def make_durable(self, paths: Iterable[str]) -> None:
        """Return when these objects survive a crash of the machine, whoever wrote them.

        Other writers (Lance clients on a local disk, a committer that died between publishing and syncing)
        may leave objects that all can see and a power cut still takes away. Call it before telling anybody
        outside the table that what they hold is done. Raises `FileNotFoundError` where an object is missing.
        """
        ...


@runtime_checkable
class SyncsOthers(Protocol):
    """A store in which writers may leave objects that all can see and that a power cut still takes away."""

    def sync_others(self, paths: Collection[str]) -> None:
        """Return when those of the objects that are there survive a crash of the machine.

        As `make_durable`, for the thousands of files that proposals name: each is synced once, and so are the
        folders that hold them. One that isn't there is passed over; so is what is no object.
        """
        ...


@runtime_checkable
class PutsTogether(Protocol):
    """A store that puts several objects faster than one after the other."""

    def put_together(self, objects: Sequence[tuple[str, Sequence[Buffer]]]) -> Sequence[Put]:
        """As `put_if_absent` for each (its path, its buffers), in any order; tells how each of them ended.

        `EXISTS` also where an answer was lost: the caller looks what is there, or isn't. When it returns, all
        of them survive a crash of the machine, those that were there before too. Where it raises, any of
        them may be there.
        """
        ...


@runtime_checkable
class BeginsPuts(Protocol):
    """A store that puts an object while its caller does something else, or at next to no cost."""

    def begin_put(self, path: str, buffers: Sequence[Buffer]) -> Callable[[], None]:
        """Begin to store the joined buffers under this name, replacing what is there in one step.

        The function that is returned waits until everybody can see the whole object, and raises what `put`
        would. On a local disk a crash of the machine may take the object away or leave it empty: this is for
        objects that hold nothing which isn't stored durably elsewhere.
        """
        ...


@runtime_checkable
class PutsOnceSure(Protocol):
    """A store that writes an object durably before anybody can see it, so that both may wait at one time."""

    def put_once_sure(self, path: str, buffers: Sequence[Buffer], sure: Callable[[], None]) -> Put:
        """As `put_if_absent`, but `sure` is called when the object is written and has no name yet.

        What it raises is raised, and nothing is there then. It may be called more than once.
        """
        ...


@runtime_checkable
class ReplacesKnown(Protocol):
    """A store that replaces an object only while it is still the one that was read."""

    def get_marked(self, path: str) -> tuple[bytes, str]:
        """As `get`, with a mark that no other content under this name has."""
        ...

    def replace(self, path: str, mark: str, buffers: Sequence[Buffer]) -> bool:
        """As `put` where the object still has this mark, in one step; False where it is another, or gone.

        Raises `DoubtfulPutError` where the answer was lost. A server that knows no such condition may take no
        notice of it, or refuse it (`InvalidError`).
        """
        ...


@runtime_checkable
class ListsFolders(Protocol):
    """A store that tells folders within a folder."""

    def folders(self, prefix: str) -> Sequence[str]:
        """The names of the folders directly inside the folder `prefix`, in any order; not that of a link."""
        ...


@runtime_checkable
class ListsSomeFolders(Protocol):
    """A store over a network that tells folders within a folder a thousand at a time."""

    def some_folders(self, prefix: str, most: int) -> Sequence[str] | None:
        """As `ListsFolders.folders`. Returns None if more than `most` names lie directly inside.

        Names of objects count as well. A folder that is not named held no object when it was listed.
        """
        ...


@runtime_checkable
class NamesObstacles(Protocol):
    """A store in which something that is no object can have an object's name."""

    @property
    def uri(self) -> str:
        """The canonical URI of the root."""
        ...

    def obstacle(self, path: str) -> str:
        """What has this name and is no object ("a folder"); empty if nothing has, or an object."""
        ...


@runtime_checkable
class ListsInOrder(Protocol):
    """A store that gives the first names of a folder without going through all of them."""

    @property
    def lists_in_order(self) -> bool:
        """Whether it does. Lance clients know of the same stores, and leave no note of the newest there."""
        ...

    def first_names(self, prefix: str, count: int) -> Sequence[str]:
        """The first of the names that `list` would give, at most `count`, in their order."""
        ...


@runtime_checkable
class ChecksConditions(Protocol):
    """A store whose server may not hold what `put_if_absent` promises, and is tried before it is trusted."""

    def check_conditions(self) -> None:
        """Raises `InvalidError` where the server puts an object whose name is taken.

        Asked before the first version is put; a server that was found to hold is not asked again in this
        process. `RetryError` where it can't be told now.
        """
        ...


@runtime_checkable
class ListsAll(Protocol):
    """A store of objects without folders, which can name all below its root: for who removes a table."""

    def everything(self) -> Iterator[str]:
        """The paths of all objects below the root, however deep, in any order."""
        ...


@runtime_checkable
class RecordsElsewhere(Protocol):
    """A store whose versions another store records, also those whose files were removed.

    So `put_if_absent` never gives the name of a version twice.
    """

    def forget_versions(self) -> None:
        """Remove what is recorded of the versions of the table at the root, its branches excepted.

        The newest last. What lies in its place counts as a version without it.
        """
        ...

"""The versions of a table: find the newest, read a version, publish the next exactly once.

This class knows names and a single conditional put, no manifests. A version exists exactly if its put
succeeded (invariant one-commit-point). A put whose answer was lost is read back (`lost_answers`).

A free name doesn't mean that it was never taken. While a committer was idle or paused, other clients may have
committed more and cleaned up all but the newest version; or a store isn't mounted, with an empty mount point
left behind. What is put then would be reported as committed, and no reader would ever see it. So a put counts
only if the version before it was the newest at the time.

To find that out, the folder is listed. For a short time after a listing has confirmed the newest version
(`CONFIRMED_SECONDS`), two checks replace the listing before a put: that the version before still exists, and
that no other client has recorded a later version.

No check before a put can know what happens until the put arrives, so there is a check after it as well. On a
store over a network the folder is listed: if the version just put is the newest, it follows the version
before. Version numbers only grow and no client removes the newest version, so a client that took its name
before has left a later version. That listing also replaces the check before the next put, if that begins at
once (`RECENT_SECONDS`). On a local disk the check before comes right before the file gets its name, and after
it one check is enough: whether the version before still exists. If a put on a disk is answered late
(`CHECK_SECONDS`), the process or the disk may have been paused, and everything is checked again. A store that
records its versions in another store never stores a version twice, and needs no listing after a put.

If the listing shows later versions, the caller says whether they were made from the version that was put
(`publish`). If they were not, that file is not a version of the table, and none of its answers is reported.

A table that was dropped and created again has versions of the same numbers. So the version before must be the
one that was read or put here, or a paused committer would put what it made from the dropped table after a
version of the new one. The size of the file shows that; on a local disk, right before the new file gets its
name, its first bytes.

What this misses is possible on local disks alone: other clients that record no hint of their versions, commit
twice and remove the first of these versions, but not ours before it, all within `CONFIRMED_SECONDS`.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from lakefold_table.errors import (
    DamagedError,
    NotATableError,
    NotPublishedYetError,
    RetryError,
    StopError,
    VersionExpiredError,
)
from lakefold_table.storage.base import DoubtfulPutError, Put
from lakefold_table.versions.drop_note import FOLDER as NOTES
from lakefold_table.versions.lost_answers import Published, settled
from lakefold_table.versions.version_files import CopyPut, put_needed

if TYPE_CHECKING:
    from lakefold_table.format import AnyFormat, Publication
    from lakefold_table.storage.base import Buffer, Storage
    from lakefold_table.version_names import Naming

BEFORE_A_TABLE = frozenset(
    {"data", "_deletions", "_indices", "_versions", "_transactions", "_lakefold", NOTES}
)
"""Folders that may exist below a path before the table's first version does: files written for it, or copied
from the table that it is to be a clone of, an empty folder of versions that a crash left before the first
put, and notes of tables that were in it and were dropped."""


_MANY: Final = 998
"""How many names of data files are expected: a page of a listing has a thousand names."""

CONFIRMED_SECONDS: Final = 30.0
"""How long a version counts as the newest without listing the folder, as long as it exists and no other
client has recorded a later one."""

CHECK_SECONDS: Final = 1.0
"""How long after its check a put on a local disk may be answered without another check, but for one that
costs next to nothing."""

RECENT_SECONDS: Final = 0.1
"""How long a listing after one put replaces the check before the next."""

_FIRST_NAMES: Final = 8
"""How many names are listed to find the newest version if names of newer versions come first. Names of files
that are just being written may be among them."""

_COMMITS_GONE: Final = "restore the newest commit from a copy: a client that cleans the log up has to keep it"

HINT: Final = "latest_version_hint.json"
"""The file in which Lance clients record the newest version, on stores that don't list in order (Lance fact
1.3)."""


HEAD_BYTES: Final = 4096
"""How many of a version's first bytes are kept. In Lakefold's versions they contain the transaction's uuid,
in others' the files of the first fragments."""

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def seconds() -> float:
    """Returns the seconds of a clock that never goes back.

    It runs while the process (if possible also the machine) sleeps.
    """
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True, slots=True)
class NamesBefore(Collection[str]):
    """The names that may be at a root before a table is: `names`, and those that data files may have."""

    names: frozenset[str]
    is_data: Callable[[str], bool]

    def __contains__(self, name: object) -> bool:
        """Returns whether the name is one of them."""
        return name in self.names or (isinstance(name, str) and self.is_data(name))

    def __iter__(self) -> Iterator[str]:
        """Yields those that are known by name."""
        return iter(self.names)

    def __len__(self) -> int:
        """Returns about how many names there may be."""
        return len(self.names) + _MANY


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The file of a version that was read or put: its size in bytes, and its first `HEAD_BYTES`."""

    version: int
    size: int
    head: bytes

    @classmethod
    def of(cls, version: int, buffers: Sequence[Buffer]) -> FileIdentity:
        """Returns the identity of these joined buffers."""
        head = b""
        for buffer in buffers:
            head += memoryview(buffer)[: HEAD_BYTES - len(head)]
            if len(head) == HEAD_BYTES:
                break
        return cls(version, sum(memoryview(buffer).nbytes for buffer in buffers), head)


class Versions:
    """The versions of the table at a store's root. `detect` finds the naming scheme of a folder's names.

    `first`: the number of a table's first version. `is_data`: as of `Format.is_data_name`.
    """

    def __init__(
        self,
        storage: Storage,
        folder: str,
        detect: Callable[[Iterable[str]], Naming | None],
        *,
        first: int = 1,
        is_data: Callable[[str], bool] | None = None,
        is_branch: bool = False,
        clock: Callable[[], float] = seconds,
    ) -> None:
        self.storage = storage
        self.first = first
        self._clock = clock
        self._confirmed_at = self._checked_at = self._listed_at = -math.inf
        # A name that was taken may be free again, and a check right before the file gets its name isn't
        # possible.
        self._lists_after = not storage.cheap_size and not storage.records_versions
        self._is_branch = is_branch
        self._is_data = is_data
        self._folder = folder
        self._detect = detect
        self._naming: Naming | None = None
        self._last: FileIdentity | None = None

    @classmethod
    def of(
        cls,
        storage: Storage,
        table_format: AnyFormat,
        *,
        is_branch: bool = False,
        clock: Callable[[], float] = seconds,
    ) -> Versions:
        """Returns the versions that a table of this format has at a store's root."""
        folder, detect = table_format.folder, table_format.detect
        first, is_data = table_format.first_version, table_format.is_data_name
        return cls(storage, folder, detect, first=first, is_data=is_data, is_branch=is_branch, clock=clock)

    def in_format(self, table_format: AnyFormat) -> Versions:
        """Returns the versions that a table of another format has at the same root."""
        return Versions.of(self.storage, table_format, is_branch=self._is_branch, clock=self._clock)

    def numbers(self) -> list[int]:
        """Returns all versions that exist, ascending; none if there is no table. Lists the folder.

        Raises `DamagedError` if files of the table's log are there, but those of all versions are gone.
        """
        started_at = self._clock()
        names = self.storage.names(self._folder)
        naming = self._detect(names)
        if naming is None:
            # The known scheme is kept: a folder that lost its versions is not a new table.
            return []
        numbers = sorted(number for number in map(naming.parse, names) if number is not None)
        if not numbers:
            message = f"the table has checkpoints in {self._folder}/, but no version: its commits are gone"
            raise DamagedError(message, where=self.storage.uri, hint=_COMMITS_GONE)
        self._naming = naming
        self._confirmed_at = started_at
        return numbers

    def known_by(self) -> list[str]:
        """Returns the paths of all files by which clients know the table, the newest version's file last.

        Those are the files of its versions, and the checkpoints of a Delta table. Lists the folder.
        """
        names = self.storage.names(self._folder)
        naming = self._detect(names)
        if naming is None:
            return []
        known = [(naming.parse(name), name) for name in names if self._detect([name]) is not None]
        newest = max(known, key=lambda each: -1 if each[0] is None else each[0])
        known.sort(key=lambda each: (each is newest, each[0] is None, each[0] or 0))
        return [f"{self._folder}/{name}" for _, name in known]

    def latest(self) -> int:
        """Returns the newest version; if nothing at all is at the root, the number before the first.

        Raises `NotATableError` if there is something else. Other branches may be below a branch's root.
        """
        newest = self._first_listed()
        if newest is not None:
            return newest
        numbers = self.numbers()
        if not numbers and not self._is_branch and not self.may_begin():
            # What is there may have come with a table that another began since the versions were listed.
            numbers = self.numbers()
            if numbers:
                return numbers[-1]
            raise NotATableError(
                f"this folder contains files, but no version of a table in {self._folder}/",
                where=self.storage.uri,
                hint="name an empty or new folder, or the table's own root",
            )
        return numbers[-1] if numbers else self.first - 1

    def may_begin(self) -> bool:
        """Returns whether the root holds nothing but what may be there before a table has any version."""
        names = BEFORE_A_TABLE | {self._folder}
        besides = names if self._is_data is None else NamesBefore(names, self._is_data)
        return not self.storage.anything_at_root(besides=besides)

    def has_any(self) -> bool:
        """Returns whether the table has any version, with one request if the store lists in order."""
        if self.storage.lists_in_order:
            names = self.storage.first_names(self._folder, _FIRST_NAMES)
            if len(names) < _FIRST_NAMES or self._detect(names) is not None:
                return self._detect(names) is not None
        return self._detect(self.storage.names(self._folder)) is not None

    def _first_listed(self) -> int | None:
        """Returns the newest version if the store can list the first names alone, newest first, or None.

        A single request, however many versions exist.
        """
        if not self.storage.lists_in_order:
            return None
        started_at = self._clock()
        names = self.storage.first_names(self._folder, _FIRST_NAMES)
        naming = self._detect(names)
        if naming is None or naming.path(2) > naming.path(1):
            return None
        self._naming = naming
        self._confirmed_at = started_at
        return max((number for number in map(naming.parse, names) if number is not None), default=None)

    def path(self, version: int) -> str:
        """Returns the path of a version's file. Lists once if the naming scheme isn't known yet."""
        if self._naming is None:
            self.numbers()
        if self._naming is None:
            raise NotATableError("there is no table at this location", where=self.storage.uri)
        return self._naming.path(version)

    def exists(self, version: int) -> bool:
        """Returns whether this version was published and not removed."""
        return self.storage.size(self.path(version)) is not None

    def read(self, version: int) -> bytes:
        """Returns the whole file of a version. Raises `VersionExpiredError` naming the oldest that exists."""
        try:
            data = self.storage.get(self.path(version))
        except FileNotFoundError as error:
            raise self.missing(version) from error
        if self._last is None or version >= self._last.version:
            self._last = FileIdentity.of(version, [data])
        return data

    def publish(
        self,
        publication: Publication,
        sure: Callable[[], None] | None = None,
        follows: Callable[[], bool] | None = None,
    ) -> Published:
        """Publishes the next version, unless a version of its number exists.

        `sure` is called before the version is put, as late as the store allows, but before any file that the
        version needs and any folder is made for it. If it raises, the version doesn't exist. `follows` is
        called if later versions exist once this version is put, and returns whether they were made from it
        (None: they count as if they were not).

        If the answer was lost, or the name was already taken, the file of that name shows whose it is
        (`settled`). Idempotent: after `UNKNOWN` or `RetryError` the same call may be made again.

        The files that the version needs are put first; they are named by their content, so one that exists is
        ours. The copy for other clients is put at the same time, and can be read before the version can.
        Raises `DamagedError` if a needed file has other bytes, `RetryError` if no version exists any more,
        `StopError` if newer versions exist, or only older ones, without the version that this one follows,
        and `InvalidError` if the store was tried and doesn't keep what `put_if_absent` promises.
        """
        self.storage.check_conditions()
        is_first = self._naming is None and not self.numbers()
        copying = CopyPut(self.storage, publication.copy)
        try:
            return self._publish(publication, sure, follows, copying, is_first=is_first)
        finally:
            copying.end()

    def _publish(
        self,
        publication: Publication,
        sure: Callable[[], None] | None,
        follows: Callable[[], bool] | None,
        copying: CopyPut,
        *,
        is_first: bool,
    ) -> Published:
        if not is_first:
            if not self.storage.cheap_size:
                # Each call waits for a network, so both run at the same time.
                copying.begin()
            self._check_before(publication)
        if sure is not None and (is_first or publication.before):
            sure()
            sure = None
        copying.begin()
        put_needed(self.storage, publication.before)
        try:
            put = self._put_version(publication, sure, copying, is_first=is_first)
        except DoubtfulPutError:
            published = settled(self.storage, publication)
        else:
            published = Published.OURS if put is Put.STORED else settled(self.storage, publication)
            if put is Put.EXISTS and published is Published.UNKNOWN:
                # A name that is free again was not free: the client that took it has committed more.
                raise self._changed_meanwhile(f"version {publication.version} existed, and was removed")
        if published is Published.OURS:
            self._last = FileIdentity.of(publication.version, publication.buffers)
            self._check_joined(publication.version, follows, is_first=is_first)
        return published

    def doubt(self) -> None:
        """Makes the next check list the folder, however lately the newest version was confirmed."""
        self._confirmed_at = self._listed_at = -math.inf

    def _check_before(self, publication: Publication) -> None:
        """Checks before anything is written; only briefly if it is checked again before the file is named.

        If the store isn't mounted, that version is missing, and so no folder is created at the mount point.
        """
        before = publication.version - 1
        if self._listed_after(before):
            return
        checks_again = self.storage.calls_sure_last and not publication.before
        if not (checks_again and self._exists_checked(before)):
            self.check_newest(before)

    def _put_version(
        self,
        publication: Publication,
        sure: Callable[[], None] | None,
        copying: CopyPut,
        *,
        is_first: bool,
    ) -> Put:
        def certain() -> None:
            if sure is not None:
                sure()
            copying.finish()
            if self.storage.calls_sure_last and not is_first:
                self.check_newest(publication.version - 1)
                self._check_head(publication.version - 1)

        return self.storage.put_once_sure(publication.path, publication.buffers, certain)

    def is_unchanged(self, version: int) -> bool:
        """Returns whether the file of this version exists, and begins as the one that was put or read here.

        If not, the table may have been dropped, and another one created at its path.
        """
        head = self._head(version)
        if head is None:
            return False
        return self._last is None or self._last.version != version or head == self._last.head

    def _check_head(self, version: int) -> None:
        """Raises `StopError` if this version doesn't begin as it did when it was read or put here."""
        last = self._last
        if last is None or last.version != version:
            return
        head = self._head(version)
        # Clients that clean up may remove it once a later version exists: then the put is refused.
        if head is not None and head != last.head:
            raise self._replaced(version)

    def _head(self, version: int) -> bytes | None:
        """Returns how the file of this version begins, None if it does not exist."""
        try:
            return self.storage.get_range(self.path(version), 0, HEAD_BYTES)
        except FileNotFoundError:
            return None

    def _replaced(self, version: int) -> StopError:
        return StopError(
            f"version {version} is not the one that was read here",
            where=self.storage.uri,
            hint="the table was dropped and created again, or restored: open it again",
        )

    def check_newest(self, version: int) -> None:
        """Raises unless this version exists and is the newest, or the next version exists as well.

        Raises `RetryError` if no version exists any more, `StopError` if newer versions exist, or only older
        versions, without it.
        """
        self._checked_at = self._clock()
        if self._is_confirmed(version, version):
            return
        if self._first_listed() != version:
            numbers = self.numbers()
            if not numbers:
                raise self.all_missing()
            if version + 1 not in numbers and numbers[-1] != version:
                raise self._changed_meanwhile(f"version {version} was the newest, now it is {numbers[-1]}")
        self._exists_checked(version)

    def _listed_after(self, version: int) -> bool:
        """Returns whether this process put the version and has just listed it as the newest."""
        if self._clock() - self._listed_at > RECENT_SECONDS:
            return False
        return self._last is not None and self._last.version == version

    def _check_joined(self, version: int, follows: Callable[[], bool] | None, *, is_first: bool) -> None:
        """Raises unless this version, which we have put, follows the version that was the newest."""
        if not is_first and not self._lists_after:
            at_once = self._clock() - self._checked_at <= CHECK_SECONDS
            if self._is_joined(version) if at_once else self._is_confirmed(version - 1, version):
                self._confirmed_at = max(self._confirmed_at, self._checked_at)
                return
        started_at = self._clock()
        listed = self._first_listed()
        newest = max(self.numbers(), default=self.first - 1) if listed is None else listed
        if newest == version:
            self._listed_at = started_at if self._lists_after else -math.inf
        elif newest < version or follows is None or not follows():
            raise self._changed_meanwhile(f"version {version} was put, but the newest is {newest}")

    def _is_joined(self, version: int) -> bool:
        """Returns whether the version before this exists, if that is cheap enough to check after each put."""
        return not self.storage.cheap_size or self.exists(version - 1)

    def _is_confirmed(self, version: int, newest: int) -> bool:
        """Returns whether `version` exists, and the newest version was confirmed a short time ago.

        Returns False if a hint names a version after `newest`.
        """
        if self._clock() - self._confirmed_at > CONFIRMED_SECONDS:
            return False
        return self._exists_checked(version) and self._hint() <= newest

    def _exists_checked(self, version: int) -> bool:
        """Returns whether the version exists.

        Raises `StopError` if its file can't be that which was read or put here.
        """
        size = self.storage.size(self.path(version))
        last = self._last
        if size is not None and last is not None and last.version == version and last.size != size:
            raise self._replaced(version)
        return size is not None

    def _hint(self) -> float:
        """Returns the newest version that other clients recorded: 0 if none did, infinity if unreadable."""
        if self.storage.lists_in_order:
            return 0
        try:
            return int(json.loads(self.storage.get(f"{self._folder}/{HINT}"))["version"])
        except FileNotFoundError:
            return 0
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return math.inf

    def check_any_exists(self, newest: int) -> None:
        """Raises `RetryError` if no version is left: then it is the store that is missing.

        `newest`: the version that is known as the newest, or is about to be put.
        """
        if newest == self.first and self._naming is None and not self.numbers():
            # The table begins with it.
            return
        if not (self.exists(newest) or self.exists(newest - 1) or self.numbers()):
            raise self.all_missing()

    def all_missing(self) -> RetryError:
        """Returns the error for a table that had versions and has none now."""
        return RetryError(
            "all versions of the table are missing",
            where=self.storage.uri,
            hint="restore access to the table: was it moved, is its file system mounted?",
        )

    def _changed_meanwhile(self, message: str) -> StopError:
        return StopError(
            f"{message}, with versions missing between them",
            where=self.storage.uri,
            hint="other clients committed and removed old versions, or the table was restored: open it again",
        )

    def holds(self, publication: Publication) -> bool:
        """Returns whether this publication was stored."""
        return settled(self.storage, publication) is Published.OURS

    def missing(self, version: int) -> VersionExpiredError | RetryError | NotATableError:
        """Returns the error for a version whose file doesn't exist. Lists the folder to find out which."""
        numbers = self.numbers()
        if not numbers:
            return NotATableError("there is no table at this location", where=self.storage.uri)
        if version > numbers[-1]:
            where = self.storage.uri
            return NotPublishedYetError(version, newest=numbers[-1], oldest=numbers[0], where=where)
        if version in numbers:
            return RetryError(f"version {version} could not be read, but is listed", where=self.storage.uri)
        message, hint = f"version {version} is gone", f"the oldest one left is {numbers[0]}"
        return VersionExpiredError(message, oldest=numbers[0], where=self.storage.uri, hint=hint)


class KeepsVersions(Protocol):
    """Distinguishes the versions of a format from other files. `folder`: the folder that holds them."""

    folder: str

    def detect(self, names: Iterable[str]) -> Naming | None:
        """Returns the naming of the versions among these names of `folder`, None if there are none."""


F = TypeVar("F", bound=KeepsVersions)


def format_at(storage: Storage, formats: Iterable[F]) -> F:
    """Returns the format of the table at a store's root, the first of `formats` if it has no version.

    With a single format nothing is read; otherwise this costs a request for each format but the first.
    """
    first, *others = formats
    return next((other for other in others if Versions(storage, other.folder, other.detect).has_any()), first)

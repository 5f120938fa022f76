"""The version line of one table: find the newest, read one, publish the next exactly once.

This object knows names and one conditional put, no manifests. A version exists exactly when its put succeeded
(invariant one-commit-point); a put whose answer was lost is settled by reading back (`publish`).

That a place is free doesn't mean that it was never taken. While a committer was idle or paused, foreign
clients may have gone on and cleaned up all but the newest version; a store may be away with its mount point
left behind. What is put there then is told as committed, and no reader ever sees it. So a put counts only
where the version before it was the newest when it was put.

Looking means listing the folder. For a short time after the line was proven so (`PROVEN_SECONDS`), two
things stand for it before a put: that the version before is still there, and that no foreign client has noted
a later one.

No look before a put can tell what happens until it arrives, so the line is looked at behind it as well. On a
store that is reached over a network the folder is listed: if the version just put is the newest, it follows
the one before. Version numbers only grow and nobody removes the newest, so whoever took its name before has
left a later version. The listing also stands for the look before the next put, if that begins at once
(`RECENT_SECONDS`). On a local disk the look comes right before the name is given, and behind it one question
is enough: whether the version before is still there. If a put on a disk is answered late (`LOOK_SECONDS`),
the process or the disk may have been paused, and all is looked at again. A store that records its versions
elsewhere never gives a name twice, and needs no listing behind a put.

If the listing shows later versions, the caller says whether they were made from the one that was put
(`publish`). If they were not, that is no version of the table, and nothing it answers is told.

A table that was dropped and made again has versions of the same numbers. So the version before must be the
one that was read or put here, or a committer that was paused would put what it made of the dropped table
behind the new one's. Its size tells; on a local disk, asked right before the name is given, its first bytes.

What this misses is left on local disks alone: foreign clients that leave no note of their versions, commit
twice and remove the first of these versions, but not ours before it, all within `PROVEN_SECONDS`.
"""

from __future__ import annotations

import json
import math
import time
from enum import Enum
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import NotATableError, RetryError, StopError, VersionExpiredError
from lakefold_table.storage.base import (
    ChecksConditions,
    DoubtfulPutError,
    ListsInOrder,
    Put,
    PutsOnceSure,
    RecordsElsewhere,
)
from lakefold_table.versions.dropped import FOLDER as NOTES
from lakefold_table.versions.identity import HEAD_BYTES, Known
from lakefold_table.versions.needed_files import put_needed
from lakefold_table.versions.transaction_copy import Copying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakefold_table.format import Naming, Publication
    from lakefold_table.storage.base import Storage


BEFORE_A_TABLE = frozenset(
    {"data", "_deletions", "_indices", "_versions", "_transactions", "_lakefold", NOTES}
)
"""Folders that may lie at a place before its first version does: files written for it, or copied from the
table that it is to be a clone of, an empty folder of versions that a crash left before the first put, and
notes of tables that lay in it and were dropped."""


PROVEN_SECONDS: Final = 30.0
"""So long a version counts as the newest without the folder being listed, as long as it is there and no
foreign client has noted a later one."""

LOOK_SECONDS: Final = 1.0
"""So long after a look a put on a local disk may be answered without a second one, but for what costs next to
nothing."""

RECENT_SECONDS: Final = 0.1
"""So long a listing behind one put stands for the look before the next."""

_FIRST_NAMES: Final = 8
"""So many names are asked for to find the newest version where the names of newer ones come first. Names of
files that are just being written may be among them."""

HINT: Final = "latest_version_hint.json"
"""Lance clients note the newest version in it, on stores that don't list in order (Lance fact 1.3)."""


_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Published(Enum):
    """How a publication ended: `OURS` is there, `THEIRS` is in its place, `UNKNOWN` must be tried again."""

    OURS = "ours"
    THEIRS = "theirs"
    UNKNOWN = "unknown"


def seconds() -> float:
    """A clock that only goes on: also while the process is stopped, and where it can while the machine is."""
    return time.clock_gettime(_CLOCK)


class Versions:
    """The versions of the table at a store's root. `detect` tells the naming from the names there."""

    def __init__(
        self,
        storage: Storage,
        folder: str,
        detect: Callable[[Iterable[str]], Naming | None],
        *,
        is_branch: bool = False,
        clock: Callable[[], float] = seconds,
    ) -> None:
        self.storage = storage
        # Asked once: that a store has certain calls takes longer to tell than some of the calls take.
        self._lists = storage if isinstance(storage, ListsInOrder) else None
        self._checks = storage if isinstance(storage, ChecksConditions) else None
        self._puts_once_sure = storage if isinstance(storage, PutsOnceSure) else None
        self._clock = clock
        self._proven_at = self._looked_at = self._listed_at = -math.inf
        # A name that was taken may be free again, and a look right before the name is given isn't possible.
        self._lists_behind = not storage.cheap_size and not isinstance(storage, RecordsElsewhere)
        self._is_branch = is_branch
        self._folder = folder
        self._detect = detect
        self._naming: Naming | None = None
        self._known: Known | None = None

    def in_format(self, folder: str, detect: Callable[[Iterable[str]], Naming | None]) -> Versions:
        """Returns the versions that a table of another format has at the same root."""
        return Versions(self.storage, folder, detect, is_branch=self._is_branch, clock=self._clock)

    def numbers(self) -> list[int]:
        """All versions that are there, ascending. Lists the folder; empty where there is no table."""
        asked_at = self._clock()
        names = self.storage.names(self._folder)
        naming = self._detect(names)
        if naming is None:
            # What there was before is not forgotten: a place that lost its versions is no new one.
            return []
        self._naming = naming
        self._proven_at = asked_at
        return sorted(number for number in map(naming.parse, names) if number is not None)

    def latest(self) -> int:
        """The newest version, 0 where there is no table and nothing in its place.

        Raises `NotATableError` where there is something else. Below a branch's root other branches may lie.
        """
        if newest := self._first_listed():
            return newest
        numbers = self.numbers()
        if (
            not numbers
            and not self._is_branch
            and self.storage.anything_at_root(besides=BEFORE_A_TABLE | {self._folder})
        ):
            # What is there may have come with a table that another began since the versions were listed.
            numbers = self.numbers()
            if numbers:
                return numbers[-1]
            raise NotATableError(
                f"this folder holds files, but no version of a table in {self._folder}/",
                where=self.storage.uri,
                hint="name an empty or new place, or the table's own root",
            )
        return numbers[-1] if numbers else 0

    def has_any(self) -> bool:
        """Whether any version is there. One request where a store gives the first names alone."""
        if self._lists is not None and self._lists.lists_in_order:
            names = self._lists.first_names(self._folder, _FIRST_NAMES)
            if len(names) < _FIRST_NAMES or self._detect(names) is not None:
                return self._detect(names) is not None
        return self._detect(self.storage.names(self._folder)) is not None

    def _first_listed(self) -> int | None:
        """The newest version, where a store gives the first names alone and newer ones come first; else None.

        One request, however many versions there are.
        """
        if self._lists is None or not self._lists.lists_in_order:
            return None
        asked_at = self._clock()
        names = self._lists.first_names(self._folder, _FIRST_NAMES)
        naming = self._detect(names)
        if naming is None or naming.path(2) > naming.path(1):
            return None
        self._naming = naming
        self._proven_at = asked_at
        return max((number for number in map(naming.parse, names) if number is not None), default=None)

    def path(self, version: int) -> str:
        """The path of a version's file. Lists once where the naming isn't known yet."""
        if self._naming is None:
            self.numbers()
        if self._naming is None:
            raise NotATableError("there is no table here", where=self.storage.uri)
        return self._naming.path(version)

    def exists(self, version: int) -> bool:
        """Whether this version was published."""
        return self.storage.size(self.path(version)) is not None

    def read(self, version: int) -> bytes:
        """The whole file of a version. Raises `VersionExpiredError` naming the oldest one left."""
        try:
            data = self.storage.get(self.path(version))
        except FileNotFoundError as error:
            raise self.missing(version) from error
        if self._known is None or version >= self._known.version:
            self._known = Known.of(version, [data])
        return data

    def publish(
        self,
        publication: Publication,
        sure: Callable[[], None] | None = None,
        follows: Callable[[], bool] | None = None,
    ) -> Published:
        """Puts the next version in its place, unless there is one.

        `sure` is called before the version is put, as late as the store allows, but before any file that the
        version needs and any folder is made for it; what it raises is raised, and no version is there.
        `follows` is called if later versions are there once this one is put, and returns whether they were
        made from it (None: they count as if they were not).

        A lost answer, and a place already taken, are settled by comparing the first buffer with what is
        there: it names the version's transaction, so equal bytes mean that our own put got through. Only
        stores across a network lose answers: a local disk stores durably, or fails and is asked again.
        Idempotent: after `UNKNOWN` or `RetryError` the same call may be made again.

        The files that the version needs are put first; they are named by their content, so one that is there
        is ours. The copy for other clients is put at the same time, and can be seen before the version can.
        Raises `DamagedError` where a needed file holds other bytes, `RetryError` where no version is there
        any more, `StopError` where the line went on or back without the version that this one follows, and
        `InvalidError` where the store was tried and doesn't hold what `put_if_absent` promises.
        """
        if self._checks is not None:
            self._checks.check_conditions()
        is_first = self._naming is None and not self.numbers()
        copying = Copying(self.storage, publication.copy)
        try:
            return self._publish(publication, sure, follows, copying, is_first=is_first)
        finally:
            copying.end()

    def _publish(
        self,
        publication: Publication,
        sure: Callable[[], None] | None,
        follows: Callable[[], bool] | None,
        copying: Copying,
        *,
        is_first: bool,
    ) -> Published:
        if not is_first:
            if not self.storage.cheap_size:
                # Each call waits for a network: then both are asked for at one time.
                copying.begin()
            self._look_first(publication)
        if sure is not None and (is_first or publication.before):
            sure()
            sure = None
        copying.begin()
        put_needed(self.storage, publication.before)
        try:
            put = self._put_version(publication, sure, copying, is_first=is_first)
        except DoubtfulPutError:
            published = self._settled(publication)
        else:
            published = Published.OURS if put is Put.STORED else self._settled(publication)
            if put is Put.EXISTS and published is Published.UNKNOWN:
                # Free again is not free: who took it went on, or it would still be there.
                raise self._line_changed(f"version {publication.version} was there, and is gone again")
        if published is Published.OURS:
            self._known = Known.of(publication.version, publication.buffers)
            self._prove_joined(publication.version, follows, is_first=is_first)
        return published

    def doubt(self) -> None:
        """Has the next look list the folder, however lately the line was proven."""
        self._proven_at = self._listed_at = -math.inf

    def _look_first(self, publication: Publication) -> None:
        """Looks before anything is written; where it is looked again right before the name is given, briefly.

        That the version before is there keeps a store that is away from getting folders in its place.
        """
        before = publication.version - 1
        if self._listed_behind(before):
            return
        looks_again = self._puts_once_sure is not None and not publication.before
        if not (looks_again and self._is_there(before)):
            self.prove_newest(before)

    def _put_version(
        self,
        publication: Publication,
        sure: Callable[[], None] | None,
        copying: Copying,
        *,
        is_first: bool,
    ) -> Put:
        if self._puts_once_sure is not None:

            def certain() -> None:
                copying.finish()
                if sure is not None:
                    sure()
                if not is_first:
                    self.prove_newest(publication.version - 1)
                    self._check_head(publication.version - 1)

            return self._puts_once_sure.put_once_sure(publication.path, publication.buffers, certain)
        if sure is not None:
            sure()
        copying.finish()
        return self.storage.put_if_absent(publication.path, publication.buffers)

    def _check_head(self, version: int) -> None:
        """Raises `StopError` where this version doesn't begin as the one that was read or put here."""
        known = self._known
        if known is None or known.version != version:
            return
        try:
            head = self.storage.get_range(self.path(version), 0, HEAD_BYTES)
        except FileNotFoundError:
            # Clients that clean up may remove it as soon as there is a later one: then the put is refused.
            return
        if head != known.head:
            raise self._replaced(version)

    def _replaced(self, version: int) -> StopError:
        return StopError(
            f"version {version} is another one than was read here",
            where=self.storage.uri,
            hint="the table was dropped and made again, or restored: start again from what is there",
        )

    def prove_newest(self, version: int) -> None:
        """Raises unless this version is there and is the newest, or the one after it is there as well.

        `RetryError` where no version is there any more, `StopError` where the line went on or back
        without it.
        """
        self._looked_at = self._clock()
        if self._is_proven(version, version):
            return
        if self._first_listed() != version:
            numbers = self.numbers()
            if not numbers:
                raise self.away()
            if version + 1 not in numbers and numbers[-1] != version:
                raise self._line_changed(f"version {version} was the newest, now it is {numbers[-1]}")
        self._is_there(version)

    def _listed_behind(self, version: int) -> bool:
        """Whether this version was put here and listed as the newest a moment ago."""
        if self._clock() - self._listed_at > RECENT_SECONDS:
            return False
        return self._known is not None and self._known.version == version

    def _prove_joined(self, version: int, follows: Callable[[], bool] | None, *, is_first: bool) -> None:
        """Raises unless this version, which we have put, follows the one that was the newest."""
        if not is_first and not self._lists_behind:
            at_once = self._clock() - self._looked_at <= LOOK_SECONDS
            if self._is_joined(version) if at_once else self._is_proven(version - 1, version):
                self._proven_at = max(self._proven_at, self._looked_at)
                return
        asked_at = self._clock()
        newest = self._first_listed() or max(self.numbers(), default=0)
        if newest == version:
            self._listed_at = asked_at if self._lists_behind else -math.inf
        elif newest < version or follows is None or not follows():
            raise self._line_changed(f"version {version} was put, but the newest is {newest}")

    def _is_joined(self, version: int) -> bool:
        """Whether the version before this one is there, as far as that may be asked after each put."""
        return not self.storage.cheap_size or self.exists(version - 1)

    def _is_proven(self, version: int, newest: int) -> bool:
        """Whether `version` is there, nobody notes one after `newest`, and the line was proven lately."""
        if self._clock() - self._proven_at > PROVEN_SECONDS:
            return False
        return self._is_there(version) and self._hint() <= newest

    def _is_there(self, version: int) -> bool:
        """Raises `StopError` where the file that is there can't be the version that was read or put here."""
        size = self.storage.size(self.path(version))
        known = self._known
        if size is not None and known is not None and known.version == version and known.size != size:
            raise self._replaced(version)
        return size is not None

    def _hint(self) -> float:
        """What foreign clients note as the newest version; 0 where they note nothing, all where it is odd."""
        if self._lists is not None and self._lists.lists_in_order:
            return 0
        try:
            return int(json.loads(self.storage.get(f"{self._folder}/{HINT}"))["version"])
        except FileNotFoundError:
            return 0
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return math.inf

    def check_there(self, newest: int) -> None:
        """Raises `RetryError` where no version is left: what is missing then tells of nothing but the store.

        `newest`: the one that is known as the newest, or is about to be put.
        """
        if not (self.exists(newest) or self.exists(newest - 1) or self.numbers()):
            raise self.away()

    def away(self) -> RetryError:
        """The error where there were versions, and now there is none."""
        return RetryError(
            "there were versions here, and now there is none",
            where=self.storage.uri,
            hint="bring the table back: was it moved, is its file system mounted?",
        )

    def _line_changed(self, message: str) -> StopError:
        return StopError(
            f"{message}, with versions missing between them",
            where=self.storage.uri,
            hint="others went on and removed old versions, or the table was restored: start again from what "
            "is there",
        )

    def _settled(self, publication: Publication) -> Published:
        ours = bytes(publication.buffers[0])
        try:
            there = self.storage.get_range(publication.path, 0, len(ours))
        except FileNotFoundError:
            return Published.UNKNOWN
        return Published.OURS if there == ours else Published.THEIRS

    def holds(self, publication: Publication) -> bool:
        """Whether this publication lies in its place."""
        return self._settled(publication) is Published.OURS

    def missing(self, version: int) -> VersionExpiredError | RetryError | NotATableError:
        """The error for a version whose file isn't there; lists to tell which."""
        numbers = self.numbers()
        if not numbers:
            return NotATableError("there is no table here", where=self.storage.uri)
        if version > numbers[-1]:
            message, hint = (
                f"version {version} is not there yet, the newest is {numbers[-1]}",
                "ask for an older one",
            )
        elif version in numbers:
            return RetryError(f"version {version} could not be read, but is listed", where=self.storage.uri)
        else:
            message, hint = f"version {version} is gone", f"the oldest one left is {numbers[0]}"
        return VersionExpiredError(message, oldest=numbers[0], where=self.storage.uri, hint=hint)

"""What a tail knows of the table's newest version: whether the version that it waits for is still to come.

Mostly that costs no request: a version that is missing comes later. But versions may be cleaned up, and
tables removed or made anew, while a reader is away or waits for long. So the versions are listed once newer
ones were seen, or nothing came for long.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from lakefold_reader.versions.late_versions import missing
from lakefold_reader.versions.listing import newest_of
from lakefold_reader.versions.start import check_free, removed, replaced
from lakefold_table.errors import NotATableError

if TYPE_CHECKING:
    from lakefold_reader.format.source import Source
    from lakefold_reader.tail.wakeup import Pace
    from lakefold_reader.versions.cursor import Cursor

MISSED_S: Final = 0.2
"""After a version was missing, a version that is read within this many seconds counts as the newest one: the
version after it is not read first."""


class NewestVersion:
    """The newest version as far as a tail knows it. `number`: the highest that was seen.

    `seen`: the version at which the tail begins; `newest`: the newest one then.
    """

    def __init__(self, source: Source, seen: int, newest: int, pace: Pace) -> None:
        self.number = newest
        self._source = source
        self._pace = pace
        self._checked_at = self._checked_beside_at = pace.clock()
        self._lost_at: float | None = None
        self._missed_at = self._checked_at if seen == newest else -math.inf

    @property
    def was_just_missing(self) -> bool:
        """Whether the version after the last one was missing a moment ago: what is read now is the newest."""
        return self._pace.clock() - self._missed_at <= MISSED_S

    def read(self, version: int) -> None:
        """Notes that a version was read."""
        self.number = max(self.number, version)
        self._checked_at, self._lost_at = self._pace.clock(), None

    def miss(self) -> None:
        """Notes that the next version is missing, unless it may have been removed since the last check."""
        now = self._pace.clock()
        if now - max(self._checked_at, self._missed_at) <= MISSED_S:
            self._missed_at = now

    def check_still_to_come(self, at: Cursor, *, waits: bool) -> None:
        """Checks that the version after `at` is still to come, and wasn't cleaned up.

        `waits`: the caller has time. Raises `VersionExpiredError` if it was, `MadeAnewError` if the table has
        fewer versions now, `NotATableError` if it was removed, `DamagedError` if something that is no version
        has the name of the next one.
        """
        seen = at.version
        if self.number <= seen and not self._is_in_doubt(seen):
            return
        try:
            newest = newest_of(self._source)
        except NotATableError as error:
            self._wait_for_return(at, error, can_wait=waits or self.number <= seen)
            return
        self._checked_at, self._lost_at = self._pace.clock(), None
        if newest < seen:
            raise replaced(self._source, seen, newest)
        if newest > seen and not self._source.versions.exists(seen + 1):
            raise missing(self._source, seen + 1)

    def _is_in_doubt(self, seen: int) -> bool:
        """Returns whether the newest version must be requested, although none newer than `seen` was read."""
        now, storage = self._pace.clock(), self._source.storage
        if self._lost_at is None and now - self._checked_at > self._pace.away:
            return True
        is_costly = self._lost_at is None and not storage.cheap_size
        if is_costly or now - self._checked_beside_at <= self._pace.beside:
            return False
        self._checked_beside_at = now
        check_free(storage, self._source.versions.path(seen + 1))
        return self._lost_at is not None or not self._source.versions.exists(seen)

    def _wait_for_return(self, at: Cursor, error: NotATableError, *, can_wait: bool) -> None:
        """Raises `NotATableError` once the versions have been gone for as long as they are waited for."""
        now = self._checked_beside_at = self._pace.clock()
        self._lost_at = now if self._lost_at is None else self._lost_at
        if not can_wait or now - self._lost_at >= self._pace.gone:
            raise removed(self._source, at) from error

"""Reads versions in order, and reads ahead if the store is reached over a network.

A reader that is many versions behind would wait for each of them in turn. On a store that answers in
microseconds it reads them itself, in turn: threads would only compete for the interpreter. On any other,
requests for the next versions are under way while a version is returned. They complete in any order and are
returned in ascending order; an error is raised in the turn of its version. Nothing is requested twice, and
versions beyond the newest are hardly ever requested.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_table.new_threads import new_threads
from lakefold_table.own_process import OwnProcess
from lakefold_table.versions.heads import HEAD_BYTES

if TYPE_CHECKING:
    from concurrent.futures import Future

    from lakefold_reader.format.source import Source
    from lakefold_table.format import VersionSummary

MOST_AT_ONCE: Final = 32
"""The most versions that are requested at the same time, or kept until their turn."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of all versions that are requested or kept, if their sizes are as expected."""
CHEAP_BYTES: Final = 1024 * 1024
"""Up to this size, reading more than is needed is cheaper than a second request."""
REMEMBERED: Final = 16
SURE: Final = 2
WORTH: Final = 20
"""If the newest version isn't known: after this many versions that were read without a wait, one more is
requested ahead, so that no larger part of all requests is for versions that don't exist."""


class FirstRead:
    """How many bytes of a version to request at first, by what the last versions needed."""

    def __init__(self) -> None:
        self._sizes: deque[int] = deque(maxlen=REMEMBERED)
        self.length = HEAD_BYTES

    def learn(self, summary: VersionSummary) -> None:
        """Records how many bytes this version needed.

        Some tenths of a megabyte are requested as soon as a version needs them, more only if the last
        versions all did: of another client's version the whole manifest is needed, but such a version may be
        an exception.
        """
        self._sizes.append(summary.size)
        cheap = max((size for size in self._sizes if size <= CHEAP_BYTES), default=0)
        sure = min(list(self._sizes)[-SURE:]) if len(self._sizes) >= SURE else 0
        needed = max(cheap, sure)
        # More than is needed, so that the file's end is included and the next version may be a little larger.
        self.length = max(HEAD_BYTES, 1 << (needed + needed // 8).bit_length())

    def room(self, size: int) -> int:
        """Returns how many versions may be requested in this many bytes. It is low until sizes are known."""
        largest = max(self.length, *self._sizes) if self._sizes else self.length
        return max(1, min(size // largest, SURE * (1 + len(self._sizes))))


@dataclass(frozen=True, slots=True)
class _Request:
    """A version that was requested, and the result."""

    version: int
    summary: Future[VersionSummary | None]


class PrefetchedVersions:
    """The versions of a table, requested in ascending order; for one thread."""

    def __init__(self, source: Source) -> None:
        self.seen = 0
        """The newest version that was read, even if an older one was missing."""
        self._source = source
        self._first = FirstRead()
        self._requests: deque[_Request] = deque()
        self._pool: ThreadPoolExecutor | None = None
        self._process = OwnProcess("these requests")
        self._run = 0
        self._ahead: VersionSummary | None = None

    def take(self, version: int, *, newest: int = 0, whole: bool = False) -> VersionSummary | None:
        """Returns the summary of a version, or None if the version does not exist now.

        Raises as `Source.summary`. After an error the same version can be requested again. `newest`: versions
        up to this version are known to exist.
        """
        if self._ahead is not None and self._ahead.version == version and not whole:
            return self._ahead
        self._begin_here()
        if whole or self._source.storage.cheap_size:
            summary = self._read(version, whole=whole)
        else:
            summary = self._taken(version, newest)
        if summary is None:
            self._run = 0
        else:
            self._run = self._run + 1 if version > newest else 0
            self.seen = max(self.seen, version)
            if not whole:
                self._first.learn(summary)
        return summary

    def ahead(self, version: int, *, newest: int = 0) -> VersionSummary | None:
        """Reads a version before its turn, as `take`. It isn't requested again in its turn."""
        self._ahead = self.take(version, newest=newest)
        return self._ahead

    def _begin_here(self) -> None:
        """Forgets the threads and their requests in a process that was forked: it doesn't have them."""
        if not self._process.is_here:
            self._process = OwnProcess("these requests")
            self._requests.clear()
            self._pool = None

    def close(self) -> None:
        """Drops what was read ahead, and ends the threads."""
        self._begin_here()
        self._ahead = None
        self._drop()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _taken(self, version: int, newest: int) -> VersionSummary | None:
        while self._requests and self._requests[0].version < version:
            self._requests.popleft()
        beforehand = bool(self._requests) and self._requests[0].version == version
        if self._requests and not beforehand:
            # Its first request ended in an error; what was read after it is still used.
            self._requests.appendleft(self._requested(version))
        self._start_requests(version, newest)
        if not self._requests:
            return self._read(version)
        summary = self._requests.popleft().summary.result()
        if summary is None:
            self._drop()
            # It may have been published since the request, before the caller needed it.
            summary = self._read(version) if beforehand else None
        return summary

    def _start_requests(self, version: int, newest: int) -> None:
        """Starts the requests that are worth it, for this version first; none if it would be only one."""
        after = self._requests[-1].version + 1 if self._requests else version
        known_to_exist = max(newest, self.seen) - version + 1
        needed = max(known_to_exist, 1 + self._run // WORTH)
        window = min(needed, self._first.room(MOST_BYTES), MOST_AT_ONCE)
        if window == 1 and not self._requests:
            return
        for number in range(after, version + window):
            self._requests.append(self._requested(number))

    def _requested(self, version: int) -> _Request:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="lakefold-tail")
        with new_threads():
            return _Request(version, self._pool.submit(self._read, version))

    def _read(self, version: int, *, whole: bool = False) -> VersionSummary | None:
        return self._source.summary(version, whole=whole, first=self._first.length)

    def _drop(self) -> None:
        """Drops the requests, and records which of their versions exist."""
        for request in self._requests:
            if (
                not request.summary.cancel()
                and request.summary.exception() is None
                and request.summary.result() is not None
            ):
                self.seen = max(self.seen, request.version)
        self._requests.clear()

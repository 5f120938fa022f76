"""Reads versions one after another, and the next ones beforehand where each read waits for a network.

A reader that is many versions behind would wait for each of them in turn. On a store that costs microseconds
it reads them itself, one by one: threads would only take turns on the interpreter. On any other, requests for
the next versions are under way while one is handed out; they come back in any order and are handed out in the
right one, an error at its place like a version. Nothing is asked for twice, and what lies beyond the newest
version is hardly ever asked for.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_reader.versions.source import read_step
from lakefold_table.versions.heads import HEAD_BYTES

if TYPE_CHECKING:
    from concurrent.futures import Future

    from lakefold_reader.versions.source import Source, Step

MOST_AT_ONCE: Final = 32
"""So many versions are asked for at one time, and held until their turn comes, at most."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""What the versions that are under way or held may take together, as far as their sizes can be foreseen."""
CHEAP_BYTES: Final = 1024 * 1024
"""Up to here reading more than is needed is cheaper than asking again."""
REMEMBERED: Final = 16
SURE: Final = 2
WORTH: Final = 20
"""Where the newest version isn't known, one more is asked for at once for so many that came without a wait:
of all requests no larger part is for versions that aren't there."""


class FirstRead:
    """How many bytes of a version to ask for at first, by what the last ones needed."""

    def __init__(self) -> None:
        self._sizes: deque[int] = deque(maxlen=REMEMBERED)
        self.length = HEAD_BYTES

    def learn(self, step: Step) -> None:
        """Take in what this version needed.

        Some tenths of a megabyte are asked for as soon as one version needs them, more only where the last
        ones all do: a version of a foreign client is told by its whole manifest, and one may be alone.
        """
        self._sizes.append(step.size)
        cheap = max((size for size in self._sizes if size <= CHEAP_BYTES), default=0)
        sure = min(list(self._sizes)[-SURE:]) if len(self._sizes) >= SURE else 0
        wanted = max(cheap, sure)
        # More than is needed, so that the file's end shows and the next one may be a little larger.
        self.length = max(HEAD_BYTES, 1 << (wanted + wanted // 8).bit_length())

    def room(self, size: int) -> int:
        """How many versions may be under way in so many bytes; few before anything is known of them."""
        largest = max(self.length, *self._sizes) if self._sizes else self.length
        return max(1, min(size // largest, SURE * (1 + len(self._sizes))))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A version that was asked for, and what comes of it."""

    version: int
    step: Future[Step | None]


class Following:
    """The versions of one table, asked for in ascending order; for one thread."""

    def __init__(self, source: Source) -> None:
        self.seen = 0
        """The newest version that was met, also where an older one was missing."""
        self._source = source
        self._first = FirstRead()
        self._asked: deque[_Asked] = deque()
        self._pool: ThreadPoolExecutor | None = None
        self._run = 0
        self._ahead: Step | None = None

    def take(self, version: int, *, newest: int = 0, whole: bool = False) -> Step | None:
        """What this version says of itself, None where it isn't there now. Raises as `read_step` does.

        `newest`: versions up to this one are known to be there. After an error the same version can be asked
        for again.
        """
        if self._ahead is not None and self._ahead.version == version and not whole:
            return self._ahead
        if whole or self._source.storage.cheap_size:
            step = self._read(version, whole=whole)
        else:
            step = self._taken(version, newest)
        if step is None:
            self._run = 0
        else:
            self._run = self._run + 1 if version > newest else 0
            self.seen = max(self.seen, version)
            if not whole:
                self._first.learn(step)
        return step

    def ahead(self, version: int, *, newest: int = 0) -> Step | None:
        """A version before its turn, as `take`; when its turn comes it isn't asked for again."""
        self._ahead = self.take(version, newest=newest)
        return self._ahead

    def close(self) -> None:
        """Forget what was read beforehand, and end the threads."""
        self._ahead = None
        self._forget()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _taken(self, version: int, newest: int) -> Step | None:
        while self._asked and self._asked[0].version < version:
            self._asked.popleft()
        beforehand = bool(self._asked) and self._asked[0].version == version
        if self._asked and not beforehand:
            # It was asked for and gave an error; what was read behind it still counts.
            self._asked.appendleft(self._begun(version))
        self._ask(version, newest)
        if not self._asked:
            return self._read(version)
        step = self._asked.popleft().step.result()
        if step is None:
            self._forget()
            # It may have come since it was asked for, before the caller knew that he wants it.
            step = self._read(version) if beforehand else None
        return step

    def _ask(self, version: int, newest: int) -> None:
        """Have the requests under way that are worth it, this version's first; none where it is alone."""
        after = self._asked[-1].version + 1 if self._asked else version
        known = max(newest, self.seen) - version + 1
        wanted = max(known, 1 + self._run // WORTH)
        window = min(wanted, self._first.room(MOST_BYTES), MOST_AT_ONCE)
        if window == 1 and not self._asked:
            return
        for number in range(after, version + window):
            self._asked.append(self._begun(number))

    def _begun(self, version: int) -> _Asked:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="lakefold-tail")
        return _Asked(version, self._pool.submit(self._read, version))

    def _read(self, version: int, *, whole: bool = False) -> Step | None:
        return read_step(self._source, version, whole=whole, first=self._first.length)

    def _forget(self) -> None:
        """Let go of what was asked for; note which of it is there."""
        for one in self._asked:
            if not one.step.cancel() and one.step.exception() is None and one.step.result() is not None:
                self.seen = max(self.seen, one.version)
        self._asked.clear()

"""Counts dead letters.

Their number can't be computed from offsets, because each report leaves the marker of its transaction. So the
messages are read, which takes time and traffic: both are bounded, and the rest is estimated or counted the
next time. Messages that were counted are not read again. The first count reads only the newest ones.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from lakefold_log.client.failures import MissingTopicError
from lakefold_log.client.topics import describe
from lakefold_log.read.consumer import PartitionReader
from lakefold_table.errors import LakefoldError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from lakefold_log.client.admin import Admin, Option
    from lakefold_log.client.overview import PartitionView

    Read = Callable[[Admin, str, int, int, int], Generator[tuple[int, int]]]

MOST_OFFSETS: Final = 1_000
"""How many of a partition's newest offsets are read if none were counted before."""
MOST_BYTES: Final = 16 * 2**20
"""How many bytes of dead letters a count reads, of all partitions together; the rest is estimated."""
MOST_S: Final = 5.0
"""A count ends after this many seconds, and the next one continues there."""
RETRY_S: Final = 30.0
"""After a count that failed, the next one is made this many seconds later."""
_SILENCE_S: Final = 5.0
# The client reads ahead. A message that is larger comes all the same.
_TUNED: Final[dict[str, Option]] = {"queued.max.messages.kbytes": 1024, "max.partition.fetch.bytes": 2**18}


@dataclass(frozen=True, slots=True)
class _Counted:
    """The number of dead letters at offsets from `first` up to, and without, `end`."""

    first: int
    end: int
    letters: int = 0
    estimated: bool = False

    def without_below(self, low: int) -> _Counted:
        """Returns the count without the messages below `low`, as if the dead letters were spread evenly."""
        if low <= self.first:
            return self
        letters = round(self.letters * (self.end - low) / (self.end - self.first))
        return _Counted(low, self.end, letters, estimated=True)


def _sizes(admin: Admin, topic: str, partition: int, start: int, end: int) -> Generator[tuple[int, int]]:
    """Yields the offset and the size of each dead letter from `start` up to `end`."""
    log = describe(admin, topic).log_id(partition)
    with PartitionReader(admin, topic, log, start, tuned=_TUNED) as reader:
        for message in reader.up_to(end, _SILENCE_S):
            yield message.offset, len(message.value)


class DeadLetterCount:
    """The dead letters of a topic. For one thread."""

    def __init__(self, read: Read = _sizes, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._counted: dict[int, _Counted] = {}
        self._failed_at: float | None = None
        self.document: dict[str, Any] = _document(None)
        """The number of dead letters, whether it is an estimate or a lower bound, or why it isn't known."""

    def count(self, admin: Admin, topic: str, partitions: Iterable[PartitionView]) -> None:
        """Counts the dead letters in these partitions of the topic. If that fails, the document says why."""
        if self._failed_at is not None and self._clock() - self._failed_at < RETRY_S:
            return
        views = list(partitions)
        try:
            self._count(admin, topic, views)
        except LakefoldError as error:
            self._failed_at = self._clock()
            self.document = _document(None, problem=str(error))
            return
        self._failed_at = None
        counted = [self._counted[view.partition] for view in views]
        self.document = _document(
            sum(each.letters for each in counted),
            estimated=any(each.estimated for each in counted),
            more=any(
                each.first > view.low or each.end < view.high
                for each, view in zip(counted, views, strict=True)
            ),
        )

    def _count(self, admin: Admin, topic: str, views: list[PartitionView]) -> None:
        if not views:
            # A topic that may not be described looks as if it didn't exist: this raises which right lacks.
            with suppress(MissingTopicError):
                describe(admin, topic)
        deadline = self._clock() + MOST_S
        for view in views:
            counted = self._counted[view.partition] = _without_lost(self._counted.get(view.partition), view)
            if counted.end < view.high and self._clock() < deadline:
                with closing(self._read(admin, topic, view.partition, counted.end, view.high)) as sizes:
                    most = MOST_BYTES // len(views)
                    self._counted[view.partition] = self._continued(counted, sizes, view.high, most, deadline)

    def _continued(
        self, counted: _Counted, sizes: Iterable[tuple[int, int]], high: int, most: int, deadline: float
    ) -> _Counted:
        """Returns the count up to `high`, or up to the message that was read last if the time is over."""
        letters = read = 0
        for offset, size in sizes:
            if read > most:
                # Only the offsets before this one are known to hold these dead letters.
                rest = round(letters / (offset - counted.end) * (high - offset))
                return replace(counted, end=high, letters=counted.letters + letters + rest, estimated=True)
            letters, read, end = letters + 1, read + size, offset + 1
            if self._clock() >= deadline:
                return replace(counted, end=end, letters=counted.letters + letters)
        return replace(counted, end=high, letters=counted.letters + letters)


def _without_lost(counted: _Counted | None, view: PartitionView) -> _Counted:
    """Returns the count without the dead letters that the partition has lost."""
    if counted is None or counted.end > view.high or counted.end < view.low:
        first = max(view.low, view.high - MOST_OFFSETS)
        return _Counted(first, first)
    return counted.without_below(view.low)


def _document(
    letters: int | None, *, estimated: bool = False, more: bool = False, problem: str = ""
) -> dict[str, Any]:
    return {
        "dead_letters": letters,
        "about_dead_letters": estimated,
        "more_dead_letters": more,
        "dead_letters_problem": problem,
    }

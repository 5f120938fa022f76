"""Which batches of an app were folded: what the marks remember of each, bounded whatever comes."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lakefold_table.compact import compact, whole

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_INTERVALS = 32
MAX_RECENT_BATCHES = 16


@dataclass(frozen=True)
class AppMark:
    """The batch ids of one app that were folded, as intervals, ascending, both ends included.

    `forgotten_below`: ids below it can't be told any more, their interval was dropped. `recent` keeps the
    versions of the newest batches. `time_us` is the log time of the last one.
    """

    intervals: tuple[tuple[int, int], ...] = ()
    forgotten_below: int = 0
    recent: tuple[tuple[int, int], ...] = ()
    time_us: int = 0

    def has(self, batch_id: int) -> bool:
        """Whether this batch was folded, as far as the intervals and the newest batches tell."""
        if any(first <= batch_id <= last for first, last in self.intervals):
            return True
        return batch_id < self.forgotten_below and batch_id in dict(self.recent)

    def version_of(self, batch_id: int) -> int:
        """The version that holds this batch, 0 where it is no longer known."""
        return dict(self.recent).get(batch_id, 0)

    @property
    def last_version(self) -> int:
        """The version that holds the batch folded last, 0 if none was."""
        return self.recent[-1][1] if self.recent else 0

    def added(self, batch_id: int, version: int, time_us: int) -> AppMark:
        """With one more batch folded into `version`."""
        growing = GrowingMark(self)
        growing.add(batch_id, version, time_us)
        return growing.mark()

    @cached_property
    def encoded(self) -> str:
        """The value of the app's metadata key. Made once: most apps are silent in most versions."""
        return compact(
            {
                "batches": self.intervals,
                "forgotten_below": self.forgotten_below,
                "versions": self.recent,
                "time_us": self.time_us,
            }
        )

    @classmethod
    def decode(cls, text: str) -> AppMark:
        """The mark whose `encoded` this is. Raises `ValueError`, `KeyError` or `TypeError` otherwise."""
        value = json.loads(text)
        intervals = tuple((whole(first), whole(last)) for first, last in value["batches"])
        ends = [end for interval in intervals for end in interval]
        if ends != sorted(ends):
            raise ValueError(f"the batches {intervals} don't ascend")
        return cls(
            intervals,
            whole(value["forgotten_below"]),
            tuple((whole(batch), whole(version)) for batch, version in value["versions"]),
            whole(value["time_us"]),
        )


class GrowingMark:
    """An app's mark while a group is folded: a batch that follows the one before costs next to nothing."""

    __slots__ = ("_intervals", "_recent", "_time_us", "forgotten_below")

    def __init__(self, mark: AppMark) -> None:
        self.forgotten_below = mark.forgotten_below
        self._intervals = list(mark.intervals)
        self._recent = deque(mark.recent, MAX_RECENT_BATCHES)
        self._time_us = mark.time_us

    def has(self, batch_id: int) -> bool:
        """As `AppMark.has`."""
        intervals = self._intervals
        within = bool(intervals) and batch_id <= intervals[-1][1]
        if within and any(first <= batch_id <= last for first, last in intervals):
            return True
        return batch_id < self.forgotten_below and batch_id in dict(self._recent)

    def version_of(self, batch_id: int) -> int:
        """As `AppMark.version_of`."""
        return dict(self._recent).get(batch_id, 0)

    def add(self, batch_id: int, version: int, time_us: int) -> None:
        """One more batch was folded into `version`."""
        intervals = self._intervals
        if intervals and batch_id == intervals[-1][1] + 1:
            intervals[-1] = (intervals[-1][0], batch_id)
        else:
            self._intervals = intervals = _with(intervals, batch_id)
            if len(intervals) > MAX_INTERVALS:
                self.forgotten_below = intervals.pop(0)[1] + 1
        self._recent.append((batch_id, version))
        self._time_us = max(self._time_us, time_us)

    def mark(self) -> AppMark:
        """The mark as it is now."""
        return AppMark(tuple(self._intervals), self.forgotten_below, tuple(self._recent), self._time_us)


def _with(intervals: Iterable[tuple[int, int]], number: int) -> list[tuple[int, int]]:
    """The intervals with one more number; neighbours are joined."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted((*intervals, (number, number))):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged

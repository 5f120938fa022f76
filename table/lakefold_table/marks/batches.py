"""The marks of an app, in bounded size: which of its batches were folded."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from lakefold_table.marks.compact_json import compact, text_of, whole
from lakefold_table.marks.content_digest import UNKNOWN, digests, split
from lakefold_table.marks.intervals import Interval, add, from_gaps, has, joined, less, to_gaps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_table.entry import Entry

MAX_RECENT_BATCHES = 16
PLAIN_INTERVALS = 32
"""How many intervals, the highest, are written in full and never forgotten. Those below are kept shorter."""


@dataclass(frozen=True)
class AppMark:
    """The batch ids of an app that were folded, as ascending intervals, both ends inclusive.

    `forgotten_below`: for ids below it is no longer known whether they were folded, as their interval was
    dropped (`within`). `recent`: the newest batches and their versions; `contents`: the digests of their
    contents, in the same order (empty if none is known). `rolled_back`: first id, last id and the Restore's
    version, for batches that a Restore left out of the table, or that were undone by a later entry;
    ascending. `time_us`: the log time of the last batch.
    """

    intervals: tuple[tuple[int, int], ...] = ()
    forgotten_below: int = 0
    recent: tuple[tuple[int, int], ...] = ()
    time_us: int = 0
    contents: tuple[str, ...] = ()
    rolled_back: tuple[tuple[int, int, int], ...] = ()

    def has(self, batch_id: int) -> bool:
        """Returns whether this batch was folded, as far as the intervals and the newest batches show."""
        if has(self.intervals, batch_id):
            return True
        return batch_id < self.forgotten_below and batch_id in dict(self.recent)

    def version_of(self, batch_id: int) -> int:
        """Returns the version that contains this batch, 0 if it is no longer known."""
        return dict(self.recent).get(batch_id, 0)

    def rolled_back_by(self, batch_id: int) -> int:
        """Returns the version that left this batch out of the table or undid it, 0 if none is known."""
        return _rolled_back_by(self.rolled_back, batch_id)

    def content_of(self, batch_id: int) -> str:
        """Returns the digest of this batch's content, `UNKNOWN` if it is not remembered."""
        return GrowingMark(self).content_of(batch_id)

    @property
    def folded(self) -> tuple[Interval, ...]:
        """The ids for which `has` is true, as ascending intervals that don't touch."""
        forgotten = [(batch, batch) for batch, _ in self.recent if batch < self.forgotten_below]
        return tuple(joined((*forgotten, *self.intervals))) if forgotten else self.intervals

    def not_folded_below(self, batch_id: int) -> tuple[Interval, ...]:
        """Returns the ids below this one that were not folded, except those that are forgotten."""
        return tuple(less([(self.forgotten_below, batch_id - 1)], self.folded))

    @property
    def last_version(self) -> int:
        """The version that contains the batch that was folded last, 0 if none was."""
        return self.recent[-1][1] if self.recent else 0

    @property
    def is_short(self) -> bool:
        """Whether it only has what `shortened` keeps. A mark of an old release may have no time, but more."""
        return len(self.intervals) == 1 and not (self.recent or self.time_us or self.is_long)

    def shortened(self) -> AppMark:
        """Returns what is kept of an app that was silent while many others wrote: the last interval.

        Its ids are Duplicates as before, without their version, and those that follow are folded. Of ids
        below it is no longer known whether they were folded, if there are other intervals.
        """
        first, last = self.intervals[-1]
        forgotten_below = self.forgotten_below if len(self.intervals) == 1 else first
        return AppMark(((first, last),), forgotten_below, rolled_back=self.rolled_back[-PLAIN_INTERVALS:])

    @property
    def is_long(self) -> bool:
        """Whether it has intervals or rolled back batches of which it may forget some."""
        return max(len(self.intervals), len(self.rolled_back)) > PLAIN_INTERVALS

    def within(self, length: int) -> AppMark:
        """Returns what is kept of an app whose `encoded` may have at most this many bytes.

        The lowest intervals are forgotten, an eighth of them at a time, so that it doesn't happen at each
        version. `PLAIN_INTERVALS` of them stay in any case.
        """
        mark = self
        while len(mark.encoded) > length and mark.is_long:
            mark = mark._with_fewer()
        return mark

    def _with_fewer(self) -> AppMark:
        spare = len(self.intervals) - PLAIN_INTERVALS
        if spare <= 0:
            left = len(self.rolled_back) - max(len(self.rolled_back) // 8, 1)
            return replace(self, rolled_back=self.rolled_back[-max(left, PLAIN_INTERVALS) :])
        count = min(max(len(self.intervals) // 8, 1), spare)
        below = self.intervals[count - 1][1] + 1
        known = [batch for batch, _ in self.recent]
        rolled_back = tuple(
            part
            for part in self.rolled_back
            if part[1] >= below or any(part[0] <= batch <= part[1] for batch in known)
        )
        return replace(self, intervals=self.intervals[count:], forgotten_below=below, rolled_back=rolled_back)

    def short_form(self, app_id: str) -> str:
        """Returns a short mark as JSON, with its app."""
        first, last = self.intervals[-1]
        more = ""
        if first or self.forgotten_below or self.rolled_back:
            rolled_back = f",{compact(self.rolled_back)}" if self.rolled_back else ""
            more = f",{first},{self.forgotten_below}{rolled_back}"
        # A version may have thousands of them.
        return f"[{json.dumps(app_id)},{last}{more}]"

    @cached_property
    def encoded(self) -> str:
        """The value of the app's metadata key. Cached, as most apps write nothing in most versions."""
        value: dict[str, object] = {
            "batches": self.intervals[-PLAIN_INTERVALS:],
            "forgotten_below": self.forgotten_below,
            "versions": self.recent,
            "time_us": self.time_us,
        }
        if self.contents:
            value["contents"] = "".join(self.contents)
        if self.rolled_back:
            value["rolled_back"] = self.rolled_back[-PLAIN_INTERVALS:]
        if self.intervals[:-PLAIN_INTERVALS]:
            value["older"] = to_gaps(self.intervals[:-PLAIN_INTERVALS])
        if self.rolled_back[:-PLAIN_INTERVALS]:
            value["older_rolled_back"] = _by_restore(self.rolled_back[:-PLAIN_INTERVALS])
        return compact(value)

    @classmethod
    def decode(cls, text: str) -> AppMark:
        """Returns the mark that `encoded` was made from. Raises `ValueError`, `KeyError` or `TypeError`."""
        value = json.loads(text)
        highest = ((whole(first), whole(last)) for first, last in value["batches"])
        intervals = (*from_gaps(value.get("older", ())), *highest)
        ends = [end for interval in intervals for end in interval]
        if ends != sorted(ends):
            raise ValueError("the batches don't ascend")
        recent = tuple((whole(batch), whole(version)) for batch, version in value["versions"])
        return cls(
            intervals,
            whole(value["forgotten_below"]),
            recent,
            whole(value["time_us"]),
            split(text_of(value.get("contents", "")), len(recent)),
            (
                *_older_rolled_back(value.get("older_rolled_back", ())),
                *_triples(value.get("rolled_back", ())),
            ),
        )


def short_marks(text: str) -> dict[str, AppMark]:
    """Returns the marks in an array of `short_form`s. Raises `ValueError`, `KeyError` or `TypeError`."""
    marks = {}
    for app_id, last, *more in json.loads(text):
        first, forgotten_below, *rolled_back = more or (0, 0)
        if whole(first) > whole(last):
            raise ValueError(f"the batches from {first} to {last} don't ascend")
        marks[text_of(app_id)] = AppMark(
            ((first, last),),
            whole(forgotten_below),
            rolled_back=_triples(rolled_back[0] if rolled_back else ()),
        )
    return marks


def _triples(value: Iterable[Iterable[object]]) -> tuple[tuple[int, int, int], ...]:
    return tuple((whole(first), whole(last), whole(version)) for first, last, version in value)


def _by_restore(rolled_back: Iterable[tuple[int, int, int]]) -> list[tuple[int, list[int]]]:
    """Returns each Restore's version, with the batches that it left out in the short form."""
    restores: dict[int, list[Interval]] = {}
    for first, last, version in rolled_back:
        restores.setdefault(version, []).append((first, last))
    return [(version, to_gaps(intervals)) for version, intervals in restores.items()]


def _older_rolled_back(value: Iterable[tuple[object, Iterable[object]]]) -> list[tuple[int, int, int]]:
    """Returns what `_by_restore` was called with."""
    return sorted((*each, whole(version)) for version, gaps in value for each in from_gaps(gaps))


class GrowingMark:
    """An app's mark while a group is folded.

    Adding a batch costs almost nothing. What is too much for a version is forgotten when it is made.
    """

    __slots__ = ("_contents", "_intervals", "_recent", "_rolled_back", "_time_us", "forgotten_below")

    def __init__(self, mark: AppMark) -> None:
        self.forgotten_below = mark.forgotten_below
        self._intervals = list(mark.intervals)
        self._recent = deque(mark.recent, MAX_RECENT_BATCHES)
        contents: Iterable[str | Entry | None] = mark.contents or [None] * len(mark.recent)
        self._contents = deque(contents, MAX_RECENT_BATCHES)
        self._rolled_back = mark.rolled_back
        self._time_us = mark.time_us

    def has(self, batch_id: int) -> bool:
        """See `AppMark.has`."""
        if has(self._intervals, batch_id):
            return True
        return batch_id < self.forgotten_below and batch_id in dict(self._recent)

    def version_of(self, batch_id: int) -> int:
        """See `AppMark.version_of`."""
        return dict(self._recent).get(batch_id, 0)

    def rolled_back_by(self, batch_id: int) -> int:
        """See `AppMark.rolled_back_by`."""
        return _rolled_back_by(self._rolled_back, batch_id)

    def content_of(self, batch_id: int) -> str:
        """See `AppMark.content_of`."""
        pairs = zip(self._recent, self._contents, strict=True)
        known = digests(content for (batch, _), content in pairs if batch == batch_id)
        return known[-1] if known else UNKNOWN

    def add(self, batch_id: int, version: int, time_us: int, entry: Entry | None = None) -> None:
        """Adds a batch that was folded into `version`.

        The digest of `entry` is made only when it is needed.
        """
        if self._rolled_back and self.rolled_back_by(batch_id):
            # It is folded in place of one that was undone.
            self._rolled_back = _without(self._rolled_back, batch_id, batch_id)
        add(self._intervals, batch_id)
        self._recent.append((batch_id, version))
        self._contents.append(entry)
        self._time_us = max(self._time_us, time_us)

    def add_range(self, first: int, last: int, version: int, time_us: int) -> None:
        """Adds batches that `version` has from another branch."""
        self._intervals = joined([*self._intervals, (first, last)])
        self._rolled_back = _without(self._rolled_back, first, last)
        for batch_id in range(max(first, last - MAX_RECENT_BATCHES + 1), last + 1):
            self._recent.append((batch_id, version))
            self._contents.append(None)
        self._time_us = max(self._time_us, time_us)

    def pass_over(self, batch_id: int) -> None:
        """Counts all batches up to this one as folded, unless it or a greater one was: others recorded it."""
        if batch_id >= 0 and (not self._intervals or self._intervals[-1][1] < batch_id):
            self._intervals = [(0, batch_id)]

    def roll_back(self, first: int, last: int, by: int) -> None:
        """Notes that version `by` undoes these batches, whatever left them out before."""
        others = _without(self._rolled_back, first, last)
        parts: list[tuple[int, int, int]] = []
        for begin, end, version in sorted([*others, (first, last, by)]):
            if parts and parts[-1][1:] == (begin - 1, version):
                parts[-1] = parts[-1][0], end, version
            else:
                parts.append((begin, end, version))
        self._rolled_back = tuple(parts)

    def bring_back(self, by: int) -> None:
        """Notes that what version `by` left out or undid is in the table again."""
        self._rolled_back = tuple(part for part in self._rolled_back if part[2] != by)

    def mark(self) -> AppMark:
        """Returns the mark as it is now."""
        return AppMark(
            tuple(self._intervals),
            self.forgotten_below,
            tuple(self._recent),
            self._time_us,
            digests(self._contents),
            self._rolled_back,
        )


def _without(
    rolled_back: Iterable[tuple[int, int, int]], begin: int, end: int
) -> tuple[tuple[int, int, int], ...]:
    return tuple(
        (*part, version)
        for first, last, version in rolled_back
        for part in less([(first, last)], [(begin, end)])
    )


def _rolled_back_by(rolled_back: Iterable[tuple[int, int, int]], batch_id: int) -> int:
    return next((version for first, last, version in rolled_back if first <= batch_id <= last), 0)

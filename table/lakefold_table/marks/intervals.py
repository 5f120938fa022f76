"""Sets of batch ids as ascending intervals that don't touch, and their short form in a version's JSON."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from lakefold_table.marks.compact_json import whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Interval = tuple[int, int]
"""Batch ids from the first to the last, both inclusive."""


def index_of(intervals: Sequence[tuple[int, ...]], batch_id: int) -> int:
    """Returns the index of the last interval that begins at this id or before, -1 if none does."""
    return bisect_right(intervals, (batch_id + 1,)) - 1


def has(intervals: Sequence[Interval], batch_id: int) -> bool:
    """Returns whether one of the intervals has this id."""
    if not intervals or batch_id > intervals[-1][1]:
        # A new batch of an app that numbers them one after the other, which nearly all are.
        return False
    index = index_of(intervals, batch_id)
    return index >= 0 and batch_id <= intervals[index][1]


def add(intervals: list[Interval], batch_id: int) -> None:
    """Adds an id to the intervals, in time that hardly grows with them."""
    if intervals and intervals[-1][1] == batch_id - 1:
        intervals[-1] = intervals[-1][0], batch_id
        return
    begin = end = index_of(intervals, batch_id) + 1
    first = last = batch_id
    if begin and intervals[begin - 1][1] >= batch_id - 1:
        begin -= 1
        first, last = intervals[begin][0], max(last, intervals[begin][1])
    if end < len(intervals) and intervals[end][0] == batch_id + 1:
        last, end = intervals[end][1], end + 1
    intervals[begin:end] = [(first, last)]


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """Returns intervals in any order as ascending ones that don't touch."""
    merged: list[Interval] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def less(intervals: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """Returns the ids of `intervals` that are in none of `others`. Both must ascend and not overlap."""
    rest: list[Interval] = []
    taken = iter(others)
    other = next(taken, None)
    for begin, end in intervals:
        start = begin
        while other is not None and other[0] <= end:
            if start < other[0]:
                rest.append((start, other[0] - 1))
            start = max(start, other[1] + 1)
            if other[1] >= end:
                break
            other = next(taken, None)
        if start <= end:
            rest.append((start, end))
    return rest


def to_gaps(intervals: Iterable[Interval]) -> list[int]:
    """Returns the short form: how far each interval begins after the last id of the one before, or after -1.

    An interval of several ids is the negative distance, followed by the number of its ids.
    """
    gaps: list[int] = []
    end = -1
    for first, last in intervals:
        gaps += (first - end,) if first == last else (end - first, last - first + 1)
        end = last
    return gaps


def from_gaps(gaps: Iterable[object]) -> tuple[Interval, ...]:
    """Returns the intervals of a short form. Raises `TypeError` or `ValueError` if it is none."""
    intervals: list[Interval] = []
    end, each = -1, map(whole, gaps)
    for gap in each:
        count = 1 if gap > 0 else next(each, 0)
        if not gap or count < 1:
            raise ValueError(f"after batch {end} no distance can be {gap} for {count} batches")
        first = end + abs(gap)
        end = first + count - 1
        intervals.append((first, end))
    return tuple(intervals)

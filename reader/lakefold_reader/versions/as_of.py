"""Finds the version that was the newest at a time."""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING

from lakefold_reader.versions.late_versions import is_late_at, missing, without_late
from lakefold_reader.versions.listing import numbers_of
from lakefold_reader.versions.times import time_of
from lakefold_table.errors import InvalidError, VersionExpiredError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_reader.format.source import Source


def version_as_of(source: Source, time_us: int) -> int:
    """Returns the version that was the newest at this time, in microseconds since 1970.

    Found by bisection, which assumes that the times of versions grow. Lakefold's always do. If another
    client's clock went back, it is a version made by that time whose successor was made later. Raises
    `InvalidError` for a time before the oldest version that is left, `VersionExpiredError` if older versions
    were cleaned up.
    """
    numbers = numbers_of(source)
    version = _newest_by(source, numbers, time_us)
    if version != numbers[-1] and is_late_at(source, version):
        return _newest_by(source, without_late(source, numbers), time_us)
    return version


def _newest_by(source: Source, numbers: Sequence[int], time_us: int) -> int:
    if _time_us(source, numbers[-1]) <= time_us:
        return numbers[-1]
    if _time_us(source, numbers[0]) > time_us:
        raise _before_oldest(source, without_late(source, numbers)[0])
    later = bisect_right(numbers, time_us, lo=1, hi=len(numbers) - 1, key=partial(_time_us, source))
    return numbers[later - 1]


def _time_us(source: Source, version: int) -> int:
    summary = source.summary(version)
    if summary is None:
        raise missing(source, version)
    return summary.time_us


def _before_oldest(source: Source, oldest: int) -> InvalidError:
    made = time_of(_time_us(source, oldest))
    message = f"no version is as old as that: the oldest one, {oldest}, was made at {made}"
    if oldest == source.versions.first:
        return InvalidError(message, where=source.uri, hint="ask for a later time")
    hint = "older ones were cleaned up; ask for a later time"
    return VersionExpiredError(message, oldest=oldest, where=source.uri, hint=hint)

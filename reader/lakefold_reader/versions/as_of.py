"""Which version was the newest at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakefold_reader.versions.source import EPOCH, numbers_of, read_step, time_of
from lakefold_reader.versions.stray_files import in_line, is_stray_at, missing
from lakefold_table.errors import InvalidError, VersionExpiredError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_reader.versions.source import Source


def version_as_of(source: Source, time_us: int) -> int:
    """The version that was the newest at this time, in microseconds since 1970.

    Found by halving, which takes the times of versions to grow. Lakefold's always do; where a foreign
    client's clock went back, it is a version made by that time whose successor was made later. Raises
    `InvalidError` (where versions were cleaned up: `VersionExpiredError`) for a time before the oldest
    version that is left.
    """
    numbers = numbers_of(source)
    found = _newest_by(source, numbers, time_us)
    if found != numbers[-1] and is_stray_at(source, found):
        return _newest_by(source, in_line(source, numbers), time_us)
    return found


def _newest_by(source: Source, numbers: Sequence[int], time_us: int) -> int:
    if _time_us(source, numbers[-1]) <= time_us:
        return numbers[-1]
    low, high = 0, len(numbers) - 1
    if _time_us(source, numbers[0]) > time_us:
        raise _before_oldest(source, in_line(source, numbers)[0])
    while high - low > 1:
        middle = (low + high) // 2
        if _time_us(source, numbers[middle]) <= time_us:
            low = middle
        else:
            high = middle
    return numbers[low]


def micros_of(moment: datetime | str) -> int:
    """A time in microseconds since 1970; without a zone it is UTC. Raises `InvalidError` for other text."""
    if isinstance(moment, datetime):
        zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (zoned - EPOCH) // timedelta(microseconds=1)
    try:
        return micros_of(datetime.fromisoformat(moment.strip()))
    except (ValueError, AttributeError) as error:
        hint = "write it as 2026-05-01T12:00:00Z or 2026-05-01"
        raise InvalidError("this is no time", where=str(moment), hint=hint) from error


def _time_us(source: Source, version: int) -> int:
    step = read_step(source, version)
    if step is None:
        raise missing(source, version)
    return step.time_us


def _before_oldest(source: Source, oldest: int) -> InvalidError:
    made = time_of(_time_us(source, oldest))
    message = f"no version of that time is there: the oldest one, {oldest}, is of {made}"
    if oldest == 1:
        return InvalidError(message, where=source.uri, hint="ask for a later time")
    hint = "older ones were cleaned up; ask for a later time"
    return VersionExpiredError(message, oldest=oldest, where=source.uri, hint=hint)

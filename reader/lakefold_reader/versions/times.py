"""Times of versions: microseconds since 1970 in files, `datetime` in UTC for people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from lakefold_table.errors import DamagedError, InvalidError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_US: Final = (datetime.min.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
LAST_US: Final = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
"""The last microsecond of the year 9999, after which neither Python nor Arrow shows a time."""


def time_of(time_us: int) -> datetime:
    """Microseconds since 1970 as a time in UTC. Raises `DamagedError` if it is not in the years 1 to 9999."""
    try:
        return EPOCH + timedelta(microseconds=time_us)
    except OverflowError as error:
        raise DamagedError(
            f"the version's time is not in the years 1 to 9999: {time_us} µs since 1970"
        ) from error


def nearest_time(time_us: int) -> datetime:
    """Returns microseconds since 1970 as a time in UTC, of the years 1 to 9999 that which is the nearest.

    For times that are shown or compared: that of a log's entry may be any number that its sender has set.
    """
    return EPOCH + timedelta(microseconds=limited(time_us))


def limited(time_us: int) -> int:
    """Returns microseconds since 1970 in the years 1 to 9999: of another time the nearest of these."""
    return max(FIRST_US, min(LAST_US, time_us))


def micros_of(moment: datetime | str) -> int:
    """Returns a time in microseconds since 1970. A time without a zone is in UTC."""
    if isinstance(moment, datetime):
        zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (zoned - EPOCH) // timedelta(microseconds=1)
    try:
        return micros_of(datetime.fromisoformat(moment.strip()))
    except (ValueError, AttributeError) as error:
        hint = "write it as 2026-05-01T12:00:00Z or 2026-05-01"
        raise InvalidError("this is not a time", where=str(moment), hint=hint) from error

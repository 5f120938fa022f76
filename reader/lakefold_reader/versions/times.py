"""Times of versions: microseconds since 1970 in files, `datetime` in UTC for people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lakefold_table.errors import DamagedError, InvalidError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(time_us: int) -> datetime:
    """Microseconds since 1970 as a time in UTC. Raises `DamagedError` if it is not in the years 1 to 9999."""
    try:
        return EPOCH + timedelta(microseconds=time_us)
    except OverflowError as error:
        raise DamagedError(
            f"the version's time is not in the years 1 to 9999: {time_us} µs since 1970"
        ) from error


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

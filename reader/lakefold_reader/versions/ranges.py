"""The range of versions that a change feed covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_reader.versions.late_versions import missing
from lakefold_reader.versions.listing import numbers_of, remaining, unbroken_from
from lakefold_table.errors import InvalidError, VersionExpiredError
from lakefold_table.whole_numbers import integer

if TYPE_CHECKING:
    from lakefold_reader.format.source import Source


def checked_range(source: Source, after: int, to: int | None) -> tuple[int, int]:
    """Returns the version after which a feed begins and its last version (`to`; None: the newest), as `int`.

    Raises `InvalidError` if no version is between them, `VersionExpiredError` if either of them does not
    exist.
    """
    after, to = _number(after), None if to is None else _number(to)
    numbers = numbers_of(source)
    last = numbers[-1] if to is None else to
    if not source.versions.first - 1 <= after <= last:
        raise InvalidError(
            f"there is no version after {after} and up to {last}",
            where=source.uri,
            hint="give the version after which to begin first, then the last version to read",
        )
    existing = set(numbers)
    needed = range(min(after + 1, last), last + 1)
    removed = next((number for number in needed if number not in existing), None)
    if last > numbers[-1]:
        raise missing(source, last)
    if removed is not None:
        raise expired(source, f"version {removed} is gone: it was cleaned up")
    return after, last


def expired(source: Source, message: str) -> VersionExpiredError:
    """Returns the error for a version that a feed needs and that is gone."""
    numbers = numbers_of(source)
    hint = f"{remaining(numbers)}: read that version whole, then begin the feed after it"
    return VersionExpiredError(message, oldest=unbroken_from(numbers), where=source.uri, hint=hint)


def _number(given: object) -> int:
    number = integer(given)
    if number is None:
        raise InvalidError(
            f"{str(given)!r} is not the number of a version",
            hint="a feed begins and ends with numbers; of a cursor that is its `version`",
        )
    return number

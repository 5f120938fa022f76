"""How long a table keeps what it no longer needs, by its properties (Delta fact 3.5)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lakefold_table.errors import DamagedError
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

_DAY: Final = 86_400_000
_UNITS: Final = {
    "week": 7 * _DAY,
    "day": _DAY,
    "hour": _DAY // 24,
    "minute": 60_000,
    "second": 1_000,
    "millisecond": 1,
}
_PART: Final = re.compile(r"(\d{1,9}) +([a-z]+?)s?(?: +|$)")


@value()
class DurationProperty:
    """A property of tables that holds a duration. `default_ms`: if the table doesn't set it."""

    name: str
    default_ms: int


TOMBSTONES: Final = DurationProperty("delta.deletedFileRetentionDuration", 7 * _DAY)


def duration_ms(configuration: Mapping[str, str | None], of: DurationProperty) -> int:
    """Returns the milliseconds of a duration such as `interval 1 week`, by the table's properties.

    Months and years are refused, since their length differs. Raises `DamagedError` if it is no duration.
    """
    text = configuration.get(of.name)
    if text is None:
        return of.default_ms
    rest = text.strip().lower().removeprefix("interval").strip()
    total, at = 0, 0
    while match := _PART.match(rest, at):
        if match[2] not in _UNITS:
            break
        total, at = total + int(match[1]) * _UNITS[match[2]], match.end()
    if not rest or at < len(rest):
        message = f"the property {of.name} is {text!r}, which is no duration"
        raise DamagedError(message, hint="set it to weeks, days or hours, as in `interval 1 week`")
    return total

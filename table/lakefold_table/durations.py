"""Durations as people and tables write them: `14d`, `12h`, `2 weeks`, `1 day 12 hours`.

Settings, Lance's own keys and the properties of Delta tables name the units differently, so a caller says
which it accepts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

DAY_MS: Final = 86_400_000
LATEST_US: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999, where protobuf's timestamps end."""
UNITS_MS: Final = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": DAY_MS // 24,
    "day": DAY_MS,
    "week": 7 * DAY_MS,
}
"""The milliseconds of the units that always have the same length."""
_PART: Final = re.compile(r"\s*(\d{1,12})\s*([A-Za-z]+)\s*")


def duration_ms(text: str, units_ms: Mapping[str, int]) -> int | None:
    """Returns the milliseconds of a duration, or None if the text is none.

    `units_ms`: the milliseconds of each unit; a unit may stand in the plural.
    """
    position, total = 0, 0
    while position < len(text) and (part := _PART.match(text, position)):
        unit = part[2] if part[2] in units_ms else part[2].removesuffix("s")
        if unit not in units_ms:
            break
        total += int(part[1]) * units_ms[unit]
        position = part.end()
    return total if text and position == len(text) else None

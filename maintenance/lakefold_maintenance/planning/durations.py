"""Durations as people write them: `14d`, `12h`, `0s`, and the forms of Lance's own keys (`2 weeks`)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

_SECONDS: Final = {
    "ms": 0.001,
    "s": 1,
    "sec": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3_600,
    "hr": 3_600,
    "hour": 3_600,
    "d": 86_400,
    "day": 86_400,
    "w": 604_800,
    "week": 604_800,
    "M": 2_630_016,
    "month": 2_630_016,
    "y": 31_557_600,
    "year": 31_557_600,
}
_PART: Final = re.compile(r"\s*(\d{1,12})\s*([A-Za-z]+)\s*")


def duration_of(text: str) -> timedelta:
    """Returns the duration. Raises `ValueError` if the text is none, or one that is too long for Python."""
    position, seconds = 0, 0.0
    while position < len(text) and (part := _PART.match(text, position)):
        unit = part[2] if part[2] in _SECONDS else part[2].removesuffix("s")
        if unit not in _SECONDS:
            break
        seconds += int(part[1]) * _SECONDS[unit]
        position = part.end()
    if not text or position < len(text):
        raise ValueError("it is not a duration; write it as 14d, 12h, 30m or 0s")
    try:
        return timedelta(seconds=seconds)
    except OverflowError as error:
        raise ValueError("it is too long") from error

"""JSON as versions carry it: without a space too many, and read without a guess.

What is read comes from a table's metadata, where any client may have written something else.
"""

from __future__ import annotations

import json
from typing import Final

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


def compact(value: object) -> str:
    """The value as JSON, the same text each time."""
    return _ENCODER.encode(value)


def whole(value: object) -> int:
    """A number as it was written; nothing is rounded. Raises `TypeError` for anything else."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def text_of(value: object) -> str:
    """A text as it was written. Raises `TypeError` for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value

"""JSON as versions contain it: written without spaces, and read strictly.

What is read is from a table's metadata, where any client may have written something else.
"""

from __future__ import annotations

import json
from typing import Final

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


def compact(value: object) -> str:
    """Returns the value as JSON, always the same text for the same value."""
    return _ENCODER.encode(value)


def whole(value: object) -> int:
    """Returns a whole number as it was written. Raises `TypeError` for anything else."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a whole number")
    return value


def text_of(value: object) -> str:
    """Returns a text as it was written. Raises `TypeError` for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value

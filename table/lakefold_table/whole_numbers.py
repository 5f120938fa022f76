"""Numbers as callers give them: versions, limits and counts, of whichever integer type.

A number from a NumPy array or a data frame is not an `int`, and arithmetic on it wraps around or overflows
deep inside a store. So each public call converts it to an `int` once, and refuses what is not a whole number.
"""

from __future__ import annotations

import operator
from typing import Final

from lakefold_table.errors import InvalidError

MOST_VERSION: Final = 2**64 - 1
"""The highest number of a version: Lance numbers versions with 64 bits."""


def integer(value: object) -> int | None:
    """Returns a value of any integer type as an `int`, or None if it is of another type.

    A truth value is of another type, although Python counts with it.
    """
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type] # what has no index raises TypeError
    except TypeError:
        return None


def within(name: str, value: object, least: int = 0, most: int = 2**63 - 1) -> int:
    """Returns the number that a caller gave for `name`. Raises `InvalidError` if it is out of bounds."""
    number = integer(value)
    if number is None or not least <= number <= most:
        raise InvalidError(f"{name} is {value!r}", hint=f"give a whole number from {least} to {most}")
    return number


def version_number(value: object, *, least: int = 1, hint: str = "versions count from 1") -> int:
    """Returns the number of a version that a caller named. Raises `InvalidError` with this hint."""
    number = integer(value)
    if number is None or not least <= number <= MOST_VERSION:
        raise InvalidError(f"{value!r} is not the number of a version", hint=hint)
    return number

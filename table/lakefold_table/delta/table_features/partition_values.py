"""Whether texts are values of partition columns, as the log has them.

A text is refused here if readers could not convert it to the type of its column: the row would be lost to
them, or the table unreadable.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)", re.ASCII)
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})", re.ASCII)
_TIME: Final = re.compile(
    r"([0-9-]{8,10})(?:[ T]([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]{1,9})?"
    r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?",
    re.ASCII,
)
_HOURS: Final = 24
_MINUTES: Final = 60


def fits_type(text: str | None, kind: str) -> bool:
    """Returns whether a partition's value is one of a column of this type. Null and the empty text are."""
    if not text:
        return True
    check = _CHECKS.get(kind)
    if check is not None:
        return check(text)
    bits = BITS.get(kind)
    if bits is not None:
        return bool(_INTEGER.fullmatch(text)) and -(1 << bits - 1) <= int(text) < 1 << bits - 1
    decimal = _DECIMAL.fullmatch(kind)
    return decimal is None or _is_decimal(text, int(decimal[1]), int(decimal[2]))


def _is_decimal(text: str, precision: int, scale: int) -> bool:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    if not number.is_finite():
        return False
    if not number:
        return True
    # `normalize` would round to the digits of Python's context, and raise for large exponents.
    _, digits, exponent = number.as_tuple()
    significant = "".join(map(str, digits)).rstrip("0")
    places = max(0, len(significant) - len(digits) - int(exponent))
    return places <= scale and number.adjusted() < precision - scale


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text and text == text.strip()


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    try:
        dt.date(*map(int, match.groups()))
    except ValueError:
        return False
    return True


def _is_time(text: str) -> bool:
    match = _TIME.fullmatch(text)
    if match is None or not _is_date(match[1]):
        return False
    hour, minute, second = (int(part or 0) for part in match.groups()[1:])
    return hour < _HOURS and minute < _MINUTES and second < _MINUTES


_CHECKS: Final[dict[str, Callable[[str], bool]]] = {
    "boolean": lambda text: text.lower() in ("true", "false"),
    "float": _is_float,
    "double": _is_float,
    "date": _is_date,
    "timestamp": _is_time,
    "timestamp_ntz": _is_time,
}

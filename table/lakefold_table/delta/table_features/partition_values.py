"""The values of partition columns, which the log has as texts.

A text that is no value of its column's type is refused here: the rows would be lost to readers, or the table
unreadable.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.table_features.simple_types import decimal_digits
from lakefold_table.delta.table_features.text_types import is_char

if TYPE_CHECKING:
    from collections.abc import Callable

BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
"""Null in the name of a partition's folder. In the log it is a text like others (Delta fact 8.7)."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_NO_NUMBER: Final = re.compile(r"[+-]?(?:nan|inf|infinity)", re.ASCII | re.IGNORECASE)
_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:Z|([+-])([0-9]{2}):?([0-9]{2}))?)?",
    re.ASCII,
)
_SHORT_TIME: Final = re.compile(r"([0-9-]+[ T][0-9]{1,2})(:[0-9]{2})?(Z|[+-][0-9]{2}:?[0-9]{2})?", re.ASCII)
"""A time without seconds, or without minutes."""
_MICROSECONDS: Final = 6
_HOURS: Final = 24
_MINUTES: Final = 60
_EXACT: Final = Context(prec=100)
"""Python's own context would round a decimal of more than 28 digits."""


def fits_type(text: str | None, kind: str) -> bool:
    """Returns whether a partition's value is one of a column of this type. Null and the empty text are."""
    return not text or value_of(text, kind) is not None


def is_null(text: str | None, kind: str) -> bool:
    """Returns whether a partition's value is null: so is an empty text, of any type (Delta fact 8.7).

    A type that has not all texts as its values has one more for null, which Spark's casts make of it.
    """
    return not text or (text == NULL_PARTITION and not has_any_text(kind))


def has_any_text(kind: str) -> bool:
    """Returns whether each text is a value of this type."""
    return kind in ("string", "binary") or is_char(kind)


def value_of(text: str, kind: str) -> Any | None:  # noqa: ANN401 - a value that Arrow takes
    """Returns the value of a column of this type that a text is, None if it is none.

    A type that is not known has all texts as its values.
    """
    bits = BITS.get(kind)
    if bits is not None:
        number = int(text) if _INTEGER.fullmatch(text) else None
        return number if number is not None and -(1 << bits - 1) <= number < 1 << bits - 1 else None
    read = _READ.get(kind)
    if read is not None:
        return read(text)
    digits = decimal_digits(kind)
    return text if digits is None else _decimal(text, *digits)


def value_to_read(text: str, kind: str) -> Any | None:  # noqa: ANN401 - a value that Arrow takes
    """Returns what `value_of` returns, and of more texts: 0 and 1 as booleans, times without seconds.

    Spark casts these too, so other clients may have written them (Delta fact 8.6). A proposal may not.
    """
    if kind == "boolean":
        text = {"0": "false", "1": "true"}.get(text, text)
    short = _SHORT_TIME.fullmatch(text) if kind in ("timestamp", "timestamp_ntz") else None
    if short is not None:
        text = f"{short[1]}{short[2] or ':00'}:00{short[3] or ''}"
    return value_of(text, kind)


def _decimal(text: str, precision: int, scale: int) -> Decimal | None:
    number = Decimal(text) if _NUMBER.fullmatch(text) else None
    if number is None or not number:
        return None if number is None else Decimal(0)
    # `normalize` would round to the digits of Python's context, and raise for large exponents.
    _, digits, exponent = number.as_tuple()
    significant = "".join(map(str, digits)).rstrip("0")
    decimals = max(0, len(significant) - len(digits) - int(exponent))
    fits = decimals <= scale and number.adjusted() < precision - scale
    return number.quantize(Decimal(1).scaleb(-scale), context=_EXACT) if fits else None


def _float(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) or _NO_NUMBER.fullmatch(text) else None


def _boolean(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _binary(text: str) -> bytes | None:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


def _date(text: str) -> dt.date | None:
    match = _TIME.fullmatch(text)
    at = None if match is None or match[4] is not None else _moment(match)
    return None if at is None else at.date()


def _local_time(text: str) -> dt.datetime | None:
    """Returns a time without its zone."""
    match = _TIME.fullmatch(text)
    return None if match is None else _moment(match)


def _time(text: str) -> dt.datetime | None:
    match = _TIME.fullmatch(text)
    at = None if match is None else _moment(match)
    if match is None or at is None:
        return None
    hours, minutes = int(match[9] or 0), int(match[10] or 0)
    if hours >= _HOURS or minutes >= _MINUTES:
        return None
    ahead = dt.timedelta(hours=hours, minutes=minutes) * (-1 if match[8] == "-" else 1)
    try:
        return at.replace(tzinfo=dt.UTC) - ahead
    except OverflowError:
        return None


def _moment(match: re.Match[str]) -> dt.datetime | None:
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    fraction = int((match[7] or "")[:_MICROSECONDS].ljust(_MICROSECONDS, "0"))
    try:
        return dt.datetime(year, month, day, hour, minute, second, fraction)  # noqa: DTZ001 - it has no zone
    except ValueError:
        return None


_READ: Final[dict[str, Callable[[str], Any]]] = {
    "boolean": _boolean,
    "float": _float,
    "double": _float,
    "date": _date,
    "timestamp": _time,
    "timestamp_ntz": _local_time,
    "binary": _binary,
}

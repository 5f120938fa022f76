"""Reads values of Debezium and Kafka Connect: numbers since 1970-01-01, texts of ISO 8601, and base64.

Each function gets the values, the type of the column that is going to have them, and the scale of decimals.
It raises an error of Arrow's, or `ValueError`, if one of the values can't be read.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

Reader = Callable[[pa.Array, pa.DataType, int], pa.Array]

WORD: Final = 16
"""The bytes of a decimal in Arrow, which has up to 38 digits."""
DIGITS: Final = 38
VARIABLE_SCALE: Final = pa.struct({"scale": pa.int32(), "value": pa.string()})
"""A decimal with a scale of its own, as JSON has it."""
_UNITS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY: Final = 86_400
_ZEROS: Final = r"(\.[0-9]{6})0+"
_NANOSECONDS: Final = r"\.[0-9]{7}"
_ZONE: Final = "(Z|[+-][0-9]{2}:[0-9]{2})$"
_A_DAY: Final = "1970-01-01T"


def dates(values: pa.Array, _: pa.DataType, __: int) -> pa.Array:
    """Returns the dates of numbers of days."""
    return values.cast(pa.int32()).cast(pa.date32())


def times(unit: str) -> Reader:
    """Returns how times are read that are numbers in this unit since midnight."""

    def read(values: pa.Array, wanted: pa.DataType, _: int) -> pa.Array:
        numbers = values.cast(pa.int64())
        if types.is_duration(wanted):
            return numbers.cast(pa.duration(unit))
        outside = pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, _DAY * _UNITS[unit]))
        if pc.any(outside).as_py():
            raise ValueError("a time is not within a day")
        return (
            numbers.cast(pa.int32()).cast(pa.time32(unit)) if unit == "ms" else numbers.cast(pa.time64(unit))
        )

    return read


def timestamps(unit: str) -> Reader:
    """Returns how timestamps are read that are numbers in this unit since 1970-01-01."""

    def read(values: pa.Array, wanted: pa.DataType, _: int) -> pa.Array:
        numbers = values.cast(pa.int64()).cast(pa.timestamp(unit))
        has_zone = types.is_timestamp(wanted) and wanted.tz is not None
        return pc.assume_timezone(numbers, "UTC") if has_zone else numbers

    return read


def durations(unit: str) -> Reader:
    """Returns how durations are read that are numbers in this unit."""

    def read(values: pa.Array, wanted: pa.DataType, _: int) -> pa.Array:
        return values.cast(pa.int64()).cast(pa.duration(unit)) if types.is_duration(wanted) else values

    return read


def instants(values: pa.Array, wanted: pa.DataType, _: int) -> pa.Array:
    """Returns the instants of texts, in nanoseconds if the column has these, which end in 2262.

    The unit is that of the column, so that what one text says doesn't decide how the others are read.
    """
    is_time = types.is_timestamp(wanted) or types.is_time64(wanted)
    unit = "ns" if is_time and wanted.unit == "ns" else "us"
    texts = pc.replace_substring_regex(values, _ZEROS, r"\1")
    if unit == "us" and pc.any(pc.match_substring_regex(texts, _NANOSECONDS)).as_py():
        raise ValueError("it has more than six digits of a second, and the column no nanoseconds")
    return texts.cast(pa.timestamp(unit, "UTC"))


def utc_timestamps(values: pa.Array, wanted: pa.DataType, scale: int) -> pa.Array:
    """Returns the timestamps of texts with the zone UTC: without it if the column has none."""
    instant = instants(values, wanted, scale)
    has_zone = types.is_timestamp(wanted) and wanted.tz is not None
    return instant if has_zone else instant.cast(pa.timestamp(instant.type.unit))


def utc_dates(values: pa.Array, _: pa.DataType, __: int) -> pa.Array:
    """Returns the dates of texts, which have a zone after the day."""
    return pc.replace_substring_regex(values, _ZONE, "").cast(pa.date32())


def utc_times(values: pa.Array, wanted: pa.DataType, scale: int) -> pa.Array:
    """Returns the times of texts with a zone, in UTC."""
    # Texts of polars and pandas have offsets of 64 bits, which are not joined with others.
    instant = instants(pc.binary_join_element_wise(_A_DAY, values.cast(pa.string()), ""), wanted, scale)
    return instant.cast(pa.time64(instant.type.unit))


def decimals(values: pa.Array, wanted: pa.DataType, scale: int) -> pa.Array:
    """Returns decimals of bytes, or of their base64: unscaled numbers, the highest byte first.

    Decimals stay: numbers of JSON were read as such.
    """
    if not types.is_decimal(values.type):
        factor = 10 ** max(-scale, 0)
        numbers = [None if each is None else _checked(_number(each) * factor) for each in values.to_pylist()]
        words = b"".join((number or 0).to_bytes(WORD, "little", signed=True) for number in numbers)
        valid = pa.array([number is not None for number in numbers], pa.bool_())
        buffers = [valid.buffers()[1], pa.py_buffer(words)]
        values = pa.Array.from_buffers(decimal_type(scale), len(numbers), buffers)
    return values.cast(wanted)


def decimal_type(scale: int, precision: int = DIGITS) -> pa.DataType:
    """Returns the type of decimals with a scale, which Arrow's formats have from 0 only."""
    return pa.decimal128(min(max(precision - min(scale, 0), scale, 1), DIGITS), max(scale, 0))


def scaled_decimals(values: pa.Array, wanted: pa.DataType, _: int) -> pa.Array:
    """Returns decimals, or their texts, of structs with a scale and an unscaled number."""
    numbers = [None if each is None else _decimal(each) for each in values.to_pylist()]
    if types.is_decimal(wanted):
        return pa.array(numbers, wanted)
    return pa.array([None if number is None else f"{number:f}" for number in numbers], pa.string())


def plain_bytes(values: pa.Array, _: pa.DataType, __: int) -> pa.Array:
    """Returns bytes, which JSON has as base64."""
    return pa.array([None if each is None else _decoded(each) for each in values.to_pylist()], pa.binary())


def _decimal(value: dict[str, object]) -> Decimal:
    scale, unscaled = value.get("scale"), value.get("value")
    if not isinstance(scale, int) or not isinstance(unscaled, str | bytes) or abs(scale) > DIGITS:
        raise ValueError(f"it has no value, or no scale of up to {DIGITS}")
    return Decimal(f"{_checked(_number(unscaled))}E{-scale}")


def _number(value: str | bytes) -> int:
    return int.from_bytes(_decoded(value), "big", signed=True)


def _checked(number: int) -> int:
    if abs(number) >= 10**DIGITS:
        raise ValueError(f"it has more than {DIGITS} digits")
    return number


def _decoded(value: str | bytes) -> bytes:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value
    except binascii.Error as error:
        raise ValueError(f"{value!r} is not base64 ({error})") from error

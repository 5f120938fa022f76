"""Translates Spark's filters into filters of a Lance scan.

A filter is pushed only if Lance's answer is Spark's for every value of the column: with a literal that the
column's own type holds exactly, on a type whose values both order alike. Spark itself answers filters that
are not pushed, so leaving a filter is never wrong. Works on Spark's classes by their names, without Spark.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

COMPARED: Final = {
    "EqualTo": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
LARGER: Final = frozenset({">", ">="})
TEXT: Final = {"StringStartsWith": "starts_with", "StringEndsWith": "ends_with", "StringContains": "contains"}
UTC_NAMES: Final = frozenset({"UTC", "+00:00", "Etc/UTC", "Z"})
UNIT_MICROS: Final = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 1}
"""A literal must be a whole multiple of this many microseconds, so that the unit can express it."""
NS_YEARS: Final = range(1678, 2262)
"""The years of times that a timestamp of nanoseconds can always hold."""
STRANGE: Final = frozenset('`"')
"""If a column has such a name, all filters are left to Spark: pylance may parse none (Lance fact 13.2)."""


@dataclass(frozen=True)
class PushedFilters:
    """`where` is the filter of the scan (None: none); `left` are the filters that Spark must answer."""

    where: str | None
    left: tuple[Any, ...]


def push(filters: Iterable[Any], schema: pa.Schema) -> PushedFilters:
    """Returns which of Spark's filters a scan can answer, and the filter of the scan.

    `schema` is the table's Arrow schema.
    """
    if any(STRANGE.intersection(name) for name in schema.names):
        return PushedFilters(None, tuple(filters))
    conditions: list[str] = []
    left_to_spark: list[Any] = []
    for spark_filter in filters:
        text = condition(spark_filter, schema)
        (left_to_spark.append(spark_filter) if text is None else conditions.append(text))
    return PushedFilters(" AND ".join(f"({text})" for text in conditions) or None, tuple(left_to_spark))


def condition(spark_filter: Any, schema: pa.Schema) -> str | None:  # noqa: ANN401 - Spark's filters, known by their names
    """Returns a filter as text. Returns None if Lance can't answer it as Spark would."""
    kind = type(spark_filter).__name__
    if kind == "Not":
        inner = condition(spark_filter.child, schema)
        return None if inner is None else f"NOT ({inner})"
    column_and_type = _column(spark_filter.attribute, schema)
    if column_and_type is None:
        return None
    name, column = column_and_type
    if kind in {"IsNull", "IsNotNull"}:
        return f"{name} IS {'' if kind == 'IsNull' else 'NOT '}NULL"
    if kind in TEXT:
        is_exact = _is_text(column) and isinstance(spark_filter.value, str)
        return f"{TEXT[kind]}({name}, {_quoted(spark_filter.value)})" if is_exact else None
    if kind == "In":
        texts = [literal(value, column) for value in spark_filter.value]
        is_exact = bool(texts) and all(text is not None for text in texts)
        return f"{name} IN ({', '.join(text for text in texts if text is not None)})" if is_exact else None
    if kind == "EqualNullSafe":
        text = literal(spark_filter.value, column)
        return None if text is None else f"({name} IS NOT NULL AND {name} = {text})"
    sign, text = COMPARED.get(kind), literal(spark_filter.value, column)
    return None if sign is None or text is None else _compared(name, column, sign, text)


def _compared(name: str, column: pa.DataType, sign: str, text: str) -> str:
    """Returns a comparison with a literal.

    For Spark every NaN is larger than any number. Lance orders floats by their bits, so that a NaN whose sign
    bit is set (the result of 0.0/0.0 on x86) is smaller than any number. So the text handles NaN explicitly.
    """
    plain = f"{name} {sign} {text}"
    if not pa.types.is_floating(column) or sign == "=":
        return plain
    return f"({plain} OR isnan({name}))" if sign in LARGER else f"({plain} AND NOT isnan({name}))"


def literal(value: Any, column: pa.DataType) -> str | None:  # noqa: ANN401 - a value of any of Spark's types
    """Returns a value as a literal of the column's type. Returns None if the type doesn't hold it exactly."""
    if value is None:
        return None
    return next((write(value, column) for holds, write in LITERALS if holds(column)), None)


def _column(path: Sequence[str], schema: pa.Schema) -> tuple[str, pa.DataType] | None:
    """Returns the column's name as filters write it, and its type. Parts of structs are left to Spark."""
    if len(path) != 1 or schema.get_field_index(path[0]) < 0:
        return None
    return f"`{path[0]}`", schema.field(path[0]).type


def _is_text(column: pa.DataType) -> bool:
    return bool(pa.types.is_string(column) or pa.types.is_large_string(column))


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def _boolean(value: object, _: pa.DataType) -> str | None:
    return str(value).lower() if isinstance(value, bool) else None


def _integer(value: object, column: pa.DataType) -> str | None:
    if isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    bits = column.bit_width
    signed = pa.types.is_signed_integer(column)
    # The lowest 64-bit number can't be written in a filter (Lance fact 13.2).
    low = -(2 ** (bits - 1)) + (bits == 64) if signed else 0  # noqa: PLR2004 - the widest integer
    high = 2 ** (bits - signed) - 1
    return str(value) if low <= value <= high else None


def _float(value: object, column: pa.DataType) -> str | None:
    """Returns None for zero and NaN, since engines differ in how these are ordered and compared.

    Lance rounds a literal to the column's type before it compares, so 1e300 would be infinity for a float32.
    """
    if not isinstance(value, float) or not math.isfinite(value) or value == 0:
        return None
    if pa.types.is_float32(column) and pa.scalar(value, pa.float32()).as_py() != value:
        return None
    return repr(value)


def _text(value: object, _: pa.DataType) -> str | None:
    return _quoted(value) if isinstance(value, str) else None


def _binary(value: object, _: pa.DataType) -> str | None:
    return f"X'{bytes(value).hex()}'" if isinstance(value, bytes | bytearray) else None


def _date(value: object, _: pa.DataType) -> str | None:
    return f"date '{value.isoformat()}'" if type(value) is date else None


def _timestamp(value: object, column: pa.DataType) -> str | None:
    if not isinstance(value, datetime) or (column.tz is None) != (value.tzinfo is None):
        return None
    if column.tz is not None and column.tz not in UTC_NAMES:
        return None
    naive = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    held = naive.microsecond % UNIT_MICROS[column.unit] == 0 if column.unit != "s" else not naive.microsecond
    if not held or (column.unit == "ns" and naive.year not in NS_YEARS):
        return None
    return f"timestamp '{naive.isoformat(sep=' ', timespec='microseconds')}'"


def _decimal(value: object, column: pa.DataType) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    try:
        pa.scalar(Decimal(value), type=column)
    except (pa.ArrowInvalid, ValueError):
        return None
    return f"decimal({column.precision}, {column.scale}) '{Decimal(value):f}'"


LITERALS: Final[
    tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], str | None]], ...]
] = (
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _integer),
    (lambda column: pa.types.is_float32(column) or pa.types.is_float64(column), _float),
    (_is_text, _text),
    (lambda column: pa.types.is_binary(column) or pa.types.is_large_binary(column), _binary),
    (pa.types.is_date32, _date),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_decimal128, _decimal),
)
"""How a value is written for a column, by the column's type. Other types are left to Spark."""

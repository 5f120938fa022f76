"""Numbers of JSON and CSV that become floats: one that would be another number is an error.

Arrow reads 1e39 as an infinite float of 32 bits, and CSV's 1e400 as an infinite double. So floats are read as
doubles, or as texts, and cast here. Digits without a point or an exponent are a whole number, such as a key:
one that doubles lack is refused (9007199254740993), unless it has the shortest digits of a double and then
zeros, as JavaScript writes it.
"""

from __future__ import annotations

import json
import math
import re
import sys
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakefold_ingest.rows.fitting import is_list
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator

INFINITY: Final = r"(?i)^[+-]?inf(inity)?$"
_WHOLE: Final = r"^[+-]?[0-9]+$"
MAY_BE_TOO_LARGE: Final = r"[0-9][eE]\+?[0-9]{3}|[0-9]{309}"
"""A number of JSON that doubles may not have matches it. Texts may, too."""
_NO_SPACE: Final = re.compile(r"\S")
_BEYOND: Final = 2.0**53
_LONG: Final = re.compile("[0-9]{16}")
"""A whole number from 2**53 on has as many digits."""
_LEAVE_OUT: Final = "correct or leave out such rows"
_NO_DOUBLE: Final = (
    "create the table with a column of decimal(38, 0) or text, leave out such rows, or write the number with "
    "an exponent if it may be rounded"
)


def wide(kind: pa.DataType) -> pa.DataType:
    """Returns the type as which values of another one are read: its floats, at any depth, are doubles."""
    if types.is_floating(kind):
        return pa.float64()
    if types.is_struct(kind):
        return pa.struct([field.with_type(wide(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = kind.value_field.with_type(wide(kind.value_type))
        return pa.large_list(inner) if types.is_large_list(kind) else pa.list_(inner)
    return kind


def narrowed(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Returns a column that was read as `wide(kind)` in its type.

    Raises `InvalidError` naming the column if a number is beyond the range of a float.
    """
    try:
        values = column.cast(kind)
    except pa.ArrowException as error:
        raise InvalidError(
            f"a value doesn't fit the table's {kind}: {error}", where=name, hint=_LEAVE_OUT
        ) from error
    for leaf, narrow in zip(_floats(column), _floats(values), strict=True):
        lost = pc.and_(pc.is_inf(narrow), pc.invert(pc.is_inf(leaf)))
        if pc.any(lost).as_py():
            number = leaf.filter(lost)[0].as_py()
            message = f"the number {number} is beyond the range of {narrow.type}"
            raise InvalidError(message, where=name, hint=_LEAVE_OUT)
    return values


def floats_of(texts: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Returns the floats that texts of CSV have, in the type `kind`.

    Raises `InvalidError` naming the column if a text is no number, one beyond the range of the type, or a
    whole one that doubles don't have.
    """
    texts = pc.utf8_trim_whitespace(texts)
    try:
        numbers = texts.cast(pa.float64())
    except pa.ArrowException as error:
        raise InvalidError(str(error), where=name, hint=_LEAVE_OUT) from error
    lost = pc.and_(pc.is_inf(numbers), pc.invert(pc.match_substring_regex(texts, INFINITY)))
    if pc.any(lost).as_py():
        message = f"the number {texts.filter(lost)[0].as_py()} is beyond the range of {kind}"
        raise InvalidError(message, where=name, hint=_LEAVE_OUT)
    large = pc.and_(pc.greater_equal(pc.abs(numbers), _BEYOND), pc.match_substring_regex(texts, _WHOLE))
    for text in texts.filter(large).to_pylist():
        if _is_lost(int(text)):
            raise InvalidError(lost_text(text), where=name, hint=_NO_DOUBLE)
    return narrowed(numbers, kind, name)


def has_infinity(column: pa.Array) -> bool:
    """Returns whether a double of the column, at any depth, is infinite."""
    return any(pc.any(pc.is_inf(leaf)).as_py() for leaf in _floats(column))


def too_large(text: str) -> str | None:
    """Returns a number in JSON values that is beyond the range of doubles, None if there is none.

    Arrow refuses most of them, but reads 2e308 as infinity.
    """
    numbers: list[str] = []

    def number(digits: str) -> float:
        value = float(digits)
        if math.isinf(value):
            numbers.append(digits)
        return value

    for _ in _values(text, json.JSONDecoder(parse_float=number, parse_int=number)):
        if numbers:
            break
    return numbers[0] if numbers else None


def _values(text: str, decoder: json.JSONDecoder) -> Iterator[object]:
    """Yields the JSON values of a text. What is no JSON ends them: it is reported where it is parsed."""
    start = 0
    with suppress(ValueError):
        while (begin := _NO_SPACE.search(text, start)) is not None:
            value, start = decoder.raw_decode(text, begin.start())
            yield value


def has_beyond(column: pa.Array) -> bool:
    """Returns whether a double of the column, at any depth, may be of a whole number that doubles lack."""
    return any(pc.any(pc.greater_equal(pc.abs(leaf), _BEYOND)).as_py() for leaf in _floats(column))


def lost_whole(text: str, kind: pa.StructType) -> int | None:
    """Returns a whole number in JSON objects that is another one as a double of `kind`; None if none is."""
    rows = _values(text, json.JSONDecoder()) if _LONG.search(text) else ()
    return next((lost for row in rows if (lost := _lost_in(row, kind)) is not None), None)


def _lost_in(value: object, kind: pa.DataType) -> int | None:
    lost: Iterator[int | None] = iter(())
    match value:
        case int() if types.is_floating(kind) and _is_lost(value):
            return value
        case dict() if types.is_struct(kind):
            lost = (_lost_in(value.get(field.name), field.type) for field in kind)
        case list() if is_list(kind):
            lost = (_lost_in(item, kind.value_type) for item in value)
    return next((number for number in lost if number is not None), None)


def _is_lost(number: int) -> bool:
    """Returns whether a whole number is no double, neither exactly nor in the shortest digits of one."""
    if abs(number) > sys.float_info.max:
        return True
    double = float(number)
    return int(double) != number and Decimal(repr(double)) != number


def lost_text(number: int | str) -> str:
    """Returns what is wrong with a whole number that doubles don't have."""
    return f"the whole number {number} would be another one as a double"


def lost_error(number: int, name: str, where: str) -> InvalidError:
    """Returns the error that a column has a whole number which doubles don't have."""
    return InvalidError(f"{lost_text(number)} (column {name})", where=where, hint=_NO_DOUBLE)


def _floats(column: pa.Array) -> Iterator[pa.Array]:
    kind = column.type
    if types.is_floating(kind):
        yield column
    elif types.is_struct(kind):
        for child in column.flatten():
            yield from _floats(child)
    elif is_list(kind):
        yield from _floats(column.flatten())

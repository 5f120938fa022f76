"""Numbers of JSON and CSV that become floats: one beyond the range of its type is an error, not infinity.

Arrow reads 1e39 as an infinite float of 32 bits, and CSV's 1e400 as an infinite double. So floats are read as
doubles, or as texts, and cast here.
"""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator

INFINITY: Final = r"(?i)^[+-]?inf(inity)?$"
_WHOLE: Final = r"^[+-]?[0-9]+$"
MAY_BE_TOO_LARGE: Final = r"[0-9][eE]\+?[0-9]{3}|[0-9]{309}"
"""A number of JSON that doubles may not have matches it. Texts may, too."""
_NO_SPACE: Final = re.compile(r"\S")
_BEYOND: Final = 2.0**63
_LEAVE_OUT: Final = "correct or leave out such rows"


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

    Raises `InvalidError` naming the column if a text is no number, or one beyond the range of the type.
    """
    try:
        numbers = pc.utf8_trim_whitespace(texts).cast(pa.float64())
    except pa.ArrowException as error:
        raise InvalidError(str(error), where=name, hint=_LEAVE_OUT) from error
    lost = pc.and_(pc.is_inf(numbers), pc.invert(pc.match_substring_regex(texts, INFINITY)))
    if pc.any(lost).as_py():
        message = f"the number {texts.filter(lost)[0].as_py()} is beyond the range of {kind}"
        raise InvalidError(message, where=name, hint=_LEAVE_OUT)
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

    decoder, start = json.JSONDecoder(parse_float=number, parse_int=number), 0
    with suppress(ValueError):
        # What is no JSON is reported where it is parsed.
        while not numbers and (begin := _NO_SPACE.search(text, start)) is not None:
            start = decoder.raw_decode(text, begin.start())[1]
    return numbers[0] if numbers else None


def has_beyond(column: pa.Array) -> bool:
    """Returns whether a double of the column, at any depth, may be of a whole number beyond 64 bits."""
    return any(pc.any(pc.greater_equal(pc.abs(leaf), _BEYOND)).as_py() for leaf in _floats(column))


def are_whole(texts: pa.Array | pa.ChunkedArray) -> bool:
    """Returns whether all of these texts are whole numbers."""
    return pc.all(pc.match_substring_regex(pc.utf8_trim_whitespace(texts), _WHOLE)).as_py() is not False


def beyond_whole(name: str, where: str) -> InvalidError:
    """Returns the error that a column has whole numbers which doubles, as which it was read, don't have."""
    message = f"{name} has whole numbers beyond 64 bits, which as doubles would be other numbers"
    hint = "create the table first, with a column of decimal(38, 0), double or text"
    return InvalidError(message, where=where, hint=hint)


def _floats(column: pa.Array) -> Iterator[pa.Array]:
    kind = column.type
    if types.is_floating(kind):
        yield column
    elif types.is_struct(kind):
        for child in column.flatten():
            yield from _floats(child)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        yield from _floats(column.flatten())

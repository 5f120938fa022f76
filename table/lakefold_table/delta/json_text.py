"""JSON as the files of a Delta log hold it: read within limits, and written in one form.

The files may come from any client, so a document that is too large, too deep or not JSON ends in an error
that names the file and the line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from math import inf
from typing import Any, Final, NoReturn, TypeGuard

from lakefold_table.errors import DamagedError

MOST_BYTES: Final = 8 << 20
"""The largest document that is decoded: decoded it may take 25 times as much memory. The largest action of a
table is its metaData, with the schema: 8 MB describe some ten thousand columns."""
MOST_DEPTH: Final = 300
"""How deep objects and arrays may be nested: each struct of a schema takes three levels. Python's own limit
depends on where it is called, so what could be read could not be written elsewhere."""
_TOO_DEEP: Final = "the JSON is nested too deeply to be read"
_DIGITS_OF_FLOAT: Final = 15
"""A float has all digits of a number with at most so many."""
LONGEST: Final = 2**63
"""Integers are below this, and not below its negative: what a reader in Java can hold."""


def parse_json(data: bytes, where: str, most: int = MOST_BYTES, *, exact: bool = False) -> Any:  # noqa: ANN401 - any JSON value
    """Returns the value of a JSON document. Raises `DamagedError` if it is none, or is larger than `most`.

    `exact`: a number of which a float lacks some digits becomes a `Decimal`.
    """
    if len(data) > most:
        message = f"a JSON document of {len(data)} bytes, more than the {most} that are read"
        raise DamagedError(message, where=where, hint="have its writer store less in one action")
    try:
        value = (_EXACT_DECODER if exact else _DECODER).decode(data.decode())
        if b"\\ud" in data.lower():
            # Half of a pair of surrogates is not text: it could not be written again.
            exact_json(value).encode()
    except UnicodeError as error:
        raise DamagedError(f"the text is not UTF-8: {error}", where=where) from error
    except RecursionError as error:
        raise DamagedError(_TOO_DEEP, where=where) from error
    except ValueError as error:
        raise DamagedError(f"the text is cut off or is not JSON: {error}", where=where) from error
    if data.count(b"[") + data.count(b"{") > MOST_DEPTH and _is_deep([value]):
        raise DamagedError(_TOO_DEEP, where=where)
    return value


def _is_deep(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Returns whether objects and arrays are nested deeper than `MOST_DEPTH`."""
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        inside = (each.values() if isinstance(each, dict) else each for each in level)
        level = [inner for each in inside for inner in each if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def parse_object(data: bytes, where: str, most: int = MOST_BYTES, *, exact: bool = False) -> dict[str, Any]:
    """Returns the members of a JSON object. Raises `DamagedError` if the document is something else.

    `exact`: as of `parse_json`.
    """
    value = parse_json(data, where, most, exact=exact)
    if not isinstance(value, dict):
        raise DamagedError(f"a JSON object is expected, not {type_name(value)}", where=where)
    return value


def to_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Returns the text of a JSON value, without spaces and without a line end."""
    return _ENCODER.encode(value)


def exact_json(value: Any) -> str:  # noqa: ANN401 - a JSON value, or one of `parse_json` that is exact
    """Returns the text of a JSON value as `to_json`, in which a `Decimal` is a number with all its digits."""
    with suppress(TypeError):
        # Few values have a `Decimal`, and `to_json` takes a tenth of the time.
        return to_json(value)
    match value:
        case dict():
            members = (f"{to_json(name)}:{exact_json(each)}" for name, each in value.items())
            return f"{{{','.join(members)}}}"
        case list():
            return f"[{','.join(map(exact_json, value))}]"
        case _:
            return str(value) if isinstance(value, Decimal) else to_json(value)


def type_name(value: object) -> str:
    """Returns what JSON calls the type of a decoded value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names = {int: "a number", float: "a number", str: "a string", list: "an array", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def is_whole(value: object) -> TypeGuard[int]:
    """Returns whether a value is an integer, of any size."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_long(value: object) -> TypeGuard[int]:
    """Returns whether a value is an integer of 64 bits."""
    return is_whole(value) and -LONGEST <= value < LONGEST


def _as_object(value: object) -> dict[str, Any]:
    """Returns a mapping that is not a dict as one, as an action without some members has it."""
    if isinstance(value, Mapping):
        return dict(value)
    message = f"{type(value).__name__} is not a JSON value"
    raise TypeError(message)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    """Returns the number of a text. Raises `ValueError` if it is too large: it could not be written again."""
    number = float(text)
    if number in (inf, -inf):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def _exact(text: str) -> float | Decimal:
    number = _finite(text)
    if len(text) <= _DIGITS_OF_FLOAT or repr(number) == text:
        return number
    try:
        digits = Decimal(text)
    except InvalidOperation:
        # Its exponent is far below that of any float.
        return number
    return number if Decimal(repr(number)) == digits else digits


# `json.loads` and `json.dumps` make such an object for each call that has any option.
_DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse_constant)
_EXACT_DECODER: Final = json.JSONDecoder(parse_float=_exact, parse_constant=_refuse_constant)
_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_as_object
)

"""Logical types without children and their Arrow types, in both directions (Lance fact 4.1).

The committer never imports this module, since it needs Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lakefold_table.columns.extension_names import EXTENSION_NAME
from lakefold_table.columns.extension_types import complete_metadata, storage_of
from lakefold_table.errors import DamagedError, InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS = ("s", "ms", "us", "ns")
# Types without parameters. Only these can be the values of a dictionary.
PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "halffloat": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.utf8(),
    "large_string": pa.large_utf8(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
}
FIXED: dict[str, pa.DataType] = {
    **PLAIN,
    "date32:day": pa.date32(),
    "date64:ms": pa.date64(),
    **{f"time32:{unit}": pa.time32(unit) for unit in UNITS[:2]},
    **{f"time64:{unit}": pa.time64(unit) for unit in UNITS[2:]},
    **{f"duration:{unit}": pa.duration(unit) for unit in UNITS},
}
BFLOAT16: Final = "lance.bfloat16"
"""The extension type of pylance's half-precision floats. Of items of vectors it is their logical type."""
_BFLOAT16_ITEM: Final = pa.field(
    "item", pa.binary(2), metadata={EXTENSION_NAME: BFLOAT16, "ARROW:extension:metadata": ""}
)
NAMES: dict[pa.DataType, str] = {
    **{kind: name for name, kind in FIXED.items()},
    pa.string_view(): "string",
    pa.binary_view(): "binary",
}


def leaf_name(kind: pa.DataType, where: str) -> str:
    """Returns the logical type of an Arrow type without children, including fixed-size lists of such types.

    Raises `InvalidError` naming the column `where` if Lance can't store the type.
    """
    kind = storage_of(kind)
    if kind in NAMES:
        return NAMES[kind]
    if pa.types.is_timestamp(kind):
        return f"timestamp:{kind.unit}:{kind.tz or '-'}"
    if pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind):
        return f"decimal:{kind.bit_width}:{kind.precision}:{kind.scale}"
    if pa.types.is_fixed_size_binary(kind):
        return f"fixed_size_binary:{kind.byte_width}"
    if pa.types.is_dictionary(kind):
        return _dictionary_name(kind, where)
    if pa.types.is_fixed_size_list(kind):
        is_bfloat16 = complete_metadata(kind.value_field).get(EXTENSION_NAME.encode()) == BFLOAT16.encode()
        item = BFLOAT16 if is_bfloat16 else leaf_name(kind.value_type, where)
        return f"fixed_size_list:{item}:{list_size(kind, where)}"
    raise InvalidError(f"Lance can't store {kind}", where=where, hint="cast the column, or leave it out")


def list_size(kind: pa.DataType, where: str) -> int:
    """Returns the number of items of a fixed-size list. Raises `InvalidError` if it is 0."""
    size: int = kind.list_size
    if size < 1:
        raise InvalidError("a fixed-size list needs at least one item", where=where)
    return size


def _dictionary_name(kind: pa.DataType, where: str) -> str:
    values = NAMES.get(storage_of(kind.value_type))
    if values not in PLAIN:
        hint = "cast the column to the type of its values"
        raise InvalidError(f"Lance can't store a dictionary of {kind.value_type}", where=where, hint=hint)
    return f"dict:{values}:{NAMES[kind.index_type]}:false"


def leaf_type(name: str, where: str) -> pa.DataType:
    """Returns the Arrow type of a logical type without children.

    Raises `DamagedError` naming the column `where` if this release doesn't know it.
    """
    arrow_type = FIXED.get(name) or _with_parameters(name, where)
    if arrow_type is None:
        hint = "a newer release may know it"
        raise DamagedError(f"the logical type {name!r} is not known", where=where, hint=hint)
    return arrow_type


def _with_parameters(name: str, where: str) -> pa.DataType | None:
    kind, _, rest = name.partition(":")
    if kind == "fixed_size_list":
        inner, _, size = rest.rpartition(":")
        if not size.isdecimal() or not int(size):
            return None
        return pa.list_(_BFLOAT16_ITEM if inner == BFLOAT16 else leaf_type(inner, where), int(size))
    make = PARAMETRIC.get(kind)
    try:
        return make(*rest.split(":")) if make else None
    except (ValueError, KeyError, TypeError, pa.ArrowException):
        return None


def _timestamp(unit: str, *zone: str) -> pa.DataType:
    return pa.timestamp(unit, None if zone == ("-",) else ":".join(zone))


def _decimal(bits: str, precision: str, scale: str) -> pa.DataType:
    return {"128": pa.decimal128, "256": pa.decimal256}[bits](int(precision), int(scale))


def _fixed_size_binary(width: str) -> pa.DataType:
    if not width.isdecimal():
        raise ValueError(width)  # pyarrow would take -1 for a variable width.
    return pa.binary(int(width))


def _dictionary(values: str, index: str, _ordered: str) -> pa.DataType:
    return pa.dictionary(PLAIN[index], PLAIN[values])


PARAMETRIC: dict[str, Callable[..., pa.DataType]] = {
    "timestamp": _timestamp,
    "decimal": _decimal,
    "fixed_size_binary": _fixed_size_binary,
    "dict": _dictionary,
}
"""Functions from the parameters of a logical type, as strings, to the Arrow type."""

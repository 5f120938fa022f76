"""The simple types of columns, and Arrow's types for them.

The names come from schemas, which any client may have written. A decimal with more digits than Delta has, or
with none, is no type.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_DIGITS: Final = 38
_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]{1,2})\s*,\s*([0-9]{1,2})\s*\)", re.ASCII)


@lru_cache(256)
def decimal_digits(kind: str) -> tuple[int, int] | None:
    """Returns how many digits a decimal has, and how many of them are after the point.

    Returns None if the type is no decimal of Delta's.
    """
    match = _DECIMAL.fullmatch(kind)
    if match is None:
        return None
    precision, scale = int(match[1]), int(match[2])
    return (precision, scale) if 1 <= precision <= MOST_DIGITS and scale <= precision else None


def is_simple(kind: str) -> bool:
    """Returns whether this is the name of a simple type, which a partition column may have."""
    return kind in SIMPLE or decimal_digits(kind) is not None


def arrow_type(kind: str) -> Any | None:  # noqa: ANN401 - an Arrow type
    """Returns Arrow's type for a simple type, None if there is no type of this name."""
    simple = _arrow_types().get(kind)
    digits = decimal_digits(kind) if simple is None else None
    if digits is None:
        return simple
    import pyarrow as pa

    return pa.decimal128(*digits)


SIMPLE: Final = frozenset(
    [
        "string",
        "long",
        "integer",
        "short",
        "byte",
        "float",
        "double",
        "boolean",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
    ]
)
"""The names of all simple types but decimals, of those that have values."""
NO_VALUES: Final = ("void", "null")
"""The names of the type of a column that is always null, and in no data file."""


@cache
def _arrow_types() -> Mapping[str, Any]:
    import pyarrow as pa

    return {
        "string": pa.string(),
        "long": pa.int64(),
        "integer": pa.int32(),
        "short": pa.int16(),
        "byte": pa.int8(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        **dict.fromkeys(NO_VALUES, pa.null()),
    }

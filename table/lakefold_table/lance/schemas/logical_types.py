"""Which strings are logical types: a schema may only have types that every Lance client can open.

pylance 14 panics on a table with any other type, so nothing in the table can be read any more (Lance fact
4.1). This module doesn't need Arrow, which the committer doesn't load.
"""

from __future__ import annotations

import re

INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
PLAIN = INTEGERS | {
    "null",
    "bool",
    "halffloat",
    "float",
    "double",
    "string",
    "large_string",
    "binary",
    "large_binary",
}
"""Types without parameters. Only these can be the value type of a dictionary."""
UNITS = frozenset({"s", "ms", "us", "ns"})
FIXED = PLAIN | {
    "json",
    "date32:day",
    "date64:ms",
    "time32:s",
    "time32:ms",
    "time64:us",
    "time64:ns",
    *(f"duration:{unit}" for unit in UNITS),
}
NESTED = frozenset({"struct", "map", "list", "large_list", "list.struct", "large_list.struct"})
FIXED_SIZE_LIST = "fixed_size_list:"
ITEMS = frozenset({"struct", "lance.bfloat16"})
"""Types that only a fixed-size list can have as items."""
DIGITS = {"128": 38, "256": 76}
"""The maximal precision of a decimal, by its number of bits."""
MAX_LENGTH = 1000
MAX_SIZE = 2**31 - 1
SIZE = re.compile(r"[0-9]{1,10}")
SCALE = re.compile(r"-?[0-9]{1,3}")
SCALES = range(-128, 128)


def is_known_type(name: str) -> bool:
    """Returns whether this release knows the type, including its parameters."""
    if len(name) > MAX_LENGTH:
        return False
    while name.startswith(FIXED_SIZE_LIST):
        name, _, size = name.removeprefix(FIXED_SIZE_LIST).rpartition(":")
        if not _is_size(size, least=1):
            return False
        if name in ITEMS:
            return True
        if name in NESTED:
            return False
    return name in FIXED or name in NESTED or _has_parameters(name)


def _has_parameters(name: str) -> bool:
    kind, *parameters = name.split(":")
    match kind, parameters:
        case "timestamp", [unit, _, *_]:
            return unit in UNITS
        case "decimal", [bits, digits, scale]:
            fits = bits in DIGITS and _is_size(digits, least=1) and int(digits) <= DIGITS[bits]
            return fits and SCALE.fullmatch(scale) is not None and int(scale) in SCALES
        case "fixed_size_binary", [size]:
            return _is_size(size, least=0)
        case "dict", [values, index, ordered]:
            return values in PLAIN and index in INTEGERS and ordered in {"true", "false"}
    return False


def _is_size(text: str, *, least: int) -> bool:
    return SIZE.fullmatch(text) is not None and least <= int(text) <= MAX_SIZE

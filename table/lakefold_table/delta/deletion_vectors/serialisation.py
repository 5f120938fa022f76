"""The bytes of a deletion vector: positions of rows in a data file, in bitmaps (Delta facts 5.2 and 5.3).

They begin with a number that names the serialisation. `portable` is the one that writers use today; `native`
is older, and is found in either byte order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from lakefold_table.bitmaps import Bitmap, decode_bitmap, decode_treemap, encode_treemap
from lakefold_table.errors import DamagedError

Rows = Mapping[int, Bitmap]
"""Positions of rows: by their upper 32 bits, the lower ones."""
PORTABLE: Final = 1681511377
NATIVE: Final = 1681511376
MOST_KEY: Final = 2**31
"""Upper halves are below this: readers in Java take them as signed numbers."""
SMALLEST: Final = 8
"""The bytes of the smallest bitmap, in a native serialisation its length not included."""
_MAGIC_BYTES: Final = 4


def decode_rows(data: bytes, where: str = "") -> dict[int, Bitmap]:
    """Returns the rows of a deletion vector. Raises `DamagedError` if the bytes are none."""
    little = int.from_bytes(data[:_MAGIC_BYTES], "little")
    big = int.from_bytes(data[:_MAGIC_BYTES], "big")
    if little == PORTABLE:
        rows = decode_treemap(data[_MAGIC_BYTES:], where)
    elif NATIVE in (little, big):
        rows = _native(data, "little" if little == NATIVE else "big", where)
    else:
        raise DamagedError(f"no deletion vector begins with {little:#x}", where=where)
    if rows and max(rows) >= MOST_KEY:
        raise DamagedError("the position of a row is 2^63 or more", where=where)
    return rows


def encode_rows(rows: Rows) -> bytes:
    """Returns the bytes of a deletion vector in the portable serialisation."""
    return PORTABLE.to_bytes(_MAGIC_BYTES, "little") + encode_treemap(rows)


def count_rows(rows: Rows) -> int:
    """Returns the number of rows."""
    return sum(len(bitmap) for bitmap in rows.values())


def _native(data: bytes, order: Literal["little", "big"], where: str) -> dict[int, Bitmap]:
    """Returns the rows of a native serialisation: a bitmap for each upper half, each with its length."""
    count, at = int.from_bytes(data[4:8], order), 8
    if count * (4 + SMALLEST) > len(data):
        raise DamagedError(f"it claims {count} bitmaps, more than fit in its {len(data)} bytes", where=where)
    rows = {}
    for key in range(count):
        size = int.from_bytes(data[at : at + 4], order)
        start, at = at + 4, at + 4 + size
        if at > len(data):
            raise DamagedError(f"its {len(data)} bytes end too early", where=where)
        bitmap = decode_bitmap(data[start:at], where)
        if bitmap:
            rows[key] = bitmap
    if at != len(data):
        raise DamagedError(f"{len(data) - at} bytes follow the deletion vector", where=where)
    return rows

"""What Debezium sends in place of a large value that an update did not change."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakefold_ingest.cdc.events import is_text, mask

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNCHANGED: Final = b"__debezium_unavailable_value"
"""In place of a text or bytes."""
UNCHANGED_JSON: Final = b'"%b"' % UNCHANGED
"""The same as JSON."""
_FORMS: Final = pa.array([UNCHANGED, base64.b64encode(UNCHANGED), UNCHANGED.hex().encode(), UNCHANGED_JSON])
"""The same as texts of bytes have it, and as JSON."""
_PLAIN_FORMS: Final = frozenset(_FORMS.to_pylist())


def left_out(column: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    """Returns which values of a column of texts or bytes an event leaves out."""
    return mask(pc.is_in(column, value_set=_FORMS.cast(column.type)))


def left_out_inside(column: pa.Array) -> NDArray[np.bool_]:
    """Returns which values of a column of lists, structs or maps have one inside that an event leaves out.

    In place of a list of numbers Debezium sends a list with the bytes of the text.
    """
    rows = np.zeros(len(column), np.bool_)
    if not types.is_nested(column.type) or not _may_leave_out(column):
        return rows
    return np.array([_is_left_out(value) for value in column.to_pylist()], np.bool_)


def _may_leave_out(column: pa.Array) -> bool:
    """Returns whether a value inside of the column looks like one that is left out."""
    kind = column.type
    if is_text(kind):
        return bool(left_out(column).any())
    if types.is_struct(kind):
        return any(map(_may_leave_out, column.flatten()))
    if types.is_map(kind):
        return _may_leave_out(column.keys) or _may_leave_out(column.items)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        if types.is_integer(kind.value_type):
            return bool(mask(pc.equal(pc.list_value_length(column), len(UNCHANGED))).any())
        return _may_leave_out(column.flatten())
    return False


def _is_left_out(value: object) -> bool:
    match value:
        case dict():
            return any(_is_left_out(item) for pair in value.items() for item in pair)
        case list():
            return value == list(UNCHANGED) or any(map(_is_left_out, value))
        case tuple():
            return any(map(_is_left_out, value))
        case str():
            return value.encode() in _PLAIN_FORMS
        case bytes():
            return value in _PLAIN_FORMS
    return False

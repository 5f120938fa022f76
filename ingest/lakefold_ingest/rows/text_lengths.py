"""Texts of a limited length: columns of the types `char(n)` and `varchar(n)`.

A field of Arrow says it in its metadata, at any depth. Lengths are in characters, which are Unicode's code
points. A text that is too long is refused, also if only by spaces, as delta-spark refuses it; a text of
`char(n)` gets spaces up to n characters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lakefold_table.columns.text_types import TextType, text_type
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LENGTH: Final = b"lakefold:text_type"
"""The key of a field's metadata with the type."""
MOST_TEXT_BYTES: Final = 1 << 30
"""About how many bytes the texts of an array may have that get spaces: half of what Arrow allows."""


def limited_field(field: pa.Field, length: TextType | None) -> pa.Field:
    """Returns a field whose texts have such a type."""
    return field if length is None else field.with_metadata({LENGTH: length.name.encode()})


def length_of(field: pa.Field) -> TextType | None:
    """Returns the type of a field's texts, None if it has another one."""
    type_text = (field.metadata or {}).get(LENGTH)
    return None if type_text is None else text_type(type_text.decode())


def limits_texts(field: pa.Field) -> bool:
    """Returns whether the field, or one inside of it, has texts of a limited length."""
    return length_of(field) is not None or any(map(limits_texts, _inner(field.type)))


def limited(array: pa.Array, field: pa.Field, path: str) -> pa.Array:
    """Returns an array, which has the type of the field, with the spaces that its texts need.

    Raises `InvalidError` naming the field if a text is too long. `path`: the field's name after those of the
    fields that it is in.
    """
    if not limits_texts(field):
        return array
    length = length_of(field)
    if length is not None:
        return padded(_checked(array, length, path), field)
    children = _inner(field.type)
    paths = [f"{path}.{child.name}" for child in children]
    kind, nulls = field.type, array.is_null() if array.null_count else None
    if types.is_struct(kind):
        # Values of fields whose struct is null count for nothing, so they are null as well.
        parts = _limited(array.flatten(), children, paths)
        return pa.StructArray.from_arrays(parts, fields=children, mask=nulls)
    # A part of an array has the items of all of it, and a list that is null may have items.
    array = array.take(pa.array(np.arange(len(array))))
    if types.is_map(kind):
        parts = _limited([array.keys, array.items], children, paths)
        return pa.MapArray.from_arrays(array.offsets, *parts, type=kind, mask=nulls)
    (items,) = _limited([array.values], children, paths)
    return pa.ListArray.from_arrays(array.offsets, items, type=kind, mask=nulls)


def _limited(arrays: Sequence[pa.Array], fields: Sequence[pa.Field], paths: Sequence[str]) -> list[pa.Array]:
    return [limited(array, field, path) for array, field, path in zip(arrays, fields, paths, strict=True)]


def _inner(kind: pa.DataType) -> list[pa.Field]:
    if types.is_struct(kind):
        return [kind.field(index) for index in range(kind.num_fields)]
    if types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if types.is_list(kind) else []


def padded(array: pa.Array, field: pa.Field) -> pa.Array:
    """Returns the texts of a field with the spaces that they need, whatever their length.

    Raises `InvalidError` naming the field if they are more than an array can have.
    """
    length = length_of(field)
    if length is None or not length.is_padded:
        return array
    try:
        return pc.utf8_rpad(array, width=length.most, padding=" ")
    except pa.ArrowCapacityError as error:
        message = f"{len(array)} values of {length.name} are more than an array of Arrow can have"
        raise InvalidError(
            message, where=field.name, hint="give fewer rows, or shorter lists, at once"
        ) from error


def parts_of(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a batch in parts whose texts, with the spaces that they need, an array can have.

    `schema`: of the table. What is in lists is not counted.
    """
    longest = max([0, *map(_longest, schema)])
    most = max(1, MOST_TEXT_BYTES // longest) if longest else batch.num_rows
    if batch.num_rows <= most:
        yield batch
        return
    for first in range(0, batch.num_rows, most):
        yield batch.slice(first, most)


def _longest(field: pa.Field) -> int:
    """Returns how many spaces a text of a field, or of one inside of it, may get."""
    length = length_of(field)
    own = length.most if length is not None and length.is_padded else 0
    return max([own, *map(_longest, _inner(field.type))])


def _checked(array: pa.Array, length: TextType, path: str) -> pa.Array:
    longest = pc.max(pc.utf8_length(array)).as_py()
    if longest is not None and longest > length.most:
        message = f"a text is longer than the table's {length.name} allows"
        raise InvalidError(message, where=path, hint="shorten or leave out such rows")
    return array

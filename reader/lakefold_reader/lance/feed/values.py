"""Values of an older version in the shape of the feed's last version.

A column that was renamed or cast, or whose fields below were renamed, added or dropped, is in the file as it
was. Fields are matched by id (`columns`), never by name: Arrow's own cast of a struct takes a renamed field
for a missing field and silently gives nulls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_table.columns.extension_names import BLOB_V2
from lakefold_table.lance.schemas.schema import children

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_protos.lance.file_pb2 import Field


@dataclass(frozen=True, slots=True)
class Shape:
    """Two schemas side by side: `now` is that of the feed, `then` is older; `followed` maps ids to ids."""

    now: Mapping[int, Sequence[Field]]
    then: Mapping[int, Sequence[Field]]
    followed: Mapping[int, int]

    @classmethod
    def of(cls, now: Sequence[Field], then: Sequence[Field], followed: Mapping[int, int]) -> Shape:
        """Returns the shape of these flat lists of fields."""
        return cls(children(now), children(then), followed)

    def is_same(self, now: int, then: int) -> bool:
        """Returns whether the fields below both fields are the same: same names, same order."""
        below, before = self.now.get(now, ()), self.then.get(then, ())
        return len(below) == len(before) and all(
            field.name == other.name
            and self.followed.get(field.id) == other.id
            and self.is_same(field.id, other.id)
            for field, other in zip(below, before, strict=True)
        )


def shaped(values: pa.Array, kind: pa.DataType, now: int, then: int, shape: Shape) -> pa.Array:
    """Returns the values of field `then` as those of field `now`, whose type is `kind`.

    Raises `pa.ArrowInvalid` or `pa.ArrowNotImplementedError` if a value doesn't fit the type.
    """
    if shape.is_same(now, then):
        return values if values.type == kind else values.cast(kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(values.type):
        return _struct(values, kind, now, then, shape)
    if pa.types.is_list(kind) and pa.types.is_list(values.type):
        return _list(values, kind, now, then, shape)
    if pa.types.is_large_list(kind) and pa.types.is_large_list(values.type):
        return _list(values, kind, now, then, shape)
    raise pa.ArrowNotImplementedError(f"{values.type} can't be shown as {kind}")


def _struct(values: pa.Array, kind: pa.DataType, now: int, then: int, shape: Shape) -> pa.Array:
    indices = {child.id: index for index, child in enumerate(shape.then.get(then, ()))}
    fields = [kind.field(number) for number in range(kind.num_fields)]
    arrays = []
    for child, field in zip(shape.now.get(now, ()), fields, strict=True):
        older = shape.followed.get(child.id)
        arrays.append(
            shaped(values.field(indices[older]), field.type, child.id, older, shape)
            if older in indices
            else pa.nulls(len(values), field.type)
        )
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=values.is_null())


def _list(values: pa.Array, kind: pa.DataType, now: int, then: int, shape: Shape) -> pa.Array:
    (below,), (before,) = shape.now[now], shape.then[then]
    whole = pa.concat_arrays([values])
    items = shaped(whole.values, kind.value_type, below.id, before.id, shape)
    return type(whole).from_arrays(whole.offsets, items, type=kind, mask=whole.is_null())


def with_bytes(kind: pa.DataType) -> pa.DataType:
    """Returns a type in which blobs are their bytes.

    A scan shows them as positions in a file that may be removed.
    """
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name == BLOB_V2:
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([_field_with_bytes(kind.field(number)) for number in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(_field_with_bytes(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_field_with_bytes(kind.value_field))
    return kind


def _field_with_bytes(field: pa.Field) -> pa.Field:
    return field.with_type(with_bytes(field.type))

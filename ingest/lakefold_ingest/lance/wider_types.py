"""Which columns of a table must get a wider type so that the rows of a batch fit.

The types that get wider by themselves are those of Delta's schema evolution: a whole number one with more
bits, a float a double, a decimal one with more digits before or after the point, a date a timestamp without
zone. A column of nulls gets any type but one of structs, lists and maps. A whole number doesn't become a
decimal or a double: a single batch with the wrong type would change the kind of the column for ever. Vectors
(lists of fixed size) keep their type, because searches and their indices depend on it.

Lance stores the type in the data files and reads them as that type only. So a column with a wider type is a
new column to Lance: it and all fields below it get new ids, and its values are written again
(`lance.widening`). Here only the schema is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types

from lakefold_ingest.rows.fitting import leaf_fits, plain_field
from lakefold_protos.lance.file_pb2 import Field
from lakefold_table.columns.extension_types import storage_of
from lakefold_table.lance.schemas.arrow import schema_from_arrow, schema_to_arrow
from lakefold_table.lance.schemas.schema import TOP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakefold_table.lance.schemas.data_files import FileVersion

_MOST_DIGITS = 38


@dataclass(frozen=True, slots=True)
class WiderColumns:
    """The columns of a table whose type gets wider.

    `fields`: the table's schema with the wider types, parents before children. `names`: the columns at the
    top level that have new ids, in the order of the schema. `changes`: each change of a type in words.
    """

    fields: tuple[Field, ...]
    names: tuple[str, ...]
    changes: tuple[str, ...]


def wider_columns(
    batch: pa.Schema, table: Sequence[Field], highest_id: int, version: FileVersion
) -> WiderColumns | None:
    """Returns the table's schema with the types that a batch needs; None if no type has to get wider.

    `highest_id`: the highest field id that the table has used; those of the wider columns come after it.
    `version`: that of the table's data files. Columns that only one of both has are left as they are, and so
    are those whose types differ in another way: `fitting.fit` refuses them.
    """
    widened: dict[str, pa.Field] = {}
    changes: list[str] = []
    for column in schema_to_arrow(table, {}):
        indices = batch.get_all_field_indices(column.name)
        if len(indices) != 1:
            continue
        plain = plain_field(column)
        kind = _wider(plain.type, batch.field(indices[0]).type, column.name, changes)
        if kind != plain.type:
            widened[column.name] = plain.with_type(kind)
    if not widened:
        return None
    renumbered = _Renumbered(version, highest_id + 1)
    return WiderColumns(
        tuple(renumbered.fields(table, widened)), tuple(name for name in widened), tuple(changes)
    )


class _Renumbered:
    """Copies the fields of a schema and gives those of wider columns other types and the next ids."""

    def __init__(self, version: FileVersion, next_id: int) -> None:
        self._version = version
        self._next_id = next_id

    def fields(self, table: Sequence[Field], widened: dict[str, pa.Field]) -> Iterator[Field]:
        """Yields the fields in their order."""
        ids: dict[int, int] = {TOP: TOP}
        made: Iterator[Field] = iter(())
        for field in table:
            if field.parent_id == TOP and field.name in widened:
                ids = {TOP: TOP}
                made = iter(schema_from_arrow(pa.schema([widened[field.name]]), self._version).fields)
            elif field.parent_id == TOP or field.parent_id not in ids:
                yield field
                continue
            ids[field.id] = self._next_id
            self._next_id += 1
            yield _retyped(field, next(made), ids)


def _retyped(field: Field, made: Field, ids: dict[int, int]) -> Field:
    """Returns the field with the type of `made` and its new ids."""
    if field.name != made.name:
        raise RuntimeError(f"{field.name} was compared with {made.name}")
    retyped = Field()
    retyped.CopyFrom(field)
    retyped.id, retyped.parent_id = ids[field.id], ids[field.parent_id]
    retyped.logical_type, retyped.encoding = made.logical_type, made.encoding
    return retyped


def _wider(table: pa.DataType, batch: pa.DataType, path: str, changes: list[str]) -> pa.DataType:
    """Returns the type that the table needs, of the same form as its own; adds what changes to `changes`."""
    batch = storage_of(batch)
    if types.is_struct(table) and types.is_struct(batch):
        given = {field.name: field.type for field in batch}
        return pa.struct(
            [
                field
                if field.name not in given
                else field.with_type(_wider(field.type, given[field.name], f"{path}.{field.name}", changes))
                for field in table
            ]
        )
    if types.is_map(table) and types.is_map(batch):
        key, item = table.key_field, table.item_field
        return pa.map_(
            key.with_type(_wider(key.type, batch.key_type, f"{path}.{key.name}", changes)),
            item.with_type(_wider(item.type, batch.item_type, f"{path}.{item.name}", changes)),
            table.keys_sorted,
        )
    if _is_flexible_list(table) and (_is_flexible_list(batch) or types.is_fixed_size_list(batch)):
        item = table.value_field
        item = item.with_type(_wider(item.type, batch.value_type, f"{path}.{item.name}", changes))
        return pa.large_list(item) if types.is_large_list(table) else pa.list_(item)
    if leaf_fits(batch, table):
        return table
    kind = _wider_leaf(table, batch)
    if kind is None:
        return table
    changes.append(f"{path} from {table} to {kind}")
    return kind


def _is_flexible_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind))


def _wider_leaf(table: pa.DataType, batch: pa.DataType) -> pa.DataType | None:
    """Returns the type that has the values of both; None if it is another kind of type."""
    if types.is_null(table):
        kind = batch.value_type if types.is_dictionary(batch) else batch
        item = kind.value_type if types.is_fixed_size_list(kind) else kind
        return None if types.is_nested(item) else kind
    if types.is_signed_integer(table) and types.is_signed_integer(batch):
        return batch
    if types.is_floating(table) and types.is_floating(batch):
        return batch
    if types.is_decimal(table) and types.is_decimal(batch):
        scale = max(table.scale, batch.scale)
        digits = scale + max(table.precision - table.scale, batch.precision - batch.scale)
        return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else None
    if types.is_date(table) and types.is_timestamp(batch) and batch.tz is None:
        return batch
    return None

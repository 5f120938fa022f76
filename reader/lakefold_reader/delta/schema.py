"""The schema of a Delta table: its columns as Arrow has them, and how data files and the log name them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakefold_reader.format.column_lists import check_list
from lakefold_table.delta.json_text import parse_object
from lakefold_table.delta.table_features.columns import MAPPED_ID, PHYSICAL_NAME
from lakefold_table.delta.table_features.metadata_rules import MAPPING_MODE
from lakefold_table.delta.table_features.property_values import SHOWN
from lakefold_table.delta.table_features.simple_types import arrow_type
from lakefold_table.delta.table_features.text_types import KEY, text_types
from lakefold_table.errors import DamagedError, InvalidError, OptionName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_table.columns.text_types import TextType
    from lakefold_table.delta.actions.table_actions import TableMetadata


@dataclass(frozen=True)
class DeltaColumn:
    """A column, or a field inside of one.

    `field`: as Arrow has it. `physical`: its name in data files, partition values and statistics. `id`: the
    field id by which data files have it instead, None if they have it by its name. `type_name`: of a simple
    type as the schema names it, empty for others. `children`: the fields of a struct, the element of a list,
    the key and the value of a map. `path`: for a field of a nested column that was chosen alone, the structs
    that it is in, the outermost first. `length`: that of `char(n)` and `varchar(n)`.
    """

    field: pa.Field
    physical: str
    id: int | None = None
    type_name: str = ""
    children: tuple[DeltaColumn, ...] = ()
    path: tuple[DeltaColumn, ...] = ()
    length: TextType | None = None

    @property
    def char_length(self) -> int | None:
        """The number of characters of a value with its spaces, None if the type is not `char(n)`."""
        return self.length.most if self.length is not None and self.length.is_padded else None

    @property
    def kind(self) -> str:
        """The column's type for values in the log: `char(n)`, or the name of another simple type."""
        return self.type_name if self.length is None or not self.length.is_padded else self.length.name

    @property
    def unpadded(self) -> DeltaColumn:
        """The same column, whose values are read as they are stored, without the spaces of `char(n)`."""
        return replace(self, length=None, children=tuple(child.unpadded for child in self.children))

    @property
    def stored(self) -> DeltaColumn:
        """The column at the top level that has the values."""
        return self.path[0] if self.path else self

    def within(self, outer: DeltaColumn) -> DeltaColumn:
        """Returns a field of this struct as a column of its own, with its whole path as its name."""
        name = f"{outer.field.name}.{self.field.name}"
        nullable = outer.field.nullable or self.field.nullable
        field = pa.field(name, self.field.type, nullable=nullable)
        path = (*(outer.path or ()), outer)
        return DeltaColumn(
            field, self.physical, self.id, self.type_name, self.children, path, length=self.length
        )


@dataclass(frozen=True)
class DeltaSchema:
    """See `Schema`.

    `table`: all columns of the table. `partitions`: the physical names of its partition columns.
    """

    columns: tuple[DeltaColumn, ...]
    table: tuple[DeltaColumn, ...]
    partitions: tuple[str, ...] = ()

    @cached_property
    def arrow(self) -> pa.Schema:
        """See `Schema.arrow`."""
        return pa.schema([column.field for column in self.columns])

    @property
    def names(self) -> list[str]:
        """See `Schema.names`."""
        return [column.field.name for column in self.columns]

    @property
    def whole(self) -> DeltaSchema:
        """The schema with all columns of the table."""
        return DeltaSchema(self.table, self.table, self.partitions)

    def chosen(self, names: Sequence[str] | None) -> DeltaSchema:
        """See `Schema.chosen`. A field of a struct is named by its path (`place.city`)."""
        if names is None:
            return self
        check_list(names)
        columns = []
        for name in names:
            column = column_named(self.columns, name)
            if column is None:
                hint = f"the columns are {', '.join(self.names)}"
                raise InvalidError(f"there is no column {name!r}", where=OptionName("columns"), hint=hint)
            columns.append(column)
        return DeltaSchema(tuple(columns), self.table, self.partitions)

    def forms(self) -> Mapping[str, object]:
        """See `Schema.forms`."""
        return {column.field.name: (column.physical, column.field.type) for column in self.columns}


def is_numeric(kind: pa.DataType) -> bool:
    """Returns whether the values of a type are numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def column_named(columns: Sequence[DeltaColumn], name: str) -> DeltaColumn | None:
    """Returns the column of this name, or the field of a struct by its path, or None."""
    for column in columns:
        if column.field.name == name:
            return column
    for column in columns:
        if name.startswith(f"{column.field.name}.") and pa.types.is_struct(column.field.type):
            inner = [child.within(column) for child in column.children]
            nested = column_named(inner, name)
            if nested is not None:
                return nested
    return None


def field_at(columns: Sequence[DeltaColumn], path: Sequence[str]) -> DeltaColumn | None:
    """Returns the field of a struct at a path, each part of which is one name, or None."""
    first, *others = path
    column = next((each for each in columns if each.field.name == first), None)
    if column is None or not others:
        return column
    return field_at(column.children, others) if pa.types.is_struct(column.field.type) else None


def schema_in(metadata: TableMetadata, where: str = "") -> DeltaSchema:
    """Returns the schema that a metaData action gives.

    Raises `DamagedError` if it is malformed, `InvalidError` for a type that this release does not know.
    """
    by_id = metadata.configuration.get(MAPPING_MODE) == "id"
    return schema_of(
        metadata.schema_text, metadata.partition_columns, where, is_mapped=metadata.maps_columns, by_id=by_id
    )


def schema_of(
    text: str,
    partition_columns: Sequence[str] = (),
    where: str = "",
    *,
    is_mapped: bool = False,
    by_id: bool = False,
) -> DeltaSchema:
    """Returns the schema in the text of a metaData action. Raises as `schema_in`.

    `is_mapped`: physical names are in the metadata of the columns. `by_id`: data files have field ids.
    """
    kind = parse_object(text.encode(), where)
    fields = kind.get("fields")
    if kind.get("type") != "struct" or not isinstance(fields, list):
        raise DamagedError("the schema is not a struct", where=where)
    columns = tuple(_column(field, where, is_mapped=is_mapped, by_id=by_id) for field in fields)
    names = {column.field.name: column.physical for column in columns}
    return DeltaSchema(columns, columns, tuple(names.get(name, name) for name in partition_columns))


def _column(given: Any, where: str, *, is_mapped: bool, by_id: bool) -> DeltaColumn:  # noqa: ANN401 - a JSON value
    match given:
        case {"name": str(name), "type": kind, **more}:
            pass
        case _:
            raise DamagedError("a column of the schema is malformed", where=where)
    metadata = more.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    physical = known.get(PHYSICAL_NAME, name) if is_mapped else name
    number = known.get(MAPPED_ID) if by_id else None
    if not isinstance(physical, str) or not (number is None or isinstance(number, int)):
        raise DamagedError(f"the mapping of the column {name!r} is malformed", where=where)
    arrow, children = _type(kind, where, is_mapped=is_mapped, by_id=by_id)
    field = pa.field(name, arrow, nullable=more.get("nullable") is not False)
    column = DeltaColumn(field, physical, number, kind if isinstance(kind, str) else "", children)
    type_text = known.get(KEY)
    return _with_lengths(column, text_types(type_text) or {}) if isinstance(type_text, str) else column


def _with_lengths(column: DeltaColumn, lengths: Mapping[tuple[str, ...], TextType]) -> DeltaColumn:
    """Returns a column with the lengths of its texts, by their paths in it."""
    children = tuple(
        _with_lengths(
            child, {path[1:]: each for path, each in lengths.items() if path[:1] == (child.field.name,)}
        )
        for child in column.children
    )
    length = lengths.get((), column.length) if pa.types.is_string(column.field.type) else None
    return replace(column, children=children, length=length)


def _type(
    given: Any,  # noqa: ANN401 - a JSON value
    where: str,
    *,
    is_mapped: bool,
    by_id: bool,
) -> tuple[pa.DataType, tuple[DeltaColumn, ...]]:
    """Returns a type, and the columns inside of it."""

    def inner(name: str, kind: object, nullable: object) -> DeltaColumn:
        field = {"name": name, "type": kind, "nullable": nullable is not False}
        return _column(field, where, is_mapped=is_mapped, by_id=by_id)

    match given:
        case str() if (simple := arrow_type(given)) is not None:
            return simple, ()
        case {"type": "struct", "fields": [*fields]}:
            columns = tuple(_column(field, where, is_mapped=is_mapped, by_id=by_id) for field in fields)
            return pa.struct([column.field for column in columns]), columns
        case {"type": "array", "elementType": element, **more}:
            item = inner("element", element, more.get("containsNull"))
            return pa.list_(item.field), (item,)
        case {"type": "map", "keyType": key_type, "valueType": value_type, **more}:
            key = inner("key", key_type, nullable=False)
            content = inner("value", value_type, more.get("valueContainsNull"))
            return pa.map_(key.field.type, content.field), (key, content)
        case _:
            hint = "read the table by another client"
            message = f"the column type {str(given)[:SHOWN]!r} is not known"
            raise InvalidError(message, where=where, hint=hint)

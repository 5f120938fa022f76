"""The columns of a Delta table as its data files store them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakefold_reader.delta.columns import FIELD_ID
from lakefold_table.delta.json_text import parse_object
from lakefold_table.delta.table_features.columns import MAPPED_ID, PHYSICAL_NAME
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_table.delta.actions.table_actions import TableMetadata

Members = dict[str, Any]
"""A column as the schema of a table has it."""
MOST_LEVELS: Final = 63
"""Arrow makes no batch with a column of more levels, the column itself and its values included."""


def fields_in(metadata: TableMetadata) -> list[Members]:
    """Returns the columns of a table at the top level, as its schema has them."""
    return list(parse_object(metadata.schema_text.encode(), "schemaString").get("fields") or [])


def check_levels(columns: pa.Schema, where: str) -> None:
    """Raises `InvalidError` if a column is nested deeper than can be written."""
    for column in columns:
        if _levels(column.type) > MOST_LEVELS:
            message = f"the column {column.name} is nested deeper than {MOST_LEVELS} levels"
            raise InvalidError(message, where=where, hint="store its inner levels as a text of JSON")


def _levels(kind: pa.DataType) -> int:
    return 1 + max((_levels(kind.field(index).type) for index in range(kind.num_fields)), default=0)


def stored_schema(fields: Iterable[Members], schema: pa.Schema) -> pa.Schema:
    """Returns the columns of `schema` as data files of a table with column mapping name and number them.

    `fields`: the table's, of which `schema` may have some.
    """
    given = {field["name"]: field for field in fields}
    return pa.schema([_stored(given[field.name], field) for field in schema])


def _stored(member: Members, field: pa.Field) -> pa.Field:
    marked: Mapping[str, Any] = member.get("metadata") or {}
    number = marked.get(MAPPED_ID)
    metadata = {} if number is None else {FIELD_ID: str(number).encode()}
    name = marked.get(PHYSICAL_NAME, field.name)
    return pa.field(name, _stored_type(member["type"], field.type), field.nullable, metadata or None)


def _stored_type(given: Any, kind: pa.DataType) -> pa.DataType:  # noqa: ANN401 - a JSON value
    match given:
        case {"type": "struct", "fields": [*fields]}:
            return pa.struct([_stored(field, kind.field(at)) for at, field in enumerate(fields)])
        case {"type": "array", "elementType": element}:
            return pa.list_(kind.value_field.with_type(_stored_type(element, kind.value_type)))
        case {"type": "map", "keyType": key, "valueType": item}:
            keys = kind.key_field.with_type(_stored_type(key, kind.key_type))
            return pa.map_(keys, kind.item_field.with_type(_stored_type(item, kind.item_type)))
        case _:
            return kind

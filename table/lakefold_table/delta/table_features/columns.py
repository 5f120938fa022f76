"""What the schema of a table says beside names and types: the metadata of its columns at any depth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakefold_table.delta.json_text import parse_object, type_name
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakefold_table.delta.actions.table_actions import TableMetadata

_HINT = "the schema must be a struct as Delta's protocol describes it"


def column_keys(metadata: TableMetadata) -> frozenset[str]:
    """Returns the keys in the metadata of all columns. Raises `DamagedError` if there is no schema."""
    where = "schemaString"
    schema = parse_object(metadata.schema_text.encode(), where)
    if schema.get("type") != "struct":
        raise DamagedError("the schema is no struct", where=where, hint=_HINT)
    return frozenset(_keys(schema, where))


def _keys(kind: Any, where: str) -> Iterator[str]:  # noqa: ANN401 - a JSON value
    """Yields the keys of the columns in a type, which is a name or an object."""
    left = [kind]
    while left:
        current = left.pop()
        if not isinstance(current, dict):
            continue
        left.extend(current.get(name) for name in ("elementType", "keyType", "valueType"))
        for field in current.get("fields") or ():
            if not isinstance(field, dict) or not isinstance(field.get("metadata", {}), dict):
                raise DamagedError(
                    f"a column must be an object, not {type_name(field)}", where=where, hint=_HINT
                )
            yield from field.get("metadata", {})
            left.append(field.get("type"))


def column_names(metadata: TableMetadata) -> list[str]:
    """Returns the names of the table's columns, without nested ones. Raises `DamagedError`."""
    where = "schemaString"
    schema = parse_object(metadata.schema_text.encode(), where)
    fields = schema.get("fields")
    if schema.get("type") != "struct" or not isinstance(fields, list):
        raise DamagedError("the schema is no struct", where=where, hint=_HINT)
    names = [field.get("name") if isinstance(field, dict) else None for field in fields]
    if not all(isinstance(name, str) for name in names):
        raise DamagedError("a column has no name", where=where, hint=_HINT)
    return [str(name) for name in names]

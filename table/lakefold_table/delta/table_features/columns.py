"""Lists the columns of a table's schema, at any depth."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.actions.fields import no_members
from lakefold_table.delta.json_text import parse_object, to_json, type_name
from lakefold_table.errors import DamagedError
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakefold_table.delta.actions.table_actions import TableMetadata

MAPPED_ID: Final = "delta.columnMapping.id"
PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
NESTED: Final = frozenset({"struct", "array", "map"})
"""The names of types that contain others, which a schema has as objects."""
PARTS: Final = {"elementType": "element", "keyType": "key", "valueType": "value"}
"""The types in a type of arrays or maps, with their names in a path."""
_NULLS: Final = {"elementType": "containsNull", "valueType": "valueContainsNull"}
"""What says whether there are nulls in arrays and maps."""
_MEMBERS: Final = {"metadata": dict, "nullable": bool}
"""The members of the definition of a column, beside its name and type."""
_HINT: Final = "the schema must be a struct as Delta's protocol describes it"


@value()
class SchemaColumn:
    """A column of a table, or a field of a struct in one.

    `path`: its name after the names of the columns that it is in. `kinds`: the names of its types; of an
    array or a map those of what it contains as well, as far as these are not structs; of a malformed type its
    JSON. `parts`: where each of them is in an array or a map, as `value.element`; empty for the column
    itself. `keys`: its metadata. `required`: the parts that are NOT NULL, with an empty one if the column
    itself is. `lacks`: the member that is missing in its definition, or has another type; empty if none is.
    """

    path: tuple[str, ...]
    kinds: tuple[str, ...]
    parts: tuple[str, ...] = ("",)
    keys: Mapping[str, Any] = field(default_factory=no_members)
    required: frozenset[str] = frozenset()
    lacks: str = ""

    @property
    def name(self) -> str:
        """The column's name as SQL has it."""
        return ".".join(self.path)

    def differing(self, other: SchemaColumn) -> tuple[str, str, str]:
        """Returns the name of the part that has another type than in `other`, its type and the other one."""
        pairs = zip(self.parts, self.kinds, other.kinds, strict=False)
        part, kind, their_kind = next((each for each in pairs if each[1] != each[2]), ("", "", ""))
        return f"{self.name}.{part}" if part else self.name, kind, their_kind

    @property
    def may_be_null(self) -> bool:
        """Whether the column is not NOT NULL."""
        return "" not in self.required

    @property
    def physical(self) -> str:
        """The column's name in data files, if the table maps columns."""
        name = self.keys.get(PHYSICAL_NAME)
        return name if isinstance(name, str) else self.path[-1]


def all_columns(metadata: TableMetadata) -> tuple[SchemaColumn, ...]:
    """Returns the columns of a table, each before the fields in it. Raises `DamagedError` if it has none."""
    return tuple(_columns(_fields(metadata), ()))


def stored_columns(metadata: TableMetadata) -> Iterator[tuple[tuple[str, ...], SchemaColumn]]:
    """Yields each column and each field of a struct, with its path in data files.

    Raises `DamagedError` if there is no schema.
    """
    stored: dict[tuple[str, ...], tuple[str, ...]] = {(): ()}
    for column in all_columns(metadata):
        above = stored.get(column.path[:-1])
        if above is None:
            # A field in an array or a map.
            continue
        path = (*above, column.physical if metadata.maps_columns else column.path[-1])
        yield path, column
        if column.kinds == ("struct",):
            stored[column.path] = path


def column_keys(metadata: TableMetadata) -> frozenset[str]:
    """Returns the keys in the metadata of all columns. Raises `DamagedError` if there is no schema."""
    return frozenset(key for column in all_columns(metadata) for key in column.keys)


def part_in(part: str, member: str) -> str:
    """Returns where a type in another one is, whose own part is given. `member`: one of `PARTS`."""
    return f"{part}.{PARTS[member]}" if part else PARTS[member]


def _fields(metadata: TableMetadata) -> list[Any]:
    where = "schemaString"
    if not metadata.schema_text:
        raise DamagedError("schemaString is missing", where=where, hint=_HINT)
    schema = parse_object(metadata.schema_text.encode(), where)
    fields = schema.get("fields")
    if schema.get("type") != "struct" or not isinstance(fields, list):
        raise DamagedError("the schema is not a struct", where=where, hint=_HINT)
    return fields


def _columns(fields: list[Any], above: tuple[str, ...]) -> Iterator[SchemaColumn]:
    for each in fields:
        if not isinstance(each, dict):
            raise DamagedError(
                f"a column must be an object, not {type_name(each)}", where="schemaString", hint=_HINT
            )
        if not isinstance(each.get("name"), str):
            raise DamagedError("a column has no name", where="schemaString", hint=_HINT)
        path = (*above, each["name"])
        kinds, structs, required = _kinds(each.get("type"))
        if each.get("nullable") is False:
            required.add("")
        lacks = next((name for name, kind in _MEMBERS.items() if not isinstance(each.get(name), kind)), "")
        keys = {} if lacks == "metadata" else each["metadata"]
        yield SchemaColumn(path, tuple(kinds.values()), tuple(kinds), keys, frozenset(required), lacks)
        for struct in structs:
            yield from _columns(struct, path)


def _kinds(kind: Any) -> tuple[dict[str, str], list[list[Any]], set[str]]:  # noqa: ANN401 - a JSON value
    """Returns the types in a type outside of structs by part, fields of structs, and the required parts."""
    kinds: dict[str, str] = {}
    structs: list[list[Any]] = []
    required = set[str]()
    unread = [("", kind)]
    while unread:
        part, current = unread.pop()
        kinds[part] = _name_of(current)
        if isinstance(current, dict):
            unread.extend((part_in(part, name), current[name]) for name in reversed(PARTS) if name in current)
            required |= {part_in(part, name) for name, flag in _NULLS.items() if current.get(flag) is False}
            if isinstance(current.get("fields"), list):
                structs.append(current["fields"])
    return kinds, structs, required


def _name_of(kind: Any) -> str:  # noqa: ANN401 - a JSON value
    """Returns the name of a type; of one that is malformed its JSON, which is the name of none."""
    match kind:
        case str() if kind not in NESTED:
            return kind
        case {"type": "struct", "fields": [*_]}:
            return "struct"
        case {"type": "array", "elementType": _, "containsNull": bool()}:
            return "array"
        case {"type": "map", "keyType": _, "valueType": _, "valueContainsNull": bool()}:
            return "map"
        case _:
            return to_json(kind)

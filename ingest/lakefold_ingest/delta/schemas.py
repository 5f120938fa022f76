"""Columns of Arrow as the schema of a Delta table has them."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import types

from lakefold_ingest.rows.fitting import is_list
from lakefold_reader.delta.numbered_rows import ADDRESS, ROW_ID
from lakefold_table.delta.json_text import to_json
from lakefold_table.delta.table_features.columns import MAPPED_ID, PARTS, PHYSICAL_NAME, part_in
from lakefold_table.delta.table_features.type_widening import CHANGES, WHOLE, is_wider
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakefold_reader.delta.new_files.stored_columns import Members

_IDENTITY: Final = (MAPPED_ID, PHYSICAL_NAME)
_MOST_DIGITS: Final = 38
_NAMES: Final[tuple[tuple[Callable[[pa.DataType], bool], str], ...]] = (
    (types.is_boolean, "boolean"),
    (types.is_int8, "byte"),
    (types.is_int16, "short"),
    (types.is_int32, "integer"),
    (types.is_int64, "long"),
    (types.is_uint8, "short"),
    (types.is_uint16, "integer"),
    (types.is_uint32, "long"),
    (types.is_float64, "double"),
    (types.is_floating, "float"),
    (types.is_date, "date"),
    (types.is_string, "string"),
    (types.is_large_string, "string"),
    (types.is_string_view, "string"),
    (types.is_binary, "binary"),
    (types.is_large_binary, "binary"),
    (types.is_binary_view, "binary"),
    (types.is_fixed_size_binary, "binary"),
)
"""The names of simple types. The first that fits counts; unsigned numbers get the next wider type."""
_VARIANT: Final = b"variant"
"""The metadata by which Spark marks the struct of binaries to which it converts a variant."""


def schema_text(fields: Iterable[Members]) -> str:
    """Returns the text of a schema with these columns."""
    return to_json({"type": "struct", "fields": list(fields)})


def new_fields(columns: Iterable[pa.Field]) -> list[Members]:
    """Returns columns as the schema of a table has them.

    Raises `InvalidError`, which names the column, for a type that Delta lacks.
    """
    fields = list(columns)
    names = Counter(field.name.lower() for field in fields)
    for field in fields:
        if names[field.name.lower()] > 1:
            hint = "rename one of them: Delta can't distinguish names that differ in case only"
            raise InvalidError("two columns have this name", where=field.name, hint=hint)
    return [_member(field, field.name) for field in fields]


def check_names(columns: Iterable[pa.Field]) -> None:
    """Raises `InvalidError` for a new column with a name that reads give to ids or addresses of rows.

    Its rows would be found by no upsert and no delete.
    """
    for field in columns:
        if field.name in (ROW_ID, ADDRESS):
            message = "this name is reserved for the ids and addresses of rows"
            raise InvalidError(message, where=field.name, hint="rename the column")


def has_plain_timestamps(columns: Iterable[pa.Field]) -> bool:
    """Returns whether a column, at any depth, is a time without a zone: that needs a feature of the table."""
    return any(_holds_plain_timestamp(field.type) for field in columns)


def _holds_plain_timestamp(kind: pa.DataType) -> bool:
    if types.is_timestamp(kind):
        return kind.tz is None
    return any(_holds_plain_timestamp(kind.field(index).type) for index in range(kind.num_fields))


def _member(field: pa.Field, path: str) -> Members:
    return {"name": field.name, "type": _type(field.type, path), "nullable": field.nullable, "metadata": {}}


def _type(kind: pa.DataType, path: str) -> object:
    if types.is_dictionary(kind):
        return _type(kind.value_type, path)
    if types.is_struct(kind):
        _check_struct(kind, path)
        return {
            "type": "struct",
            "fields": [
                _member(kind.field(at), f"{path}.{kind.field(at).name}") for at in range(kind.num_fields)
            ],
        }
    if types.is_map(kind):
        return {
            "type": "map",
            "keyType": _type(kind.key_type, f"{path}.key"),
            "valueType": _type(kind.item_type, f"{path}.value"),
            "valueContainsNull": kind.item_field.nullable,
        }
    if is_list(kind):
        element = kind.value_field
        return {
            "type": "array",
            "elementType": _type(element.type, f"{path}.element"),
            "containsNull": element.nullable,
        }
    if types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if types.is_decimal(kind) and kind.precision <= _MOST_DIGITS and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision},{kind.scale})"
    for fits, name in _NAMES:
        if fits(kind):
            return name
    raise InvalidError(f"Delta has no type for {kind}", where=path, hint="cast the column before")


def _check_struct(kind: pa.StructType, path: str) -> None:
    if kind.num_fields == 0:
        hint = "leave it out, or give the struct a field"
        raise InvalidError("Parquet can't store a struct without fields", where=path, hint=hint)
    if any(_VARIANT in (field.metadata or {}) for field in kind):
        hint = "give it as a string, by to_json(column)"
        raise InvalidError("variants are not built for Delta tables", where=path, hint=hint)


def merged_fields(
    fields: Iterable[Members], columns: Iterable[pa.Field], path: str = "", *, widens: bool = False
) -> tuple[list[Members], list[str]]:
    """Returns a table's columns with those that only `columns` has, and the names of these.

    New columns and fields of structs are nullable and come after the others. With `widens` columns also get
    the wider types that `columns` have, and are named as well. Raises `InvalidError` for a name that differs
    from a column of the table in case only, and as `new_fields`.
    """
    by_name = {column.name: column for column in columns}
    merged, added = [], []
    present = set[str]()
    for field in fields:
        present.add(field["name"])
        column = by_name.get(field["name"])
        grown, names = (field, []) if column is None else _grown(field, column.type, path, widens=widens)
        merged.append(grown)
        added += names
    lower = {name.lower(): name for name in present}
    for name, column in by_name.items():
        if name in present:
            continue
        if name.lower() in lower:
            message = f"{path}{name} can't be added, because the table has {path}{lower[name.lower()]}"
            raise InvalidError(message, hint="rename the column of the batch")
        lower[name.lower()] = name
        if types.is_null(column.type):
            hint = "cast it to the type that it should have, or leave it out"
            raise InvalidError(f"{path}{name} can't be added, because it has no type, only nulls", hint=hint)
        check_names(() if path else (column,))
        merged.append({**_member(column, f"{path}{name}"), "nullable": True})
        added.append(f"{path}{name}")
    return merged, added


def _grown(field: Members, kind: pa.DataType, path: str, *, widens: bool) -> tuple[Members, list[str]]:
    """Returns a column with what only the batch has, fields of structs or a wider type, and their names."""
    name = f"{path}{field['name']}"
    changes: list[Members] = []
    grown, added = _grown_type(field["type"], kind, name, changes if widens else None)
    if not changes:
        return {**field, "type": grown}, added
    keys = dict(field.get("metadata") or {})
    keys[CHANGES] = [*keys.get(CHANGES, ()), *changes]
    return {**field, "type": grown, "metadata": keys}, [name, *added]


def _grown_type(
    given: Any,  # noqa: ANN401 - a JSON value
    kind: pa.DataType,
    path: str,
    changes: list[Members] | None,
    part: str = "",
) -> tuple[Any, list[str]]:
    """Returns a type with what only the batch has in its structs, also those in arrays and maps.

    `changes`: gets the wider types of the column, None if it may get none. `part`: where the type is in
    arrays and maps of the column.
    """
    match given:
        case "void" | "null" if not (part or types.is_null(kind)):
            return _type(kind, path), [path]
        case str():
            after = None if changes is None else _wider(given, kind, path)
            if changes is None or after is None:
                return given, []
            at = {"fieldPath": part} if part else {}
            changes.append({"fromType": given, "toType": after, **at})
            return after, []
        case {"type": "struct", "fields": [*fields]} if types.is_struct(kind):
            inner = [kind.field(at) for at in range(kind.num_fields)]
            merged, added = merged_fields(fields, inner, f"{path}.", widens=changes is not None)
            return {**given, "fields": merged}, added
        case {"type": "array", "elementType": _} if is_list(kind):
            kinds = {"elementType": kind.value_type}
        case {"type": "map", "keyType": _, "valueType": _} if types.is_map(kind):
            kinds = {"keyType": kind.key_type, "valueType": kind.item_type}
        case _:
            return given, []
    grown, added = dict(given), list[str]()
    for name, own in kinds.items():
        grown[name], more = _grown_type(given[name], own, path, changes, part_in(part, name))
        added += more
    return grown, added


def _wider(before: str, kind: pa.DataType, path: str) -> str | None:
    """Returns the type of the batch, None if it is not wider, or not of one kind with the table's.

    Whole numbers stay whole, as with delta-spark: a batch of doubles would make them doubles for ever.
    """
    after = None if types.is_null(kind) else _type(kind, path)
    is_kept = isinstance(after, str) and (before in WHOLE) is (after in WHOLE)
    return after if isinstance(after, str) and is_kept and is_wider(before, after) else None


def widened(field: Members, kind: pa.DataType) -> Members:
    """Returns a column with a wider simple type, which its metadata list. Raises `InvalidError`."""
    before, after = field["type"], _type(kind, field["name"])
    if not isinstance(before, str) or not isinstance(after, str) or not is_wider(before, after):
        message = f"the column {field['name']!r} can't get the type {after} instead of {before}"
        hint = "a simple type may get one that has all of its values, as a long instead of an integer"
        raise InvalidError(message, hint=hint)
    keys = dict(field.get("metadata") or {})
    keys[CHANGES] = [*keys.get(CHANGES, ()), {"fromType": before, "toType": after}]
    return {**field, "type": after, "metadata": keys}


def with_physical_names(fields: Iterable[Members], highest: int, whose: str) -> tuple[list[Members], int]:
    """Returns columns of a table with column mapping, with an id and a physical name for those that lack one.

    Also returns the highest id. `whose`: distinguishes the names of this change of the table from others;
    empty: columns that lack a physical name are in data files by their own, which were not mapped before.
    """
    numbering = _Numbering(highest, whose)
    return [numbering.numbered(field) for field in fields], numbering.highest


def with_known_ids(fields: Iterable[Members], former: Iterable[Members]) -> list[Members]:
    """Returns columns with the ids and physical names of those in `former` with the same name and type.

    A struct keeps its own, whatever fields it gets, and so does a list or a map of structs.
    """
    named = {field["name"]: field for field in former}
    return [_identified(field, named.get(field["name"])) for field in fields]


def _identified(field: Members, former: Members | None) -> Members:
    kind = None if former is None else _identified_type(field["type"], former["type"])
    if former is None or kind is None:
        return field
    ids = {key: text for key, text in (former.get("metadata") or {}).items() if key in _IDENTITY}
    return {**field, "type": kind, "metadata": {**field["metadata"], **ids}}


def _identified_type(present: Any, former: Any) -> Any:  # noqa: ANN401 - JSON values
    """Returns a type with the ids and physical names of a known one in its structs, None if it is another."""
    match present, former:
        case {"type": "struct", "fields": [*fields]}, {"type": "struct", "fields": [*others]}:
            return {**present, "fields": with_known_ids(fields, others)}
        case {"type": kind}, {"type": other} if kind == other:
            parts = {
                name: _identified_type(present[name], former.get(name)) for name in PARTS if name in present
            }
            return None if None in parts.values() else {**present, **parts}
        case _:
            return present if present == former else None


class _Numbering:
    """Numbers columns after the highest id that a table has used."""

    def __init__(self, highest: int, whose: str) -> None:
        self.highest = highest
        self._whose = whose

    def numbered(self, field: Members) -> Members:
        metadata = dict(field.get("metadata") or {})
        if MAPPED_ID not in metadata:
            self.highest += 1
            metadata[MAPPED_ID] = self.highest
            metadata[PHYSICAL_NAME] = field["name"]
            if self._whose:
                number = uuid.uuid5(uuid.NAMESPACE_URL, f"{self._whose} {self.highest}")
                metadata[PHYSICAL_NAME] = f"col-{number}"
        return {**field, "type": self._type(field["type"]), "metadata": metadata}

    def _type(self, given: Any) -> Any:  # noqa: ANN401 - a JSON value
        match given:
            case {"type": "struct", "fields": [*fields]}:
                return {**given, "fields": [self.numbered(field) for field in fields]}
            case dict():
                return {**given, **{name: self._type(given[name]) for name in PARTS if name in given}}
            case _:
                return given


def expressions(field: Members) -> Iterator[tuple[str, str]]:
    """Yields what the metadata of a column requires of its values: the key, and the expression."""
    metadata = field.get("metadata") or {}
    invariant = metadata.get("delta.invariants")
    if isinstance(invariant, str):
        try:
            yield "delta.invariants", str(json.loads(invariant)["expression"]["expression"])
        except (ValueError, KeyError, TypeError):
            yield "delta.invariants", invariant

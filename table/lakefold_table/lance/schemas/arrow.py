"""Converts Arrow schemas to Lance fields and back as pylance does, so that all clients see the same columns.

Writers derive a table's fields from the schema of their rows; readers derive the Arrow schema of a table
without opening its data. The committer never imports this module, since it needs Arrow. Source: Lance fact
4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_protos.lance.file_pb2 import DICTIONARY, NONE, PLAIN, VAR_BINARY, Encoding, Field, Schema
from lakefold_table.columns.extension_names import ARROW_JSON, BLOB_MARKER, BLOB_V2, EXTENSION_NAME
from lakefold_table.columns.extension_types import complete_metadata, storage_of, with_extension_types
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.schemas.arrow_types import leaf_name, leaf_type, list_size
from lakefold_table.lance.schemas.data_files import V2_2, FileVersion
from lakefold_table.lance.schemas.keys import check_primary_key, declare_keys
from lakefold_table.lance.schemas.schema import (
    RESERVED_NAMES,
    TOP,
    check_structure,
    children,
    is_nested,
    paths,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

BLOB_STORAGE = pa.struct(
    {"data": pa.large_binary(), "uri": pa.utf8(), "position": pa.uint64(), "size": pa.uint64()}
)
BLOB_WITHOUT_RANGE = pa.struct({"data": pa.large_binary(), "uri": pa.utf8()})
"""The type that pylance gives to a column with the older blob marker."""
LANCE_JSON = b"lance.json"


def schema_from_arrow(schema: pa.Schema, version: FileVersion = V2_2) -> Schema:
    """Returns the fields and metadata that pylance stores for an Arrow schema, ids depth first from 0.

    `version`: the version of the data files that will be written; from 2.2 a column with the older blob
    marker is a blob v2. Raises `InvalidError` naming the column if Lance refuses its type, name or key.
    """
    fields: list[Field] = []
    names = set[str]()
    for column in schema:
        _check_name(column.name, names)
        names.add(column.name)
        _append(fields, column, TOP, column.name, version)
    check_primary_key(fields)
    return Schema(fields=fields, metadata=_texts(schema.metadata or {}, "the schema's metadata"))


def schema_to_arrow(fields: Sequence[Field], metadata: Mapping[str, bytes]) -> pa.Schema:
    """Returns the Arrow schema that pylance shows for these fields and this schema metadata.

    Extension types are restored if they are registered with pyarrow. Raises `DamagedError` naming the column
    if the fields contradict each other or a type is unknown in this release.
    """
    check_structure(fields)
    below, names = children(fields), paths(fields)
    columns = [_arrow_field(field, below, names) for field in below.get(TOP, [])]
    return with_extension_types(pa.schema(columns, metadata=dict(metadata) or None))


def _check_name(name: str, before: Collection[str]) -> None:
    if name in RESERVED_NAMES:
        raise InvalidError("this name is reserved by Lance", where=name, hint="rename the column")
    if "." in name:
        hint = "rename the column, or make it a field of a struct"
        raise InvalidError("the name of a column can't contain a dot", where=name, hint=hint)
    if "`" in name or not name:
        what = "contain a backtick" if name else "be empty"
        message = f"the name of a column can't {what}, because no Lance client could read it"
        raise InvalidError(message, where=name, hint="rename the column")
    if name in before:
        raise InvalidError("two columns have this name", where=name, hint="rename one of them")


def _append(fields: list[Field], field: pa.Field, parent: int, path: str, version: FileVersion) -> None:
    """Appends the field and, depth first, the fields below it."""
    metadata = _texts(complete_metadata(field), path)
    kind = _blob_kind(storage_of(field.type), metadata, path, version)
    name, below = _shape(kind, path)
    if _is_json(kind, metadata, path):
        name, metadata[EXTENSION_NAME] = "json", LANCE_JSON
    lance_field = Field(
        name=field.name,
        id=len(fields),
        parent_id=parent,
        logical_type=name,
        nullable=field.nullable,
        encoding=_encoding(name),
        extension_name=metadata.get(EXTENSION_NAME, b"").decode(),
        metadata=metadata,
    )
    declare_keys(lance_field)
    fields.append(lance_field)
    for child in below:
        _append(fields, child, lance_field.id, f"{path}.{child.name}", version)


def _texts(metadata: Mapping[bytes, bytes], where: str) -> dict[str, bytes]:
    """Returns the metadata as Lance stores it. Raises `InvalidError` if it is not UTF-8."""
    try:
        for value in metadata.values():
            value.decode()
        return {key.decode(): value for key, value in metadata.items()}
    except UnicodeDecodeError as error:
        hint = "encode it, for example in base64"
        raise InvalidError("metadata is not UTF-8", where=where, hint=hint) from error


def _blob_kind(kind: pa.DataType, metadata: dict[str, bytes], path: str, version: FileVersion) -> pa.DataType:
    """Returns the storage type of a column; a marked column becomes a blob v2 if the data files allow it.

    Any value of the marker counts, as in pylance. Raises `InvalidError` if the column can't be stored as a
    blob.
    """
    if BLOB_MARKER in metadata and version >= V2_2:
        if kind not in (pa.binary(), pa.large_binary()):
            hint = f"cast it, or remove the metadata key {BLOB_MARKER}"
            raise InvalidError(f"a blob is binary, not {kind}", where=path, hint=hint)
        del metadata[BLOB_MARKER]
        metadata[EXTENSION_NAME] = BLOB_V2.encode()
        return BLOB_WITHOUT_RANGE
    if metadata.get(EXTENSION_NAME) == BLOB_V2.encode():
        if version < V2_2:
            hint = "write data files of version 2.2"
            raise InvalidError("data files before 2.2 can't hold a blob v2", where=path, hint=hint)
        if kind not in (BLOB_STORAGE, BLOB_WITHOUT_RANGE):
            raise InvalidError(f"a blob v2 is stored as {BLOB_STORAGE}, not as {kind}", where=path)
    return kind


def _is_json(kind: pa.DataType, metadata: Mapping[str, bytes], path: str) -> bool:
    extension = metadata.get(EXTENSION_NAME)
    if extension == ARROW_JSON.encode():
        if kind not in (pa.utf8(), pa.large_utf8()):
            hint = "cast it to a string"
            raise InvalidError(f"Lance can't store JSON in a column of type {kind}", where=path, hint=hint)
        return True
    return extension == LANCE_JSON and kind == pa.large_binary()


def _shape(kind: pa.DataType, path: str) -> tuple[str, list[pa.Field]]:
    """Returns the logical type of an Arrow type, and the fields below it."""
    if pa.types.is_struct(kind):
        return "struct", list(kind)
    if pa.types.is_map(kind):
        if kind.keys_sorted:
            raise InvalidError("Lance can't store a map with sorted keys", where=path)
        entries = pa.struct([kind.key_field, kind.item_field])
        return "map", [pa.field("entries", entries, nullable=False)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        name = "large_list" if pa.types.is_large_list(kind) else "list"
        return f"{name}.struct" if _holds_structs(kind) else name, [kind.value_field]
    if pa.types.is_fixed_size_list(kind) and _holds_structs(kind):
        return f"fixed_size_list:struct:{list_size(kind, path)}", [kind.value_field]
    return leaf_name(kind, path), []


def _holds_structs(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(storage_of(kind.value_type)))


def _encoding(name: str) -> Encoding.ValueType:
    if name in {"struct", "null"}:
        return NONE
    if name in {"string", "large_string", "binary", "large_binary", "json"}:
        return VAR_BINARY
    return DICTIONARY if name.startswith("dict:") else PLAIN


def _arrow_field(field: Field, below: Mapping[int, Sequence[Field]], names: Mapping[int, str]) -> pa.Field:
    """Returns the Arrow field, its extension type still as metadata."""
    inner = [_arrow_field(child, below, names) for child in below.get(field.id, ())]
    metadata = dict(field.metadata)
    if field.logical_type == "json":
        metadata[EXTENSION_NAME] = ARROW_JSON.encode()
    try:
        kind = _arrow_type(field.logical_type, inner, names[field.id])
        return pa.field(field.name, kind, nullable=field.nullable, metadata=metadata or None)
    except (pa.ArrowException, TypeError, ValueError) as error:
        fault = f"{field.logical_type} can't be converted to an Arrow field: {error}"
        raise DamagedError(fault, where=names[field.id]) from error


def _arrow_type(name: str, inner: list[pa.Field], path: str) -> pa.DataType:
    if name == "struct":
        return pa.struct(inner)
    if name == "map":
        return pa.map_(*inner[0].type)
    if name in {"list", "list.struct"}:
        return pa.list_(inner[0])
    if name in {"large_list", "large_list.struct"}:
        return pa.large_list(inner[0])
    if is_nested(name):
        return pa.list_(inner[0], int(name.rpartition(":")[2]))
    return pa.utf8() if name == "json" else leaf_type(name, path)

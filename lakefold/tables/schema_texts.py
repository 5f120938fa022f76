"""The columns of a table as a user writes them: types by name, and files that have a schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakefold.writing.files import file_rows
from lakefold_reader.delta.schema import schema_of
from lakefold_table.errors import InvalidError, LakefoldError

if TYPE_CHECKING:
    from pathlib import Path

_SQL: Final = {"int": "integer", "bigint": "long", "smallint": "short", "tinyint": "byte", "text": "string"}
_LIST: Final = re.compile(r"(.+)\[(\d*)\]")
_REQUIRED: Final = re.compile(r"\s+not\s+null$", re.IGNORECASE)
_TYPES: Final = (
    "name a type of Arrow (int64, timestamp[us]) or of Spark (long, decimal(10,2), date); a list is float[], "
    "a vector float[768]; a schema of Arrow can have any other type"
)


def type_of(text: str) -> pa.DataType:
    """Returns the type of a name. Raises `InvalidError` if there is none.

    >>> type_of("bigint"), type_of("float[768]"), type_of("timestamp[ms]")
    (DataType(int64), FixedSizeListType(fixed_size_list<item: float>[768]), TimestampType(timestamp[ms]))
    """
    name = text.strip().lower()
    if (parts := _LIST.fullmatch(name)) is not None:
        return pa.list_(type_of(parts[1]), int(parts[2]) if parts[2] else -1)
    try:
        kind = _columns([{"name": "", "type": _SQL.get(name, name)}]).field(0).type
    except LakefoldError:
        try:
            kind = pa.type_for_alias(name)
        except ValueError as error:
            raise InvalidError(f"there is no type {text!r}", hint=_TYPES) from error
    if pa.types.is_null(kind):
        raise InvalidError("a column of nulls has no type", where=text, hint=_TYPES)
    return kind


def field_of(name: str, given: object) -> pa.Field:
    """Returns a column whose type is given as one of Arrow's, as a field, or by its name.

    >>> field_of("id", "long not null")
    pyarrow.Field<id: int64 not null>
    """
    if isinstance(given, pa.Field):
        return given.with_name(name)
    if isinstance(given, pa.DataType):
        return pa.field(name, given)
    if not isinstance(given, str):
        raise InvalidError(f"{given!r} is no type", where=name, hint=_TYPES)
    text = _REQUIRED.sub("", given.strip())
    return pa.field(name, type_of(text), nullable=text == given.strip())


def read_schema(path: Path) -> pa.Schema:
    """Returns the schema in a file: as JSON if its name ends with `.json`, else that of the file's rows.

    JSON is the schema as Spark and Delta write it, or an object with a type for each column. Raises
    `InvalidError` if it is neither, and as `file_rows`.
    """
    if path.suffix.lower() != ".json":
        return file_rows([path], None).schema
    try:
        document: Any = json.loads(path.read_bytes())
        return schema_from(document)
    except ValueError as error:
        hint = 'write it as {"id": "int64", "name": "string"}'
        raise InvalidError(f"the file is no JSON: {error}", where=str(path), hint=hint) from error
    except LakefoldError as error:
        raise InvalidError(error.message, where=str(path), hint=error.hint or _TYPES) from error


def schema_from(document: object) -> pa.Schema:
    """Returns the schema of a JSON document, or itself if it is Arrow's. Raises `LakefoldError`.

    >>> schema_from({"id": "int64 not null", "tags": "string[]"}).names
    ['id', 'tags']
    """
    if isinstance(document, pa.Schema):
        return document
    if not isinstance(document, Mapping) or not document:
        raise InvalidError(f"{document!r} is no schema", hint=_TYPES)
    if isinstance(document.get("fields"), list):
        return _columns(document["fields"])
    return pa.schema([field_of(name, kind) for name, kind in document.items()])


def _columns(fields: list[Any]) -> pa.Schema:
    """Returns columns that are described as Spark and Delta do. Raises `LakefoldError`."""
    return schema_of(json.dumps({"type": "struct", "fields": fields})).arrow

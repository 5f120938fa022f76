"""Which types data files of a version can't hold, so that a column is refused before rows are written.

pylance writes some types that no Lance client can read, and refuses or panics at others when rows arrive. A
table with such a column would be created, and then each of its versions with rows would be unreadable. The
rules come from writing and reading each type in each version of the files (Lance fact 4.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyarrow import types

from lakefold_table.columns.extension_types import storage_of
from lakefold_table.errors import InvalidError
from lakefold_table.lance.schemas.data_files import V2_0, V2_2, FileVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class TypeFault(NamedTuple):
    """Why a column can't be stored: the dotted path to the type, the reason and what to do."""

    path: str
    reason: str
    hint: str


def check_types(columns: pa.Schema, version: FileVersion) -> None:
    """Raises `InvalidError` naming the column if data files of this version can't hold its type."""
    for fault in type_faults(columns, version):
        message = f"{fault.path} can't be a column, because {fault.reason}"
        raise InvalidError(message, where=fault.path, hint=fault.hint)


def type_faults(columns: Iterable[pa.Field], version: FileVersion, path: str = "") -> Iterator[TypeFault]:
    """Yields what data files of this version can't hold, at any depth. `path`: the structs around, dotted."""
    for name, kind in each_type(columns, path):
        if (fault := _fault(kind, version)) is not None:
            yield TypeFault(name, *fault)


def needs_values(column: pa.Field, version: FileVersion) -> bool:
    """Returns whether each row needs a value of this column: data files of version 2.0 have no null structs.

    Rows that were written without the column have a null there. They can be read, but whatever writes them
    again is refused by pylance: an update, an upsert, a compaction (Lance fact 4.1).
    """
    return version == V2_0 and types.is_struct(storage_of(column.type))


def each_type(columns: Iterable[pa.Field], path: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """Yields the dotted path and the storage type of each column and of each field below it, depth first."""
    for field in columns:
        name, kind = path + field.name, storage_of(field.type)
        yield name, kind
        yield from each_type(_inner(kind), f"{name}.")


def _fault(kind: pa.DataType, version: FileVersion) -> tuple[str, str] | None:
    shown = ".".join(map(str, version))
    newer = "leave it out, or write into a table whose `data_storage_version` is 2.2"
    if types.is_map(kind) and version < V2_2:
        return f"data files of version {shown} can't hold maps", newer
    if types.is_struct(kind) and not kind.num_fields and version > V2_0:
        reason = "it is a struct without fields, and Lance reads the columns after it as null"
        return reason, "leave it out, or give the struct a field"
    if _is_empty(kind) and version != V2_2:
        return f"Lance can't read binary values of 0 bytes from data files of version {shown}", newer
    if types.is_fixed_size_list(kind) and not _is_fixed_item(storage_of(kind.value_type)):
        reason = f"Lance can't read fixed-size lists of {kind.value_type}"
        return reason, "cast it to a list without a fixed size, or leave it out"
    return None


def _is_empty(kind: pa.DataType) -> bool:
    return bool(types.is_fixed_size_binary(kind) and kind.byte_width == 0)


def _is_fixed_item(kind: pa.DataType) -> bool:
    """Returns whether a fixed-size list can have these items; fixed-size lists are looked at next."""
    if types.is_fixed_size_list(kind):
        return True
    sized = types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind)
    return (sized and not _is_empty(kind)) or types.is_null(kind)


def _inner(kind: pa.DataType) -> list[pa.Field]:
    if types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if types.is_nested(kind) and not types.is_dictionary(kind):
        return [kind.field(index) for index in range(kind.num_fields)]
    return []

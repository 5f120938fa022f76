"""Which fields a data file lists, by schema and file version (Lance facts 4.4 and 4.5).

A writer may write some columns into one file and others into another. This module gives the list of a file
with the whole schema, and so also the ids of each column's fields. It also says what is wrong with the path
and the size of a new data file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.columns.extension_names import BLOB_V2, EXTENSION_NAME
from lakefold_table.entry import Invalid
from lakefold_table.errors import InvalidError
from lakefold_table.lance.manifests.naming import data_path, is_data_name, is_inside
from lakefold_table.lance.schemas.schema import TOP, children

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.table_pb2 import DataFile

FileVersion = tuple[int, int]

LEGACY: FileVersion = (0, 2)
V2_0: FileVersion = (2, 0)
V2_1: FileVersion = (2, 1)
V2_2: FileVersion = (2, 2)
V2_3: FileVersion = (2, 3)
FILE_VERSIONS: Mapping[str, FileVersion] = {
    "legacy": LEGACY,
    "0.1": LEGACY,
    "0.3": V2_0,
    "2.0": V2_0,
    "2.1": V2_1,
    "2.2": V2_2,
    "2.3": V2_3,
    "stable": V2_2,
    "next": V2_3,
}
"""The storage versions that pylance 14 accepts, and the versions of the data files that it then writes."""
NAMES = {FILE_VERSIONS[name]: name for name in ("0.1", "2.0", "2.1", "2.2", "2.3")}
"""What a manifest calls the version of its data files; `0.1` means all versions before 2 (Lance fact 4.5)."""
PACKED = "lance-encoding:packed"
# pylance's older spelling of the same key.
PACKED_BEFORE = "packed"
TRUE = frozenset({b"true", b"1", b"yes", b"on", b"y"})


def file_version(name: str) -> FileVersion:
    """Returns the version of the data files of a storage version such as `2.2` or `stable`.

    Raises `InvalidError` if pylance 14 doesn't know it.
    """
    if name not in FILE_VERSIONS:
        hint = f"use one of {', '.join(FILE_VERSIONS)}"
        raise InvalidError("not a version of Lance's data files", where=name or "(empty)", hint=hint)
    return FILE_VERSIONS[name]


def means_true(value: bytes) -> bool:
    """Returns whether a metadata value means true; pylance accepts these words in any case."""
    return value.lower() in TRUE


def expected_file_fields(fields: Sequence[Field], version: FileVersion) -> list[int]:
    """Returns the field ids that pylance lists in a data file that has every column of the schema.

    Before 2.0 these are all fields, sorted by id; in 2.0 all fields that have a column of their own; from 2.1
    the leaves, and a packed struct, a blob v2 and an empty struct are leaves too.
    """
    if version < V2_0:
        return sorted(field.id for field in fields)
    return list(_listed(TOP, children(fields), version))


def _listed(parent: int, below: Mapping[int, Sequence[Field]], version: FileVersion) -> Iterator[int]:
    for field in below.get(parent, ()):
        whole = field.id not in below or is_one_column(field, version)
        if whole or version == V2_0:
            yield field.id
        if not whole:
            yield from _listed(field.id, below, version)


def is_one_column(field: Field, version: FileVersion) -> bool:
    """Returns whether a field with children is stored as a single column of the file."""
    if field.logical_type != "struct":
        return version == V2_0 and field.logical_type.startswith("fixed_size_list:")
    metadata = field.metadata
    if version == V2_0 and PACKED in metadata:
        return True
    packed = any(means_true(metadata.get(key, b"")) for key in (PACKED, PACKED_BEFORE))
    return packed or metadata.get(EXTENSION_NAME) == BLOB_V2.encode()


def path_fault(file: DataFile, bases: Collection[int]) -> Invalid | None:
    """Returns what is wrong with the path of a new data file, or None."""
    if not is_inside(file.path):
        return Invalid(
            f"the path {file.path!r} leaves its base or is not a plain name",
            "name the file relative to the data folder, in at most 255 bytes",
        )
    if not is_data_name(file.path):
        return Invalid(
            f"no Lance client finds a data file named {file.path!r}",
            "use letters and digits without accents, `-`, `_` and `.`, and no folders",
        )
    if file.HasField("base_id") and file.base_id not in bases:
        return Invalid(f"base {file.base_id} of {file.path} is not one of the table's", "add the base first")
    return None


def size_fault(file: DataFile, sizes: Mapping[str, int | None]) -> Invalid | None:
    """Returns what is wrong with a data file, or None, also if its size wasn't fetched."""
    path = data_path(file.path)
    if file.HasField("base_id") or path not in sizes:
        return None
    size = sizes[path]
    if size is None:
        return Invalid(f"data file {path} is missing", "write the files before the transaction is sent")
    if file.file_size_bytes not in (0, size):
        return Invalid(
            f"data file {path} has {size} bytes, but the transaction says {file.file_size_bytes}",
            "the file was changed or not written completely: write it again under a new name",
        )
    return None

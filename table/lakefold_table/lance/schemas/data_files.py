"""Which fields a data file lists, given the schema and the file's version (Lance facts 4.4 and 4.5).

A writer may put some columns into one file and others into another; what is here is the list of a file that
holds the whole schema, and so also the ids that stand for each column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.errors import InvalidError
from lakefold_table.lance.schemas.schema import BLOB_V2, EXTENSION_NAME, TOP, children

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakefold_protos.lance.file_pb2 import Field

FileVersion = tuple[int, int]

LEGACY: FileVersion = (0, 2)
V2_0: FileVersion = (2, 0)
V2_1: FileVersion = (2, 1)
V2_2: FileVersion = (2, 2)
V2_3: FileVersion = (2, 3)
# The spellings that pylance 14 takes, and the version that its data files then carry.
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
NAMES = {FILE_VERSIONS[name]: name for name in ("0.1", "2.0", "2.1", "2.2", "2.3")}
"""What a manifest calls the version of its data files; `0.1` means all files before 2 (Lance fact 4.5)."""
PACKED = "lance-encoding:packed"
# pylance's older spelling of the same key.
PACKED_BEFORE = "packed"
TRUE = frozenset({b"true", b"1", b"yes", b"on", b"y"})


def file_version(name: str) -> FileVersion:
    """The major and minor version of the data files of a storage version such as `2.2` or `stable`.

    Raises `InvalidError` for one that pylance 14 doesn't know.
    """
    if name not in FILE_VERSIONS:
        hint = f"one of {', '.join(FILE_VERSIONS)}"
        raise InvalidError("not a version of Lance's data files", where=name or "(empty)", hint=hint)
    return FILE_VERSIONS[name]


def means_true(value: bytes) -> bool:
    """Whether a metadata value switches something on; pylance takes these words in any case."""
    return value.lower() in TRUE


def expected_file_fields(fields: Sequence[Field], version: FileVersion) -> list[int]:
    """The field ids that pylance lists in a data file of this version which holds every column of the schema.

    Before 2.0 every field, by id; in 2.0 every field that has a column of its own; from 2.1 the leaves, where
    a packed struct, a blob (v2) and an empty struct count as leaves.
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
    """Whether a field with children lies in one column of the file."""
    if field.logical_type != "struct":
        return version == V2_0 and field.logical_type.startswith("fixed_size_list:")
    metadata = field.metadata
    if version == V2_0 and PACKED in metadata:
        return True
    packed = any(means_true(metadata.get(key, b"")) for key in (PACKED, PACKED_BEFORE))
    return packed or metadata.get(EXTENSION_NAME) == BLOB_V2.encode()

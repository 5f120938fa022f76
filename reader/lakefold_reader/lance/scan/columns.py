"""Finds out which part of a data file holds which column of a table, by field ids alone.

A column keeps its id when it is renamed, and a file keeps the names it was written with. So the columns of a
file are found by the ids that the version's fragment lists, never by name (Lance facts 4.2 and 4.6).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lakefold_reader.format.column_lists import check_list
from lakefold_reader.lance.versions import head_of
from lakefold_table.columns.extension_names import BLOB_MARKER, BLOB_V2, EXTENSION_NAME
from lakefold_table.errors import DamagedError, InvalidError, OptionName
from lakefold_table.lance.schemas.data_files import V2_0, V2_3, FileVersion, expected_file_fields, means_true
from lakefold_table.lance.schemas.schema import (
    FIXED_SIZE_LIST_OF_STRUCTS,
    TOP,
    check_structure,
    children,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.table_pb2 import DataFile, Manifest
    from lakefold_table.format import VersionSummary

EXTENSION_METADATA = "ARROW:extension:metadata"


Shape = tuple[object, ...]


@dataclass(frozen=True)
class TableSchema:
    """The schema of a version: its fields, depth first, and the schema's metadata."""

    fields: tuple[Field, ...]
    metadata: Mapping[str, bytes]

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema that pylance shows for these fields."""
        from lakefold_table.lance.schemas.arrow import schema_to_arrow

        return schema_to_arrow(self.fields, self.metadata)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns at the top level, in order."""
        return columns_of(self.fields)

    @property
    def names(self) -> list[str]:
        """The names of the columns at the top level, in order."""
        return [column.name for column in self.columns]

    def forms(self) -> dict[str, object]:
        """Returns, for each column, the ids, names and types of its fields."""
        return {
            column.name: [(field.id, field.name, field.logical_type) for field in column.fields]
            for column in self.columns
        }

    def chosen(self, names: Sequence[str] | None) -> TableSchema:
        """Returns the schema of these columns, in their order (None: all). Raises `InvalidError`."""
        if names is None:
            return self
        check_list(names)
        columns = {column.name: column for column in self.columns}
        unknown = [name for name in names if name not in columns]
        if unknown or not names:
            message = f"the table has no columns {unknown}" if unknown else "no column is selected"
            raise InvalidError(message, where=OptionName("columns"), hint=f"it has {', '.join(columns)}")
        fields = tuple(field for name in dict.fromkeys(names) for field in columns[name].fields)
        return TableSchema(fields, self.metadata)


@dataclass(frozen=True, slots=True)
class Column:
    """A column at the top level with all fields below it, depth first.

    `shape` must be equal in a file if the column is to be taken from it unchanged: the logical types, and of
    the fields below also names, nullability and metadata. `scanned`: pylance shows the column in another form
    than the file stores it (JSON, blobs).
    """

    fields: tuple[Field, ...]
    shape: Shape
    scanned: bool

    @property
    def name(self) -> str:
        """The column's name."""
        return self.fields[0].name

    @property
    def nullable(self) -> bool:
        """Whether the column may hold nulls."""
        return self.fields[0].nullable

    def ids(self, version: FileVersion) -> list[int]:
        """Returns the field ids that a data file of this version lists for the column."""
        return expected_file_fields(self.fields, version)


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """The file that stores a column: its index among the fragment's files, and the column's name."""

    file: int
    name: str


def schema_of(head: Manifest) -> TableSchema:
    """Returns the schema in a manifest. Raises `DamagedError` if its fields do not form a schema."""
    check_structure(head.fields)
    return TableSchema(tuple(head.fields), dict(head.schema_metadata))


def schema_in(summary: VersionSummary) -> TableSchema | None:
    """Returns the schema of a version. Returns None if only the first bytes of its file were read.

    Raises `DamagedError` as `schema_of`.
    """
    head = head_of(summary)
    return None if head is None else schema_of(head)


def columns_of(fields: Sequence[Field]) -> tuple[Column, ...]:
    """Returns the columns of a flat list of fields in which parents come before their children."""
    below = children(fields)
    return tuple(_column(field, below) for field in below.get(TOP, []))


def version_of(file: DataFile) -> FileVersion:
    """Returns the version of a data file."""
    return file.file_major_version, file.file_minor_version


def is_direct(file: DataFile) -> bool:
    """Returns whether `column_indices` lists all columns of a file, and the file is in the table itself."""
    is_readable = V2_0 <= version_of(file) <= V2_3
    return is_readable and not file.HasField("base_id") and len(file.column_indices) == len(file.fields)


def sources(
    columns: Sequence[Column], files: Sequence[DataFile], stored: Sequence[Sequence[Field]]
) -> list[ColumnSource | None] | None:
    """Finds each column in a fragment's `files`, whose own schemas are `stored`.

    Returns None for a column that is absent. Returns None for all of them if a column can't be taken
    unchanged: because a part of it is in another file, its shape differs from the table's, it is shown in
    another form, or it is absent and may not be null.
    """
    names_by_file = [_names_in(file, fields) for file, fields in zip(files, stored, strict=True)]
    versions = [version_of(file) for file in files]
    if any(columns_in_file is None for columns_in_file in names_by_file):
        return None
    held = [frozenset(file.fields) for file in files]
    result: list[ColumnSource | None] = []
    for column in columns:
        holders = [n for n, ids in enumerate(held) if not ids.isdisjoint(column.ids(versions[n]))]
        if column.scanned or len(holders) > 1 or (not holders and not column.nullable):
            return None
        if not holders:
            result.append(None)
            continue
        columns_in_file = names_by_file[holders[0]] or {}
        name = columns_in_file.get((tuple(column.ids(versions[holders[0]])), column.shape))
        if name is None:
            return None
        result.append(ColumnSource(holders[0], name))
    return result


def _names_in(file: DataFile, stored: Sequence[Field]) -> dict[tuple[tuple[int, ...], Shape], str] | None:
    """Returns the name of each column in a file by its ids and its shape.

    Returns None if they are not known.
    """
    try:
        check_structure(stored)
    except DamagedError:
        # pylance gives the parts of a blob no ids of their own (tests/oracle/test_rows_of_files.py).
        return None
    version = version_of(file)
    listed = expected_file_fields(stored, version)
    table_id = dict(zip(file.column_indices, file.fields, strict=True))
    if sorted(table_id) != list(range(len(listed))):
        return None
    index = {number: position for position, number in enumerate(listed)}
    return {
        (tuple(table_id[index[number]] for number in column.ids(version)), column.shape): column.name
        for column in columns_of(stored)
    }


def _column(field: Field, below: Mapping[int, Sequence[Field]]) -> Column:
    fields = tuple(_depth_first(field, below))
    return Column(fields, _shape(field, below), any(_is_scanned(each) for each in fields))


def _depth_first(field: Field, below: Mapping[int, Sequence[Field]]) -> Iterator[Field]:
    yield field
    for child in below.get(field.id, ()):
        yield from _depth_first(child, below)


def _shape(field: Field, below: Mapping[int, Sequence[Field]]) -> Shape:
    inner = tuple(
        (child.name, child.nullable, tuple(sorted(child.metadata.items())), _shape(child, below))
        for child in below.get(field.id, ())
    )
    extension = field.metadata.get(EXTENSION_NAME), field.metadata.get(EXTENSION_METADATA)
    return field.logical_type, extension, inner


def is_blob(field: Field) -> bool:
    """Returns whether the values of a field are stored apart, for readers to fetch one by one."""
    return (
        means_true(field.metadata.get(BLOB_MARKER, b""))
        or field.metadata.get(EXTENSION_NAME) == BLOB_V2.encode()
    )


def _is_scanned(field: Field) -> bool:
    return (
        is_blob(field)
        or field.logical_type == "json"
        or field.logical_type.startswith(FIXED_SIZE_LIST_OF_STRUCTS)
    )

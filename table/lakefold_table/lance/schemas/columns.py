"""What a table's schema requires of the data files of a fragment (Lance facts 4.4 and 4.6).

The fragments of a table have few shapes (the same columns in the same file version). So shapes that were
accepted are remembered, and the check of a fragment is usually one look-up.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_table.entry import Invalid
from lakefold_table.lance.schemas.data_files import FILE_VERSIONS, V2_0, V2_1, FileVersion, is_one_column
from lakefold_table.lance.schemas.schema import TOP

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
    from lakefold_table.lance.manifests.plain_append import FileShape, Shape

MAX_REMEMBERED_IDS = 100_000
"""The number of field ids in all remembered shapes together; this limits them to a few megabytes."""
MAX_NAMED = 10
"""How many ids or names a message lists at most; of the others only the number is given."""
MOST_FIELDS = 10_000
"""A file that lists this many fields more than the schema has is refused without further checks."""
LEGACY_FILES = frozenset({(0, 0), (0, 1), (0, 2)})
KNOWN_FILES = frozenset(FILE_VERSIONS.values())
KNOWN_VERSIONS = tuple(sorted(f"{major}.{minor}" for major, minor in KNOWN_FILES if (major, minor) >= V2_0))


class AcceptedShapes:
    """The shapes of fragments that were accepted. All are forgotten when they have too many ids."""

    def __init__(self) -> None:
        self._shapes: set[Shape] = set()
        self._ids = 0

    def __contains__(self, shape: Shape) -> bool:
        return shape in self._shapes

    def add(self, shape: Shape) -> None:
        """Remembers a shape."""
        ids = sum(len(fields) for _, _, fields, _ in shape)
        if self._ids + ids > MAX_REMEMBERED_IDS:
            self._shapes.clear()
            self._ids = 0
        self._shapes.add(shape)
        self._ids += ids


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a schema, and the shapes of fragments that were accepted for it.

    `roots`: the id of its top-level column for each field id. `own`: the fields that have a column of their
    own in files from version 2.1. `parents`: the fields that have children. `required`: the names of
    non-nullable columns, by id. `legacy`: whether the table's files have a version before 2.
    """

    roots: dict[int, int]
    own: frozenset[int]
    parents: frozenset[int]
    required: dict[int, str]
    legacy: bool
    sound: AcceptedShapes = field(default_factory=AcceptedShapes, compare=False)

    def fault(self, fragment: DataFragment) -> Invalid | None:
        """Returns why the fragment's files don't fit the schema, None if they do."""
        length_fault = next(filter(None, map(self._length_fault, fragment.files)), None)
        if length_fault is not None:
            return length_fault
        shape = tuple(_shape(file) for file in fragment.files)
        if shape in self.sound:
            return None
        fault = self._shape_fault(shape)
        if fault is None:
            self.sound.add(shape)
        return fault

    def file_fault(self, file: DataFile) -> Invalid | None:
        """Returns why a file doesn't fit the schema, None if it does."""
        return self._length_fault(file) or self._file_fault(_shape(file))

    def _length_fault(self, file: DataFile) -> Invalid | None:
        """Returns a fault if a file lists too many fields to check each without much memory."""
        if len(file.fields) <= MOST_FIELDS + len(self.roots):
            return None
        return Invalid(
            f"a data file lists {len(file.fields)} fields, the table has {len(self.roots)}",
            "list each field id of the file once",
        )

    def _shape_fault(self, shape: Shape) -> Invalid | None:
        if not shape:
            return Invalid("a fragment has no data file", "list at least one file for each fragment")
        ids = [number for _, _, fields, _ in shape for number in fields]
        if len(set(ids)) < len(ids):
            return _repeated_fault(ids)
        for file in shape:
            fault = self._file_fault(file)
            if fault:
                return fault
        return self._missing(set(ids))

    def _file_fault(self, file: FileShape) -> Invalid | None:
        major, minor, fields, indices = file
        legacy = (major, minor) in LEGACY_FILES
        if not legacy and (major, minor) not in KNOWN_FILES:
            return Invalid(
                f"data file version {major}.{minor} is not known", f"use one of {', '.join(KNOWN_VERSIONS)}"
            )
        if legacy != self.legacy:
            return Invalid(
                "files before version 2 and later ones can't be mixed in one table", "rewrite the files"
            )
        if not fields:
            return Invalid("a data file lists no fields", "list the field ids of the file")
        if len(set(fields)) < len(fields):
            return _repeated_fault(fields)
        unknown = [number for number in fields if number not in self.roots]
        if unknown:
            return Invalid(
                f"field ids {some(unknown)} are not in the table's schema, which has {some(self.roots)}",
                "open the table, use its schema and field ids, and write the files again",
            )
        return None if legacy else self._index_fault((major, minor), fields, indices)

    def _index_fault(
        self, version: FileVersion, fields: tuple[int, ...], indices: tuple[int, ...]
    ) -> Invalid | None:
        """Returns a fault if a reader can't find a column in the file; it could not read the table then."""
        if len(indices) != len(fields):
            return Invalid(
                f"{len(fields)} field ids have {len(indices)} column indices",
                "list one column index for each field",
            )
        counts = Counter(index for index in indices if index >= 0)
        repeated = [index for index, count in counts.items() if count > 1]
        if repeated:
            return Invalid(
                f"column indices {some(repeated)} are listed for two fields",
                "list another column for each field",
            )
        placed = {number for number, index in zip(fields, indices, strict=True) if index >= 0}
        if version < V2_1:
            lost, wrong = set(fields) - placed, set[int]()
        else:
            lost = (set(fields) - placed) & (self.own | set(self.roots) - self.parents)
            wrong = placed - self.own
        if lost:
            return Invalid(f"field ids {some(lost)} have no column in their file", "list its index, from 0")
        if wrong:
            return Invalid(
                f"field ids {some(wrong)} have no columns of their own in files of version 2.1 and later",
                "list their child fields instead, unless they are packed",
            )
        return None

    def _missing(self, ids: Iterable[int]) -> Invalid | None:
        stored = {self.roots[number] for number in ids}
        missing = [name for number, name in self.required.items() if number not in stored]
        if not missing:
            return None
        return Invalid(
            f"columns {some(missing)} are non-nullable and are in no file",
            "write every non-nullable column",
        )


def columns_of(fields: Sequence[Field], version: FileVersion | None) -> Columns:
    """Returns the columns of a schema in which parents come before their children.

    `version`: the version of the table's data files; None if it is unknown, and then at least 2.
    """
    parents = frozenset(schema_field.parent_id for schema_field in fields)
    roots: dict[int, int] = {}
    whole: set[int] = set()
    within: set[int] = set()
    for schema_field in fields:
        roots[schema_field.id] = roots.get(schema_field.parent_id, schema_field.id)
        if schema_field.parent_id in whole or schema_field.parent_id in within:
            within.add(schema_field.id)
        elif schema_field.id not in parents or is_one_column(schema_field, V2_1):
            whole.add(schema_field.id)
    return Columns(
        roots=roots,
        own=frozenset(whole),
        parents=parents,
        required={
            schema_field.id: schema_field.name
            for schema_field in fields
            if schema_field.parent_id == TOP and not schema_field.nullable
        },
        legacy=version is not None and version < V2_0,
    )


def _repeated_fault(ids: Iterable[int]) -> Invalid:
    repeated = [number for number, count in Counter(ids).items() if count > 1]
    return Invalid(
        f"field ids {some(repeated)} are in the fragment twice", "list each field in one file of the fragment"
    )


def _shape(file: DataFile) -> FileShape:
    return file.file_major_version, file.file_minor_version, tuple(file.fields), tuple(file.column_indices)


def some(values: Collection[int] | Collection[str]) -> str:
    """Returns the first few of some ids or names, sorted, for a message. The result is always short."""
    first = sorted(values)[:MAX_NAMED]
    others = f" and {len(values) - len(first)} more" if len(values) > len(first) else ""
    return f"{list(first)}{others}"

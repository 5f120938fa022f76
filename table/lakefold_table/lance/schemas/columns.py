"""What a table's schema demands of the data files of a fragment (Lance facts 4.4 and 4.6).

A table sees few kinds of fragment (the same columns in the same file version again and again), so the kinds
that were found sound are remembered and a fragment costs one look-up.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefold_table.entry import Invalid
from lakefold_table.lance.schemas.data_files import FILE_VERSIONS, V2_0, V2_1, is_one_column
from lakefold_table.lance.schemas.schema import TOP

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
    from lakefold_table.lance.manifests.plain import FileShape, Shape
    from lakefold_table.lance.schemas.data_files import FileVersion

MAX_REMEMBERED_IDS = 100_000
"""Of all remembered kinds of fragment together: what is remembered stays within some megabytes."""
MAX_NAMED = 10
"""How many ids or names a message gives: the rest is counted."""
MOST_FIELDS = 10_000
"""How many fields more than there are a file may list before nobody looks which those are."""
LEGACY_FILES = frozenset({(0, 0), (0, 1), (0, 2)})
KNOWN_FILES = frozenset(FILE_VERSIONS.values())
KNOWN_VERSIONS = tuple(sorted(f"{major}.{minor}" for major, minor in KNOWN_FILES if (major, minor) >= V2_0))


class Remembered:
    """The shapes that were found sound, forgotten all at once when their ids grow too many."""

    def __init__(self) -> None:
        self._shapes: set[Shape] = set()
        self._ids = 0

    def __contains__(self, shape: Shape) -> bool:
        return shape in self._shapes

    def add(self, shape: Shape) -> None:
        """Remembers one more."""
        ids = sum(len(fields) for _, _, fields, _ in shape)
        if self._ids + ids > MAX_REMEMBERED_IDS:
            self._shapes.clear()
            self._ids = 0
        self._shapes.add(shape)
        self._ids += ids


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of one schema, and the kinds of fragment already found sound for it.

    `roots`: for each field id the id of its column at the top. `own`: the fields that have a column of their
    own in files from 2.1 on. `parents`: the fields that others lie below. `required`: the columns that may
    not be null, by id with their names. `legacy`: the table's files have a version before 2.
    """

    roots: dict[int, int]
    own: frozenset[int]
    parents: frozenset[int]
    required: dict[int, str]
    legacy: bool
    sound: Remembered = field(default_factory=Remembered, compare=False)

    def fault(self, fragment: DataFragment) -> Invalid | None:
        """Why the fragment's files don't fit the schema; None where they do."""
        long = next(filter(None, map(self._length_fault, fragment.files)), None)
        if long is not None:
            return long
        shape = tuple(_shape(file) for file in fragment.files)
        if shape in self.sound:
            return None
        fault = self._judge(shape)
        if fault is None:
            self.sound.add(shape)
        return fault

    def file_fault(self, file: DataFile) -> Invalid | None:
        """Why one file doesn't fit the schema; None where it does."""
        return self._length_fault(file) or self._file_fault(_shape(file))

    def _length_fault(self, file: DataFile) -> Invalid | None:
        """Refuses a file that lists so many fields that telling which are wrong takes memory."""
        if len(file.fields) <= MOST_FIELDS + len(self.roots):
            return None
        return Invalid(
            f"a data file lists {len(file.fields)} fields, the table has {len(self.roots)}",
            "name the field ids that the file holds, each once",
        )

    def _judge(self, shape: Shape) -> Invalid | None:
        if not shape:
            return Invalid("a fragment has no data file", "each fragment names at least one file")
        for file in shape:
            fault = self._file_fault(file)
            if fault:
                return fault
        ids = [number for _, _, fields, _ in shape for number in fields]
        return _twice(ids) if len(set(ids)) < len(ids) else self._missing(set(ids))

    def _file_fault(self, file: FileShape) -> Invalid | None:
        major, minor, fields, indices = file
        legacy = (major, minor) in LEGACY_FILES
        if not legacy and (major, minor) not in KNOWN_FILES:
            return Invalid(
                f"data file version {major}.{minor} is not known", f"known: {', '.join(KNOWN_VERSIONS)}"
            )
        if legacy != self.legacy:
            return Invalid(
                "files of version 2 and older ones can't be mixed in one table", "rewrite the files"
            )
        if not fields:
            return Invalid("a data file lists no fields", "name the field ids that the file holds")
        if len(set(fields)) < len(fields):
            return _twice(fields)
        unknown = [number for number in fields if number not in self.roots]
        if unknown:
            return Invalid(
                f"field ids {some(unknown)} are not the table's: it has {some(self.roots)}",
                "open the table, take its schema and field ids, and write the files again",
            )
        return None if legacy else self._index_fault((major, minor), fields, indices)

    def _index_fault(
        self, version: FileVersion, fields: tuple[int, ...], indices: tuple[int, ...]
    ) -> Invalid | None:
        """Where a reader would look for a column; one that a reader can't follow makes a table unreadable."""
        if len(indices) != len(fields):
            return Invalid(
                f"{len(fields)} field ids have {len(indices)} column indices", "give one for each field"
            )
        taken = Counter(index for index in indices if index >= 0)
        twice = [index for index, count in taken.items() if count > 1]
        if twice:
            return Invalid(
                f"column indices {some(twice)} are given to two fields", "give each field its own column"
            )
        placed = {number for number, index in zip(fields, indices, strict=True) if index >= 0}
        if version < V2_1:
            lost, wrong = set(fields) - placed, set[int]()
        else:
            lost = (set(fields) - placed) & (self.own | set(self.roots) - self.parents)
            wrong = placed - self.own
        if lost:
            return Invalid(f"field ids {some(lost)} have no column in their file", "give its index, from 0")
        if wrong:
            return Invalid(
                f"field ids {some(wrong)} have no columns of their own in files of version 2.1 and later",
                "list the fields below them, or them where they are packed",
            )
        return None

    def _missing(self, ids: Iterable[int]) -> Invalid | None:
        there = {self.roots[number] for number in ids}
        missing = [name for number, name in self.required.items() if number not in there]
        if not missing:
            return None
        return Invalid(
            f"columns {some(missing)} may not be null and are in no file",
            "write every column that isn't nullable",
        )


def columns_of(fields: Sequence[Field], version: FileVersion | None) -> Columns:
    """The columns of a schema whose parents stand before their children.

    `version`: of the table's data files, None where it isn't known (then they are not older than 2).
    """
    parents = frozenset(one.parent_id for one in fields)
    roots: dict[int, int] = {}
    whole: set[int] = set()
    within: set[int] = set()
    for one in fields:
        roots[one.id] = roots.get(one.parent_id, one.id)
        if one.parent_id in whole or one.parent_id in within:
            within.add(one.id)
        elif one.id not in parents or is_one_column(one, V2_1):
            whole.add(one.id)
    return Columns(
        roots=roots,
        own=frozenset(whole),
        parents=parents,
        required={one.id: one.name for one in fields if one.parent_id == TOP and not one.nullable},
        legacy=version is not None and version < V2_0,
    )


def _twice(ids: Iterable[int]) -> Invalid:
    twice = [number for number, count in Counter(ids).items() if count > 1]
    return Invalid(f"field ids {some(twice)} lie in the fragment twice", "a field has one file per fragment")


def _shape(file: DataFile) -> FileShape:
    return file.file_major_version, file.file_minor_version, tuple(file.fields), tuple(file.column_indices)


def some(values: Collection[int] | Collection[str]) -> str:
    """The first few of some ids or names, sorted, for a message: it stays short however many there are."""
    first = sorted(values)[:MAX_NAMED]
    more = f" and {len(values) - len(first)} more" if len(values) > len(first) else ""
    return f"{list(first)}{more}"

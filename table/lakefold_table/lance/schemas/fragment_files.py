"""The data files of a fragment whose rows stay the same while columns are added, removed or changed.

A fragment lists for each field the file with its values. An operation that rewrites a column adds a file and
marks the field as unused in the old file (-2). No operation may lose the values of a column, list a column
twice, or have a file read as another column than that for which it was written (Lance facts 4.6 and 6.12).
"""

from __future__ import annotations

from collections import Counter
from operator import is_
from typing import TYPE_CHECKING, NamedTuple

from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
from lakefold_table.entry import Invalid
from lakefold_table.lance.manifests.naming import data_path
from lakefold_table.lance.schemas.columns import Columns, some
from lakefold_table.lance.schemas.data_files import path_fault, size_fault

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakefold_table.lance.table_view import TableView

TOMBSTONED = -2
"""The number that a file lists instead of a field whose values are in another file now."""


class FieldLocation(NamedTuple):
    """The location of a field's values: the file, its base (None: the table), and the column in the file."""

    path: str
    base: int | None
    column: int


FileKey = tuple[str, "int | None"]


def file_key(file: DataFile) -> FileKey:
    """Returns what distinguishes a file from the other files of a fragment."""
    return file.path, file.base_id if file.HasField("base_id") else None


def shared_file_fault(
    fragments: Iterable[DataFragment], others: Iterable[DataFragment] = ()
) -> Invalid | None:
    """Returns a fault if a file is listed twice in new fragments, or is one of `others` too.

    A file has the rows of one fragment: if two list it, its rows are in the table twice, even deleted rows.
    """
    keys = {file_key(file) for fragment in others for file in fragment.files}
    for file in (file for fragment in fragments for file in fragment.files):
        if file_key(file) in keys:
            return Invalid(
                f"data file {file.path} belongs to two fragments, so its rows would be in the table twice",
                "write the rows of each fragment into files of its own",
            )
        keys.add(file_key(file))
    return None


def unreadable_fault(fragments: Iterable[int]) -> Invalid | None:
    """Returns a fault if fragments (by ids) would be left without a file, as no client reads their rows."""
    empty = [*fragments]
    if not empty:
        return None
    return Invalid(
        f"no column of the new schema has a file in fragments {some(empty)}, so their rows can't be read",
        "keep a column that these fragments have; or add another, fill it by an upsert, then drop this one",
    )


def new_files(before: DataFragment, after: DataFragment) -> list[DataFile]:
    """Returns the files in the new list of a fragment that are not in its current list."""
    current = {file_key(file) for file in before.files}
    return [file for file in after.files if file_key(file) not in current]


def has_other_files(before: DataFragment, after: DataFragment) -> bool:
    """Returns whether the two lists of a fragment's files differ, in files or in their fields."""
    return [_described(file) for file in before.files] != [_described(file) for file in after.files]


def with_sizes(fragments: Sequence[DataFragment], sizes: Mapping[str, int | None]) -> Sequence[DataFragment]:
    """Returns the fragments with the sizes of files that don't state them, since readers need the sizes.

    `sizes`: by path below the table's root, as far as they were fetched. Returns the same list if nothing is
    missing.
    """
    complete = [_with_sizes(fragment, sizes) for fragment in fragments]
    return fragments if all(map(is_, complete, fragments)) else complete


def _with_sizes(fragment: DataFragment, sizes: Mapping[str, int | None]) -> DataFragment:
    """Returns the fragment with the sizes that its writer left out (Lance fact 4.9)."""
    if all(file.file_size_bytes for file in fragment.files):
        return fragment
    complete = DataFragment()
    complete.CopyFrom(fragment)
    for file in complete.files:
        if not file.file_size_bytes and not file.HasField("base_id"):
            file.file_size_bytes = sizes.get(data_path(file.path)) or 0
    return complete


def without_fields(file: DataFile, fields: frozenset[int]) -> DataFile:
    """Returns the file's entry without these fields."""
    if not fields:
        return file
    remaining = DataFile()
    remaining.CopyFrom(file)
    kept_indices = [index for index, number in enumerate(file.fields) if number not in fields]
    remaining.fields[:] = [file.fields[index] for index in kept_indices]
    if len(file.column_indices) == len(file.fields):
        remaining.column_indices[:] = [file.column_indices[index] for index in kept_indices]
    return remaining


def without_dropped_files(
    fragments: Sequence[DataFragment], dropped: frozenset[int]
) -> Sequence[DataFragment]:
    """Returns new fragments without the files that have only dropped fields."""
    if not dropped:
        return fragments
    result = []
    for fragment in fragments:
        remaining = DataFragment()
        remaining.CopyFrom(fragment)
        del remaining.files[:]
        remaining.files.extend(file for file in fragment.files if not dropped >= {*file.fields})
        result.append(remaining)
    return result


def without_dropped_fields(fragment: DataFragment, dropped: frozenset[int]) -> DataFragment:
    """Returns the fragment without the dropped fields in its files. One that is in two of them stays."""
    if not dropped:
        return fragment
    (remaining,) = without_dropped_files([fragment], dropped)
    counts = Counter(number for file in remaining.files for number in file.fields)
    once = frozenset(number for number in dropped if counts[number] <= 1)
    files = [without_fields(file, once) for file in remaining.files]
    del remaining.files[:]
    remaining.files.extend(files)
    return remaining


def field_locations(fragment: DataFragment) -> dict[int, FieldLocation]:
    """Returns where the values of each field are, by field id. A field in no file reads as null."""
    locations: dict[int, FieldLocation] = {}
    for file in fragment.files:
        key, columns = file_key(file), [*file.column_indices]
        columns += [TOMBSTONED] * (len(file.fields) - len(columns))
        locations.update(
            (number, FieldLocation(*key, column))
            for number, column in zip(file.fields, columns, strict=False)
            if number >= 0
        )
    return locations


def changed_fields(before: Mapping[int, FieldLocation], after: Mapping[int, FieldLocation]) -> frozenset[int]:
    """Returns the fields whose values are in another location than before, or are new."""
    return frozenset(number for number, location in after.items() if before.get(number) != location)


def new_file_fault(
    table: TableView, file: DataFile, columns: Columns, dropped: frozenset[int] = frozenset()
) -> Invalid | None:
    """Returns why a data file can't become part of a fragment."""
    return (
        columns.file_fault(without_fields(file, dropped))
        or path_fault(file, table.base_ids)
        or size_fault(file, table.fetched.sizes)
    )


def files_fault(
    table: TableView,
    before: DataFragment,
    after: DataFragment,
    columns: Columns,
    dropped: frozenset[int] = frozenset(),
) -> Invalid | None:
    """Returns why these files can't be those of a fragment of the table. `columns`: those of the new schema.

    An existing file may only have fields marked as unused; any other file is new. A field of the schema that
    had values must still have some. `dropped`: fields that new files may have although the schema doesn't.
    """
    current = {file_key(file): file for file in before.files}
    for file in after.files:
        old = current.get(file_key(file))
        if old is not None:
            fault = _kept_fault(after.id, old, file)
        elif dropped and dropped >= {*file.fields}:
            continue
        else:
            fault = new_file_fault(table, file, columns, dropped)
        if fault is not None:
            return fault
    counts = Counter(number for file in after.files for number in file.fields if number >= 0)
    repeated = [number for number, count in counts.items() if count > 1]
    if repeated:
        return Invalid(
            f"field ids {some(repeated)} are in fragment {after.id} twice",
            "a field has one file: replace it by -2 in the old one",
        )
    lost = [number for number in field_locations(before) if number in columns.roots and number not in counts]
    if lost:
        return Invalid(
            f"fields {some(lost)} of fragment {after.id} are in none of its files any more",
            "keep their files in the list, or drop the columns from the schema",
        )
    return None


def rows_fault(before: DataFragment, after: DataFragment) -> Invalid | None:
    """Returns a fault if the proposal lists a fragment with other rows, deleted rows or row ids."""
    if after.physical_rows != before.physical_rows:
        return Invalid(
            f"fragment {after.id} has {before.physical_rows} rows in the table, not {after.physical_rows}",
            "an operation on columns must not change rows",
        )
    if after.deletion_file != before.deletion_file:
        return Invalid(
            f"fragment {after.id} has another deletion file in the proposal than in the table",
            "an operation on columns must not delete rows",
        )
    for name in ("row_id_sequence", "created_at_version_sequence", "last_updated_at_version_sequence"):
        current, proposed = before.WhichOneof(name), after.WhichOneof(name)
        may_differ = proposed is None and name != "row_id_sequence"
        if not may_differ and (
            current != proposed or (current and getattr(before, current) != getattr(after, current))
        ):
            return Invalid(
                f"fragment {after.id} has other row ids or row versions in the proposal than in the table",
                "use the fragment as it is in the table",
            )
    if after.overlays:
        return Invalid(f"fragment {after.id} has overlays, which no release folds", "leave them out")
    return None


def with_files(before: DataFragment, files: Iterable[DataFile]) -> DataFragment:
    """Returns the fragment with other files, without those that have no used field."""
    fragment = DataFragment()
    fragment.CopyFrom(before)
    del fragment.files[:]
    fragment.files.extend(
        file for file in with_known_sizes(before, files) if set(file.fields) != {TOMBSTONED}
    )
    return fragment


def with_known_sizes(before: DataFragment, files: Iterable[DataFile]) -> list[DataFile]:
    """Returns the files with the sizes that the table knows, if the proposal doesn't repeat them."""
    sizes = {file_key(file): file.file_size_bytes for file in before.files}
    complete_files = []
    for file in files:
        complete = file
        if not file.file_size_bytes and sizes.get(file_key(file)):
            complete = DataFile()
            complete.CopyFrom(file)
            complete.file_size_bytes = sizes[file_key(file)]
        complete_files.append(complete)
    return complete_files


def files_with_fields(files: Iterable[DataFile], fields: Collection[int]) -> list[DataFile]:
    """Returns those of the files that have any of these fields.

    Other files must not be listed: pylance's `validate()` refuses a table with such a file (Lance fact 4.6).
    """
    return [file for file in files if not set(file.fields).isdisjoint(fields)]


def _kept_fault(number: int, old: DataFile, file: DataFile) -> Invalid | None:
    """Returns a fault if an existing file changes in anything except fields marked as unused."""
    pairs = list(zip(old.fields, file.fields, strict=False))
    same = DataFile()
    same.CopyFrom(old)
    same.fields[:] = [TOMBSTONED if after == TOMBSTONED else before for before, after in pairs]
    struck = len(pairs) == len(old.fields) and _described(same) == _described(file)
    if struck and file.file_size_bytes in (0, old.file_size_bytes):
        return None
    return Invalid(
        f"data file {file.path} of fragment {number} differs from its entry in the table",
        "change nothing except unused fields (-2); use a new name for a new file",
    )


def _described(file: DataFile) -> DataFile:
    """Returns the file's entry without its size, which may be left out."""
    plain = DataFile()
    plain.CopyFrom(file)
    plain.ClearField("file_size_bytes")
    # A client may drop fields that it doesn't know.
    plain.DiscardUnknownFields()
    return plain

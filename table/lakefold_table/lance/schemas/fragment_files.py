"""The data files of a fragment that stays: its rows are the same, columns come, go or get other values.

A fragment lists for each field the file that holds it. An operation that rewrites a column adds a file and
strikes the field out of the old one (-2); what nobody may do is lose a column's values, list one twice, or
have a file read as another column than it was written for (Lance facts 4.6 and 6.12).
"""

from __future__ import annotations

from collections import Counter
from operator import is_
from typing import TYPE_CHECKING, NamedTuple, Protocol

from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
from lakefold_table.entry import Invalid
from lakefold_table.lance.manifests.naming import data_path
from lakefold_table.lance.rows.row_versions import one_version
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.validity import path_fault, size_fault

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from lakefold_table.format import Fetched
    from lakefold_table.lance.schemas.columns import Columns

STRUCK = -2
"""What a file lists in place of a field that lies in another file now."""


class TableOfFragments(Protocol):
    """What the rules for files need to know of the table that the fragments belong to."""

    observed: Fetched
    version: int

    @property
    def base_ids(self) -> frozenset[int]:
        """The bases outside the table's root that files may lie under."""
        ...

    @property
    def stable_row_ids(self) -> bool:
        """Whether rows keep their ids for life."""
        ...


class FieldPlace(NamedTuple):
    """Where the values of a field lie: a file, the base it lies under (None: the table), a column in it."""

    path: str
    base: int | None
    column: int


FileKey = tuple[str, "int | None"]


def file_key(file: DataFile) -> FileKey:
    """What tells a file of a fragment from its others."""
    return file.path, file.base_id if file.HasField("base_id") else None


def twice_fault(fragments: Iterable[DataFragment], others: Iterable[DataFragment] = ()) -> Invalid | None:
    """Why new fragments can't have these files: one is named twice, or one of `others` has it.

    A file holds the rows of one fragment: named again its rows are there twice, those deleted among them.
    """
    seen = {file_key(file) for one in others for file in one.files}
    for file in (file for one in fragments for file in one.files):
        if file_key(file) in seen:
            return Invalid(
                f"data file {file.path} is that of two fragments, so its rows would be there twice",
                "write the rows of each fragment into files of its own",
            )
        seen.add(file_key(file))
    return None


def new_files(before: DataFragment, after: DataFragment) -> list[DataFile]:
    """The files that are listed for a fragment and that it doesn't have yet."""
    known = {file_key(file) for file in before.files}
    return [file for file in after.files if file_key(file) not in known]


def has_other_files(before: DataFragment, after: DataFragment) -> bool:
    """Whether other files are listed for a fragment than it has, or other fields in them."""
    return [_described(one) for one in before.files] != [_described(one) for one in after.files]


def with_sizes(fragments: Sequence[DataFragment], sizes: Mapping[str, int | None]) -> Sequence[DataFragment]:
    """The fragments with the sizes of those of their files that don't say them: Lance's readers ask for them.

    `sizes`: by path below the table's root, as far as the shell looked. The same list if all is said.
    """
    found = [_with_sizes(one, sizes) for one in fragments]
    return fragments if all(map(is_, found, fragments)) else found


def _with_sizes(fragment: DataFragment, sizes: Mapping[str, int | None]) -> DataFragment:
    """The fragment with the sizes that its writer left out (Lance fact 4.9)."""
    if all(file.file_size_bytes for file in fragment.files):
        return fragment
    complete = DataFragment()
    complete.CopyFrom(fragment)
    for file in complete.files:
        if not file.file_size_bytes and not file.HasField("base_id"):
            file.file_size_bytes = sizes.get(data_path(file.path)) or 0
    return complete


def without_fields(file: DataFile, fields: frozenset[int]) -> DataFile:
    """The file as if it held none of these fields."""
    if not fields:
        return file
    left = DataFile()
    left.CopyFrom(file)
    kept = [at for at, number in enumerate(file.fields) if number not in fields]
    left.fields[:] = [file.fields[at] for at in kept]
    if len(file.column_indices) == len(file.fields):
        left.column_indices[:] = [file.column_indices[at] for at in kept]
    return left


def of_fields_left(fragments: Sequence[DataFragment], dropped: frozenset[int]) -> Sequence[DataFragment]:
    """New fragments without the files that hold dropped fields only (see `of_columns`)."""
    if not dropped:
        return fragments
    found = []
    for fragment in fragments:
        left = DataFragment()
        left.CopyFrom(fragment)
        del left.files[:]
        left.files.extend(file for file in fragment.files if not dropped >= {*file.fields})
        found.append(left)
    return found


def without_dropped(fragment: DataFragment, dropped: frozenset[int]) -> DataFragment:
    """The fragment as if nothing in its files was of dropped fields."""
    if not dropped:
        return fragment
    (left,) = of_fields_left([fragment], dropped)
    files = [without_fields(file, dropped) for file in left.files]
    del left.files[:]
    left.files.extend(files)
    return left


def places(fragment: DataFragment) -> dict[int, FieldPlace]:
    """Where each field of the fragment lies, by its id; a field in no file reads as null."""
    found: dict[int, FieldPlace] = {}
    for file in fragment.files:
        key, columns = file_key(file), [*file.column_indices]
        columns += [STRUCK] * (len(file.fields) - len(columns))
        found.update(
            (number, FieldPlace(*key, column))
            for number, column in zip(file.fields, columns, strict=False)
            if number >= 0
        )
    return found


def changed_fields(before: Mapping[int, FieldPlace], after: Mapping[int, FieldPlace]) -> frozenset[int]:
    """The fields whose values lie elsewhere than before, or are there for the first time."""
    return frozenset(number for number, place in after.items() if before.get(number) != place)


def new_file_fault(
    table: TableOfFragments, file: DataFile, columns: Columns, dropped: frozenset[int] = frozenset()
) -> Invalid | None:
    """What is wrong with a data file that is to become part of a fragment."""
    return (
        columns.file_fault(without_fields(file, dropped))
        or path_fault(file, table.base_ids)
        or size_fault(file, table.observed.sizes)
    )


def files_fault(
    table: TableOfFragments,
    before: DataFragment,
    after: DataFragment,
    columns: Columns,
    dropped: frozenset[int] = frozenset(),
) -> Invalid | None:
    """What is wrong with the files that are listed for a fragment of the table; `columns`: the new schema's.

    A file that the fragment has may only have fields struck out; any other is new. A field of the schema that
    had values must still have some. `dropped`: fields that new files may hold though the schema has them not.
    """
    there = {file_key(file): file for file in before.files}
    for file in after.files:
        old = there.get(file_key(file))
        if old is not None:
            fault = _kept_fault(after.id, old, file)
        elif dropped and dropped >= {*file.fields}:
            continue
        else:
            fault = new_file_fault(table, file, columns, dropped)
        if fault is not None:
            return fault
    counts = Counter(number for file in after.files for number in file.fields if number >= 0)
    twice = [number for number, count in counts.items() if count > 1]
    if twice:
        return Invalid(
            f"field ids {some(twice)} lie in fragment {after.id} twice",
            "a field has one file: put -2 in place of it in the old one",
        )
    lost = [number for number in places(before) if number in columns.roots and number not in counts]
    if lost:
        return Invalid(
            f"fields {some(lost)} of fragment {after.id} are in none of its files any more",
            "leave their files listed, or drop the columns from the schema",
        )
    return None


def rows_fault(before: DataFragment, after: DataFragment) -> Invalid | None:
    """Whether a fragment is listed with other rows than it has in the table: how many, which, their ids."""
    if after.physical_rows != before.physical_rows:
        return Invalid(
            f"fragment {after.id} has {before.physical_rows} rows, not {after.physical_rows} as it is listed",
            "an operation on columns leaves rows as they are",
        )
    if after.deletion_file != before.deletion_file:
        return Invalid(
            f"fragment {after.id} is listed with another deletion file than the table's",
            "an operation on columns leaves deleted rows as they are",
        )
    for name in ("row_id_sequence", "created_at_version_sequence", "last_updated_at_version_sequence"):
        mine, theirs = before.WhichOneof(name), after.WhichOneof(name)
        left_out = theirs is None and name != "row_id_sequence"
        if not left_out and (mine != theirs or (mine and getattr(before, mine) != getattr(after, mine))):
            return Invalid(
                f"fragment {after.id} is listed with other row ids or row versions than the table's",
                "take the fragment as the table has it",
            )
    if after.overlays:
        return Invalid(f"fragment {after.id} has overlays, which no release folds", "leave them out")
    return None


def with_files(before: DataFragment, files: Iterable[DataFile]) -> DataFragment:
    """The fragment of the table with other files; those that hold nothing any more are left out."""
    fragment = DataFragment()
    fragment.CopyFrom(before)
    del fragment.files[:]
    fragment.files.extend(file for file in sized(before, files) if set(file.fields) != {STRUCK})
    return fragment


def sized(before: DataFragment, files: Iterable[DataFile]) -> list[DataFile]:
    """The files with the sizes that the table knows of those that stay, where they are not said again."""
    known = {file_key(file): file.file_size_bytes for file in before.files}
    found = []
    for file in files:
        complete = file
        if not file.file_size_bytes and known.get(file_key(file)):
            complete = DataFile()
            complete.CopyFrom(file)
            complete.file_size_bytes = known[file_key(file)]
        found.append(complete)
    return found


def of_columns(files: Iterable[DataFile], fields: Collection[int]) -> list[DataFile]:
    """Those of the files that hold any of these fields.

    Others are no more listed: pylance's `validate()` refuses a table that has one (Lance fact 4.6).
    """
    return [file for file in files if not set(file.fields).isdisjoint(fields)]


def updated(table: TableOfFragments, before: DataFragment, files: Iterable[DataFile]) -> DataFragment:
    """The same, and where rows keep their ids all of them count as updated in the version in the making."""
    fragment = with_files(before, files)
    if table.stable_row_ids:
        fragment.inline_last_updated_at_versions = one_version(fragment.physical_rows, table.version)
    return fragment


def _kept_fault(number: int, old: DataFile, file: DataFile) -> Invalid | None:
    """A file that the fragment has already may differ in nothing but fields that are struck out."""
    pairs = list(zip(old.fields, file.fields, strict=False))
    same = DataFile()
    same.CopyFrom(old)
    same.fields[:] = [STRUCK if now == STRUCK else was for was, now in pairs]
    struck = len(pairs) == len(old.fields) and _described(same) == _described(file)
    if struck and file.file_size_bytes in (0, old.file_size_bytes):
        return None
    return Invalid(
        f"data file {file.path} of fragment {number} is described otherwise than in the table",
        "leave it as it is, but for fields that are struck out (-2); give a new file a new name",
    )


def _described(file: DataFile) -> DataFile:
    """The file without its size, which may be left out."""
    plain = DataFile()
    plain.CopyFrom(file)
    plain.ClearField("file_size_bytes")
    # A client may not know all that stands there.
    plain.DiscardUnknownFields()
    return plain

"""Columns that are written anew for fragments that stay: their new files, and which rows changed.

The old values stay in the old file, whose field ids become -2 there; a file of which nothing is left to read
goes (format facts, sections 4.4 and 5.6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFile, DataFragment
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.lance.bitmaps import Bitmap, decode_bitmap
from lakefold_table.lance.columns import some
from lakefold_table.lance.naming import is_inside
from lakefold_table.lance.row_versions import replaced_versions
from lakefold_table.lance.validity import file_fault

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.lance.working import Working

TOMBSTONE = -2
"""The field id of a column that is no longer read from its file."""


def has_other_files(there: DataFragment, proposed: DataFragment) -> bool:
    """Whether the proposal changes the fragment's data files."""
    return [_without_size(one) for one in there.files] != [_without_size(one) for one in proposed.files]


def new_files(there: DataFragment, proposed: DataFragment) -> list[DataFile]:
    """The files that the fragment doesn't have yet."""
    known = {_place(one) for one in there.files}
    return [one for one in proposed.files if _place(one) not in known]


def columns_fault(
    table: Working, there: DataFragment, proposed: DataFragment, fields_modified: Collection[int]
) -> Invalid | None:
    """Why these can't be the fragment's data files; None where they can."""
    old = {_place(one): one for one in there.files}
    fresh = new_files(there, proposed)
    for file in proposed.files:
        if _place(file) in old and not _is_tombstoned(old[_place(file)], file):
            return Invalid(
                f"data file {file.path} of fragment {there.id} is described otherwise than in the table",
                "of a file that was there only field ids may become -2",
            )
    lost = live_ids(there.files) - live_ids(proposed.files)
    if lost:
        return Invalid(
            f"fields {some(lost)} of fragment {there.id} are in none of its files any more",
            "keep the file of a column that isn't rewritten",
        )
    untold = _untold(table, live_ids(fresh), fields_modified)
    if untold:
        return Invalid(
            f"fields {some(untold)} of fragment {there.id} are written anew but not among fields_modified",
            "name them: indices on them no longer describe the fragment",
        )
    return _shape_fault(table, there, proposed, fresh)


def kept_files(files: Iterable[DataFile]) -> list[DataFile]:
    """The files from which anything is still read."""
    return [one for one in files if not one.fields or any(number != TOMBSTONE for number in one.fields)]


def live_ids(files: Iterable[DataFile]) -> set[int]:
    """The field ids that are read from these files."""
    return {number for one in files for number in one.fields if number != TOMBSTONE}


def changed_offsets(
    update: Transaction.Update, fragments: Mapping[int, DataFragment]
) -> Mapping[int, Bitmap] | Invalid:
    """The rows whose values changed, by fragment, as the transaction tells them for some."""
    told: dict[int, Bitmap] = {}
    for number, several in update.updated_fragment_offsets.items():
        told[number] = Bitmap(several.values)
    for number, data in update.updated_fragment_offset_bitmaps.items():
        try:
            told[number] = told.get(number, Bitmap()) | decode_bitmap(data, f"offsets of fragment {number}")
        except DamagedError as error:
            return Invalid(str(error), "give the row offsets as a portable Roaring bitmap")
    others = told.keys() - fragments.keys()
    if others:
        return Invalid(
            f"changed rows are told of fragments {some(others)}, which aren't updated",
            "tell those of updated fragments",
        )
    beyond = [
        number for number, rows in told.items() if rows and rows.max() >= fragments[number].physical_rows
    ]
    if beyond:
        return Invalid(
            f"changed rows of fragments {some(beyond)} lie beyond their last row", "give physical row offsets"
        )
    return told


def touch(fragment: DataFragment, offsets: Bitmap, version: int) -> Invalid | None:
    """Notes in the fragment that these rows changed in this version; what hinders it."""
    if not fragment.HasField("inline_last_updated_at_versions") or not offsets:
        return None
    data, rows = fragment.inline_last_updated_at_versions, fragment.physical_rows
    try:
        changed = replaced_versions(data, rows, offsets, version, f"row versions of fragment {fragment.id}")
    except (DamagedError, InvalidError) as error:
        return Invalid(str(error), error.hint)
    fragment.inline_last_updated_at_versions = changed
    return None


def _place(file: DataFile) -> tuple[int | None, str]:
    return (file.base_id if file.HasField("base_id") else None), file.path


def _without_size(file: DataFile) -> DataFile:
    plain = DataFile()
    plain.CopyFrom(file)
    plain.ClearField("file_size_bytes")
    return plain


def _is_tombstoned(old: DataFile, new: DataFile) -> bool:
    """Whether a file is the same but for columns that are no longer read from it."""
    same = DataFile()
    same.CopyFrom(_without_size(old))
    if len(old.fields) != len(new.fields):
        return False
    del same.fields[:]
    same.fields.extend(
        TOMBSTONE if now == TOMBSTONE else before for before, now in zip(old.fields, new.fields, strict=True)
    )
    return same == _without_size(new)


def _untold(table: Working, ids: Iterable[int], fields_modified: Collection[int]) -> set[int]:
    """The fields that aren't named, neither themselves nor the column they lie in."""
    named = set(fields_modified)
    return {number for number in ids if not {number, table.columns.roots.get(number, number)} & named}


def _shape_fault(
    table: Working, there: DataFragment, proposed: DataFragment, fresh: Collection[DataFile]
) -> Invalid | None:
    """Why a reader couldn't follow the files, or a new one isn't there."""
    for file in fresh:
        if not is_inside(file.path):
            return Invalid(
                f"the path {file.path!r} leaves its base or is no plain name", "name a file in data/"
            )
        if file.HasField("base_id") and file.base_id not in table.base_ids:
            return Invalid(
                f"base {file.base_id} of {file.path} is not one of the table's", "add the base first"
            )
    shown = DataFragment(id=there.id, physical_rows=there.physical_rows)
    for file in proposed.files:
        readable = file if file in fresh else _of_fields(file, table.columns.roots)
        if file in fresh or readable.fields:
            shown.files.append(readable)
    return table.columns.fault(shown) or file_fault(DataFragment(files=fresh), table.observed.sizes)


def _of_fields(file: DataFile, fields: Collection[int]) -> DataFile:
    """A file of the table as far as its columns are still the table's: those of dropped ones may linger."""
    kept = [place for place, number in enumerate(file.fields) if number in fields]
    shown = DataFile()
    shown.CopyFrom(file)
    del shown.fields[:]
    shown.fields.extend(file.fields[place] for place in kept)
    if file.column_indices:
        del shown.column_indices[:]
        shown.column_indices.extend(file.column_indices[place] for place in kept)
    return shown

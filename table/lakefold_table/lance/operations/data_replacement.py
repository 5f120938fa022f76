"""DataReplacement: new files for some columns of some fragments, row for row (Lance facts 6.12 and 7.7).

If a file of the fragment has the same fields and file version, the new file replaces it. If no file has the
fields, the new file is added. Otherwise the fields are marked as unused in the existing files and the new
file is added. Whether it has as many rows as the fragment can't be checked without opening it; the writer is
responsible for that, as for every file that it writes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFile
from lakefold_table.entry import Invalid
from lakefold_table.lance.change import Proposal, TableChange
from lakefold_table.lance.indexing.indices import without_fragments
from lakefold_table.lance.operations.append import sizes_of
from lakefold_table.lance.rows.row_versions import with_updated_files
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.schemas.fragment_files import (
    TOMBSTONED,
    field_locations,
    file_key,
    files_with_fields,
    new_file_fault,
)
from lakefold_table.lance.schemas.schema import related

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.format import Requirements
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(_state: LanceState | None, envelope: Envelope) -> Requirements:
    """Returns the requirements: the sizes of the new files."""
    return sizes_of(group.new_file for group in envelope.lance.data_replacement.replacements)


def change(table: VersionBuilder, proposal: Proposal) -> TableChange | Invalid:
    """Returns a change of the fragments' files; indices on these fields no longer cover the fragments."""
    groups = proposal.transaction.data_replacement.replacements
    if not groups:
        return TableChange(proposal.transaction)
    current = table.get([group.fragment_id for group in groups])
    fault = _fault(table, groups, current.keys())
    if fault is not None:
        return fault
    replaced = {}
    for group in groups:
        fragment = current[group.fragment_id]
        files = _files(fragment, group.new_file)
        if isinstance(files, Invalid):
            return files
        replaced[fragment.id] = with_updated_files(
            table, fragment, files_with_fields(files, table.columns.roots)
        )
    fields = related(table.head.fields, groups[0].new_file.fields)
    return TableChange(
        proposal.transaction,
        replaced=replaced,
        indices=without_fragments(table.indices, fields, replaced.keys()),
    )


def _fault(
    table: VersionBuilder, groups: Sequence[Transaction.DataReplacementGroup], existing: AbstractSet[int]
) -> Invalid | None:
    """Returns what is wrong with the replacements, without regard to the fragments' files."""
    counts = Counter(group.fragment_id for group in groups)
    missing = counts.keys() - existing
    if missing:
        return Invalid(f"the table has no fragments {some(missing)}", "name fragments of the newest version")
    repeated = [number for number, count in counts.items() if count > 1]
    if repeated:
        return Invalid(
            f"fragments {some(repeated)} get more than one new file",
            "replace one file of each fragment at a time",
        )
    if len({tuple(group.new_file.fields) for group in groups}) > 1:
        return Invalid(
            "the new files hold different fields", "send a transaction of its own for each set of fields"
        )
    faults = (new_file_fault(table, group.new_file, table.columns) for group in groups)
    return next((fault for fault in faults if fault is not None), None)


def _files(fragment: DataFragment, new: DataFile) -> list[DataFile] | Invalid:
    """Returns the fragment's files after the replacement."""
    same_file = {file_key(file): file for file in fragment.files}.get(file_key(new))
    if same_file is not None and same_file.column_indices != new.column_indices:
        return Invalid(
            f"file {new.path} is one of fragment {fragment.id} already, with other column indices",
            "write the new values into a file of another name",
        )
    index = next((i for i, file in enumerate(fragment.files) if _is_like(file, new)), None)
    others = [file for i, file in enumerate(fragment.files) if i != index]
    if file_key(new) in {file_key(file) for file in others}:
        return Invalid(
            f"file {new.path} is one of fragment {fragment.id} already, with other fields",
            "write the new values into a file of another name",
        )
    if index is not None:
        return [new if i == index else file for i, file in enumerate(fragment.files)]
    stored = field_locations(fragment).keys()
    shared = stored & set(new.fields)
    if shared and len(shared) < len(new.fields):
        return Invalid(
            f"of the fields {some(new.fields)} fragment {fragment.id} has files for {some(shared)} only",
            "send a transaction of its own for the other fields",
        )
    return [*(_without_fields(file, shared) if shared else file for file in fragment.files), new]


def _is_like(file: DataFile, new: DataFile) -> bool:
    """Returns whether the file has exactly the fields and the file version of the new file."""
    return list(file.fields) == list(new.fields) and (file.file_major_version, file.file_minor_version) == (
        new.file_major_version,
        new.file_minor_version,
    )


def _without_fields(file: DataFile, fields: AbstractSet[int]) -> DataFile:
    """Returns the file with these fields marked as unused."""
    changed = DataFile()
    changed.CopyFrom(file)
    changed.fields[:] = [TOMBSTONED if number in fields else number for number in file.fields]
    return changed

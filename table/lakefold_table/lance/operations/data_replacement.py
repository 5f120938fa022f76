"""DataReplacement: new files for some columns of some fragments, row for row (Lance facts 6.12 and 7.7).

A file of the same fields and version gives its place up; fields that lie in no file get one; otherwise they
are struck out where they lie, and the new file is added. Whether the new file has as many rows as the
fragment can't be seen without opening it: that is the writer's to keep, as in every fragment it writes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFile
from lakefold_table.entry import Invalid
from lakefold_table.lance.indexing.indices import without_fragments
from lakefold_table.lance.operations.append import sizes_of
from lakefold_table.lance.operations.change import Change
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.schemas.fragment_files import (
    STRUCK,
    file_key,
    new_file_fault,
    of_columns,
    places,
    updated,
)
from lakefold_table.lance.schemas.schema import related

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.format import Requirements
    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(_state: LanceState | None, envelope: Envelope) -> Requirements:
    """The sizes of the new files."""
    return sizes_of(one.new_file for one in envelope.lance.data_replacement.replacements)


def change(table: VersionBuilder, proposal: Proposal) -> Change | Invalid:
    """The fragments with their new files; no index on these fields covers them any more."""
    groups = proposal.transaction.data_replacement.replacements
    if not groups:
        return Change(proposal.transaction)
    there = table.get([one.fragment_id for one in groups])
    fault = _fault(table, groups, there.keys())
    if fault is not None:
        return fault
    replaced = {}
    for one in groups:
        fragment = there[one.fragment_id]
        files = _files(fragment, one.new_file)
        if isinstance(files, Invalid):
            return files
        replaced[fragment.id] = updated(table, fragment, of_columns(files, table.columns.roots))
    fields = related(table.head.fields, groups[0].new_file.fields)
    return Change(
        proposal.transaction,
        replaced=replaced,
        indices=without_fragments(table.indices, fields, replaced.keys()),
    )


def _fault(
    table: VersionBuilder, groups: Sequence[Transaction.DataReplacementGroup], there: AbstractSet[int]
) -> Invalid | None:
    """What is wrong with the replacements, whatever their fragments hold."""
    counts = Counter(one.fragment_id for one in groups)
    missing = counts.keys() - there
    if missing:
        return Invalid(f"the table has no fragments {some(missing)}", "name fragments of the newest version")
    twice = [number for number, count in counts.items() if count > 1]
    if twice:
        return Invalid(f"fragments {some(twice)} get several new files", "replace one file of each at a time")
    if len({tuple(one.new_file.fields) for one in groups}) > 1:
        return Invalid("the new files hold different fields", "propose files of other fields by themselves")
    faults = (new_file_fault(table, one.new_file, table.columns) for one in groups)
    return next((fault for fault in faults if fault is not None), None)


def _files(fragment: DataFragment, new: DataFile) -> list[DataFile] | Invalid:
    """The fragment's files with the new one among them."""
    there = {file_key(file): file for file in fragment.files}.get(file_key(new))
    if there is not None and there.column_indices != new.column_indices:
        return Invalid(
            f"file {new.path} is one of fragment {fragment.id} already, with its columns in other places",
            "write the new values into a file of another name",
        )
    place = next((at for at, file in enumerate(fragment.files) if _is_like(file, new)), None)
    others = [file for at, file in enumerate(fragment.files) if at != place]
    if file_key(new) in {file_key(file) for file in others}:
        return Invalid(
            f"file {new.path} is one of fragment {fragment.id} already, for other fields",
            "write the new values into a file of another name",
        )
    if place is not None:
        return [new if at == place else file for at, file in enumerate(fragment.files)]
    known = places(fragment).keys()
    shared = known & set(new.fields)
    if shared and len(shared) < len(new.fields):
        return Invalid(
            f"of the fields {some(new.fields)} fragment {fragment.id} has files for {some(shared)} only",
            "propose the others by themselves",
        )
    return [*(_struck(file, shared) if shared else file for file in fragment.files), new]


def _is_like(file: DataFile, new: DataFile) -> bool:
    """Whether a file holds just the fields of the new one, in a file of the same version."""
    return list(file.fields) == list(new.fields) and (file.file_major_version, file.file_minor_version) == (
        new.file_major_version,
        new.file_minor_version,
    )


def _struck(file: DataFile, fields: AbstractSet[int]) -> DataFile:
    """The file without these fields."""
    struck = DataFile()
    struck.CopyFrom(file)
    struck.fields[:] = [STRUCK if number in fields else number for number in file.fields]
    return struck

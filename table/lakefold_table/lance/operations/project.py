"""Project: some of the columns that are there, under the names and in the order that it says.

No data file is written or changed; one that holds no column of the new schema is no more listed (Lance
fact 6.9). A column keeps its field id, so what was written for it is read as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.entry import Invalid
from lakefold_table.format import Requirements
from lakefold_table.lance.creation import nullability_fault, schema_fault
from lakefold_table.lance.indexing.indices import without_fields
from lakefold_table.lance.operations.change import Change
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.schemas.fragment_files import of_columns, with_files
from lakefold_table.lance.schemas.schema import by_id, forbids_nulls, is_altered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(_state: LanceState | None, _envelope: Envelope) -> Requirements:
    """Nothing."""
    return Requirements()


def change(table: VersionBuilder, proposal: Proposal) -> Change | Invalid:
    """The schema, without the files and indices of columns that are no more in it."""
    project = proposal.transaction.project
    schema = project.schema
    fault = _fault(table, project)
    if fault is not None:
        return fault
    kept = {one.id for one in schema}
    dropped = {one.id for one in table.head.fields} - kept
    replaced = _without_dropped(table, kept) if dropped else {}
    empty = [number for number, one in replaced.items() if not one.files]
    if empty:
        return Invalid(
            f"no column of the new schema has a file in fragments {some(empty)}, so their rows can't be read",
            "keep a column that they hold",
        )
    head = Manifest()
    head.CopyFrom(table.head)
    del head.fields[:]
    head.fields.extend(schema)
    return Change(
        proposal.transaction, replaced=replaced, head=head, indices=without_fields(table.indices, kept)
    )


def _fault(table: VersionBuilder, project: Transaction.Project) -> Invalid | None:
    """A schema that isn't a part of the table's."""
    schema = project.schema
    fault = schema_fault(schema)
    if fault is not None:
        return fault
    known = by_id(table.head.fields)
    unknown = [one.id for one in schema if one.id not in known]
    if unknown:
        return Invalid(
            f"fields {some(unknown)} are not the table's: it has {some(known)}",
            "a projection keeps, drops and renames; add columns by a merge",
        )
    altered = [one.name for one in schema if is_altered(known[one.id], one, nullable=False)]
    if altered:
        return Invalid(
            f"columns {some(altered)} have another type or parent than in the table",
            "values stay as they were written: cast them into new columns by a merge",
        )
    if project.preserves_nullability:
        fault = nullability_fault(forbids_nulls(table.head.fields, schema))
        if fault is not None:
            return fault
    hollow = _parents(table.head.fields) & {one.id for one in schema} - _parents(schema)
    if hollow:
        names = [known[number].name for number in hollow]
        return Invalid(f"of columns {some(names)} nothing is left below", "drop them too")
    return None


def _parents(fields: Sequence[Field]) -> set[int]:
    return {one.parent_id for one in fields}


def _without_dropped(table: VersionBuilder, kept: AbstractSet[int]) -> Mapping[int, DataFragment]:
    """The fragments that have a file without any column that is kept, without it."""
    found = {}
    for fragment in table.all():
        files = of_columns(fragment.files, kept)
        if len(files) < len(fragment.files):
            found[fragment.id] = with_files(fragment, files)
    return found

"""Project: keeps some of the columns, under the names and in the order of the proposal.

No data file is written or changed. A file without any column of the new schema is removed from the list
(Lance fact 6.9). A column keeps its field id, so its values are read as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.entry import Invalid
from lakefold_table.lance.change import Proposal, TableChange
from lakefold_table.lance.creation import nullability_fault, schema_fault
from lakefold_table.lance.indexing.indices import without_fields
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.schemas.fragment_files import files_with_fields, unreadable_fault, with_files
from lakefold_table.lance.schemas.schema import by_id, forbids_nulls, is_altered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.lance.version_builder import VersionBuilder


def change(table: VersionBuilder, proposal: Proposal) -> TableChange | Invalid:
    """Returns a change to the new schema, without the files and indices of dropped columns."""
    project = proposal.transaction.project
    schema = project.schema
    fault = _fault(table, project)
    if fault is not None:
        return fault
    kept_ids = {field.id for field in schema}
    dropped = {field.id for field in table.head.fields} - kept_ids
    replaced = _without_dropped(table, kept_ids) if dropped else {}
    fault = unreadable_fault(number for number, fragment in replaced.items() if not fragment.files)
    if fault is not None:
        return fault
    head = Manifest()
    head.CopyFrom(table.head)
    del head.fields[:]
    head.fields.extend(schema)
    return TableChange(
        proposal.transaction, replaced=replaced, head=head, indices=without_fields(table.indices, kept_ids)
    )


def _fault(table: VersionBuilder, project: Transaction.Project) -> Invalid | None:
    """Returns why the schema isn't a part of the table's schema."""
    schema = project.schema
    fault = schema_fault(schema)
    if fault is not None:
        return fault
    current = by_id(table.head.fields)
    unknown = [field.id for field in schema if field.id not in current]
    if unknown:
        return Invalid(
            f"fields {some(unknown)} are not in the table's schema, which has {some(current)}",
            "a projection only keeps, drops and renames columns; add columns by a Merge",
        )
    altered = [field.name for field in schema if is_altered(current[field.id], field, nullable=False)]
    if altered:
        return Invalid(
            f"columns {some(altered)} have another type or parent than in the table",
            "a projection changes no values; cast them into new columns by a Merge",
        )
    if project.preserves_nullability:
        fault = nullability_fault(forbids_nulls(table.head.fields, schema))
        if fault is not None:
            return fault
    childless = _parents(table.head.fields) & {field.id for field in schema} - _parents(schema)
    if childless:
        names = [current[number].name for number in childless]
        return Invalid(f"columns {some(names)} have no child columns left", "drop them too")
    return None


def _parents(fields: Sequence[Field]) -> set[int]:
    return {field.parent_id for field in fields}


def _without_dropped(table: VersionBuilder, kept_ids: AbstractSet[int]) -> Mapping[int, DataFragment]:
    """Returns the fragments that have files without any kept column, without those files, by id."""
    changed = {}
    for fragment in table.all():
        files = files_with_fields(fragment.files, kept_ids)
        if len(files) < len(fragment.files):
            changed[fragment.id] = with_files(fragment, files)
    return changed

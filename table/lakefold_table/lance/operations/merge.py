"""Merge: changes the columns of the existing rows, by a new schema and a list of all fragments.

The list must have every fragment of the table, so a Merge is only valid if no fragment has changed since it
was built. The conflict rules ensure that; this module checks the list against the table once more. New
fragments may follow after the existing fragments (Lance fact 6.8).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.entry import Invalid
from lakefold_table.lance.change import Proposal, TableChange
from lakefold_table.lance.creation import nullability_fault, schema_fault
from lakefold_table.lance.indexing.indices import without_fields, without_fragments
from lakefold_table.lance.operations.append import sizes_of
from lakefold_table.lance.rows.row_versions import with_updated_files
from lakefold_table.lance.schemas.columns import Columns, columns_of, some
from lakefold_table.lance.schemas.fragment_files import (
    changed_fields,
    field_locations,
    file_key,
    files_fault,
    files_with_fields,
    rows_fault,
    shared_file_fault,
    unreadable_fault,
    with_known_sizes,
)
from lakefold_table.lance.schemas.schema import by_id, forbids_nulls, is_altered, related
from lakefold_table.lance.validity import MANAGED_BLOBS, managed_blobs_fault, reserved_key_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.table_pb2 import DataFragment, IndexMetadata
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.format import Requirements
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder

Pair = tuple["DataFragment", "DataFragment"]
"""A fragment in the table and its form in the proposal."""


def needs(state: LanceState | None, envelope: Envelope) -> Requirements:
    """Returns the requirements: the sizes of the files that no fragment of the table has yet."""
    existing = {file_key(file) for fragment in state.fragments for file in fragment.files} if state else set()
    files = (file for fragment in envelope.lance.merge.fragments for file in fragment.files)
    return sizes_of(file for file in files if file_key(file) not in existing)


def change(table: VersionBuilder, proposal: Proposal) -> TableChange | Invalid:
    """Returns a change with the fragments' new files, the new fragments and the new schema."""
    merge = proposal.transaction.merge
    fault = _schema_fault(merge) or _nullability_fault(table, merge)
    if fault is not None:
        return fault
    pairs, new = _paired(table, merge.fragments)
    if new is None:
        return _list_fault(table, merge.fragments)
    columns = columns_of(merge.schema, table.file_version)
    fault = (
        _columns_fault(table, merge.schema, columns, pairs)
        or table.new_fragments_fault(new, columns)
        or shared_file_fault(new, (fragment for pair in pairs for fragment in pair))
    )
    if fault is not None:
        return fault
    listed = [
        (before, with_known_sizes(before, files_with_fields(after.files, columns.roots)))
        for before, after in pairs
    ]
    fault = unreadable_fault(before.id for before, files in listed if not files)
    if fault is not None:
        return fault
    return TableChange(
        proposal.transaction,
        added=new,
        replaced={
            before.id: with_updated_files(table, before, files)
            for before, files in listed
            if list(before.files) != files
        },
        head=_head(table, merge),
        indices=_indices(table, merge.schema, pairs),
    )


def _schema_fault(merge: Transaction.Merge) -> Invalid | None:
    blobs = merge.schema_metadata.get(MANAGED_BLOBS)
    return (
        schema_fault(merge.schema)
        or reserved_key_fault(merge.schema_metadata)
        or managed_blobs_fault(None if blobs is None else blobs.decode(errors="replace"))
    )


def _nullability_fault(table: VersionBuilder, merge: Transaction.Merge) -> Invalid | None:
    forbidden = forbids_nulls(table.head.fields, merge.schema) if merge.preserves_nullability else []
    return nullability_fault(forbidden)


def _paired(
    table: VersionBuilder, listed: Sequence[DataFragment]
) -> tuple[list[Pair], Sequence[DataFragment] | None]:
    """Returns each fragment of the table with its form in the list, and the new fragments.

    The new fragments are None if the list doesn't begin with all of the table's fragments, in any order.
    """
    current = {fragment.id: fragment for fragment in table.all()}
    count = len(current)
    first, new = listed[:count], listed[count:]
    if {fragment.id for fragment in first} != current.keys():
        return [], None
    return [(current[fragment.id], fragment) for fragment in first], new


def _list_fault(table: VersionBuilder, listed: Sequence[DataFragment]) -> Invalid:
    existing = {fragment.id for fragment in table.all()}
    missing = existing - {fragment.id for fragment in listed[: len(existing)]}
    return Invalid(
        f"fragments {some(missing)} of the table are not among the first {len(existing)} in the list",
        "list each fragment of the table once, then the new ones (id 0)",
    )


def _columns_fault(
    table: VersionBuilder, schema: Sequence[Field], columns: Columns, pairs: Sequence[Pair]
) -> Invalid | None:
    """Returns what is wrong with the files of existing fragments or with fields that stay in the schema."""
    current = by_id(table.head.fields)
    altered: set[int] = set()
    for field in schema:
        if field.id in current and (field.parent_id in altered or is_altered(current[field.id], field)):
            altered.add(field.id)
    added = columns.roots.keys() - current.keys()
    required = columns.required.keys() - table.columns.required.keys()
    for before, after in pairs:
        fault = rows_fault(before, after) or files_fault(table, before, after, columns)
        fault = fault or _meaning_fault(before, after, added, altered)
        fault = fault or _required_fault(after, columns, required)
        if fault is not None:
            return fault
    return None


def _meaning_fault(
    before: DataFragment, after: DataFragment, added: AbstractSet[int], altered: AbstractSet[int]
) -> Invalid | None:
    """Returns why the schema would give stored values another meaning.

    Stored values must not become values of another column, nor be read as another type.
    """
    old, new = field_locations(before), field_locations(after)
    listed = {number for file in before.files for number in file.fields}
    files = {file_key(file) for file in before.files}
    unchanged = {number for number, location in new.items() if (location.path, location.base) in files}
    reused = unchanged & listed & added
    if reused:
        return Invalid(
            f"the new fields {some(reused)} have ids that a file of fragment {after.id} uses for others",
            "give new columns ids above all ids of the schema and of the files",
        )
    unwritten = {number for number in altered if number in old and old[number] == new.get(number)}
    if unwritten:
        return Invalid(
            f"fields {some(unwritten)} have another type or nullability, but not in fragment {after.id}",
            "write the columns again in every fragment, under new field ids",
        )
    return None


def _required_fault(after: DataFragment, columns: Columns, required: AbstractSet[int]) -> Invalid | None:
    """Returns a fault if a column that is now non-nullable has no file in the fragment."""
    stored = {columns.roots[number] for number in field_locations(after) if number in columns.roots}
    missing = [columns.required[number] for number in required - stored]
    if not missing:
        return None
    return Invalid(
        f"columns {some(missing)} are non-nullable and are in no file of fragment {after.id}",
        "write them for every fragment, or make them nullable",
    )


def _head(table: VersionBuilder, merge: Transaction.Merge) -> Manifest:
    """Returns the manifest with the new schema.

    Schema metadata stays the same if the proposal has none: pylance doesn't send it (Lance fact 3.6).
    """
    head = Manifest()
    head.CopyFrom(table.head)
    del head.fields[:]
    head.fields.extend(merge.schema)
    if merge.schema_metadata:
        head.schema_metadata.clear()
        head.schema_metadata.update(merge.schema_metadata)
    return head


def _indices(
    table: VersionBuilder, schema: Sequence[Field], pairs: Sequence[Pair]
) -> Sequence[IndexMetadata]:
    """Returns the indices whose fields are still in the schema.

    They no longer cover fragments in which their fields were written again.
    """
    indices = without_fields(table.indices, {field.id for field in schema})
    indexed = related(schema, {number for index in indices for number in index.fields})
    rewritten: dict[int, list[int]] = defaultdict(list)
    for number, fragment in _rewritten(pairs):
        if number in indexed:
            rewritten[number].append(fragment)
    for number, fragments in rewritten.items():
        indices = without_fragments(indices, related(schema, (number,)), fragments)
    return indices


def _rewritten(pairs: Iterable[Pair]) -> Iterator[tuple[int, int]]:
    """Yields the id of each field with new values, and the id of the fragment in which it has them."""
    for before, after in pairs:
        if list(before.files) != list(after.files):
            for number in changed_fields(field_locations(before), field_locations(after)):
                yield number, before.id

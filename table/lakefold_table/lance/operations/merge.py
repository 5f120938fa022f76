"""Merge: other columns for the rows that are there, by a new schema and the list of all fragments.

The list is the whole table's, so a Merge holds only where no fragment has changed since it was made; the
conflict rules see to that, and what is listed is held against the table once more here. New fragments may
follow behind those that are there (Lance fact 6.8).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import Manifest
from lakefold_table.entry import Invalid
from lakefold_table.lance.creation import nullability_fault, schema_fault
from lakefold_table.lance.indexing.indices import without_fields, without_fragments
from lakefold_table.lance.operations.append import sizes_of
from lakefold_table.lance.operations.change import Change
from lakefold_table.lance.schemas.columns import Columns, columns_of, some
from lakefold_table.lance.schemas.fragment_files import (
    changed_fields,
    file_key,
    files_fault,
    of_columns,
    places,
    rows_fault,
    sized,
    twice_fault,
    updated,
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
    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder

Pair = tuple["DataFragment", "DataFragment"]
"""A fragment as the table has it, and as the proposal lists it."""


def needs(state: LanceState | None, envelope: Envelope) -> Requirements:
    """The sizes of the files that no fragment of the table has yet."""
    known = {file_key(file) for one in state.fragments for file in one.files} if state else set()
    files = (file for one in envelope.lance.merge.fragments for file in one.files)
    return sizes_of(file for file in files if file_key(file) not in known)


def change(table: VersionBuilder, proposal: Proposal) -> Change | Invalid:
    """The fragments with their new files, behind them the new ones, and the schema that goes with them."""
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
        or twice_fault(new, (one for pair in pairs for one in pair))
    )
    if fault is not None:
        return fault
    listed = [(before, sized(before, of_columns(after.files, columns.roots))) for before, after in pairs]
    return Change(
        proposal.transaction,
        added=new,
        replaced={
            before.id: updated(table, before, files)
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
    """Each fragment of the table with what is listed for it, and the new ones.

    Those are None where the list isn't all of the table's fragments, in any order, and then others.
    """
    there = {one.id: one for one in table.all()}
    count = len(there)
    first, new = listed[:count], listed[count:]
    if {one.id for one in first} != there.keys():
        return [], None
    return [(there[one.id], one) for one in first], new


def _list_fault(table: VersionBuilder, listed: Sequence[DataFragment]) -> Invalid:
    there = {one.id for one in table.all()}
    missing = there - {one.id for one in listed[: len(there)]}
    return Invalid(
        f"fragments {some(missing)} of the table are not among the first {len(there)} that are listed",
        "list each fragment of the table once, and new ones (id 0) behind all of them",
    )


def _columns_fault(
    table: VersionBuilder, schema: Sequence[Field], columns: Columns, pairs: Sequence[Pair]
) -> Invalid | None:
    """What is wrong with the files of the fragments that stay, and with fields that stay in the schema."""
    known = by_id(table.head.fields)
    altered: set[int] = set()
    for one in schema:
        if one.id in known and (one.parent_id in altered or is_altered(known[one.id], one)):
            altered.add(one.id)
    brought = columns.roots.keys() - known.keys()
    required = columns.required.keys() - table.columns.required.keys()
    for before, after in pairs:
        fault = rows_fault(before, after) or files_fault(table, before, after, columns)
        fault = fault or _meaning_fault(before, after, brought, altered)
        fault = fault or _required_fault(after, columns, required)
        if fault is not None:
            return fault
    return None


def _meaning_fault(
    before: DataFragment, after: DataFragment, brought: AbstractSet[int], altered: AbstractSet[int]
) -> Invalid | None:
    """Values that are there already may not become another column's, nor be read as another type."""
    old, new = places(before), places(after)
    listed = {number for file in before.files for number in file.fields}
    files = {file_key(file) for file in before.files}
    kept = {number for number, place in new.items() if (place.path, place.base) in files}
    reused = kept & listed & brought
    if reused:
        return Invalid(
            f"the new fields {some(reused)} have ids that a file of fragment {after.id} has for others",
            "give new columns ids above all that the schema and the files have",
        )
    unwritten = {number for number in altered if number in old and old[number] == new.get(number)}
    if unwritten:
        return Invalid(
            f"fields {some(unwritten)} have another type or nullability, but not in fragment {after.id}",
            "write the columns anew in every fragment, under new field ids",
        )
    return None


def _required_fault(after: DataFragment, columns: Columns, required: AbstractSet[int]) -> Invalid | None:
    """Columns that may not be null as of now must be in files."""
    there = {columns.roots[number] for number in places(after) if number in columns.roots}
    missing = [columns.required[number] for number in required - there]
    if not missing:
        return None
    return Invalid(
        f"columns {some(missing)} may not be null and are in no file of fragment {after.id}",
        "write them for every fragment, or let them be null",
    )


def _head(table: VersionBuilder, merge: Transaction.Merge) -> Manifest:
    """The manifest with the new schema; metadata left empty stays: pylance fills none in (Lance fact 3.6)."""
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
    """The indices without those on dropped fields, none covering a fragment where its field was rewritten."""
    indices = without_fields(table.indices, {one.id for one in schema})
    indexed = related(schema, {number for index in indices for number in index.fields})
    rewritten: dict[int, list[int]] = defaultdict(list)
    for number, fragment in _rewritten(pairs):
        if number in indexed:
            rewritten[number].append(fragment)
    for number, fragments in rewritten.items():
        indices = without_fragments(indices, related(schema, (number,)), fragments)
    return indices


def _rewritten(pairs: Iterable[Pair]) -> Iterator[tuple[int, int]]:
    """Each field that has other values in a fragment, with that fragment's id."""
    for before, after in pairs:
        if list(before.files) != list(after.files):
            for number in changed_fields(places(before), places(after)):
                yield number, before.id

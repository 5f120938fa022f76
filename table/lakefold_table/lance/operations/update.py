"""Update: moves rows to new fragments, or writes columns again (Lance facts 5.4, 6.4, 7.6).

An update of rows marks the old rows as deleted and adds new fragments; in a table with stable row ids these
contain the ids of the rows that they replace. An update of columns adds files to existing fragments. The
transaction's `update_mode` only decides whether changed rows are recorded as such. Everything else follows
from the fragments, as in pylance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Invalid, Rejected
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.format import Requirements
from lakefold_table.lance.change import Proposal, TableChange
from lakefold_table.lance.indexing.indices import Indices, with_fragments, without_fragments
from lakefold_table.lance.operations.append import sizes_of
from lakefold_table.lance.operations.mem_wal import advanced
from lakefold_table.lance.rows.deleted_rows import needs_of
from lakefold_table.lance.rows.merge_deletions import FragmentDeletions, deletions_of
from lakefold_table.lance.rows.moved_rows import MovedRows, complete_moved, origin_of
from lakefold_table.lance.rows.rewritten_columns import (
    changed_offsets,
    columns_fault,
    record_change,
)
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.schemas.fragment_files import (
    files_with_fields,
    has_other_files,
    new_files,
    shared_file_fault,
    with_files,
    without_dropped_files,
)
from lakefold_table.lance.schemas.schema import related

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(state: LanceState | None, envelope: Envelope) -> Requirements:
    """Returns the requirements: sizes of new files, proposed deletion files and the table's own."""
    update = envelope.lance.update
    with_new_files = list(update.new_fragments)
    if state is not None:
        current = state.fragments.get([fragment.id for fragment in update.updated_fragments])
        with_new_files += [
            DataFragment(files=new_files(current[fragment.id], fragment))
            for fragment in update.updated_fragments
            if fragment.id in current
        ]
    sizes = sizes_of(file for fragment in with_new_files for file in fragment.files)
    removed = update.removed_fragment_ids
    return Requirements.all_of((sizes, needs_of(state, update.updated_fragments, removed, all_rows=True)))


def change(table: VersionBuilder, proposal: Proposal) -> TableChange | Rejected | Invalid:
    """Returns a change of the fragments and of the indices that cover them."""
    update = proposal.transaction.update
    fault = _plain_fault(table, update, proposal.dropped)
    if fault is not None:
        return fault
    needs_rows = table.stable_row_ids and any(
        fragment.HasField("inline_row_ids") for fragment in update.new_fragments
    )
    deletions = deletions_of(
        table, proposal, update.updated_fragments, update.removed_fragment_ids, needs_rows=needs_rows
    )
    if not isinstance(deletions, FragmentDeletions):
        return deletions
    replaced = _rewritten(table, proposal, deletions)
    if not isinstance(replaced, dict):
        return replaced
    added = _added(table, proposal, deletions)
    if isinstance(added, Invalid):
        return added
    indices = _indices(table, update, added)
    if isinstance(indices, Invalid):
        return indices
    return TableChange(
        _rebased(proposal.transaction, deletions),
        added=added.fragments,
        replaced=replaced,
        removed=deletions.removed,
        indices=indices,
        row_ids=added.row_ids,
        before=deletions.files,
        rows_deleted=deletions.rows,
    )


def _plain_fault(
    table: VersionBuilder, update: Transaction.Update, dropped: frozenset[int]
) -> Invalid | None:
    """Returns what is wrong with the message, before any file is read."""
    existing = table.columns.roots.keys() | dropped
    unknown = {*update.fields_modified, *update.fields_for_preserving_frag_bitmap} - existing
    if unknown:
        return Invalid(
            f"the update names fields {some(unknown)}, which the table doesn't have",
            "name field ids of the table's schema",
        )
    # All copies belong to one message: a message for each would take a kilobyte more.
    bare = Transaction.Append(fragments=update.new_fragments).fragments
    for fragment in bare:
        if fragment.HasField("inline_row_ids") and not table.stable_row_ids:
            return Invalid("a new fragment has row ids, but the table's rows have none", "leave them out")
        fragment.ClearField("inline_row_ids")
    touched = table.get(
        [*update.removed_fragment_ids, *(fragment.id for fragment in update.updated_fragments)]
    )
    return table.new_fragments_fault(bare, dropped=dropped) or shared_file_fault(bare, touched.values())


def _rewritten(
    table: VersionBuilder, proposal: Proposal, deletions: FragmentDeletions
) -> dict[int, DataFragment] | Invalid:
    """Returns the updated fragments with their new files and row versions, by id."""
    update = proposal.transaction.update
    proposed = {updated.id: updated for updated in update.updated_fragments}
    changed_rows = changed_offsets(update, proposed)
    if isinstance(changed_rows, Invalid):
        return changed_rows
    records_changes = table.stable_row_ids and update.update_mode == Transaction.REWRITE_COLUMNS
    replaced = dict(deletions.replaced)
    for number, current in table.get(replaced).items():
        updated = proposed[number]
        if has_other_files(current, updated):
            fault = columns_fault(
                table, table.columns, current, updated, update.fields_modified, proposal.dropped
            )
            if fault is not None:
                return fault
            replaced[number] = with_files(
                replaced[number], files_with_fields(updated.files, table.columns.roots)
            )
        if records_changes and number in changed_rows:
            replaced[number] = _copy(replaced[number])
            fault = record_change(replaced[number], changed_rows[number], table.version)
            if fault is not None:
                return fault
    return replaced


def _added(table: VersionBuilder, proposal: Proposal, deletions: FragmentDeletions) -> MovedRows | Invalid:
    """Returns the new fragments, with complete row ids if the table has stable row ids."""
    fragments = without_dropped_files(proposal.transaction.update.new_fragments, proposal.dropped)
    if not table.stable_row_ids:
        return MovedRows(fragments, 0, ())
    sources = table.get(deletions.fresh)
    try:
        origin = origin_of(sources, deletions.fresh)
    except (DamagedError, InvalidError) as error:
        return Invalid(f"the moved rows can't be identified: {error}", error.hint)
    return complete_moved(fragments, origin, table.numbering.next_row_id, table.version)


def _indices(table: VersionBuilder, update: Transaction.Update, added: MovedRows) -> Indices | Invalid:
    """Returns the entries of the index section after the update."""
    updated = [fragment.id for fragment in update.updated_fragments]
    changed = related(table.head.fields, update.fields_modified)
    indices = without_fragments(table.indices, changed, updated)
    ids = table.numbering.ids_for(update.new_fragments)
    indices = with_fragments(
        indices,
        update.fields_for_preserving_frag_bitmap,
        [*updated, *update.removed_fragment_ids],
        [ids[index] for index in added.only_moved],
    )
    return advanced(indices, update.compacted_sstables, table.version)


def _rebased(transaction: Transaction, deletions: FragmentDeletions) -> Transaction:
    if not deletions.rebased:
        return transaction
    rebased = Transaction()
    rebased.CopyFrom(transaction)
    deletions.rebase(rebased.update.updated_fragments)
    rebased.update.removed_fragment_ids.extend(sorted(deletions.emptied))
    return rebased


def _copy(fragment: DataFragment) -> DataFragment:
    copy = DataFragment()
    copy.CopyFrom(fragment)
    return copy

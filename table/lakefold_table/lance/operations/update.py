"""Update: rows that move to new fragments, or columns that are written again (Lance facts 5.4, 6.4, 7.6).

An update of rows marks the old ones as deleted and adds new fragments; on a table with stable row ids those
hold the ids of the rows they replace. An update of columns gives fragments that stay another file. The
transaction's `update_mode` only says whether changed rows are noted as such; for the rest pylance goes by
what the fragments say, and so do we.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.entry import Invalid, Rejected
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.format import Requirements
from lakefold_table.lance.indexing.indices import with_fragments, without_fragments
from lakefold_table.lance.operations.append import sizes_of
from lakefold_table.lance.operations.change import Change
from lakefold_table.lance.operations.mem_wal import advanced
from lakefold_table.lance.rows.deleted_rows import needs_of
from lakefold_table.lance.rows.merge_deletions import Deletions, deletions_of
from lakefold_table.lance.rows.moved_rows import Moved, moved, origin_of
from lakefold_table.lance.rows.rewritten_columns import (
    changed_offsets,
    columns_fault,
    touch,
)
from lakefold_table.lance.schemas.columns import some
from lakefold_table.lance.schemas.fragment_files import (
    has_other_files,
    new_files,
    of_columns,
    of_fields_left,
    twice_fault,
    with_files,
)
from lakefold_table.lance.schemas.schema import related

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.lance.indexing.indices import Indices
    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(state: LanceState | None, envelope: Envelope) -> Requirements:
    """The sizes of new files, the deletion files proposed and those of the same fragments in the table."""
    update = envelope.lance.update
    fresh = list(update.new_fragments)
    if state is not None:
        there = state.fragments.get([one.id for one in update.updated_fragments])
        fresh += [
            DataFragment(files=new_files(there[one.id], one))
            for one in update.updated_fragments
            if one.id in there
        ]
    sizes = sizes_of(file for one in fresh for file in one.files)
    removed = update.removed_fragment_ids
    return Requirements.all_of((sizes, needs_of(state, update.updated_fragments, removed, all_rows=True)))


def change(table: VersionBuilder, proposal: Proposal) -> Change | Rejected | Invalid:
    """The fragments as they are afterwards, with what that does to indices."""
    update = proposal.transaction.update
    fault = _plain_fault(table, update, proposal.dropped)
    if fault is not None:
        return fault
    which = table.stable_row_ids and any(one.HasField("inline_row_ids") for one in update.new_fragments)
    found = deletions_of(table, proposal, update.updated_fragments, update.removed_fragment_ids, which=which)
    if not isinstance(found, Deletions):
        return found
    replaced = _rewritten(table, proposal, found)
    if not isinstance(replaced, dict):
        return replaced
    added = _added(table, proposal, found)
    if isinstance(added, Invalid):
        return added
    indices = _indices(table, update, added)
    if isinstance(indices, Invalid):
        return indices
    return Change(
        _rebased(proposal.transaction, found),
        added=added.fragments,
        replaced=replaced,
        removed=found.removed,
        indices=indices,
        row_ids=added.row_ids,
        before=found.files,
        rows_deleted=found.rows,
    )


def _plain_fault(
    table: VersionBuilder, update: Transaction.Update, dropped: frozenset[int]
) -> Invalid | None:
    """What is wrong with the message before anything is read for it."""
    known = table.columns.roots.keys() | dropped
    unknown = {*update.fields_modified, *update.fields_for_preserving_frag_bitmap} - known
    if unknown:
        return Invalid(
            f"fields {some(unknown)} are said to be modified and are not the table's",
            "name field ids of the table's schema",
        )
    # In one message: each in a message of its own takes a kilobyte more.
    bare = Transaction.Append(fragments=update.new_fragments).fragments
    for one in bare:
        if one.HasField("inline_row_ids") and not table.stable_row_ids:
            return Invalid("a new fragment brings row ids, but the table's rows have none", "leave them out")
        one.ClearField("inline_row_ids")
    touched = table.get([*update.removed_fragment_ids, *(one.id for one in update.updated_fragments)])
    return table.new_fragments_fault(bare, dropped=dropped) or twice_fault(bare, touched.values())


def _rewritten(
    table: VersionBuilder, proposal: Proposal, found: Deletions
) -> dict[int, DataFragment] | Invalid:
    """The fragments that stay, with their new files and the versions of their rows."""
    update = proposal.transaction.update
    proposed = {one.id: one for one in update.updated_fragments}
    told = changed_offsets(update, proposed)
    if isinstance(told, Invalid):
        return told
    notes = table.stable_row_ids and update.update_mode == Transaction.REWRITE_COLUMNS
    replaced = dict(found.replaced)
    for number, there in table.get(replaced).items():
        one = proposed[number]
        if has_other_files(there, one):
            fault = columns_fault(table, there, one, update.fields_modified, proposal.dropped)
            if fault is not None:
                return fault
            replaced[number] = with_files(replaced[number], of_columns(one.files, table.columns.roots))
        if notes and number in told:
            replaced[number] = _copy(replaced[number])
            hindered = touch(replaced[number], told[number], table.version)
            if hindered is not None:
                return hindered
    return replaced


def _added(table: VersionBuilder, proposal: Proposal, found: Deletions) -> Moved | Invalid:
    """The new fragments, complete where rows have ids for life."""
    fragments = of_fields_left(proposal.transaction.update.new_fragments, proposal.dropped)
    if not table.stable_row_ids:
        return Moved(fragments, 0, ())
    sources = table.get(found.fresh)
    try:
        origin = origin_of(sources, found.fresh)
    except (DamagedError, InvalidError) as error:
        return Invalid(f"the rows that are moved can't be followed: {error}", error.hint)
    return moved(fragments, origin, table.numbering.next_row_id, table.version)


def _indices(table: VersionBuilder, update: Transaction.Update, added: Moved) -> Indices | Invalid:
    """The index section's entries afterwards."""
    updated = [one.id for one in update.updated_fragments]
    changed = related(table.head.fields, update.fields_modified)
    indices = without_fragments(table.indices, changed, updated)
    ids = table.numbering.ids_for(update.new_fragments)
    indices = with_fragments(
        indices,
        update.fields_for_preserving_frag_bitmap,
        [*updated, *update.removed_fragment_ids],
        [ids[place] for place in added.only_moved],
    )
    return advanced(indices, update.compacted_sstables, table.version)


def _rebased(transaction: Transaction, found: Deletions) -> Transaction:
    if not found.rebased:
        return transaction
    rebased = Transaction()
    rebased.CopyFrom(transaction)
    found.rebase(rebased.update.updated_fragments)
    rebased.update.removed_fragment_ids.extend(sorted(found.emptied))
    return rebased


def _copy(fragment: DataFragment) -> DataFragment:
    copy = DataFragment()
    copy.CopyFrom(fragment)
    return copy

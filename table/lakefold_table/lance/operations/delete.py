"""Delete: marks rows as deleted and removes fragments without remaining rows (Lance facts 5.4 and 6.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.lance.change import Proposal, TableChange
from lakefold_table.lance.rows.deleted_rows import needs_of
from lakefold_table.lance.rows.merge_deletions import FragmentDeletions, deletions_of, same_files_fault
from lakefold_table.lance.schemas.fragment_files import files_with_fields

if TYPE_CHECKING:
    from lakefold_table.entry import Invalid, Rejected
    from lakefold_table.format import Requirements
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(state: LanceState | None, envelope: Envelope) -> Requirements:
    """Returns the requirements: the proposed deletion files, and the table's own of these fragments."""
    delete = envelope.lance.delete
    says_rows = bool(envelope.affected_rows)
    return needs_of(state, delete.updated_fragments, delete.deleted_fragment_ids, all_rows=says_rows)


def change(table: VersionBuilder, proposal: Proposal) -> TableChange | Rejected | Invalid:
    """Returns a change with the new deletion files. The fragment bitmaps of indices stay the same."""
    proposal = _without_dropped(table, proposal)
    delete = proposal.transaction.delete
    fault = same_files_fault(table, delete.updated_fragments)
    deletions = fault or deletions_of(table, proposal, delete.updated_fragments, delete.deleted_fragment_ids)
    if not isinstance(deletions, FragmentDeletions):
        return deletions
    transaction = proposal.transaction
    if deletions.rebased:
        transaction = Transaction()
        transaction.CopyFrom(proposal.transaction)
        deletions.rebase(transaction.delete.updated_fragments)
        transaction.delete.deleted_fragment_ids.extend(sorted(deletions.emptied))
    return TableChange(
        transaction,
        replaced=deletions.replaced,
        removed=deletions.removed,
        before=deletions.files,
        rows_deleted=deletions.rows,
    )


def _without_dropped(table: VersionBuilder, proposal: Proposal) -> Proposal:
    """Returns the proposal without the files of columns that were dropped since its read version.

    A Project removes these files from the fragments. It doesn't conflict with a Delete, since the files hold
    no column of the table any more.
    """
    fields, updated = table.columns.roots, proposal.transaction.delete.updated_fragments
    stale = proposal.transaction.read_version < table.version - 1
    if not stale or all(
        len(files_with_fields(fragment.files, fields)) == len(fragment.files) for fragment in updated
    ):
        return proposal
    envelope = Envelope()
    envelope.CopyFrom(proposal.envelope)
    for fragment in envelope.lance.delete.updated_fragments:
        files = files_with_fields(fragment.files, fields)
        del fragment.files[:]
        fragment.files.extend(files)
    return replace(proposal, envelope=envelope)

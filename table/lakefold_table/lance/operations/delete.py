"""Delete: rows marked as deleted, and fragments of which none is left (Lance facts 5.4 and 6.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_table.lance.operations.change import Change
from lakefold_table.lance.rows.deleted_rows import needs_of
from lakefold_table.lance.rows.merge_deletions import Deletions, deletions_of, same_files_fault
from lakefold_table.lance.schemas.fragment_files import of_columns

if TYPE_CHECKING:
    from lakefold_table.entry import Invalid, Rejected
    from lakefold_table.format import Requirements
    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder


def needs(state: LanceState | None, envelope: Envelope) -> Requirements:
    """The deletion files proposed, and those of the same fragments in the table."""
    delete = envelope.lance.delete
    says_rows = bool(envelope.affected_rows)
    return needs_of(state, delete.updated_fragments, delete.deleted_fragment_ids, all_rows=says_rows)


def change(table: VersionBuilder, proposal: Proposal) -> Change | Rejected | Invalid:
    """The fragments with their new deletion files. Bitmaps of indices stay as they are."""
    proposal = _without_dropped(table, proposal)
    delete = proposal.transaction.delete
    fault = same_files_fault(table, delete.updated_fragments)
    found = fault or deletions_of(table, proposal, delete.updated_fragments, delete.deleted_fragment_ids)
    if not isinstance(found, Deletions):
        return found
    transaction = proposal.transaction
    if found.rebased:
        transaction = Transaction()
        transaction.CopyFrom(proposal.transaction)
        found.rebase(transaction.delete.updated_fragments)
        transaction.delete.deleted_fragment_ids.extend(sorted(found.emptied))
    return Change(
        transaction,
        replaced=found.replaced,
        removed=found.removed,
        before=found.files,
        rows_deleted=found.rows,
    )


def _without_dropped(table: VersionBuilder, proposal: Proposal) -> Proposal:
    """A stale proposal without the files of columns that were dropped since.

    A Project takes them off the list, and neither conflicts with the other: what they held is in no column.
    """
    fields, updated = table.columns.roots, proposal.transaction.delete.updated_fragments
    stale = proposal.transaction.read_version < table.version - 1
    if not stale or all(len(of_columns(one.files, fields)) == len(one.files) for one in updated):
        return proposal
    envelope = Envelope()
    envelope.CopyFrom(proposal.envelope)
    for one in envelope.lance.delete.updated_fragments:
        files = of_columns(one.files, fields)
        del one.files[:]
        one.files.extend(files)
    return replace(proposal, envelope=envelope)

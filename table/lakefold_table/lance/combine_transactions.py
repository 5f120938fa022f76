"""The transaction of a version that several entries share, which other clients check theirs against.

Its verdicts must not be weaker than those of its parts, or another client could commit what one of them
forbids. Appends, Deletes and Updates of rows are combined into one Update. For all operations but one that is
as strict as each of them: UpdateMemWalState, which merges the write-ahead log, may follow an Update, but not
an Append or a Delete. So on a table with such a log only entries of one kind share a version (decision 0018).

An UpdateConfig without keys changes nothing. A batch that has nothing to change is proposed as one, so that
its key is folded (decision 0109). It shares a version with any of these, whose transaction stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_protos.lance.views_pb2 import AppendView
from lakefold_table.format import ALONE, GroupingRule
from lakefold_table.lance.kinds import FOLDED, kind_of
from lakefold_table.lance.proposal import changes_nothing, proposal_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.entry import Entry
    from lakefold_table.lance.state import LanceState

APPEND, DELETE, UPDATE, INSERT = "append", "delete", "update", "insert"
"""What can share a version. An insert is an Update that only inserts, as from a merge that matches no row."""
ROWS = "rows"
"""The name under which all of these share a version if the table has no write-ahead log."""


def combined(
    transactions: Sequence[Transaction], proposed: Sequence[bytes], replaced: Mapping[int, DataFragment]
) -> Transaction:
    """Returns a transaction for all: the entry's own if it is alone, else one of their kind.

    For no transactions it is a reservation of no fragments: it conflicts with nothing, while an empty Append
    would conflict with each Merge and each upsert of keys that was built before it.

    `proposed`: the new fragments as the entries proposed them, encoded. `replaced`: the fragments that were
    changed, as the last entry left them.
    """
    transaction = Transaction()
    if len(transactions) == 1:
        transaction.CopyFrom(transactions[0])
        return transaction
    if not transactions:
        transaction.reserve_fragments.SetInParent()
        return transaction
    kinds = {str(part.WhichOneof("operation")) for part in transactions}
    if kinds == {DELETE}:
        _merge_deletes(transaction.delete, [part.delete for part in transactions], replaced)
    elif kinds == {APPEND}:
        transaction.append.MergeFromString(AppendView(fragments=proposed).SerializeToString())
        transaction.append.SetInParent()
    elif kinds <= {APPEND, DELETE, UPDATE}:
        _merge_rows(transaction.update, transactions, replaced)
    else:
        raise ValueError(f"transactions of {sorted(kinds)} can't share a version")
    return transaction


def sharing(transaction: Transaction, *, has_log: bool = False) -> str:
    """Returns the group that a proposal may share a version with, `ALONE` if it has a tag or properties.

    `has_log`: the table has a write-ahead log.
    """
    if transaction.tag or transaction.transaction_properties:
        return ALONE
    match transaction.WhichOneof("operation"):
        case "append":
            alone = _has_ids(transaction.append.fragments)
        case "delete":
            alone = False
        case "update":
            alone = _goes_alone(transaction.update)
        case "update_config":
            alone = not changes_nothing(transaction)
        case _:
            alone = True
    if alone:
        return ALONE
    return did(transaction) if has_log else ROWS


def grouping_rule_after(state: LanceState | None) -> GroupingRule:
    """Returns the grouping rule for the version after `state`.

    Its result is None for entries that are refused.
    """
    has_log = state is not None and state.has_log

    plain = APPEND if has_log else ROWS

    def name(entry: Entry) -> str | None:
        proposal = proposal_of(entry)
        if proposal.plain is not None:
            return plain
        transaction = proposal.transaction
        return sharing(transaction, has_log=has_log) if kind_of(transaction) in FOLDED else None

    return name


def did(transaction: Transaction) -> str:
    """Returns what an entry did, among others of its version: Lance's name of the operation, or `INSERT`."""
    name = transaction.WhichOneof("operation") or ""
    update = transaction.update
    only_inserts = name == UPDATE and not (update.updated_fragments or update.removed_fragment_ids)
    return INSERT if only_inserts else name


def _goes_alone(update: Transaction.Update) -> bool:
    """Updates of rows share a version. An Update that says more than which rows replace which is alone."""
    return bool(
        update.update_mode != Transaction.REWRITE_ROWS
        or update.fields_modified
        or update.HasField("inserted_rows")
        or update.compacted_sstables
        or update.updated_fragment_offsets
        or update.updated_fragment_offset_bitmaps
        or _has_ids(update.new_fragments)
    )


def _has_ids(fragments: Iterable[DataFragment]) -> bool:
    return any(fragment.id for fragment in fragments)


def _merge_deletes(
    into: Transaction.Delete, parts: Sequence[Transaction.Delete], replaced: Mapping[int, DataFragment]
) -> None:
    removed = {number for part in parts for number in part.deleted_fragment_ids}
    updated = {fragment.id for part in parts for fragment in part.updated_fragments}
    into.deleted_fragment_ids.extend(sorted(removed))
    into.updated_fragments.extend(replaced[number] for number in sorted(updated - removed))
    into.predicate = " OR ".join(f"({part.predicate})" for part in parts)


def _merge_rows(
    into: Transaction.Update, parts: Sequence[Transaction], replaced: Mapping[int, DataFragment]
) -> None:
    """Writes an Update for Appends, Deletes and Updates; its new fragments are in the entries' order."""
    removed, updated, preserving = set[int](), set[int](), set[int]()
    for part in parts:
        if part.HasField("append"):
            into.new_fragments.extend(part.append.fragments)
            continue
        update, delete = part.update, part.delete
        removed.update(update.removed_fragment_ids, delete.deleted_fragment_ids)
        updated.update(fragment.id for fragment in (*update.updated_fragments, *delete.updated_fragments))
        preserving.update(update.fields_for_preserving_frag_bitmap)
        into.new_fragments.extend(update.new_fragments)
    into.removed_fragment_ids.extend(sorted(removed))
    into.updated_fragments.extend(replaced[number] for number in sorted(updated - removed))
    into.fields_for_preserving_frag_bitmap.extend(sorted(preserving))

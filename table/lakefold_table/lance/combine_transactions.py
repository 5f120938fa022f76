"""The transaction of a version that several entries share: what foreign writers check theirs against.

Its verdicts may not be weaker than those of its parts, or a foreign commit would get through that one of them
forbids (architecture, Folding and grouping). Appends, Deletes and Updates of rows are told together as an
Update. To all but one writer that is as strict as each of them: who moves the write-ahead log forward
(UpdateMemWalState) may follow an Update, and not an Append or a Delete. So on a table that has such a log
only entries of one kind share a version (decision 0018).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_protos.lance.views_pb2 import AppendView
from lakefold_table.format import ALONE
from lakefold_table.lance.operations import FOLDED, kind_of
from lakefold_table.lance.proposal import proposal_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_table.entry import Entry
    from lakefold_table.format import GroupingRule
    from lakefold_table.lance.state import LanceState

APPEND, DELETE, UPDATE, INSERT = "append", "delete", "update", "insert"
"""What shares a version. An insert is an Update that only inserts, as a merge that meets no row."""
ROWS = "rows"
"""The name by which all of these share one where the table has no write-ahead log."""


def merged(
    transactions: Sequence[Transaction], proposed: Sequence[bytes], replaced: Mapping[int, DataFragment]
) -> Transaction:
    """One transaction for all: the entry's own where it is alone, else one of their kind.

    Of none it is a reservation of no fragments: nothing stands against that, while an empty Append would turn
    back each Merge and each upsert of keys that was built before it.

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
    kinds = {str(one.WhichOneof("operation")) for one in transactions}
    if kinds == {DELETE}:
        _merge_deletes(transaction.delete, [one.delete for one in transactions], replaced)
    elif kinds == {APPEND}:
        transaction.append.MergeFromString(AppendView(fragments=proposed).SerializeToString())
        transaction.append.SetInParent()
    elif kinds <= {APPEND, DELETE, UPDATE}:
        _merge_rows(transaction.update, transactions, replaced)
    else:
        raise ValueError(f"transactions of {sorted(kinds)} can't share a version")
    return transaction


def sharing(transaction: Transaction, *, has_log: bool = False) -> str:
    """With which others it may share a version; a proposal with a tag or properties goes alone.

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
        case _:
            alone = True
    if alone:
        return ALONE
    return did(transaction) if has_log else ROWS


def grouping_rule_after(state: LanceState | None) -> GroupingRule:
    """With which others an entry may share the version after `state`: with any where it is refused anyway."""
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
    """What an entry did, among others of its version: Lance's name for it, or `INSERT`."""
    name = transaction.WhichOneof("operation") or ""
    update = transaction.update
    only_inserts = name == UPDATE and not (update.updated_fragments or update.removed_fragment_ids)
    return INSERT if only_inserts else name


def _goes_alone(update: Transaction.Update) -> bool:
    """Updates of rows share; one that says more than which rows are replaced by which goes alone."""
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
    removed = {number for one in parts for number in one.deleted_fragment_ids}
    updated = {fragment.id for one in parts for fragment in one.updated_fragments}
    into.deleted_fragment_ids.extend(sorted(removed))
    into.updated_fragments.extend(replaced[number] for number in sorted(updated - removed))
    into.predicate = " OR ".join(f"({one.predicate})" for one in parts)


def _merge_rows(
    into: Transaction.Update, parts: Sequence[Transaction], replaced: Mapping[int, DataFragment]
) -> None:
    """One Update for Appends, Deletes and Updates; its new fragments stand in the order of the entries."""
    removed, updated, preserving = set[int](), set[int](), set[int]()
    for part in parts:
        if part.HasField("append"):
            into.new_fragments.extend(part.append.fragments)
            continue
        update, delete = part.update, part.delete
        removed.update(update.removed_fragment_ids, delete.deleted_fragment_ids)
        updated.update(one.id for one in (*update.updated_fragments, *delete.updated_fragments))
        preserving.update(update.fields_for_preserving_frag_bitmap)
        into.new_fragments.extend(update.new_fragments)
    into.removed_fragment_ids.extend(sorted(removed))
    into.updated_fragments.extend(replaced[number] for number in sorted(updated - removed))
    into.fields_for_preserving_frag_bitmap.extend(sorted(preserving))

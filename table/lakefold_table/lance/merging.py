"""The transaction of a version that several entries share: what foreign writers check theirs against.

Its verdicts may not be weaker than those of its parts, or a foreign commit would get through that one of them
forbids (architecture, Folding and grouping). So only entries of one kind share a version. Appends and Deletes
could be told as parts of an Update to all but one writer, who moves the write-ahead log forward
(UpdateMemWalState): it may follow an Update, and not an Append or a Delete (decision 0013).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_protos.lance.views_pb2 import AppendView
from lakefold_table.format import ALONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import DataFragment

APPENDS, DELETES, UPDATES, INSERTS = "appends", "deletes", "updates", "inserts"
"""What shares a version. Updates that only insert are among themselves: a reader sees what they inserted."""


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
    kinds = {one.WhichOneof("operation") for one in transactions}
    if kinds == {"delete"}:
        _merge_deletes(transaction.delete, [one.delete for one in transactions], replaced)
    elif kinds == {"update"}:
        _merge_updates(transaction.update, [one.update for one in transactions], replaced)
    elif kinds == {"append"}:
        transaction.append.MergeFromString(AppendView(fragments=proposed).SerializeToString())
        transaction.append.SetInParent()
    else:
        raise ValueError(f"transactions of {sorted(map(str, kinds))} can't share a version")
    return transaction


def sharing(transaction: Transaction) -> str:
    """With which others it may share a version; a proposal with a tag or properties goes alone."""
    if transaction.tag or transaction.transaction_properties:
        return ALONE
    match transaction.WhichOneof("operation"):
        case "append":
            return ALONE if _has_ids(transaction.append.fragments) else APPENDS
        case "delete":
            return DELETES
        case "update":
            return _sharing_of_update(transaction.update)
    return ALONE


def _sharing_of_update(update: Transaction.Update) -> str:
    """Updates of rows share; one that says more than which rows are replaced by which goes alone."""
    says_more = (
        update.update_mode != Transaction.REWRITE_ROWS
        or update.fields_modified
        or update.HasField("inserted_rows")
        or update.compacted_sstables
        or update.updated_fragment_offsets
        or update.updated_fragment_offset_bitmaps
    )
    if says_more or _has_ids(update.new_fragments):
        return ALONE
    return UPDATES if update.updated_fragments or update.removed_fragment_ids else INSERTS


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


def _merge_updates(
    into: Transaction.Update, parts: Sequence[Transaction.Update], replaced: Mapping[int, DataFragment]
) -> None:
    removed = {number for one in parts for number in one.removed_fragment_ids}
    updated = {fragment.id for one in parts for fragment in one.updated_fragments}
    preserving = {number for one in parts for number in one.fields_for_preserving_frag_bitmap}
    into.removed_fragment_ids.extend(sorted(removed))
    into.updated_fragments.extend(replaced[number] for number in sorted(updated - removed))
    for one in parts:
        into.new_fragments.extend(one.new_fragments)
    into.fields_for_preserving_frag_bitmap.extend(sorted(preserving))

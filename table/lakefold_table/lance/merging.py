"""The transaction of a version that several entries share: what foreign writers check theirs against.

Its verdicts may not be weaker than those of its parts, or a foreign commit would get through that one of them
forbids (architecture, Folding and grouping).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_protos.lance.transaction_pb2 import Transaction
from lakefold_protos.lance.views_pb2 import AppendView

if TYPE_CHECKING:
    from collections.abc import Sequence


def merged(transactions: Sequence[Transaction], proposed: Sequence[bytes]) -> Transaction:
    """One transaction for all: the entry's own where it is alone, else one Append of all their fragments.

    `proposed`: the new fragments as the entries proposed them, encoded.
    """
    transaction = Transaction()
    if len(transactions) == 1:
        transaction.CopyFrom(transactions[0])
        return transaction
    transaction.append.MergeFromString(AppendView(fragments=proposed).SerializeToString())
    transaction.append.SetInParent()
    return transaction


def shares_version(transaction: Transaction) -> bool:
    """Whether the proposal may share a version: one with a tag, properties or ids of its own goes alone."""
    if transaction.WhichOneof("operation") != "append":
        return False
    if transaction.tag or transaction.transaction_properties:
        return False
    return not any(fragment.id for fragment in transaction.append.fragments)

"""What a version's file says of the version it was made from (`lakefold_table.versions.succession`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lakefold_table.lance.kinds import Kind, kind_of

if TYPE_CHECKING:
    from lakefold_protos.lance.transaction_pb2 import Transaction

REWRITE_METADATA: Final = frozenset({Kind.RESTORE, Kind.CLONE, Kind.OVERWRITE, Kind.UNKNOWN})
"""Kinds of operation after which the table's metadata may be another version's, another table's or gone."""
_FILE: Final = re.compile(r"[0-9]+-(?P<uuid>.+)\.txn")
"""A transaction file's name: the read version and the transaction's uuid (Lance fact 1.4)."""


def keeps_metadata(transaction: Transaction | None) -> bool:
    """Returns whether this transaction leaves the table's metadata unchanged, as far as known."""
    kind = kind_of(transaction)
    if transaction is None or kind in REWRITE_METADATA:
        return False
    return kind is not Kind.UPDATE_CONFIG or not transaction.update_config.HasField("table_metadata_updates")


def restored_by(transaction: Transaction | None) -> int | None:
    """Returns the version that this transaction restored, None if it is not a Restore."""
    if transaction is None or not transaction.HasField("restore"):
        return None
    return transaction.restore.version or None


def transaction_uuid(transaction: Transaction | None, file: str) -> str:
    """Returns the uuid of a version's transaction, or "" if it is not known.

    `file`: the name of the transaction's own file, if the manifest has one.
    """
    if transaction is not None and transaction.uuid:
        return str(transaction.uuid)
    name = _FILE.fullmatch(file)
    return "" if name is None else name["uuid"]

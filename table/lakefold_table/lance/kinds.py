"""The kinds of operation that a Lance transaction can have.

A kind is the name of the operation in the transaction message. If the conflict rules depend on a field of the
operation (`preserves_nullability`), each value of that field is a separate kind.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakefold_protos.lance.transaction_pb2 import Transaction


class Kind(StrEnum):
    """The operation of a transaction (Lance fact 3.3)."""

    APPEND = "append"
    DELETE = "delete"
    OVERWRITE = "overwrite"
    CREATE_INDEX = "create_index"
    REWRITE = "rewrite"
    MERGE = "merge"
    MERGE_KEEPING_NULLABILITY = "merge_keeping_nullability"
    RESTORE = "restore"
    RESERVE_FRAGMENTS = "reserve_fragments"
    UPDATE = "update"
    PROJECT = "project"
    PROJECT_KEEPING_NULLABILITY = "project_keeping_nullability"
    UPDATE_CONFIG = "update_config"
    DATA_REPLACEMENT = "data_replacement"
    UPDATE_MEM_WAL_STATE = "update_mem_wal_state"
    CLONE = "clone"
    UPDATE_BASES = "update_bases"
    DATA_OVERLAY = "data_overlay"
    UNKNOWN = "unknown"


_OPERATIONS = {kind.value: kind for kind in Kind}

FOLDED = frozenset(
    {
        Kind.APPEND,
        Kind.CREATE_INDEX,
        Kind.CLONE,
        Kind.DATA_REPLACEMENT,
        Kind.DELETE,
        Kind.MERGE,
        Kind.MERGE_KEEPING_NULLABILITY,
        Kind.OVERWRITE,
        Kind.PROJECT,
        Kind.PROJECT_KEEPING_NULLABILITY,
        Kind.RESERVE_FRAGMENTS,
        Kind.RESTORE,
        Kind.REWRITE,
        Kind.UPDATE,
        Kind.UPDATE_BASES,
        Kind.UPDATE_CONFIG,
        Kind.UPDATE_MEM_WAL_STATE,
    }
)
"""The kinds that this release folds."""

SCHEMA_CHANGING = frozenset(
    {
        Kind.OVERWRITE,
        Kind.MERGE,
        Kind.MERGE_KEEPING_NULLABILITY,
        Kind.RESTORE,
        Kind.PROJECT,
        Kind.PROJECT_KEEPING_NULLABILITY,
        Kind.CLONE,
        Kind.UNKNOWN,
    }
)
"""The kinds after which a field id may refer to another field than before."""


def kind_of(transaction: Transaction | None) -> Kind:
    """Returns the kind of a transaction; `UNKNOWN` if it is None or has an unknown operation."""
    name = transaction.WhichOneof("operation") if transaction is not None else None
    if transaction is None or name is None:
        return Kind.UNKNOWN
    if name == "merge" and transaction.merge.preserves_nullability:
        return Kind.MERGE_KEEPING_NULLABILITY
    if name == "project" and transaction.project.preserves_nullability:
        return Kind.PROJECT_KEEPING_NULLABILITY
    return _OPERATIONS[name]

"""The two functions of each operation: what it requires, and how it changes a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from lakefold_table.format import Requirements
from lakefold_table.lance.kinds import Kind
from lakefold_table.lance.operations import (
    append,
    clone,
    create_index,
    data_replacement,
    delete,
    mem_wal,
    merge,
    overwrite,
    project,
    restore,
    rewrite,
    update,
    update_bases,
    update_config,
)

if TYPE_CHECKING:
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Invalid, Rejected
    from lakefold_table.lance.change import Proposal, TableChange
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder

NeedsOf = Callable[["LanceState | None", "Envelope"], "Requirements"]
ChangeOf = Callable[["VersionBuilder", "Proposal"], "TableChange | Rejected | Invalid"]


@dataclass(frozen=True, slots=True)
class OperationRule:
    """An operation: `needs` returns what must be fetched, `change` how the table changes, or a refusal."""

    needs: NeedsOf
    change: ChangeOf


def _needs_nothing(_state: LanceState | None, _envelope: Envelope) -> Requirements:
    return Requirements()


RULES: Mapping[Kind, OperationRule] = MappingProxyType(
    {
        Kind.APPEND: OperationRule(append.needs, append.change),
        Kind.CREATE_INDEX: OperationRule(create_index.needs, create_index.change),
        Kind.CLONE: OperationRule(clone.needs, clone.change),
        Kind.DATA_REPLACEMENT: OperationRule(data_replacement.needs, data_replacement.change),
        Kind.DELETE: OperationRule(delete.needs, delete.change),
        Kind.MERGE: OperationRule(merge.needs, merge.change),
        Kind.MERGE_KEEPING_NULLABILITY: OperationRule(merge.needs, merge.change),
        Kind.OVERWRITE: OperationRule(overwrite.needs, overwrite.change),
        Kind.PROJECT: OperationRule(_needs_nothing, project.change),
        Kind.PROJECT_KEEPING_NULLABILITY: OperationRule(_needs_nothing, project.change),
        Kind.RESERVE_FRAGMENTS: OperationRule(_needs_nothing, rewrite.reserve),
        Kind.RESTORE: OperationRule(restore.needs, restore.change),
        Kind.REWRITE: OperationRule(rewrite.needs, rewrite.change),
        Kind.UPDATE: OperationRule(update.needs, update.change),
        Kind.UPDATE_BASES: OperationRule(update_bases.needs, update_bases.change),
        Kind.UPDATE_CONFIG: OperationRule(_needs_nothing, update_config.change),
        Kind.UPDATE_MEM_WAL_STATE: OperationRule(_needs_nothing, mem_wal.change),
    }
)

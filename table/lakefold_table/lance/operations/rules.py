"""For each operation that is folded: what it needs to see, and what it makes of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

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
    reserve,
    restore,
    rewrite,
    update,
    update_bases,
    update_config,
)
from lakefold_table.lance.operations.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.entry import Invalid, Rejected
    from lakefold_table.format import Requirements
    from lakefold_table.lance.operations.change import Change, Proposal
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder

NeedsOf = Callable[["LanceState | None", "Envelope"], "Requirements"]
ChangeOf = Callable[["VersionBuilder", "Proposal"], "Change | Rejected | Invalid"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One operation: `needs` names what the shell brings, `change` what the table becomes, or the refusal."""

    needs: NeedsOf
    change: ChangeOf


RULES: Mapping[Kind, Rule] = MappingProxyType(
    {
        Kind.APPEND: Rule(append.needs, append.change),
        Kind.CREATE_INDEX: Rule(create_index.needs, create_index.change),
        Kind.CLONE: Rule(clone.needs, clone.change),
        Kind.DATA_REPLACEMENT: Rule(data_replacement.needs, data_replacement.change),
        Kind.DELETE: Rule(delete.needs, delete.change),
        Kind.MERGE: Rule(merge.needs, merge.change),
        Kind.MERGE_KEEPING_NULLABILITY: Rule(merge.needs, merge.change),
        Kind.OVERWRITE: Rule(overwrite.needs, overwrite.change),
        Kind.PROJECT: Rule(project.needs, project.change),
        Kind.PROJECT_KEEPING_NULLABILITY: Rule(project.needs, project.change),
        Kind.RESERVE_FRAGMENTS: Rule(reserve.needs, reserve.change),
        Kind.RESTORE: Rule(restore.needs, restore.change),
        Kind.REWRITE: Rule(rewrite.needs, rewrite.change),
        Kind.UPDATE: Rule(update.needs, update.change),
        Kind.UPDATE_BASES: Rule(update_bases.needs, update_bases.change),
        Kind.UPDATE_CONFIG: Rule(update_config.needs, update_config.change),
        Kind.UPDATE_MEM_WAL_STATE: Rule(mem_wal.needs, mem_wal.change),
    }
)

"""Which proposals may share a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.delta.actions.table_actions import RESTORE_TABLE
from lakefold_table.format import ALONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_table.delta.proposal import DeltaTableProposal

FILES: Final = "files"
CHANGES: Final = "changes"
_REPLACE: Final = tuple(
    f"{verb} TABLE{query}" for verb in ("REPLACE", "CREATE OR REPLACE") for query in ("", " AS SELECT")
)
"""The operations of delta-spark that replace a table; its commits then say no mode (Delta fact 6.9)."""


def sharing_of(proposal: DeltaTableProposal) -> str:
    """Returns the name of the group of proposals that may share a commit with this one (Delta fact 7.2).

    A commit has one protocol, metadata, operation with its parameters, and text of a user, and a domain once.
    Of the operation readers need to know whether it replaced the content. If a commit has `cdc` actions,
    readers of changes read nothing else of it, so proposals that have some share it only with each other.
    """
    once = (proposal.metadata, proposal.protocol, proposal.user_metadata)
    if proposal.domains or any(each is not None for each in once):
        return ALONE
    if replaces_content(proposal.operation, dict(proposal.parameters)):
        return ALONE
    return CHANGES if proposal.changes else FILES


def replaces_content(operation: object, parameters: Mapping[str, object]) -> bool:
    """Returns whether such a commit replaces the whole content of a table, or goes back to an older one."""
    mode = parameters.get("mode")
    overwrites = isinstance(mode, str) and mode.lower() == "overwrite" and not parameters.get("predicate")
    return overwrites or operation in (RESTORE_TABLE, *_REPLACE)

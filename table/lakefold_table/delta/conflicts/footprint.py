"""What a commit touched, as the conflict rules need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
from lakefold_table.delta.actions.table_actions import (
    AppTransaction,
    CommitInfo,
    DomainMetadata,
    TableMetadata,
    TableProtocol,
)
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_table.delta.actions.table_actions import Action


@value()
class CommitFootprint:
    """What a version did. `adds_rows`: the paths of files with new rows; `removed`: of removed files.

    `is_blind`: its writer says that it read nothing of the table.
    """

    version: int
    operation: str
    adds_rows: frozenset[str]
    removed: frozenset[str]
    is_blind: bool
    metadata: bool
    protocol: bool
    domains: frozenset[str]
    apps: frozenset[str]


def footprint_of(version: int, actions: Iterable[Action]) -> CommitFootprint:
    """Returns what the actions of a version touched."""
    adds_rows, removed, domains, apps = set[str](), set[str](), set[str](), set[str]()
    metadata = protocol = is_blind = False
    operation = ""
    for action in actions:
        match action:
            case AddFile():
                if action.data_change:
                    adds_rows.add(action.path)
            case RemoveFile():
                removed.add(action.path)
            case TableMetadata():
                metadata = True
            case TableProtocol():
                protocol = True
            case DomainMetadata():
                domains.add(action.domain)
            case AppTransaction():
                apps.add(action.app_id)
            case CommitInfo():
                operation = action.operation
                is_blind = action.extra.get("isBlindAppend") is True
            case _:
                # Changed rows and unknown actions conflict with nothing.
                pass
    return CommitFootprint(
        version,
        operation,
        frozenset(adds_rows),
        frozenset(removed),
        is_blind and not removed,
        metadata,
        protocol,
        frozenset(domains),
        frozenset(apps),
    )

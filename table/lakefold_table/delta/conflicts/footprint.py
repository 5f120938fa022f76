"""What a commit touched, as the conflict rules need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
from lakefold_table.delta.actions.table_actions import (
    RESTORE_TABLE,
    AppTransaction,
    CommitInfo,
    DomainMetadata,
    TableMetadata,
    TableProtocol,
)
from lakefold_table.delta.conflicts.metadata_changes import CHANGE, MetadataChange, stored_change
from lakefold_table.delta.rows.row_moves import RowMove, moved_rows
from lakefold_table.errors import DamagedError
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_table.delta.actions.table_actions import Action


@value()
class CommitFootprint:
    """What a version did. `added`: files with new rows. `removed`: the paths of removed files.

    `is_blind`: its writer says that it read nothing of the table. `rows_deleted`: those of `removed` of which
    it only deleted more rows, by a deletion vector. `moves`: where a compaction has put the rows of the files
    that it removed, as far as it says so. `removals`: the removed files. `change`: what it changed in
    the metadata, if a committer says that proposals built before may fit.
    """

    version: int
    operation: str
    added: tuple[AddFile, ...]
    removed: frozenset[str]
    is_blind: bool
    metadata: bool
    protocol: bool
    domains: frozenset[str]
    apps: frozenset[str]
    rows_deleted: frozenset[str] = frozenset()
    moves: tuple[RowMove, ...] = ()
    removals: tuple[RemoveFile, ...] = ()
    change: MetadataChange | None = None

    @property
    def keeps_rows(self) -> frozenset[str]:
        """The paths of removed files whose rows, but those that were deleted, can be found in the table."""
        return self.rows_deleted | {move.source for move in self.moves}


def footprint_of(
    version: int, actions: Iterable[Action], protocol_before: TableProtocol | None = None
) -> CommitFootprint:
    """Returns what the actions of a version touched.

    `protocol_before`: that of the version before. If it is not known, a protocol counts as another one.
    """
    domains, apps = set[str](), set[str]()
    added: dict[str, AddFile] = {}
    removed: dict[str, RemoveFile] = {}
    metadata = protocol = is_blind = False
    change: MetadataChange | None = None
    operation = ""
    for action in actions:
        match action:
            case AddFile():
                added[action.path] = action
            case RemoveFile():
                removed[action.path] = action
            case TableMetadata():
                metadata = True
            case TableProtocol():
                protocol = action != protocol_before
            case DomainMetadata():
                domains.add(action.domain)
            case AppTransaction():
                apps.add(action.app_id)
            case CommitInfo():
                operation = action.operation
                is_blind = action.extra.get("isBlindAppend") is True
                change = stored_change(action.extra.get(CHANGE))
            case _:
                # Changed rows and unknown actions conflict with nothing.
                pass
    # Most commits remove no file.
    lessened = frozenset(path for path in removed if _loses_rows(removed[path], added.get(path)))
    # A restore may bring rows back although more rows of the file are deleted then.
    only_lost = frozenset[str]() if operation == RESTORE_TABLE else lessened
    return CommitFootprint(
        version,
        operation,
        tuple(file for path, file in added.items() if file.data_change and path not in only_lost),
        frozenset(removed),
        is_blind and not removed,
        metadata,
        protocol,
        frozenset(domains),
        frozenset(apps),
        lessened,
        _moves(added, removed) if removed else (),
        tuple(removed.values()),
        change,
    )


def _loses_rows(before: RemoveFile, after: AddFile | None) -> bool:
    """Returns whether a file stays, with a deletion vector of more rows."""
    if after is None or after.deletion_vector is None:
        return False
    vector = before.deletion_vector
    return after.deletion_vector.cardinality > (0 if vector is None else vector.cardinality)


def _moves(added: Mapping[str, AddFile], removed: Mapping[str, RemoveFile]) -> tuple[RowMove, ...]:
    """Returns where compactions have put rows, as far as the tags of their files say it."""
    moves: list[RowMove] = []
    sources = {path: file for path, file in removed.items() if not file.data_change}
    for file in added.values():
        if file.data_change or file.tags is None:
            continue
        try:
            moves += moved_rows(file, sources)
        except DamagedError:
            # Another client's tag. Proposals for the rows of these files conflict then.
            continue
    return tuple(moves)

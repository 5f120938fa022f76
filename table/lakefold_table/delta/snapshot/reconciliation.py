"""Action reconciliation: which actions of a log are still in force (Delta facts 3.2, 3.3 and 3.4).

A checkpoint is taken as it is, each commit after it replaces what it names. The order of actions in a commit
means nothing, so a commit in which two actions contradict each other is damaged.
"""

from __future__ import annotations

from itertools import chain, groupby
from typing import TYPE_CHECKING, cast

from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
from lakefold_table.delta.actions.file_columns import FileGroup
from lakefold_table.delta.actions.table_actions import (
    AppTransaction,
    CommitInfo,
    DomainMetadata,
    TableMetadata,
    TableProtocol,
)
from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot
from lakefold_table.errors import DamagedError, InvalidError
from lakefold_table.layered_map import MapChanges

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_table.delta.actions.table_actions import Action

_NO_SCHEMA = "have its writer give it columns, or read a version that has some"
_HINT = "its writer has to follow Delta's protocol: restore the table to a version before"


class Reconciliation:
    """The actions in force, while checkpoints and commits are added in the order of their versions."""

    def __init__(self, snapshot: DeltaSnapshot | None = None) -> None:
        """Begins after a version that is known, or with nothing."""
        self._protocol = None if snapshot is None else snapshot.protocol
        self._metadata = None if snapshot is None else snapshot.metadata
        self._files = MapChanges(None if snapshot is None else snapshot.files)
        self._tombstones = MapChanges(None if snapshot is None else snapshot.tombstones)
        self._apps = MapChanges(None if snapshot is None else snapshot.apps)
        self._domains = MapChanges(None if snapshot is None else snapshot.domains)
        self._size_bytes = 0 if snapshot is None else snapshot.size_bytes
        self._in_commit_ms = None if snapshot is None else snapshot.in_commit_ms

    def add_checkpoint(self, actions: Iterable[Action | FileGroup], where: str = "") -> None:
        """Adds the actions of a whole checkpoint; to be called before any commit is added.

        Raises `DamagedError` if two of them contradict each other.
        """
        for are_groups, each in groupby(actions, lambda action: isinstance(action, FileGroup)):
            if are_groups:
                self._add_groups(cast("list[FileGroup]", list(each)), where)
                continue
            for action in cast("Iterable[Action]", each):
                self._add_listed(action, where)
        for path, vector in self._tombstones.result():
            listed = self._files.get(path)
            if listed is not None and listed.key == (path, vector):
                raise _both(path, where)

    def _add_groups(self, groups: list[FileGroup], where: str) -> None:
        repeated = cast("list[FileGroup]", self._files.set_groups(groups))
        self._size_bytes += sum(group.size_bytes for group in groups)
        self._size_bytes -= sum(group.size_bytes for group in repeated)
        for file in chain.from_iterable(group.files() for group in repeated):
            self._add_listed(file, where)

    def _add_listed(self, action: Action, where: str) -> None:
        before: Action | None
        match action:
            case AddFile():
                before = self._files.set(action.path, action)
                self._size_bytes += action.size if before is None else 0
            case RemoveFile():
                before = self._tombstones.set(action.key, action)
            case _:
                before = self._put(action)
        if before is not None and before != action:
            raise _contradiction(_about(action), where)

    def add_commit(self, actions: Iterable[Action], where: str = "", *, compacted: bool = False) -> None:
        """Adds the actions of one commit, or of several that were compacted into one file.

        Raises `DamagedError` if two of them contradict each other; nothing may be taken from it then.
        """
        self._in_commit_ms = None
        added: dict[str, AddFile] = {}
        others: dict[tuple[str, object], Action] = {}
        for action in actions:
            before: Action
            if isinstance(action, AddFile):
                before = added.setdefault(action.path, action)
            else:
                about = _about(action, by_key=compacted)
                before = action if about is None else others.setdefault(about, action)
            if before is not action and before != action:
                raise _contradiction(_about(action, by_key=compacted), where)
        for action in others.values():
            if isinstance(action, RemoveFile):
                again = added.get(action.path)
                if again is not None and again.key == action.key:
                    raise _both(action.path, where)
            self._put(action)
        self._add_files(added)

    def _add_files(self, added: Mapping[str, AddFile]) -> None:
        if self._tombstones:
            for file in added.values():
                self._tombstones.remove(file.key)
        replaced = self._files.set_all(added)
        self._size_bytes += sum(file.size for file in added.values()) - sum(file.size for file in replaced)

    def snapshot(self, version: int, where: str = "") -> DeltaSnapshot:
        """Returns the actions in force as this version.

        Raises `DamagedError` if it has no metadata, `InvalidError` if these have no schema.
        """
        if self._protocol is None or self._metadata is None:
            lacking = "protocol" if self._protocol is None else "metaData"
            message = f"the log up to version {version} has no {lacking} action"
            raise DamagedError(message, where=where, hint=_HINT)
        if not self._metadata.schema_text:
            message = f"version {version} of the table has no schema: its metaData has no schemaString"
            raise InvalidError(message, where=where, hint=_NO_SCHEMA)
        return DeltaSnapshot(
            version,
            self._protocol,
            self._metadata,
            self._files.result(),
            self._tombstones.result(),
            self._apps.result(),
            self._domains.result(),
            self._size_bytes,
            self._in_commit_ms,
        )

    def _put(self, action: Action) -> Action | None:
        """Makes an action count that adds no file. Returns the one that it replaces, None for files."""
        match action:
            case RemoveFile():
                present = self._files.get(action.path)
                if present is not None and present.key == action.key:
                    self._files.remove(action.path)
                    self._size_bytes -= present.size
                self._tombstones.set(action.key, action)
            case AppTransaction():
                return self._apps.set(action.app_id, action)
            case DomainMetadata():
                return self._domains.set(action.domain, action)
            case TableMetadata():
                metadata, self._metadata = self._metadata, action
                return metadata
            case TableProtocol():
                protocol, self._protocol = self._protocol, action
                return protocol
            case CommitInfo():
                self._in_commit_ms = action.in_commit_ms
            case _:
                # Changed rows, unknown actions, and those that belong into checkpoints change no snapshot.
                pass
        return None


def _about(action: Action, *, by_key: bool = False) -> tuple[str, object] | None:
    """Returns what an action is about: two actions about the same contradict each other.

    A commit may remove a path once, with one deletion vector. Files that sum up several commits may remove
    it with each of its vectors (`by_key`). Returns None for actions that change no snapshot.
    """
    match action:
        case AddFile():
            return action.NAME, action.path
        case RemoveFile():
            return action.NAME, action.key if by_key else action.path
        case AppTransaction():
            return action.NAME, action.app_id
        case DomainMetadata():
            return action.NAME, action.domain
        case TableMetadata() | TableProtocol() | CommitInfo():
            return action.NAME, ""
        case _:
            return None


def _contradiction(about: tuple[str, object] | None, where: str) -> DamagedError:
    name, key = about or ("", "")
    message = f"two {name} actions contradict each other{f': {key!r}' if key else ''}"
    return DamagedError(message, where=where, hint=_HINT)


def _both(path: str, where: str) -> DamagedError:
    return DamagedError(f"{path!r} is both added and removed", where=where, hint=_HINT)

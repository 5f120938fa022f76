"""Removes old versions of a Delta table: commits before a checkpoint, and the files that only they name.

What the kept versions need stays: the files of the first one, all that was added since, and the log from its
checkpoint on. A commit stays as long as a tombstone in it has not expired, since readers of other clients may
still read the removed file, and the last commit of a committer stays with its marks. Files that no commit
names are left alone: they may belong to a proposal that waits in the log.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from lakefold_reader.delta.inside_paths import files_named_by
from lakefold_reader.delta.sidecars import NamedSidecars, checkpoints_of, stored_sidecars
from lakefold_reader.delta.versions import FORMAT, content_of, read_state
from lakefold_reader.format.snapshots import Cleaned
from lakefold_table.delta.actions.file_actions import RemoveFile
from lakefold_table.delta.actions.paths import is_hidden
from lakefold_table.delta.actions.table_actions import Action, TableProtocol
from lakefold_table.delta.commit_head import MARKS_APP
from lakefold_table.delta.log_segment.names import FOLDER, LogFileKind
from lakefold_table.delta.log_segment.segment import log_files, segment_of
from lakefold_table.delta.snapshot.snapshot import TOMBSTONES, DeltaSnapshot, property_ms
from lakefold_table.delta.table_features.checkpoint_protection import protected_before
from lakefold_table.delta.table_features.protocol_check import unknown_features
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakefold_reader.format.source import Source


LOG_CLEANUP: Final = "delta.enableExpiredLogCleanup"
"""The property by which a table keeps its log, whatever the age of its versions."""


def keeps_old_versions(configuration: Mapping[str, str | None]) -> bool:
    """Returns whether a table with these properties keeps its old versions."""
    return (configuration.get(LOG_CLEANUP) or "").strip().lower() == "false"


def clean_up(
    source: Source, versions: Sequence[int], begin: Callable[[Sequence[int]], None] | None
) -> Cleaned:
    """Removes those of these versions that nothing needs, data files first, then the log from its beginning.

    Returns what was removed: fewer versions if no checkpoint follows them. `begin` is called with these
    before that; None: returns what would be removed. After an interruption another call continues.

    Raises `InvalidError` if the table keeps old versions, or has features that this release can't write:
    these may need files that this release doesn't know.
    """
    newest = source.versions.latest()
    state, snapshot = read_state(source, newest)
    FORMAT.check_writable(state, source.uri)
    if keeps_old_versions(snapshot.metadata.configuration):
        message = f"the table keeps its old versions: {LOG_CLEANUP} is false"
        raise InvalidError(message, where=source.uri, hint="leave them, or set the property to true before")
    names = source.storage.names(FOLDER)
    first = _first_kept(source, snapshot, names, versions)
    going = [version for version in versions if version < first]
    if not going:
        return Cleaned(0, 0, 0)
    _check_protected(source, snapshot, first)
    data = sorted(_named(source, going) - _needed(source, first, newest))
    log = sorted(path for path in _log_before(names, first))
    named = NamedSidecars(source)
    sidecars = _sidecars_before(source, first, named)
    sized = source.storage.sizes([*data, *log, *sidecars])
    sizes = {path: size for path, size in sized.items() if size is not None}
    if begin is not None:
        begin(going)
        # A restore that was committed meanwhile has brought files back.
        later = _named(source, range(newest + 1, source.versions.latest() + 1))
        for path in (*(path for path in data if path not in later), *log):
            source.storage.delete(path)
        # A checkpoint that was stored meanwhile may name them.
        for path in sidecars - named.of(checkpoints_of(source) if sidecars else ()):
            source.storage.delete(path)
    files = sum(path in sizes for path in data)
    return Cleaned(len(going), files, sum(sizes.values()))


def _first_kept(
    source: Source, snapshot: DeltaSnapshot, names: Sequence[str], versions: Sequence[int]
) -> int:
    """Returns the first version that stays: one with a checkpoint. Returns the oldest if there is none."""
    end = max(versions) + 1
    marks = snapshot.apps.get(MARKS_APP)
    if marks is not None:
        end = min(end, marks.version)
    expired_ms = time.time_ns() // 1_000_000 - property_ms(snapshot.metadata.configuration, TOMBSTONES)
    for version, actions in commits_of(source, versions):
        removes = (each for each in actions if isinstance(each, RemoveFile))
        if any((each.deleted_ms or 0) > expired_ms for each in removes):
            end = min(end, version)
            break
    return _with_its_marks(source, names, end, min(versions))


def _with_its_marks(source: Source, names: Sequence[str], end: int, oldest: int) -> int:
    """Returns the last version up to `end` that may become the first: one with a checkpoint and its marks.

    A version that another client made has the marks of a committer's commit before it.
    """
    while end >= oldest:
        checkpoint = segment_of(names, end, source.uri).checkpoint
        first = checkpoint[0].version if checkpoint else oldest
        if first <= oldest:
            break
        marks = read_state(source, first)[1].apps.get(MARKS_APP)
        if marks is None or marks.version >= first:
            return first
        end = marks.version
    return oldest


def _check_protected(source: Source, snapshot: DeltaSnapshot, first: int) -> None:
    """Raises `InvalidError` if a version that stays had a feature which is unknown here and was dropped.

    Versions go from the beginning of the log up to one with a checkpoint, all later checkpoints stay, and
    none is made. So the rule of Delta fact 6.7 holds for any end. But older versions that stay may need files
    that only clients with all of their features know. Raises `DamagedError` if it is not known which versions
    these are.
    """
    end = min(protected_before(snapshot.protocol, snapshot.metadata), snapshot.version)
    if first >= end:
        return
    protocols = [(first, read_state(source, first)[1].protocol)]
    for version, actions in commits_of(source, range(first + 1, end)):
        protocols += [(version, each) for each in actions if isinstance(each, TableProtocol)]
    for version, protocol in protocols:
        unknown = sorted(unknown_features(protocol))
        if unknown:
            message = f"version {version}, which stays, has the feature {unknown[0]}, unknown to this release"
            hint = f"remove all versions before {end} at once, or clean up with a client that knows it"
            raise InvalidError(message, where=source.uri, hint=hint)


def _sidecars_before(source: Source, first: int, named: NamedSidecars) -> set[str]:
    """Returns the paths of the sidecars that only checkpoints before the first version that stays name."""
    if not stored_sidecars(source):
        return set()
    checkpoints = checkpoints_of(source)
    going = named.of(file for file in checkpoints if file.version < first)
    return going - named.of(file for file in checkpoints if file.version >= first) if going else going


def _named(source: Source, versions: Iterable[int]) -> set[str]:
    """Returns the paths in the table of all files that these commits add or remove.

    Hidden files that are no change data files are left out: those of the log, and of other programs.
    """
    return {
        path
        for _, actions in commits_of(source, versions)
        for path in files_named_by(actions, source.uri)
        if not is_hidden(path)
    }


def _needed(source: Source, first: int, newest: int) -> set[str]:
    """Returns the paths of the files that the versions from the first to the newest need."""
    needed = set(files_named_by(read_state(source, first)[1].files.values(), source.uri))
    for _, actions in commits_of(source, range(first, newest + 1)):
        needed.update(files_named_by(actions, source.uri))
    return needed


def commits_of(source: Source, versions: Iterable[int]) -> Iterator[tuple[int, Sequence[Action]]]:
    """Yields the actions of those of these versions whose commits exist."""
    for version in versions:
        summary = source.summary(version)
        if summary is not None:
            yield version, content_of(summary).actions


def _log_before(names: Iterable[str], first: int) -> Iterator[str]:
    """Yields the paths of the commits, checksums and checkpoints of versions before the first that stays.

    Compacted commits go if they begin with it or before: its checkpoint has the first of them.
    """
    for file in log_files(names):
        if file.version < first + (file.kind is LogFileKind.COMPACTED):
            yield file.path

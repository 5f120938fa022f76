"""Removes old versions of a Delta table: commits before a checkpoint, and data files that only they name.

What the kept versions need stays: the files of the first one, all that was added since, and the log from its
checkpoint on. A commit stays as long as a tombstone in it has not expired, since readers of other clients may
still read the removed file, and the last commit of a committer stays with its marks. Files that no commit
names are left alone: they may belong to a proposal that waits in the log.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lakefold_reader.delta.versions import FORMAT, content_of, read_state
from lakefold_reader.format.snapshots import Cleaned
from lakefold_table.delta.actions.file_actions import AddFile, ChangeFile, RemoveFile
from lakefold_table.delta.actions.paths import file_path
from lakefold_table.delta.commit_head import MARKS_APP
from lakefold_table.delta.log_segment.names import FOLDER, LogFileKind
from lakefold_table.delta.log_segment.segment import log_files, segment_of
from lakefold_table.delta.row_changes.vectors import file_of
from lakefold_table.delta.snapshot.snapshot import TOMBSTONES, property_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakefold_reader.format.source import Source
    from lakefold_table.delta.actions.table_actions import Action
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot


def clean_up(source: Source, versions: Sequence[int], *, dry_run: bool) -> Cleaned:
    """Removes those of these versions that nothing needs, data files first, then the log from its beginning.

    Returns what was removed, or would be with `dry_run`: fewer versions if no checkpoint is where they end.
    If it is interrupted, another call continues. Raises `InvalidError` if the table has features that this
    release can't write: it might need files of which only they know.
    """
    newest = source.versions.latest()
    state, snapshot = read_state(source, newest)
    FORMAT.check_writable(state, source.uri)
    names = source.storage.names(FOLDER)
    first = _first_kept(source, snapshot, names, versions)
    going = [version for version in versions if version < first]
    if not going:
        return Cleaned(0, 0, 0)
    data = sorted(_named(source, going) - _needed(source, first, newest))
    log = sorted(path for path in _log_before(names, first))
    sizes = {path: size for path, size in source.storage.sizes([*data, *log]).items() if size is not None}
    if not dry_run:
        for path in (*data, *log):
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
    for version, actions in _commits(source, versions):
        removes = (each for each in actions if isinstance(each, RemoveFile))
        if any((each.deleted_ms or 0) > expired_ms for each in removes):
            end = min(end, version)
            break
    if end < min(versions):
        return min(versions)
    checkpoint = segment_of(names, end, source.uri).checkpoint
    return checkpoint[0].version if checkpoint else min(versions)


def _named(source: Source, versions: Iterable[int]) -> set[str]:
    """Returns the paths in the table of all files that these commits add or remove."""
    return {path for _, actions in _commits(source, versions) for path in _paths(actions)}


def _needed(source: Source, first: int, newest: int) -> set[str]:
    """Returns the paths of the files that the versions from the first to the newest need."""
    needed = set(_paths(read_state(source, first)[1].files.values()))
    for _, actions in _commits(source, range(first, newest + 1)):
        needed.update(_paths(actions))
    return needed


def _commits(source: Source, versions: Iterable[int]) -> Iterator[tuple[int, Sequence[Action]]]:
    """Yields the actions of those of these versions whose commits exist."""
    for version in versions:
        summary = source.summary(version)
        if summary is not None:
            yield version, content_of(summary).actions


def _paths(actions: Iterable[Action]) -> Iterator[str]:
    """Yields the paths of data files, deletion vectors and change files in the table."""
    for action in actions:
        if not isinstance(action, AddFile | RemoveFile | ChangeFile):
            continue
        path = file_path(action.path)
        if not path.absolute:
            yield path.text
        vector = None if isinstance(action, ChangeFile) else file_of(action.deletion_vector)
        if vector is not None:
            yield vector


def _log_before(names: Iterable[str], first: int) -> Iterator[str]:
    """Yields the paths of the commits, checksums and checkpoints of versions before the first that stays."""
    for file in log_files(names):
        end = file.end if file.kind is LogFileKind.COMPACTED else file.version
        if end < first:
            yield file.path

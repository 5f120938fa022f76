"""Finds the files of a Delta table that no version needs any more: those that a vacuum removes.

A file stays if the newest version has it, or a version that a named consumer or the policy still needs; if a
commit has removed it less long ago than the table keeps such files (`delta.deletedFileRetentionDuration`), so
that readers which have opened an older version can read on; and if a proposal that waits in the log names it.
Change data files stay while the commit exists that names them, and are removed with it; those that no commit
names go as other files. Sidecars go if no checkpoint names them. Other hidden files and folders stay, as do
other tables inside of this table's folder.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lakefold_maintenance.format import TableSurvey, UnnamedPaths
from lakefold_reader.consumers.consumers import Consumers
from lakefold_reader.delta.clean_up import commits_of
from lakefold_reader.delta.inside_paths import files_named_by
from lakefold_reader.delta.sidecars import unnamed_sidecars
from lakefold_reader.delta.versions import FORMAT, read_state
from lakefold_reader.versions.listing import numbers_of
from lakefold_table.delta.actions.file_actions import ChangeFile
from lakefold_table.delta.actions.paths import is_hidden
from lakefold_table.delta.log_segment.names import UUID
from lakefold_table.errors import DamagedError, VersionExpiredError
from lakefold_table.formats import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from lakefold_reader.format.source import Source
    from lakefold_table.storage.base import Storage

_UNIQUE: Final = re.compile(rf"(?:.*[/_.-])?(?:[^/]*[-_])?{UUID}[^/]*\.(?:parquet|bin)")
_STAGED: Final = re.compile(r"data/[0-9a-f]{32}_staged\.lance")
"""Rows that a task of Spark's left to its driver, in tables of any format."""
_TABLES: Final = tuple(each.folder for each in BUILT_IN)
"""The folders by which a table is known."""


def is_unique(path: str) -> bool:
    """Returns whether a path is that of a file with rows, or a deletion vector, with a UUID in its name."""
    is_random = _UNIQUE.fullmatch(path) or _STAGED.fullmatch(path)
    return is_random is not None and not is_hidden(path)


def unnamed_files(survey: TableSurvey, waiting: AbstractSet[str], now: float) -> UnnamedPaths:
    """Returns the files of the table that nothing needs. `waiting`: those of proposals in the log.

    `now`: in seconds since 1970. Raises as `read_state`, and `InvalidError` if the table has features that
    this release can't write: they may need files of which only they know.
    """
    source = survey.source
    listed = {path for path in _listed(source.storage) if not is_hidden(path)}
    numbers = numbers_of(source)
    newest = numbers[-1]
    state, snapshot = read_state(source, newest)
    FORMAT.check_writable(state, source.uri)
    kept = files_named_by(snapshot.tombstones_at(int(now * 1000)).values(), source.uri)
    first = max(_first_needed(source, survey, newest), numbers[0])
    needed = set(kept) | _needed(source, first, newest)
    unnamed = listed - needed - waiting
    removed = set(files_named_by(snapshot.tombstones.values(), source.uri))
    unique = {path for path in unnamed - removed if is_unique(path)}
    if unique:
        unique -= _change_files(source, range(numbers[0], first + 1))
    expired = unnamed & removed
    return UnnamedPaths(expired | unique | unnamed_sidecars(source), expired)


def _change_files(source: Source, versions: range) -> set[str]:
    """Returns the change data files that the commits of these versions name."""
    return {
        path
        for _, actions in commits_of(source, versions)
        for path in files_named_by((each for each in actions if isinstance(each, ChangeFile)), source.uri)
    }


def _first_needed(source: Source, survey: TableSurvey, newest: int) -> int:
    """Returns the first version of which the files stay, whatever became of them since."""
    read = [each.version for each in Consumers(source).all()]
    return min([newest + 1 - survey.policy.min_versions, newest, *read])


def _needed(source: Source, first: int, newest: int) -> set[str]:
    """Returns the files of these versions. A first version that can't be read any more has no readers."""
    try:
        needed = set(files_named_by(read_state(source, first)[1].files.values(), source.uri))
    except (DamagedError, VersionExpiredError):
        needed = set(files_named_by(read_state(source, newest)[1].files.values(), source.uri))
    # What a commit removes was in the version before.
    for _, actions in commits_of(source, range(first + 1, newest + 1)):
        needed.update(files_named_by(actions, source.uri))
    return needed


def _listed(storage: Storage) -> Iterator[str]:
    """Yields the paths of all files of the table, without those of tables inside of its folder."""
    if not storage.cheap_size:
        # Each folder costs a request.
        paths = list(storage.everything())
        inner = {path[:at] for path in paths for name in _TABLES if (at := path.find(f"/{name}/") + 1)}
        yield from (path for path in paths if not any(path.startswith(each) for each in inner))
        return
    left = [""]
    while left:
        folder = left.pop()
        inside = storage.folders(folder)
        if folder and not set(_TABLES).isdisjoint(inside):
            continue
        prefix = f"{folder}/" if folder else ""
        left += [f"{prefix}{name}" for name in inside if not is_hidden(f"{prefix}{name}/")]
        yield from (f"{prefix}{name}" for name in storage.names(folder))

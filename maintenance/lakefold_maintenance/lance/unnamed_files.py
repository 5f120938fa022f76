"""Finds the files of a Lance table that no version names, and those that pylance itself might remove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_maintenance.format import TableSurvey, UnnamedPaths
from lakefold_maintenance.lance.names import UnnamedFiles, is_unique
from lakefold_reader.versions.branches import branched, main_and_branch
from lakefold_table.lance.manifests.naming import DATA, VERSIONS, data_path
from lakefold_table.lance.rows.deletions import FOLDER
from lakefold_table.versions.refs import Refs, UnknownRefError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from collections.abc import Set as AbstractSet

    from lakefold_table.storage.base import Storage

LANCE_DAYS: Final = 7
"""pylance's clean-up of versions also removes files that no version names and that are this old."""
MANY: Final = 10_000
"""If there are more files than this, their ages are not read from a store over a network."""


def unnamed_files(survey: TableSurvey, waiting: AbstractSet[str], refused: AbstractSet[str]) -> UnnamedPaths:
    """Returns the files that no version and no waiting proposal names.

    These are data files, and deletion files of refused proposals.
    """
    storage = survey.source.storage
    paths = set(map(data_path, storage.names(DATA)))
    if any(path.startswith(FOLDER) for path in refused):
        paths |= refused & {f"{FOLDER}/{name}" for name in storage.names(FOLDER)}
    left = UnnamedFiles(path for path in paths - waiting if is_unique(path))
    for manifest in _manifests(survey):
        if not left.paths:
            break
        left.seen(manifest)
    return UnnamedPaths(left.paths)


def _manifests(survey: TableSurvey) -> Iterator[bytes]:
    """Yields the bytes of all manifests of the table and of its branches, the newest of the table first."""
    root, _ = main_and_branch(survey.source)
    refs = Refs(root.storage)
    # Branches are listed first: a branch that is made meanwhile names what one of these versions names.
    branches = {**refs.unrecorded(), **refs.branches()}
    yield from _files(root.storage)
    for name in branches:
        try:
            branch = branched(root, name)
        except UnknownRefError:
            # It has no version, so it names no file.
            continue
        yield from _files(branch.storage)


def _files(storage: Storage) -> Iterator[bytes]:
    for name in sorted(storage.names(VERSIONS)):
        try:
            yield storage.get(f"{VERSIONS}/{name}")
        except FileNotFoundError:
            # A clean-up removed the version meanwhile.
            continue


def may_be_removed(storage: Storage, files: Collection[str], now: float) -> bool:
    """Returns whether pylance's clean-up of versions might remove one of these unnamed files.

    It might if a file is more than six days old by the store's clock, or if there are too many files to check
    their ages. `now`: in seconds since 1970.
    """
    if len(files) > MANY and not storage.cheap_size:
        return True
    oldest = (now - (LANCE_DAYS - 1) * 86_400) * 1_000_000
    times = map(storage.stored_at, filter(is_unique, sorted(files)))
    return any(stored is not None and stored < oldest for stored in times)

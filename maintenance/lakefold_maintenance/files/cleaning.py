"""Removes files of a table's main branch that nothing names: no version, no proposal that waits.

These are the files of refused proposals, and those that a process has written which was killed before it sent
a proposal, or a compaction that ended in the same way. A file is removed if all of this holds:

- No manifest in the folders of the versions of any branch names it, whether its version is in the sequence or
  not, and no proposal in the log that has no outcome yet, of any branch.
- It has been so for the time that the policy names, by the maintainer's clock: since the last conflict of its
  proposal with a version (`conflict_files`), since its last refusal for another reason (`refused_files`), or
  since the first round that has seen it (`unnamed_files`). A file's own time doesn't count: files may have
  been copied.
- It has been listed as about to be removed for `NOTICE_S` before what waits in the log was read. `redrive`
  sends no proposal that names a listed file. So whatever was sent is seen as waiting, or in a version.

The order is essential: first what waits in the log, then the versions. An entry that was answered in between
is in one of them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from lakefold_maintenance.files.names import UnnamedFiles, is_unique
from lakefold_maintenance.files.removal_note import NOTICE_S, RemovalNote, read_note, write_note
from lakefold_reader.versions.branches import branched, main_and_branch
from lakefold_table.lance.manifests.naming import DATA, VERSIONS, data_path
from lakefold_table.lance.rows.deletions import FOLDER
from lakefold_table.versions.refs import Refs, UnknownRefError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from lakefold_maintenance.files.refused import Refusals
    from lakefold_maintenance.planning.policy import MaintenancePolicy
    from lakefold_maintenance.rewriting.survey import TableSurvey
    from lakefold_table.storage.base import Storage

LOG = structlog.get_logger("lakefold")
EVERY_S: Final = 600.0
"""All manifests are read for this, so it is not done in each round of a table."""
SHARE: Final = 0.05
"""Nor more often than takes this share of the time."""
LANCE_DAYS: Final = 7
"""pylance's clean-up of versions also removes files that no version names and that are this old."""
MANY: Final = 10_000
"""The ages of so many files are not read from a store over a network."""


@dataclass(frozen=True, slots=True)
class RemovedFiles:
    """How many files were removed, or would be: those of refused proposals, and those of no proposal."""

    refused: int = 0
    unnamed: int = 0

    @property
    def count(self) -> int:
        """All of them."""
        return self.refused + self.unnamed


class FileCleaning:
    """Removes the files of one table that nothing names, again and again."""

    def __init__(self) -> None:
        self._next = 0.0

    def is_due(self, now: float) -> bool:
        """Returns whether it is time to look for such files again. `now`: in seconds since 1970."""
        return now >= self._next

    def run(
        self,
        survey: TableSurvey,
        waiting: AbstractSet[str] | None,
        refusals: Refusals,
        *,
        read_at: float,
        now: float,
        dry_run: bool = False,
    ) -> RemovedFiles:
        """Removes what may be removed now; `dry_run` changes nothing.

        `waiting`: the paths of the files of proposals that wait; None: not known. `read_at`: when these began
        to be read, `now`: the time, both in seconds since 1970. Raises as the store does, and as
        `Refs.branches`.
        """
        began = time.monotonic()
        if survey.branch or waiting is None:
            # A branch has its files below its own root.
            return RemovedFiles()
        storage = survey.source.storage
        note = read_note(storage)
        refused = refusals.paths
        unnamed = _unnamed(survey, waiting, refused)
        first_seen = {path: note.unnamed.get(path, now) for path in unnamed}
        due = {
            path
            for path, seen in first_seen.items()
            if _stays_until(path, seen, refusals, survey.policy) <= now
        }
        removing = {path: note.removing.get(path, now) for path in due}
        gone = {path for path, since in removing.items() if read_at - since >= NOTICE_S}
        removed = RemovedFiles(len(gone & refused), len(gone - refused))
        if dry_run:
            return removed
        for path in sorted(gone):
            storage.delete(path)
        if gone:
            LOG.info(
                "files that nothing names were removed",
                table=survey.table,
                refused=removed.refused,
                unnamed=removed.unnamed,
            )
        after = RemovalNote(_without(first_seen, gone), _without(removing, gone))
        if after != note:
            write_note(storage, after)
        self._next = now + max(EVERY_S, (time.monotonic() - began) / SHARE)
        return removed


def _stays_until(path: str, seen: float, refusals: Refusals, policy: MaintenancePolicy) -> float:
    """Returns until when a file stays that nothing names, in seconds since 1970. `seen`: as of `RemovalNote`.

    A file that isn't among the refusals may be that of one that was forgotten.
    """
    kept = policy.refused_files.total_seconds()
    times: list[float] = []
    if path in refusals.conflicts:
        times.append(refusals.conflicts[path] + policy.conflict_files.total_seconds())
    if path in refusals.others:
        times.append(refusals.others[path] + kept)
    return max(times or [seen + policy.unnamed_files.total_seconds(), refusals.forgotten + kept])


def _unnamed(survey: TableSurvey, waiting: AbstractSet[str], refused: AbstractSet[str]) -> set[str]:
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
    return left.paths


def _manifests(survey: TableSurvey) -> Iterator[bytes]:
    """Yields the bytes of all manifests of the table and of its branches, the newest of the table first."""
    root, _ = main_and_branch(survey.source)
    refs = Refs(root.storage)
    # The branches before the versions: a branch that is made meanwhile names what a version of these names.
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


def _without(times: Mapping[str, float], gone: set[str]) -> dict[str, float]:
    return {path: since for path, since in times.items() if path not in gone}


def may_be_removed(storage: Storage, files: Collection[str], now: float) -> bool:
    """Returns whether pylance's clean-up of versions might remove one of these files, which no version names.

    That is so if one is almost seven days old by the store's clock, with a day to spare, or if there are too
    many to know. `now`: in seconds since 1970.
    """
    if len(files) > MANY and not storage.cheap_size:
        return True
    oldest = (now - (LANCE_DAYS - 1) * 86_400) * 1_000_000
    times = map(storage.stored_at, filter(is_unique, sorted(files)))
    return any(stored is not None and stored < oldest for stored in times)

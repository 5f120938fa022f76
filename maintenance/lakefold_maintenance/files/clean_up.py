"""Removes files of a table's main branch that no version and no waiting proposal names.

These are the files of refused proposals, and those of a process or a compaction that was killed before it
sent its proposal. A file is removed if all of these conditions hold:

- No manifest in the folders of the versions of any branch names it, even if its version is not in the
  sequence, and no proposal of any branch names it that has no outcome yet. A file of a Delta table must not
  be in the newest version, nor in one that a consumer or the policy needs; and if a commit removed it, the
  time for which the table keeps removed files is over.
- The file has been unnamed for the time that the policy sets, by the maintainer's clock: since the last
  conflict of its proposal with a version (`conflict_files`), since the last refusal for another reason
  (`refused_files`), or since the first round that has seen it (`unnamed_files`). For a file that a Delta
  table has removed, the table's own retention counts. A file's own time doesn't count: files may have been
  copied.
- It has been listed as about to be removed for `NOTICE_S` before what waits in the log was read. `redrive`
  sends no proposal that names a listed file. So whatever was sent is seen as waiting, or in a version.

If the maintainer's clock is behind the newest version's time, nothing is removed or noted: a file that such a
clock has seen first would look old to the next maintainer.

The order is essential: first what waits in the log, then the versions. An entry that was answered in between
is in one of them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from lakefold_maintenance.files.removal_note import NOTICE_S, RemovalNote, read_note, write_note
from lakefold_table.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from lakefold_maintenance.files.refused_files import Refusals
    from lakefold_maintenance.format import TableSurvey
    from lakefold_maintenance.planning.policy import MaintenancePolicy

_MICROSECONDS: Final = 1_000_000
LOG = structlog.get_logger("lakefold")
EVERY_S: Final = 600.0
"""The seconds between two searches. All manifests are read for one, so not every round does that."""
BEHIND_S: Final = 600.0
"""So far a clock may be behind the newest version's time. A committer accepts five minutes of the log's."""
SHARE: Final = 0.05
"""Searches take at most this share of the time."""


@dataclass(frozen=True, slots=True)
class RemovedFiles:
    """How many files were removed, or would be: those of refused proposals, and those of no proposal."""

    refused: int = 0
    unnamed: int = 0

    @property
    def count(self) -> int:
        """The number of all removed files."""
        return self.refused + self.unnamed


class FileCleanUp:
    """Removes the unnamed files of one table, repeatedly."""

    def __init__(self) -> None:
        self._last = 0.0
        self._next = 0.0

    def is_due(self, now: float) -> bool:
        """Returns whether it is time to look for such files again. `now`: in seconds since 1970.

        It is as well if the clock is behind the last search, since it was ahead then.
        """
        return not self._last <= now < self._next

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
        """Removes the files that may be removed now; `dry_run` changes nothing.

        `waiting`: the paths of the files of proposals that wait; None: not known. `read_at`: when these began
        to be read, `now`: the time, both in seconds since 1970. Raises `RetryError` if this clock is behind,
        as the store does, and as `Refs.branches`.
        """
        began = time.monotonic()
        if survey.branch or waiting is None:
            # A branch has its files below its own root.
            return RemovedFiles()
        behind_s = survey.state.time_us / _MICROSECONDS - now
        if behind_s > BEHIND_S:
            message = f"this machine's clock is {behind_s:,.0f} s behind the time of version {survey.version}"
            raise RetryError(message, where=survey.table, hint="set the clocks by NTP, also the committer's")
        storage = survey.source.storage
        note = read_note(storage)
        refused = refusals.paths
        unnamed = survey.format.unnamed(survey, waiting, refused, now)
        # A time that is still to come is that of a clock that was ahead.
        first_seen = {path: min(note.unnamed.get(path, now), now) for path in unnamed.paths}
        due = {
            path
            for path, seen in first_seen.items()
            if path in unnamed.expired or _stays_until(path, seen, refusals, survey.policy) <= now
        }
        removing = {path: min(note.removing.get(path, now), now) for path in due}
        ripe = {path for path, since in removing.items() if read_at - since >= NOTICE_S}
        removed = RemovedFiles(len(ripe & refused), len(ripe - refused))
        if dry_run:
            return removed
        for path in sorted(ripe):
            storage.delete(path)
        if ripe:
            LOG.info(
                "files that nothing names were removed",
                table=survey.table,
                refused=removed.refused,
                unnamed=removed.unnamed,
            )
        after = RemovalNote(_without(first_seen, ripe), _without(removing, ripe))
        if after != note:
            write_note(storage, after)
        self._last, self._next = now, now + max(EVERY_S, (time.monotonic() - began) / SHARE)
        return removed


def _stays_until(path: str, seen: float, refusals: Refusals, policy: MaintenancePolicy) -> float:
    """Returns until when an unnamed file stays, in seconds since 1970. `seen`: as in `RemovalNote`.

    A file that isn't among the refusals may be that of a refusal that was forgotten.
    """
    kept = policy.refused_files.total_seconds()
    times: list[float] = []
    if path in refusals.conflicts:
        times.append(refusals.conflicts[path] + policy.conflict_files.total_seconds())
    if path in refusals.others:
        times.append(refusals.others[path] + kept)
    return max(times or [seen + policy.unnamed_files.total_seconds(), refusals.forgotten + kept])


def _without(times: Mapping[str, float], paths: set[str]) -> dict[str, float]:
    return {path: since for path, since in times.items() if path not in paths}

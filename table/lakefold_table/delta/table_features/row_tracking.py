"""Row tracking: the row ids and commit versions that a committer gives to files (Delta facts 6.5, 6.8).

The rows of a file have the ids from the file's base row id on. New ids are above the high-water mark, which
is in the metadata of a domain. A file that is committed again, as with another deletion vector, keeps its
ids.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.actions.table_actions import CommitInfo, DomainMetadata
from lakefold_table.delta.json_text import LONGEST, is_long, parse_object, to_json
from lakefold_table.delta.record_counts import statistics_of
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile
    from lakefold_table.delta.record_counts import StatisticsSummary
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

FEATURE: Final = "rowTracking"
ENABLED: Final = "delta.enableRowTracking"
MATERIALIZED: Final = (
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
)
"""The properties that name the columns in which rewritten rows keep their ids and versions."""
PRESERVED: Final = "delta.rowTracking.preserved"
"""The tag in commitInfo that says whether all rows that a commit has moved kept their ids."""
PRESERVING: Final = CommitInfo({"tags": {PRESERVED: "true"}})
"""What a proposal says if its new files have the ids and versions of the rows that it moves."""
DOMAIN: Final = "delta.rowTracking"
HIGH_WATER: Final = "rowIdHighWaterMark"
NAMES: Final = (HIGH_WATER, "highWaterMark")
"""The names under which clients store the high-water mark: Delta's own clients use the first."""
MOST_ROWS: Final = 1 << 40
"""No file has more rows. Statistics that say more would use up the ids of a table."""
_HINT: Final = "the domain must have the highest row id: restore the table to a version before"


class RowIds:
    """Gives row ids to the files of one commit. `before`: the version before it, None if it is the first."""

    def __init__(self, before: DeltaSnapshot | None, version: int) -> None:
        self._before = before
        self._version = version
        self._highest = -1 if before is None else high_water_mark(before)
        self._first = self._highest
        self._reserved = self._highest

    def reserve(
        self, files: Iterable[tuple[AddFile, StatisticsSummary]], *, is_restored: bool = False
    ) -> None:
        """Reserves ids for files that are to be added; `is_restored` as for `added`.

        Raises `DamagedError` if the table has used up its row ids, and reserves none then.
        """
        reserved = self._reserved
        for file, statistics in files:
            if self._ids(file) is None and not (is_restored and self._was_given(file)):
                reserved += statistics.stored_rows or 0
                if reserved >= LONGEST:
                    message = f"no row ids are left after {self._reserved} for the rows of {file.path!r}"
                    raise DamagedError(message, where=f"the domain {DOMAIN}", hint=_HINT)
        self._reserved = reserved

    def added(self, file: AddFile, *, is_restored: bool = False) -> AddFile:
        """Returns a file, for which ids were reserved, with its base row id and default row commit version.

        Its statistics have the number of its rows, which `proposal_fault` checks. `is_restored`: a proposal
        that restores an earlier version adds it, so its rows have ids, which no tombstone may name any more.
        """
        ids = self._ids(file)
        if ids is None and is_restored and self._was_given(file):
            return file
        if ids is not None:
            return replace(file, base_row_id=ids[0], default_row_commit_version=ids[1])
        base = self._highest + 1
        self._highest += statistics_of(file).stored_rows or 0
        return replace(file, base_row_id=base, default_row_commit_version=self._version)

    def removed(self, file: RemoveFile) -> RemoveFile:
        """Returns a removed file with the ids that it had."""
        present = None if self._before is None else self._before.files.get(file.path)
        if present is None:
            return file
        return replace(
            file,
            base_row_id=present.base_row_id,
            default_row_commit_version=present.default_row_commit_version,
        )

    def high_water(self) -> DomainMetadata | None:
        """Returns the domain with the new high-water mark, None if no id was given."""
        if self._highest == self._first:
            return None
        return DomainMetadata(DOMAIN, to_json({HIGH_WATER: self._highest}))

    def _was_given(self, file: AddFile) -> bool:
        """Returns whether a file has ids that the table has given before."""
        base, version = file.base_row_id, file.default_row_commit_version
        if base is None or version is None or not 0 <= version < self._version:
            return False
        return 0 <= base <= base + (statistics_of(file).stored_rows or 0) - 1 <= self._first

    def _ids(self, file: AddFile) -> tuple[int, int] | None:
        """Returns the ids of a file that the table has, or had with this deletion vector before a RESTORE."""
        if self._before is None:
            return None
        had: AddFile | RemoveFile | None = self._before.files.get(file.path)
        had = self._before.tombstones.get(file.key) if had is None else had
        if had is None or had.base_row_id is None or had.default_row_commit_version is None:
            return None
        return had.base_row_id, had.default_row_commit_version


def high_water_mark(snapshot: DeltaSnapshot) -> int:
    """Returns the highest row id that was given so far, -1 if none was. Raises `DamagedError`."""
    domain = snapshot.domains.get(DOMAIN)
    if domain is None or domain.removed:
        return -1
    where = f"the domain {DOMAIN}"
    content = parse_object(domain.configuration.encode(), where)
    marks = [mark for mark in map(content.get, NAMES) if is_long(mark)]
    if not marks:
        raise DamagedError("the high-water mark is missing", where=where, hint=_HINT)
    return max(-1, *marks)


def says_preserved(info: CommitInfo) -> bool | None:
    """Returns whether a commitInfo says that all rows which were moved kept their ids, None if nothing."""
    tags: Any = info.extra.get("tags")
    stated = tags.get(PRESERVED) if isinstance(tags, dict) else None
    return {"true": True, "false": False}.get(stated) if isinstance(stated, str) else None


def without_ids(files: Iterable[AddFile]) -> str:
    """Returns the path of a file without row ids or commit version, empty if all have both."""
    lacking = (each for each in files if None in (each.base_row_id, each.default_row_commit_version))
    return next((file.path for file in lacking), "")

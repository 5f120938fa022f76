"""The files that a version changes, while proposals are added to it, and the metrics that its commit names.

The metrics have the names that delta-spark's `DESCRIBE HISTORY` shows for the operation (Delta fact 7.4).
Only what is surely known is written: how many rows were copied, if a file has no statistics, is not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lakefold_table.delta.actions.table_actions import RESTORE_TABLE
from lakefold_table.delta.json_text import LONGEST
from lakefold_table.delta.record_counts import record_count
from lakefold_table.durations import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_table.delta.actions.file_actions import AddFile, FileKey, RemoveFile
    from lakefold_table.delta.proposal import DeltaTableProposal
    from lakefold_table.delta.snapshot.snapshot import DeltaSnapshot

_WRITTEN: Final = {"numFiles": "added", "numOutputRows": "rows", "numOutputBytes": "added bytes"}
_MOVED: Final = {
    "numAddedFiles": "added",
    "numAddedBytes": "added bytes",
    "numRemovedFiles": "removed",
    "numRemovedBytes": "removed bytes",
}
_VECTORS: Final = {"Added": "new vectors", "Removed": "old vectors", "Updated": "changed vectors"}
_CHANGED: Final = {
    **_MOVED,
    **{f"numDeletionVectors{name}": measure for name, measure in _VECTORS.items()},
    "numAddedChangeFiles": "change files",
}
_COMPACTED: Final = {
    **_MOVED,
    "numDeletionVectorsRemoved": "old vectors",
    "minFileSize": "smallest",
    "maxFileSize": "largest",
}
METRICS: Final[Mapping[str, Mapping[str, str]]] = {
    "WRITE": _WRITTEN,
    "CREATE TABLE AS SELECT": _WRITTEN,
    "REPLACE TABLE AS SELECT": _WRITTEN,
    "CREATE OR REPLACE TABLE AS SELECT": _WRITTEN,
    "STREAMING UPDATE": {
        "numAddedFiles": "added",
        "numRemovedFiles": "removed",
        "numOutputRows": "rows",
        "numOutputBytes": "added bytes",
    },
    "DELETE": {**_CHANGED, "numCopiedRows": "rows", "numDeletedRows": "lost rows"},
    "UPDATE": {**_CHANGED, "numUpdatedRows": "moved rows"},
    "MERGE": {
        "numTargetFilesAdded": "added",
        "numTargetBytesAdded": "added bytes",
        "numTargetFilesRemoved": "removed",
        "numTargetBytesRemoved": "removed bytes",
        **{f"numTargetDeletionVectors{name}": measure for name, measure in _VECTORS.items()},
        "numTargetChangeFilesAdded": "change files",
        "numTargetRowsInserted": "inserted rows",
        "numTargetRowsUpdated": "updated rows",
        "numTargetRowsDeleted": "deleted rows",
        "numTargetRowsCopied": "copied rows",
        "numOutputRows": "rows",
    },
    "OPTIMIZE": _COMPACTED,
    "REORG": _COMPACTED,
    RESTORE_TABLE: {
        "numRestoredFiles": "added",
        "restoredFilesSize": "added bytes",
        "numRemovedFiles": "removed",
        "removedFilesSize": "removed bytes",
        "numOfFilesAfterRestore": "files",
        "tableSizeAfterRestore": "bytes",
    },
}
"""What each metric of an operation is, by the names of the operation and the metric."""
_COUNTED: Final = frozenset({"DELETE", "UPDATE", "MERGE"})
"""The operations of which the rows are counted that they change."""
_REPLACED: Final = {"numRemovedFiles": "removed", "numRemovedBytes": "removed bytes"}


class CommitFiles:
    """The files that the accepted proposals of a version add and remove. `before`: the version before."""

    def __init__(self, before: DeltaSnapshot | None) -> None:
        self._before = before
        self._added: dict[str, AddFile] = {}
        self._rows: dict[str, int | None] = {}
        self._removes: dict[str, RemoveFile] = {}
        self._keys: set[FileKey] = set()
        self._change_files = 0
        self._copied = 0

    @property
    def added(self) -> Mapping[str, AddFile]:
        """The files that the version adds, as they are in it, by path."""
        return self._added

    @property
    def removed(self) -> Mapping[str, RemoveFile]:
        """The files that the version removes, as they were in the version before, by path."""
        return self._removes

    def removed_at(self, time_ms: int, *, is_dated: bool) -> list[RemoveFile]:
        """Returns the actions of the removed files in a commit of this time, in milliseconds since 1970.

        Readers may have opened the version before until now, whenever a removal was proposed. A time that is
        more than a day later is not one that a clock gave: the file would never be cleaned up.
        `is_dated`: the log gave the time. Files of proposals may lack it, then theirs count.
        """
        latest_ms = time_ms + DAY_MS if is_dated else LONGEST
        dated = (
            (file, min(max(time_ms, file.deleted_ms or 0), latest_ms)) for file in self._removes.values()
        )
        return [replace(file, deleted_ms=deleted_ms) for file, deleted_ms in dated]

    def readds(self, files: Iterable[AddFile]) -> bool:
        """Returns whether one of these was removed by this version, with the same deletion vector."""
        return bool(self._keys) and any(file.key in self._keys for file in files)

    def file(self, path: str) -> AddFile | None:
        """Returns the logical file that the table has at a path after this version."""
        if path in self._added:
            return self._added[path]
        return None if self._before is None or path in self._removes else self._before.files.get(path)

    def is_new(self, path: str, proposal: DeltaTableProposal | None = None) -> bool:
        """Returns whether this version adds the file at a path, so that it can't be removed by it.

        A file that had rows deleted only gets another deletion vector if more of its rows are deleted, and
        `proposal` names these.
        """
        if path not in self._added:
            return False
        is_again = self._before is not None and path in self._before.files
        return not is_again or (proposal is not None and path not in proposal.affected_rows)

    def take(self, proposal: DeltaTableProposal) -> tuple[int, int]:
        """Takes the files of a proposal into the version.

        Returns how many rows it adds and how many it removes, by the statistics of its files. Rows that its
        writer says it copied are neither.
        """
        added, removed = 0, 0
        before: dict[str, int] = {}
        for file in proposal.removes:
            present = self.file(file.path)
            if present is not None and file.data_change:
                before[file.path] = record_count(present) or 0
            # If several proposals deleted rows of a file, the last vector replaces the first one.
            self._removes.setdefault(file.path, _described(file, present))
            self._keys.add(file.key)
        for new, statistics in zip(proposal.adds, proposal.statistics, strict=True):
            self._added[new.path] = new
            self._rows[new.path] = statistics.rows
            # A file that is removed and added again has another deletion vector.
            more = (statistics.rows or 0) - before.pop(new.path, 0) if new.data_change else 0
            added, removed = added + max(0, more), removed + max(0, -more)
        self._change_files += len(proposal.changes)
        removed += sum(before.values())
        copied = min(proposal.rows_copied, added, removed)
        self._copied += copied
        return added - copied, removed - copied

    def metrics(self, operation: str) -> dict[str, str]:
        """Returns the metrics of the version by their names, as far as they are known."""
        names = METRICS.get(operation)
        if names is None:
            names = _MOVED if self._added or self._removes else {}
        elif names is _WRITTEN and self._removes:
            names = {**names, **_REPLACED}
        measures = self._measures()
        if operation in _COUNTED:
            measures |= self._lost_rows(measures["rows"])
        values = {name: measures.get(measure) for name, measure in names.items()}
        return {name: str(value) for name, value in values.items() if value is not None}

    def _measures(self) -> dict[str, int | None]:
        before = self._before
        files = {} if before is None else before.files
        removed = [files[path] for path in self._removes if path not in self._added and path in files]
        new = [file for path, file in self._added.items() if path not in self._removes]
        again = (file for path, file in self._added.items() if path in self._removes)
        vectors = {file.path for file in again if file.deletion_vector is not None}
        old = {path for path, file in self._removes.items() if file.deletion_vector is not None}
        sizes = [file.size for file in new]
        added_bytes, removed_bytes = sum(sizes), sum(file.size for file in removed)
        return {
            "added": len(new),
            "added bytes": added_bytes,
            "smallest": min(sizes, default=None),
            "largest": max(sizes, default=None),
            "removed": len(removed),
            "removed bytes": removed_bytes,
            "files": len(files) + len(new) - len(removed),
            "bytes": (0 if before is None else before.size_bytes) + added_bytes - removed_bytes,
            "new vectors": len(vectors),
            "old vectors": len(old),
            "changed vectors": len(vectors & old),
            "change files": self._change_files,
            "rows": _sum(self._rows[file.path] for file in new),
        }

    def _lost_rows(self, rows: int | None) -> dict[str, int | None]:
        """Returns which rows of the version before are gone, as far as it is known. `rows`: in new files."""
        files = {} if self._before is None else self._before.files
        before = _sum(record_count(files[path]) if path in files else None for path in self._removes)
        after = _sum(self._rows[path] for path in self._added if path in self._removes)
        if rows is None or before is None or after is None:
            return {}
        lost = before - after
        measures: dict[str, int | None] = {"lost rows": lost - rows}
        if self._copied or self._removes.keys() <= self._added.keys():
            # The rows in new files that were not copied have other values, or are new.
            moved, gone = rows - self._copied, lost - self._copied
            measures |= {"copied rows": self._copied, "moved rows": moved}
            if not gone or not moved:
                measures |= {"inserted rows": moved, "deleted rows": gone, "updated rows": 0}
        return measures


def _described(file: RemoveFile, present: AddFile | None) -> RemoveFile:
    """Returns a remove action that describes the file as the table does, as far as it says anything of it.

    Readers of changes take the values of partition columns from it. delta-spark leaves out nulls.
    """
    if present is None:
        return file
    values, size = file.partition_values, file.size
    if values is not None and _without_nulls(values) != _without_nulls(present.partition_values):
        values = present.partition_values
    if size is not None:
        size = present.size
    is_right = values is file.partition_values and size == file.size
    return file if is_right else replace(file, partition_values=values, size=size)


def _without_nulls(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in values.items() if text is not None}


def _sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total

"""What the actions of a commit did to the rows of a table (Delta fact 8.1).

If a commit has `cdc` actions, their files have all changes of rows. Otherwise files that were added hold new
rows, and those of removed files are gone. A file that is removed and added with another deletion vector lost
the rows that only the new one has; a RESTORE may bring rows back. Actions without a change of data, as those
of OPTIMIZE, say nothing about rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lakefold_reader.delta.data_files import StoredRows, live_rows, portable
from lakefold_table.delta.actions.file_actions import AddFile, ChangeFile, RemoveFile
from lakefold_table.delta.actions.table_actions import TableMetadata
from lakefold_table.delta.record_counts import record_count
from lakefold_table.delta.sharing import replaces_content

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_reader.delta.versions import CommitContent
    from lakefold_table.marks.record import Record


@dataclass(frozen=True, slots=True)
class CommitEffect:
    """What a commit did to rows.

    `added`, `removed`: the files with rows that are new or gone, in the order of the actions. `deleted`,
    `restored`: rows of files that stay. `change_files`: those of `cdc` actions; if there are any, they say
    all and the others are empty. `replaces`: it replaced the whole content, or went back to an older one.
    """

    added: Sequence[AddFile] = ()
    removed: Sequence[RemoveFile] = ()
    deleted: Sequence[StoredRows] = ()
    restored: Sequence[StoredRows] = ()
    change_files: Sequence[ChangeFile] = ()
    replaces: bool = False
    metadata: TableMetadata | None = field(default=None, repr=False)

    @property
    def only_adds(self) -> bool:
        """Whether the commit did nothing but add files with new rows."""
        return not (self.removed or self.deleted or self.restored or self.change_files)


def effect_of(content: CommitContent) -> CommitEffect:
    """Returns what a commit did to rows."""
    metadata = next((each for each in content.actions if isinstance(each, TableMetadata)), None)
    replaces = _replaces(content)
    change_files = [each for each in content.actions if isinstance(each, ChangeFile)]
    if change_files:
        return CommitEffect(change_files=change_files, replaces=replaces, metadata=metadata)
    adds = {each.path: each for each in content.actions if isinstance(each, AddFile) and each.data_change}
    removes = {
        each.path: each for each in content.actions if isinstance(each, RemoveFile) and each.data_change
    }
    kept = [path for path in adds if path in removes]
    pairs = [(removes[path], adds[path]) for path in kept]
    return CommitEffect(
        added=[file for path, file in adds.items() if path not in removes],
        removed=[file for path, file in removes.items() if path not in adds],
        deleted=[rows for before, after in pairs for rows in differing_rows(after, before, after)],
        restored=[rows for before, after in pairs for rows in differing_rows(after, after, before)],
        replaces=replaces,
        metadata=metadata,
    )


def offsets_of(added: Sequence[AddFile], record: Record | None) -> list[int | None]:
    """Returns for each added file the offset of the log entry that added it.

    If the number of rows doesn't show which they are, it is the last offset that is in the version; None if
    no committer made it.
    """
    last = last_offset(record)
    exact = None if record is None else exact_offsets(added, record)
    return [last] * len(added) if exact is None else [*exact]


def exact_offsets(added: Sequence[AddFile], record: Record) -> list[int] | None:
    """Returns the offset of the log entry that added each file, None if numbers of rows don't show it.

    Entries add their files in the order of the log.
    """
    if len(record.committed) == 1:
        return [*record.committed] * len(added)
    counts = [record_count(file) for file in added]
    ends = [0]
    for count in counts:
        ends.append(ends[-1] + (count or 0))
    limits = [0]
    for answer in record.committed.values():
        limits.append(limits[-1] + answer.rows_added)
    if None in counts or 0 in counts or limits[-1] != ends[-1] or not set(limits) <= set(ends):
        return None
    ranges = list(zip(record.committed, pairwise(limits), strict=True))
    return [next(offset for offset, (first, end) in ranges if first <= start < end) for start in ends[:-1]]


def last_offset(record: Record | None) -> int | None:
    """Returns the last offset that is in a version. Returns None if no committer made it from entries."""
    return max(record.committed) if record is not None and record.committed else None


def count_of(files: Iterable[AddFile | RemoveFile]) -> int | None:
    """Returns the rows in these files. Returns None if statistics don't count all."""
    counts = [record_count(file) for file in files]
    return None if None in counts else sum(count or 0 for count in counts)


def differing_rows(
    file: AddFile, before: AddFile | RemoveFile, after: AddFile | RemoveFile
) -> list[StoredRows]:
    """Returns the rows of a file that are deleted after and were not before, if there can be any.

    `file`: the one of both that is added, since a removed one may lack its size and partition values.
    """
    old, new = portable(before.deletion_vector), portable(after.deletion_vector)
    if new is None or new == old:
        return []
    rows = live_rows(file)
    count = new.cardinality if old is None else None
    return [StoredRows(rows.path, rows.size, rows.partition_values, without=old, within=new, rows=count)]


def _replaces(content: CommitContent) -> bool:
    info: dict[str, Any] = dict(content.info.extra)
    parameters = info.get("operationParameters")
    return replaces_content(info.get("operation"), parameters if isinstance(parameters, dict) else {})

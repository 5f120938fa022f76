"""How many rows and files each version of a Lance table added and removed.

If a version only added fragments, its own transaction shows that. For any other the fragments before and
after are compared, so the numbers say what happened, not what was intended.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_reader.format.snapshots import VersionCounts
from lakefold_reader.lance.effect import NO_ROWS, effect_of
from lakefold_reader.lance.feed.sides import unlike
from lakefold_reader.lance.units import counts_rows
from lakefold_reader.lance.versions import kind_in, read_state
from lakefold_table.errors import InvalidError
from lakefold_table.lance.kinds import Kind
from lakefold_table.lance.manifests.fragments import Fragments

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakefold_protos.lance.table_pb2 import DataFragment
    from lakefold_reader.format.source import Source
    from lakefold_table.format import VersionSummary
    from lakefold_table.marks.record import Record

COUNTED_ALIKE = frozenset({Kind.DELETE, Kind.OVERWRITE, Kind.REWRITE, Kind.UPDATE})
"""For these the outcomes count the rows that were added and removed. For a Restore they count all rows."""


def counts_of(source: Source, summary: VersionSummary, record: Record | None) -> VersionCounts:
    """Returns the rows and files that a version added and removed. `record`: what its committer recorded."""
    kind = kind_in(summary)
    if kind in NO_ROWS - {Kind.REWRITE}:
        return VersionCounts(0, 0, 0, 0)
    effect = effect_of(summary)
    if effect.only_inserts and effect.fragments is not None and kind is not Kind.REWRITE:
        return VersionCounts(effect.rows, 0, sum(len(fragment.files) for fragment in effect.fragments), 0)
    try:
        before = Fragments() if kind is Kind.CLONE else read_state(source, summary.version - 1).fragments
        after = read_state(source, summary.version).fragments
    except InvalidError:
        return _as_recorded(VersionCounts(), kind, record)
    old, new = unlike(before, after)
    files_before, files_after = _files(old.values()), _files(new.values())
    files = len(files_after - files_before), len(files_before - files_after)
    if not all(counts_rows(fragment) for fragment in (*old.values(), *new.values())):
        return _as_recorded(VersionCounts(None, None, *files), kind, record)
    return VersionCounts(*_rows_between(old, new, kind), *files)


def _as_recorded(counts: VersionCounts, kind: Kind, record: Record | None) -> VersionCounts:
    """Returns the rows as the committer's answers count them.

    Returns None if a comparison of the fragments would count others.
    """
    if record is None or kind not in COUNTED_ALIKE:
        return counts
    committed = record.committed.values()
    rows_in, rows_out = (
        sum(answer.rows_added for answer in committed),
        sum(answer.rows_deleted for answer in committed),
    )
    return replace(counts, rows_in=rows_in, rows_out=rows_out)


def _rows_between(
    before: Mapping[int, DataFragment], after: Mapping[int, DataFragment], kind: Kind
) -> tuple[int, int]:
    """Returns the rows added and removed.

    A fragment that is kept counts by the difference, a compaction whole.
    """
    old, new = ({number: _rows_of(fragment) for number, fragment in side.items()} for side in (before, after))
    if kind is Kind.REWRITE:
        more = sum(new.values()) - sum(old.values())
        return max(0, more), max(0, -more)
    differences = [new.get(number, 0) - old.get(number, 0) for number in old.keys() | new.keys()]
    return sum(max(0, rows) for rows in differences), sum(max(0, -rows) for rows in differences)


def _files(fragments: Iterable[DataFragment]) -> set[tuple[int, str]]:
    return {
        (file.base_id if file.HasField("base_id") else -1, file.path)
        for fragment in fragments
        for file in fragment.files
    }


def _rows_of(fragment: DataFragment) -> int:
    deleted = fragment.deletion_file.num_deleted_rows if fragment.HasField("deletion_file") else 0
    return fragment.physical_rows - deleted

"""Whose batch a table has: what the versions of a committer record of the proposals in them.

A key alone doesn't say who has sent a batch. The version does: it records the answer to each entry of the log
that was folded into it, by the entry's offset, and a writer knows the offset of what it has sent.

If another client made the newest version, the marks of the last version of a committer say which keys were
folded. What the newest version carries doesn't suffice: a Restore of a Lance table takes over older marks,
one of a Delta table leaves the marks as they are, and a clone has those of another table. A committer
recovers the marks in the same way (`lakefold_committer.recovery.recover_marks`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lakefold_ingest.formats import seen_source
from lakefold_table.marks.marks import Marks, decode_marks
from lakefold_table.marks.record import decode_record
from lakefold_table.marks.rollbacks import rolled_back

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import View
    from lakefold_reader.format.source import Source
    from lakefold_table.format import VersionSummary
    from lakefold_table.marks.record import Record

MOST_READ: Final = 100
"""How many versions of other clients are read, the newest. After more of them only the committer knows."""


def record_of(source: Source, version: int) -> Record | None:
    """Returns which entries of the log a version has.

    Returns None if that is not known: the version was removed, is 0, or was made by another client or from a
    file log. Raises `DamagedError` if it can't be read.
    """
    summary = source.summary(version) if version else None
    record = decode_record(summary.properties, source.uri) if summary is not None and summary.own else None
    return None if record is None or record.log.is_file else record


def with_marks_before(view: View, key: Key, storage_options: Mapping[str, str]) -> View:
    """Returns the view with the marks that count, if another client made its version and they are found.

    So a batch that was folded is recognised before its columns are compared with what others made of the
    table.
    """
    if key.batch_id is None or view.marks.table_id or not view.carried.table_id:
        return view
    marks = _marks_before(seen_source(view.uri, storage_options), view.version)
    return view if marks is None else replace(view, marks=marks)


def _marks_before(source: Source, newest: int) -> Marks | None:
    later: list[VersionSummary] = []
    for version in range(newest, max(newest - MOST_READ, 0), -1):
        summary = source.summary(version, whole=True)
        if summary is None or summary.begins_clone:
            return None
        if summary.own:
            marks = decode_marks(summary.metadata or {}, source.uri)
            return None if marks is None else _after(marks, later[::-1])
        later.append(summary)
    return None


def _after(marks: Marks, later: list[VersionSummary]) -> Marks:
    for each in later:
        if each.restored is not None:
            metadata = None if each.keeps_metadata else each.metadata or {}
            marks = rolled_back(marks, each.version, each.restored, metadata)
    return marks

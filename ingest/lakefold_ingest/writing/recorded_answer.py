"""Whose batch a table has: what the version that has a key records of the proposals in it.

A key alone doesn't say who has sent a batch. The version does: it records the answer to each entry of the log
that was folded into it, by the entry's offset, and a writer knows the offset of what it has sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.marks.record import decode_record

if TYPE_CHECKING:
    from lakefold_reader.format.source import Source
    from lakefold_table.marks.record import Record


def record_of(source: Source, version: int) -> Record | None:
    """Returns which entries of the log a version has.

    Returns None if that is not known: the version was removed, is 0, or was made by another client or from a
    file log. Raises `DamagedError` if it can't be read.
    """
    summary = source.summary(version) if version else None
    record = decode_record(summary.properties, source.uri) if summary is not None and summary.own else None
    return None if record is None or record.log.is_file else record

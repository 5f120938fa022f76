"""The statistics of a file, of which the fold needs the number of rows alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.delta.json_text import is_long, parse_object
from lakefold_table.errors import DamagedError

if TYPE_CHECKING:
    from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile


def statistics_fault(file: AddFile) -> str:
    """Returns what is wrong with a file's statistics; empty if they are well-formed or absent."""
    if file.stats is None:
        return ""
    try:
        stats = parse_object(file.stats.encode(), file.path)
    except DamagedError as error:
        return error.message
    count = stats.get("numRecords")
    if count is not None and not (is_long(count) and count >= 0):
        return "numRecords is no number of rows"
    return ""


def record_count(file: AddFile | RemoveFile) -> int | None:
    """Returns the number of rows in a logical file, None if its statistics don't say it."""
    if not file.stats:
        return None
    try:
        count = parse_object(file.stats.encode(), file.path).get("numRecords")
    except DamagedError:
        return None
    if not is_long(count) or count < 0:
        return None
    deleted = 0 if file.deletion_vector is None else file.deletion_vector.cardinality
    return max(0, int(count) - deleted)

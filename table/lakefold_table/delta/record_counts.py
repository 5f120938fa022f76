"""The statistics of a file, of which the fold needs the number of rows alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_table.delta.json_text import is_long, parse_object
from lakefold_table.errors import DamagedError
from lakefold_table.values import value

if TYPE_CHECKING:
    from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile


@value()
class StatisticsSummary:
    """What the statistics of a file say of it as a whole.

    `stored_rows`: the number of rows in the data file, deleted ones included. `rows`: without them. None:
    the statistics don't say it. `fault`: what is wrong with the statistics, empty if they are well-formed or
    absent.
    """

    stored_rows: int | None = None
    rows: int | None = None
    fault: str = ""


NO_STATISTICS: Final = StatisticsSummary()


def statistics_of(file: AddFile | RemoveFile) -> StatisticsSummary:
    """Returns what a file's statistics say of it as a whole."""
    if file.stats is None:
        return NO_STATISTICS
    try:
        count = parse_object(file.stats.encode(), file.path).get("numRecords")
    except DamagedError as error:
        return StatisticsSummary(fault=error.message)
    if count is None:
        return NO_STATISTICS
    if not is_long(count) or count < 0:
        return StatisticsSummary(fault="numRecords is no number of rows")
    deleted = 0 if file.deletion_vector is None else file.deletion_vector.cardinality
    return StatisticsSummary(count, max(0, count - deleted))


def record_count(file: AddFile | RemoveFile) -> int | None:
    """Returns the number of rows in a logical file, None if its statistics don't say it."""
    return statistics_of(file).rows

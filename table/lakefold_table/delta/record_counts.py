"""The statistics of a file. The fold needs the number of rows and the names of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lakefold_table.delta.json_text import exact_json, is_long, parse_object
from lakefold_table.errors import DamagedError
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_table.delta.actions.file_actions import AddFile, RemoveFile


@value()
class StatisticsSummary:
    """What the statistics of a file say of it as a whole.

    `stored_rows`: the number of rows in the data file, deleted ones included. `rows`: without them. None:
    the statistics don't say it. `columns`: the columns that they name, as data files have them. `nulls`:
    those at the top that have nulls. `false_nulls`: one that has more nulls than rows by them, empty if there
    is none. `fault`: what is wrong with the statistics, empty if they are well-formed or absent.
    """

    stored_rows: int | None = None
    rows: int | None = None
    columns: frozenset[str] = frozenset()
    nulls: frozenset[str] = frozenset()
    false_nulls: str = ""
    fault: str = ""


NULL_COUNT: Final = "nullCount"
BOUNDS: Final = ("minValues", "maxValues")
_BY_COLUMN: Final = (NULL_COUNT, *BOUNDS)
NO_STATISTICS: Final = StatisticsSummary()


def statistics_of(file: AddFile | RemoveFile) -> StatisticsSummary:
    """Returns what a file's statistics say of it as a whole."""
    if file.stats is None:
        return NO_STATISTICS
    try:
        content = parse_object(file.stats.encode(), file.path)
    except DamagedError as error:
        return StatisticsSummary(fault=error.message)
    count, columns, nulls = content.get("numRecords"), _columns(content), _nulls(content)
    false_nulls = _false_nulls(content.get(NULL_COUNT), count)
    if count is None:
        return StatisticsSummary(columns=columns, nulls=nulls, false_nulls=false_nulls)
    if not is_long(count) or count < 0:
        return StatisticsSummary(fault="numRecords is not a number of rows")
    deleted = 0 if file.deletion_vector is None else file.deletion_vector.cardinality
    return StatisticsSummary(count, max(0, count - deleted), columns, nulls, false_nulls)


def statistics_members(file: AddFile | RemoveFile, *, exact: bool = False) -> dict[str, Any]:
    """Returns the statistics of a file as they are; none if they are malformed or absent.

    `exact`: as of `parse_json`. A bound of a decimal may have more digits than a float.
    """
    try:
        return parse_object((file.stats or "{}").encode(), file.path, exact=exact)
    except DamagedError:
        return {}


def wide_statistics(file: AddFile, rows: int | None = None) -> str | None:
    """Returns the statistics of a file that loses rows: its bounds may be wider than its rows from now on.

    `rows`: the rows in the data file, None if the statistics say it. Returns None if nothing is known.
    """
    members = statistics_members(file, exact=True)
    if rows is not None:
        members = {**members, "numRecords": rows}
    return exact_json({**members, "tightBounds": False}) if members else None


def _columns(content: Mapping[str, Any]) -> frozenset[str]:
    parts = (content.get(name) for name in _BY_COLUMN)
    return frozenset(name for part in parts if isinstance(part, dict) for name in part)


def _nulls(content: Mapping[str, Any]) -> frozenset[str]:
    counts = content.get(NULL_COUNT)
    counts = counts if isinstance(counts, dict) else {}
    return frozenset(name for name, count in counts.items() if is_long(count) and count > 0)


def _false_nulls(counts: object, rows: object) -> str:
    """Returns a column that has more nulls than the file has rows; empty if none has."""
    for name, count in counts.items() if isinstance(counts, dict) else ():
        inner = _false_nulls(count, rows)
        if inner:
            return f"{name}.{inner}"
        if is_long(count) and is_long(rows) and count > rows:
            return str(name)
    return ""


def record_count(file: AddFile | RemoveFile) -> int | None:
    """Returns the number of rows in a logical file, None if its statistics don't say it."""
    return statistics_of(file).rows

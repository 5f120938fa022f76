"""Decides which rows of a version a query takes that doesn't read the change feed.

Such a query takes each row when it is inserted, and nothing else. If a version did more, options decide, with
the names that users of Delta know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_reader.format.changes import ChangeType
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_reader.format.source import ChangePart
    from lakefold_reader.spark.options import Given
    from lakefold_reader.tail.change import Change

    IsTaken = Callable[[ChangePart], bool]

WITHOUT_CHANGES = frozenset({"append", "insert", "delete", "WRITE", "STREAMING UPDATE", "DELETE"})
"""What entries of one version may have done, by the names of Lance and of Delta."""
DELETES = frozenset({"delete", "DELETE"})


class ChangedRowsError(InvalidError):
    """A version did more than insert rows, and the query has no option for that."""


def parts_taken(change: Change, given: Given, where: str) -> IsTaken:
    """Returns a function that says which parts of a version's change the query takes.

    Raises `ChangedRowsError`.
    """
    if given.value("readChangeFeed"):
        return _all
    if change.only_inserts or (given.value("ignoreDeletes") and _only_deletes(change)):
        return _inserts
    if given.value("ignoreChanges"):
        return _as_they_became
    if given.value("skipChangeCommits"):
        return change.is_appended()
    raise ChangedRowsError(
        f"version {change.version} ({change.operation}) did more than insert rows",
        where=where,
        hint="set skipChangeCommits to read only what is appended, ignoreDeletes to go over deletes, "
        "ignoreChanges to read changed rows again, or readChangeFeed to get every change",
    )


def _only_deletes(change: Change) -> bool:
    operations = set(change.operations)
    return change.operation in DELETES or (bool(operations & DELETES) and operations <= WITHOUT_CHANGES)


def _all(_: ChangePart) -> bool:
    return True


def _inserts(part: ChangePart) -> bool:
    return part.change_type is ChangeType.INSERT


def _as_they_became(part: ChangePart) -> bool:
    return part.change_type in {ChangeType.INSERT, ChangeType.UPDATE_POSTIMAGE}

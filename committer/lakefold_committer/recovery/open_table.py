"""Opens a table: reads its newest version, recovers its marks and checks whether it may be folded further."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_committer.fold.fold import FoldedTable
from lakefold_committer.recovery.recover_marks import recover_marks
from lakefold_committer.recovery.restore_check import check_reported, on_its_log
from lakefold_table.errors import StopError, VersionExpiredError
from lakefold_table.marks.marks import RULES, Marks
from lakefold_table.marks.record import is_own

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_committer.recovery.recovery_context import RecoveryContext
    from lakefold_table.format import State
    from lakefold_table.versions.stored_table import StoredTable


def open_table(stored: StoredTable, recovery: RecoveryContext | None = None) -> FoldedTable:
    """Returns the table as it is now, or one without a state if it does not exist.

    Raises `NotATableError` if the folder contains something else, `DamagedError` if a file can't be decoded,
    and `InvalidError` if the table uses features that this release does not know. Raises `StopError` if the
    marks can't be verified, are behind what was reported or were made under newer rules. Raises `GapError` if
    the marks are for another log, or the log ends before their position.
    """
    uri = stored.uri
    newest = stored.versions.latest()
    if newest < stored.versions.first:
        return FoldedTable(uri)
    state = stored.read_newest(newest)
    stored.format.check_writable(state, uri)
    table = recover_marks(stored, state, recovery)
    check_rules(table.marks.rules, uri)
    if recovery is None:
        return table
    check_reported(table, marked_properties(stored, state, table.marks), recovery)
    return on_its_log(stored, table, recovery)


def marked_properties(stored: StoredTable, newest: State, marks: Marks) -> Mapping[str, str]:
    """Returns the properties of the version whose marks these are; empty if it has none or was removed."""
    if is_own(newest.properties, newest.version):
        return newest.properties
    if marks.version < stored.versions.first or not marks.table_id:
        return {}
    try:
        return stored.own_properties(marks.version) or {}
    except VersionExpiredError:
        return {}


def check_rules(rules: int, uri: str) -> None:
    """Raises `StopError` if a version was folded under rules that this release doesn't know."""
    if rules > RULES:
        raise StopError(
            f"the table was folded under rules {rules}, this release knows {RULES}",
            where=uri,
            hint="let a newer committer take over",
        )

"""Opening a table: its newest version, the marks that count, and whether it may be folded on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_committer.fold.fold import Table
from lakefold_committer.recovery.recover_marks import provable
from lakefold_committer.recovery.restore_check import check_reported, on_its_log
from lakefold_committer.recovery.stored_versions import own_properties, read_newest
from lakefold_table.errors import StopError, VersionExpiredError
from lakefold_table.marks.marks import RULES, Marks
from lakefold_table.marks.record import is_own

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_committer.recovery.recovery_context import RecoveryContext
    from lakefold_table.format import AnyFormat, State
    from lakefold_table.versions.versions import Versions


def open_table(
    table_format: AnyFormat, versions: Versions, uri: str, proofs: RecoveryContext | None = None
) -> Table:
    """The table as it is now, or `Table(uri)` where there is none.

    Raises `NotATableError` where there is something else, `DamagedError`, `InvalidError` for features we
    don't know, `StopError` where the marks can't be proven, are behind what was reported or were made under
    newer rules, and `GapError` where their log is another one, or ends before them.
    """
    newest = versions.latest()
    if not newest:
        return Table(uri)
    state = read_newest(table_format, versions, newest)
    table_format.check_writable(state, uri)
    table = provable(table_format, versions, state, uri, proofs)
    check_rules(table.marks, uri)
    if proofs is None:
        return table
    check_reported(table, marked_properties(table_format, versions, state, table.marks), proofs)
    return on_its_log(table_format, versions, table, proofs)


def marked_properties(
    table_format: AnyFormat, versions: Versions, newest: State, marks: Marks
) -> Mapping[str, str]:
    """Those of the version that the marks were made for; empty where there is none, or it is gone."""
    if is_own(newest.properties, newest.version):
        return newest.properties
    try:
        return (own_properties(table_format, versions, marks.version) if marks.version else None) or {}
    except VersionExpiredError:
        return {}


def check_rules(marks: Marks, uri: str) -> None:
    """Raises `StopError` where the marks were made under rules that this release doesn't know."""
    if marks.rules > RULES:
        raise StopError(
            f"the table was folded under rules {marks.rules}, this release knows {RULES}",
            where=uri,
            hint="let a newer committer take over",
        )

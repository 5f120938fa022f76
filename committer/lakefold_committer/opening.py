"""Opening a table: its newest version, and the marks that can be proven.

Marks travel with every version, but a foreign client may have rolled them back (a Restore) or wiped them (a
metadata replace), and a clone carries those of another table. So marks count only as they stand in a version
that a committer made itself: from the newest version one walks back to that one (positions-grow).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_committer.fold import Table
from lakefold_log.record import is_own
from lakefold_table.errors import StopError, VersionExpiredError
from lakefold_table.lance.codec import head_length, head_transaction
from lakefold_table.marks import RULES, Marks, decode_marks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_table.format import AnyFormat, State
    from lakefold_table.versions import Versions

START_BYTES = 64 * 1024


def open_table(table_format: AnyFormat, versions: Versions, uri: str) -> Table:
    """The table as it is now, or `Table(uri)` where there is none.

    Raises `NotATableError` where there is something else, `DamagedError`, `InvalidError` for features we
    don't know, and `StopError` where the marks can't be proven or were made under newer rules.
    """
    newest = versions.latest()
    if not newest:
        return Table(uri)
    state = read_state(table_format, versions, newest)
    table_format.check_writable(state, uri)
    table = _provable(table_format, versions, state, uri)
    check_rules(table.marks, uri)
    return table


def read_state(table_format: AnyFormat, versions: Versions, version: int) -> State:
    """One version, whole."""
    state: State = table_format.decode(versions.path(version), versions.read(version), versions.storage.uri)
    return state


def own_properties(versions: Versions, version: int) -> Mapping[str, str] | None:
    """The properties of a version a committer made, from the head of its file; None for a foreign one."""
    start = versions.read_start(version, START_BYTES)
    length = head_length(start)
    if len(start) == START_BYTES < length:
        start = versions.read_start(version, length)
    transaction = head_transaction(start)
    if transaction is None or not is_own(transaction.transaction_properties, version):
        return None
    return transaction.transaction_properties


def check_rules(marks: Marks, uri: str) -> None:
    """Raises `StopError` where the marks were made under rules that this release doesn't know."""
    if marks.rules > RULES:
        raise StopError(
            f"the table was folded under rules {marks.rules}, this release knows {RULES}",
            where=uri,
            hint="let a newer committer take over",
        )


def _provable(table_format: AnyFormat, versions: Versions, newest: State, uri: str) -> Table:
    """The newest state with the marks of the newest version that a committer made."""
    if is_own(newest.properties, newest.version):
        return Table(uri, newest, decode_marks(newest.metadata, uri) or Marks())
    claimed = decode_marks(newest.metadata, uri)
    if claimed is None:
        return _unmarked(table_format, versions, newest, uri)
    foreign = [newest]
    while True:
        if foreign[-1].is_clone:
            return Table(uri, newest)
        if foreign[-1].version <= claimed.version:
            return _unmarked(table_format, versions, newest, uri)
        older = _older(table_format, versions, foreign[-1].version - 1, uri)
        if is_own(older.properties, older.version):
            return Table(
                uri, _carried(table_format, older, foreign), decode_marks(older.metadata, uri) or Marks()
            )
        foreign.append(older)


def _unmarked(table_format: AnyFormat, versions: Versions, newest: State, uri: str) -> Table:
    """A table whose newest version has no marks: never folded, or a foreign client wiped them."""
    numbers = [number for number in versions.numbers() if number < newest.version]
    for number in reversed(numbers):
        if own_properties(versions, number) is not None:
            own = read_state(table_format, versions, number)
            later = [read_state(table_format, versions, one) for one in numbers if one > number]
            state = _carried(table_format, own, [newest, *reversed(later)])
            return Table(uri, state, decode_marks(own.metadata, uri) or Marks())
    return Table(uri, newest)


def _carried(table_format: AnyFormat, own: State, foreign: list[State]) -> State:
    """The newest of the foreign versions (newest first) after our own, knowing what each of them did."""
    state = own
    for one in reversed(foreign):
        state = table_format.following(state, one)
    return state


def _older(table_format: AnyFormat, versions: Versions, version: int, uri: str) -> State:
    try:
        return read_state(table_format, versions, version)
    except VersionExpiredError as error:
        raise StopError(
            f"version {version} is gone, so the table's marks can't be proven: a foreign client committed "
            "after the last version that a committer made, and that one was cleaned up",
            where=uri,
            hint="restore the version, or detach the table from the log",
        ) from error

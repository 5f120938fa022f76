"""Opening a table: its newest version, and the marks that can be proven.

Marks travel with every version, but a foreign client may have rolled them back (a Restore) or wiped them (a
metadata replace), and a clone carries those of another table. So marks count only as they stand in a version
that a committer made itself: from the newest version one walks back to that one (positions-grow). Of the
versions on that way only what they did is kept, so a long way takes time, but no memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_committer.binding import check_reach
from lakefold_committer.fold import Table
from lakefold_log.record import is_own
from lakefold_table.errors import DamagedError, PlaceError, StopError, VersionExpiredError
from lakefold_table.lance.manifests.codec import head_length, head_transaction
from lakefold_table.marks import RULES, Marks, decode_marks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakefold_committer.proofs import Proofs
    from lakefold_table.format import AnyFormat, Deed, State
    from lakefold_table.versions import Versions

START_BYTES = 64 * 1024


def open_table(table_format: AnyFormat, versions: Versions, uri: str, proofs: Proofs | None = None) -> Table:
    """The table as it is now, or `Table(uri)` where there is none.

    Raises `NotATableError` where there is something else, `DamagedError`, `InvalidError` for features we
    don't know, `StopError` where the marks can't be proven or were made under newer rules, and `GapError`
    where they lie beyond the end of their log.
    """
    newest = versions.latest()
    if not newest:
        return Table(uri)
    state = read_newest(table_format, versions, newest)
    table_format.check_writable(state, uri)
    table = provable(table_format, versions, state, uri)
    check_rules(table.marks, uri)
    if proofs is not None:
        _check_reach(table.marks, proofs, uri)
    return table


def _check_reach(marks: Marks, proofs: Proofs, uri: str) -> None:
    """The log is asked for its end only where the stamp doesn't tell that it reaches so far."""
    if marks.offset_of(proofs.log) >= proofs.answered:
        check_reach(marks, proofs.log, proofs.end(), uri)


def read_state(table_format: AnyFormat, versions: Versions, version: int) -> State:
    """One version, whole."""
    path, data, uri = versions.path(version), versions.read(version), versions.storage.uri
    state: State = table_format.decode(path, data, uri)
    if state.told_in:
        state = table_format.decode(path, data, uri, _content(versions, state.told_in))
    return state


def read_deed(table_format: AnyFormat, versions: Versions, version: int) -> Deed:
    """What one version did."""
    path, data, uri = versions.path(version), versions.read(version), versions.storage.uri
    deed = table_format.deed(path, data, uri)
    if deed.told_in:
        deed = table_format.deed(path, data, uri, _content(versions, deed.told_in))
    return deed


def _content(versions: Versions, path: str) -> bytes | None:
    """A file beside the versions; None where it is gone, or the store takes no such path."""
    try:
        return versions.storage.get(path)
    except (FileNotFoundError, PlaceError):
        return None


def read_newest(table_format: AnyFormat, versions: Versions, version: int) -> State:
    """The newest version, which others are built on and told of: no power cut may take it away any more."""
    state = read_state(table_format, versions, version)
    versions.storage.make_durable([versions.path(version)])
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


def own_marks(state: State, uri: str) -> Marks:
    """The marks of a version that a committer made. Raises `DamagedError` where they are not there."""
    marks = decode_marks(state.metadata, uri)
    if marks is None or marks.version != state.version:
        raise DamagedError(
            f"version {state.version} was made by a committer, but has no marks of its own",
            where=uri,
            hint="its file was changed: restore it",
        )
    return marks


def check_rules(marks: Marks, uri: str) -> None:
    """Raises `StopError` where the marks were made under rules that this release doesn't know."""
    if marks.rules > RULES:
        raise StopError(
            f"the table was folded under rules {marks.rules}, this release knows {RULES}",
            where=uri,
            hint="let a newer committer take over",
        )


def provable(table_format: AnyFormat, versions: Versions, newest: State, uri: str) -> Table:
    """The newest state with the marks of the newest version that a committer made."""
    if is_own(newest.properties, newest.version):
        return Table(uri, newest, own_marks(newest, uri))
    claimed = _claimed_version(newest)
    if newest.is_clone:
        return Table(uri, newest)
    later: list[Deed] = []
    for version in range(newest.version - 1, claimed - 1, -1):
        older = _older(table_format, versions, version, uri)
        if is_own(older.properties, version):
            return _carried(table_format, versions, version, later[::-1], newest, uri)
        if older.begins_clone:
            return Table(uri, newest)
        later.append(older)
    return _unmarked(table_format, versions, newest, uri)


def _claimed_version(newest: State) -> int:
    """The version that a foreign version's marks say they were made for; beyond it where they say nothing."""
    try:
        marks = decode_marks(newest.metadata)
    except DamagedError:
        marks = None
    return newest.version if marks is None else max(marks.version, 1)


def _unmarked(table_format: AnyFormat, versions: Versions, newest: State, uri: str) -> Table:
    """A table whose newest version has no marks of its own: never folded, or a foreign client wiped them."""
    numbers = [number for number in versions.numbers() if number < newest.version]
    for number in reversed(numbers):
        if own_properties(versions, number) is not None:
            between = [
                _older(table_format, versions, version, uri) for version in range(number + 1, newest.version)
            ]
            return _carried(table_format, versions, number, between, newest, uri)
    return Table(uri, newest)


def _carried(
    table_format: AnyFormat,
    versions: Versions,
    own: int,
    between: Sequence[Deed],
    newest: State,
    uri: str,
) -> Table:
    """The newest version with the marks of the committer's version `own`, knowing what came between."""
    state = read_state(table_format, versions, own)
    return Table(uri, table_format.following(state, newest, between), own_marks(state, uri))


def _older(table_format: AnyFormat, versions: Versions, version: int, uri: str) -> Deed:
    try:
        return read_deed(table_format, versions, version)
    except VersionExpiredError as error:
        raise StopError(
            f"version {version} is gone, so the table's marks can't be proven: a foreign client committed "
            "after the last version that a committer made, and that one was cleaned up",
            where=uri,
            hint="restore the version, or detach the table from the log",
        ) from error

"""Which marks of a table count: those of the newest version that a committer made (positions-grow).

Marks travel with every version, but a foreign client may have rolled them back (a Restore) or wiped them (a
metadata replace), and a clone carries those of another table. So from the newest version one walks back to
the one that a committer made itself. Of the versions on that way only what they did is kept, so a long way
takes time, but no memory.

Where that version was cleaned up meanwhile, three things can prove marks still. Others' versions right behind
it that can't have touched the metadata carry its marks as they were. Else the stamp says up to where entries
were answered, and older marks say which keys were folded at the least: keys missing there lie in versions
that a Restore took away with their rows. Where marks were wiped, keys can't be told any more: nothing is
guessed.

A version's file may also come late: its put was on its way while others went on and cleaned up, and freed its
place. It lies in the line then and is no version of it. Where all that came after it left the metadata alone,
the newest version would carry its marks; if it carries others, the place counts as gone. One that carries
none tells nothing: clients that don't know a table's metadata drop them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakefold_committer.fold.fold import Table
from lakefold_committer.recovery.stored_versions import (
    link_of,
    own_marks,
    own_properties,
    read_state,
    read_summary,
)
from lakefold_table.errors import DamagedError, StopError, VersionExpiredError
from lakefold_table.marks.marks import Marks, decode_marks
from lakefold_table.marks.record import is_own
from lakefold_table.marks.rollbacks import after_foreign
from lakefold_table.versions.succession import Succession, succession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakefold_committer.recovery.recovery_context import RecoveryContext
    from lakefold_table.format import AnyFormat, State, VersionSummary
    from lakefold_table.versions.succession import Link
    from lakefold_table.versions.versions import Versions


def provable(
    table_format: AnyFormat,
    versions: Versions,
    newest: State,
    uri: str,
    proofs: RecoveryContext | None = None,
) -> Table:
    """The newest state with the marks that count. Raises `StopError` where none can be proven."""
    if is_own(newest.properties, newest.version):
        return Table(uri, newest, own_marks(newest, uri))
    if newest.is_clone:
        return Table(uri, newest)
    carried = _marks_in(newest)
    claimed = newest.version if carried is None else max(carried.version, 1)
    later: list[VersionSummary] = []
    for version in range(newest.version - 1, claimed - 1, -1):
        try:
            older = read_summary(table_format, versions, version)
        except VersionExpiredError as error:
            proven = _proven_otherwise(table_format, versions, newest, carried, version, later, proofs)
            if proven is None:
                raise _unprovable(version, uri) from error
            return Table(uri, newest, proven)
        if is_own(older.properties, version):
            table = _carried(table_format, versions, version, later[::-1], newest, uri)
            alone = _left_alone(table_format, versions, newest, later)
            if not _is_stray(table_format, versions, version, replace(link_of(newest), keeps_marks=alone)):
                return table
            proven = _proven_otherwise(table_format, versions, newest, carried, version, later, proofs)
            if proven is None:
                raise _stray(version, uri)
            return Table(uri, newest, proven)
        if older.begins_clone:
            return Table(uri, newest)
        later.append(older)
    return _unmarked(table_format, versions, newest, uri)


def check_follows(before: State, newest: State, uri: str) -> None:
    """Raises `StopError` if a version can't have been made from the one that lies before it."""
    if succession(link_of(before), link_of(newest)) is Succession.APART:
        raise _stray(before.version, uri)


def _is_stray(table_format: AnyFormat, versions: Versions, own: int, newest: Link) -> bool:
    before = link_of(read_state(table_format, versions, own))
    return succession(before, newest) is Succession.APART


def carried_marks(newest: State, uri: str) -> Table:
    """The newest state with the marks that it carries, proven or not; for who says that they count."""
    return Table(uri, newest, _marks_in(newest) or Marks())


def _marks_in(newest: State) -> Marks | None:
    """The marks that a foreign version carries, whatever they are worth; None where there are none."""
    try:
        return decode_marks(newest.metadata)
    except DamagedError:
        return None


def _proven_otherwise(
    table_format: AnyFormat,
    versions: Versions,
    newest: State,
    carried: Marks | None,
    gone: int,
    later: Sequence[VersionSummary],
    proofs: RecoveryContext | None,
) -> Marks | None:
    """The marks where version `gone` is the first one missing on the way to the one that they name.

    `later`: what the versions between that one and the newest did.
    """
    if carried is None or not carried.version or carried.version >= newest.version:
        return None
    if gone == carried.version and _left_alone(table_format, versions, newest, later):
        return carried
    bound = carried.position
    if proofs is None or bound is None or bound.log != proofs.log or carried.branch != newest.branch:
        return None
    offset = max(bound.offset, proofs.answered - 1)
    fingerprint = carried.fingerprint if offset == bound.offset else None
    return replace(carried, position=replace(bound, offset=offset), fingerprint=fingerprint)


def _unmarked(table_format: AnyFormat, versions: Versions, newest: State, uri: str) -> Table:
    """A table whose newest version has no marks of its own: never folded, or a foreign client wiped them."""
    numbers = [number for number in versions.numbers() if number < newest.version]
    for number in reversed(numbers):
        if own_properties(table_format, versions, number) is not None:
            between = [
                _older(table_format, versions, version, uri) for version in range(number + 1, newest.version)
            ]
            return _carried(table_format, versions, number, between, newest, uri)
    return Table(uri, newest)


def _left_alone(
    table_format: AnyFormat, versions: Versions, newest: State, between: Sequence[VersionSummary]
) -> bool:
    """Whether these versions and the newest one, which follows them, can't have touched the metadata."""
    behind = [*between, read_summary(table_format, versions, newest.version)]
    return all(summary.keeps_metadata for summary in behind)


def _carried(
    table_format: AnyFormat,
    versions: Versions,
    own: int,
    between: Sequence[VersionSummary],
    newest: State,
    uri: str,
) -> Table:
    """The newest version with the marks of the committer's version `own`, knowing what came between."""
    state = read_state(table_format, versions, own)
    marks = own_marks(state, uri)
    restores = [summary.version for summary in between if summary.restored]
    if newest.restored:
        marks = after_foreign(marks, newest)
    elif restores:
        # The last one decides alone which keys are left out.
        marks = after_foreign(marks, read_state(table_format, versions, restores[-1]))
    return Table(uri, table_format.follow_foreign(state, newest, between), marks)


def _older(table_format: AnyFormat, versions: Versions, version: int, uri: str) -> VersionSummary:
    try:
        return read_summary(table_format, versions, version)
    except VersionExpiredError as error:
        raise _unprovable(version, uri) from error


def _stray(version: int, uri: str) -> StopError:
    return StopError(
        f"the file of version {version} holds marks that no later version carries, though none touched the "
        "table's metadata: it came late, after others had removed the version that was there",
        where=uri,
        hint="move the file away; where the table's marks can't be proven then, bind it anew: lakefold adopt",
    )


def _unprovable(version: int, uri: str) -> StopError:
    return StopError(
        f"version {version} is gone, so the table's marks can't be proven: a foreign client committed after "
        "the last version that a committer made, and that one was cleaned up",
        where=uri,
        hint="restore the version, or bind the table anew: lakefold adopt",
    )

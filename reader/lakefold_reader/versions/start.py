"""Finds the version from which a tail begins, and makes the errors if it can't begin or continue there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakefold_reader.versions.cursor import VERSION, Cursor
from lakefold_table.errors import DamagedError, InvalidError, NotATableError, VersionExpiredError
from lakefold_table.marks.marks import TABLE_ID
from lakefold_table.version_mark import mark_of
from lakefold_table.whole_numbers import version_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakefold_reader.format.source import Source
    from lakefold_table.format import VersionSummary
    from lakefold_table.storage.base import Storage


class MadeAnewError(InvalidError):
    """The table or branch that a reader follows was created again, or restored to an earlier copy."""


MAIN: Final = "main"
"""The name of a table's main branch."""
EARLIEST: Final = "earliest"
LATEST: Final = "latest"


def start_of(
    start: Cursor | str | int, newest: int, oldest: Callable[[], int], first: int = 1
) -> tuple[Cursor | None, int]:
    """Returns the given cursor (None if a version was given) and the version that counts as read.

    `oldest`: returns the oldest version after which none is missing, which may take a listing. `first`: the
    number of a table's first version.
    """
    if start == EARLIEST:
        return None, oldest() - 1
    if start == LATEST:
        return None, newest
    if not isinstance(start, Cursor | str):
        hint = f'give the version seen last ({first - 1} has seen none), a cursor, "earliest" or "latest"'
        return None, version_number(start, least=first - 1, hint=hint)
    cursor = start if isinstance(start, Cursor) else Cursor.parse(start)
    return cursor, cursor.version


def start_in(text: str) -> str | int:
    """Parses a start that a person wrote: a version's number, else a text for `start_of`."""
    return int(text) if VERSION.fullmatch(text) else text


def replaced(source: Source, seen: int, newest: int) -> MadeAnewError:
    """Returns the error if the version that was read last is newer than all that exist."""
    return MadeAnewError(
        f"the table has no version {seen}; its newest version is {newest}",
        where=source.uri,
        hint="the table was restored to an earlier copy or created again: open it and decide where to start",
    )


def removed(source: Source, cursor: Cursor) -> NotATableError:
    """Returns the error for a table that a reader follows and that has lost all its versions."""
    return NotATableError(
        f"the table was removed: it has no version; version {cursor.version} was the last one that was read",
        where=source.uri,
        hint=f"if it was moved, or its file system isn't mounted, restore it and continue from {cursor}",
    )


def check_free(storage: Storage, path: str) -> None:
    """Raises `DamagedError` if something that is not a file has the name of a version."""
    obstacle = storage.obstacle(path)
    if obstacle:
        raise DamagedError(
            f"{obstacle} has the name of the next version, so no more versions can be published",
            where=f"{storage.uri}/{path}",
            hint="move or remove it",
        )


def other_table(source: Source, cursor: Cursor, table_id: str, branch: str | None) -> InvalidError:
    """Returns the error for a version of another table, or of another branch, than the cursor's."""
    expected, actual = cursor.table_id or "none", table_id or "none"
    difference = f"table id {expected}, here {actual}"
    kind: type[InvalidError] = MadeAnewError
    if expected == actual:
        difference = f"branch {cursor.branch or MAIN}, here {branch or MAIN}"
        kind = InvalidError
    return kind(
        f"the cursor {cursor} belongs to another table or branch ({difference})",
        where=source.uri,
        hint='start from "earliest", "latest" or a version of this table',
    )


def made_anew(source: Source, cursor: Cursor) -> MadeAnewError:
    """Returns the error if another table or branch has taken the name of the cursor's own."""
    what = f"the branch {cursor.branch}" if cursor.branch else "the table"
    return MadeAnewError(
        f"{what} was created again, or restored to an earlier copy, since version {cursor.version} was read",
        where=source.uri,
        hint='start from "earliest" to read all that exists now, or from "latest" or one of its versions',
    )


def check_same(source: Source, cursor: Cursor, summary: VersionSummary) -> None:
    """Raises `MadeAnewError` or `InvalidError` if this is not the version that the cursor names.

    `summary` is that of the version that now has this number.
    """
    other_branch = summary.branch is not None and summary.branch != cursor.branch
    if summary.table_id != cursor.table_id or other_branch:
        raise other_table(source, cursor, summary.table_id, summary.branch)
    if cursor.mark and cursor.mark != mark_of(summary):
        raise made_anew(source, cursor)


def id_at(source: Source, version: int) -> str:
    """Returns the id of the table by the marks of a version, an empty text if it has none.

    Commits of other clients of Delta don't say it. Raises as `ReaderFormat.open`.
    """
    return source.format.open(source, version).state.metadata.get(TABLE_ID, "")


def anew_for(error: MadeAnewError, consumer: str) -> MadeAnewError:
    """Returns the error for a consumer, with the command that sets where it continues."""
    hint = f"after lakefold consumers TABLE --set {consumer} earliest it reads all that exists now"
    return MadeAnewError(error.message, where=error.where, hint=hint)


def expired_for(error: VersionExpiredError, consumer: str) -> VersionExpiredError:
    """Returns the error for a consumer, with the command that sets where it continues."""
    hint = (
        f"none is missing from {error.oldest} on; after lakefold consumers TABLE --set {consumer} earliest "
        "it reads all that exists and continues"
    )
    return VersionExpiredError(error.message, oldest=error.oldest, where=error.where, hint=hint)

"""The values in which changes are described: kinds of change, what a user may choose, errors, sizes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lakefold_table.errors import InvalidError


class ChangeType(StrEnum):
    """The kind of change of a row, as the column `_change_type` has it."""

    INSERT = "insert"
    UPDATE_PREIMAGE = "update_preimage"
    UPDATE_POSTIMAGE = "update_postimage"
    DELETE = "delete"


class Rewritten(StrEnum):
    """What a feed does about a version that replaced the table's content: an Overwrite or a Restore.

    `ROWS`: the old rows are deleted and the new rows inserted; of a Restore those that differ. `FAIL`:
    `RewrittenError`. `SKIP`: nothing of that version is shown.
    """

    ROWS = "rows"
    FAIL = "fail"
    SKIP = "skip"


class Misfits(StrEnum):
    """What a feed does with a value of an older version that doesn't fit the last version's type.

    `FAIL`: `MisfitError`. `NULL`: the value is null, and a warning in the log says for each version and
    column how many such values there are.
    """

    FAIL = "fail"
    NULL = "null"


class MisfitError(InvalidError):
    """A value of an older version doesn't fit the type that its column has in the feed's last version.

    `version`: the version that the feed can't show. `column`: its name in the last version.
    """

    def __init__(self, message: str, *, version: int, column: str, where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.version = version
        self.column = column


def misfits_of(text: Misfits | str) -> Misfits:
    """Returns the choice with this name. Raises `InvalidError` if there is none."""
    try:
        return Misfits(text)
    except ValueError as error:
        raise InvalidError(
            f"a feed can't treat values that don't fit as {text!r}",
            hint=f"choose one of {', '.join(Misfits)}",
        ) from error


class RewrittenError(InvalidError):
    """A version replaced the table's content, and the feed was to stop there. `version`: its number."""

    def __init__(self, message: str, *, version: int, where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.version = version


def rewritten_of(text: Rewritten | str) -> Rewritten:
    """Returns the choice with this name. Raises `InvalidError` if there is none."""
    try:
        return Rewritten(text)
    except ValueError as error:
        choices = ", ".join(Rewritten)
        raise InvalidError(
            f"a feed can't treat rewritten content as {text!r}", hint=f"choose one of {choices}"
        ) from error


class UnknownChangeError(InvalidError):
    """A version did more than insert rows, and its inserted rows can't be distinguished from the others."""


@dataclass(frozen=True, slots=True)
class ReadCost:
    """What a version counts for in the limits of a step: rows to read, and bytes of data files."""

    rows: int
    bytes: int

    def __add__(self, other: ReadCost) -> ReadCost:
        return ReadCost(self.rows + other.rows, self.bytes + other.bytes)


NOTHING: Final = ReadCost(0, 0)

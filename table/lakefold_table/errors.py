"""The few kinds of error, named by what the caller must do next.

A conflict or a refusal is not an error: it is an `Outcome`, a value (see `entry`). An error means that no
answer could be given, and its kind says whether to try again, to stop, to mend the request, or to mend the
data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lakefold_table.position import Position

RESTORE: Final = "restore the file from a copy, or read a version that is whole"
"""What to do about damage where nothing better can be said."""


class LakefoldError(Exception):
    """The base of every error that Lakefold raises on purpose.

    `message` says what is wrong, `where` names the place (a path, a position, a setting; may be empty),
    `hint` says what to do about it (may be empty). `exit_code` is the command line's answer to it.
    """

    exit_code = 1

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message, where, hint)
        self.message = message
        self.where = where
        self.hint = hint

    @property
    def reason(self) -> str:
        """What is wrong and where, for a text that says itself what to do about it."""
        return f"{self.where}: {self.message}" if self.where else self.message

    def __str__(self) -> str:
        return f"{self.reason} ({self.hint})" if self.hint else self.reason


class RetryError(LakefoldError):
    """Nothing was decided: something could not be reached or timed out. The same call may succeed later."""

    exit_code = 5


class NoMemoryError(RetryError):
    """Too little memory is left for what the process is to do next. Later there may be enough."""


class StopError(LakefoldError):
    """The work must not go on as things are: trying again alone mends nothing.

    Where a table is named, its entries wait in their order and other tables go on. The two kinds below are
    conditions of a whole partition.
    """

    exit_code = 5


class FencedError(StopError):
    """Another process owns the work now: this one steps down."""


class OutnumberedError(FencedError):
    """A version bears a higher number, `generation`, than this process has in the row of owners.

    Another process has taken over, or the brokers lost the stamp that this number was counted from. A report
    that the brokers take proves the latter.
    """

    def __init__(self, message: str, *, generation: int, where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.generation = generation


class OutcomesLostError(StopError):
    """The outcomes topic ends before answers that were given: who reports there has to look what is left."""


class GapError(StopError):
    """The log is not the one that was proven, or lacks entries that nothing proves answered.

    A condition of the log, whatever the table: its partition stops. The message names what is proven and what
    is there. Whoever means it goes on by `lakefold committer --accept-new-log`.
    """


class InvalidError(LakefoldError):
    """What was asked for is wrong and stays wrong: mend the request."""

    exit_code = 2


class DamagedError(LakefoldError):
    """Stored bytes are not what the format says: mend or restore the data."""

    exit_code = 4

    def __init__(self, message: str, *, where: str = "", hint: str = RESTORE) -> None:
        super().__init__(message, where=where, hint=hint)


class PreconditionError(InvalidError):
    """The table is not in a state in which this may be done: the hint says how to bring it there."""

    exit_code = 3


class PlaceError(InvalidError):
    """No table or file can lie here: the path is too long, leads through a file, or leaves its root."""


class NotATableError(PlaceError):
    """There is no table at this place: nothing at all, or a folder of something else."""


class VersionExpiredError(InvalidError):
    """A version that was asked for is gone; `oldest` is the oldest one left (0 where none is known)."""

    def __init__(self, message: str, *, oldest: int, where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.oldest = oldest


class NotFoldedYetError(RetryError):
    """A position of the log that was asked for is still to come; `newest` is the last one that is folded."""

    def __init__(self, message: str, *, newest: Position, where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.newest = newest

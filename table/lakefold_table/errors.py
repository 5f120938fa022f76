"""The few kinds of error, named by what the caller must do next.

A conflict or a refusal is not an error: it is an `Outcome`, a value (see `entry`, which has `RefusedError`
for callers that wait for one). An error means that no
answer could be given, and its class says whether to try again, to stop, to change the request, or to repair
the data.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakefold_table.position import Position

RESTORE: Final = "restore the file from a copy, or read a version that is whole"
"""The hint for damaged data if there is no better one."""

_LONG_WORD: Final = re.compile(r"\S{501,}")
_MOST_SHOWN: Final = 4000


def shortened(text: str) -> str:
    """Returns a text to be shown: words of more than 500 characters, such as names, lose their middle.

    So does a text of more than 4,000 characters.
    """
    text = _LONG_WORD.sub(lambda word: _without_middle(word[0], 200), text)
    return text if len(text) <= _MOST_SHOWN else _without_middle(text, _MOST_SHOWN // 2)


def _without_middle(text: str, most: int) -> str:
    """Returns the beginning and the end of a text, `most` characters of each."""
    return f"{text[:most]}…({len(text) - 2 * most} more characters)…{text[-most:]}"


class LakefoldError(Exception):
    """The base of every error that Lakefold raises on purpose.

    `message` says what is wrong, `where` names the location (a path, a position, a setting; may be empty),
    `hint` says what to do about it (may be empty). These are whole; as a text the error is `shortened`.
    `exit_code` is the exit code of a command that fails with it.
    """

    exit_code = 1

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message, where, hint)
        self.message = message
        self.where = where
        self.hint = hint

    @property
    def reason(self) -> str:
        """The message and the place, `shortened`, for a text that has advice of its own."""
        return shortened(f"{self.where}: {self.message}" if self.where else self.message)

    def __str__(self) -> str:
        return f"{self.reason} ({shortened(self.hint)})" if self.hint else self.reason


@contextmanager
def options_named(names: Mapping[str, str]) -> Iterator[None]:
    """Gives the options in errors of the block the names by which a user gave them: `names` by Python's.

    Names without an underscore are replaced only if the error is about that option: they are words as well.
    """
    try:
        yield
    except LakefoldError as error:
        known = "|".join(name for name in names if "_" in name)
        pattern = re.compile(rf"(?<![\w/.-])({known})(?![\w/-])") if known else None
        for part in ("where", "hint", "message"):
            text: str = getattr(error, part)
            if part == "where" and text in names:
                text = names[text]
            elif pattern is not None:
                text = pattern.sub(lambda name: names[name[1]], text)
            setattr(error, part, text)
        raise


class RetryError(LakefoldError):
    """A store, a broker or a process could not be reached or timed out. The same call may succeed later."""

    exit_code = 5


class NoMemoryError(RetryError):
    """Too little memory is left for what the process has to do next. Later there may be enough."""


class NoThreadsError(RetryError):
    """The system allows the process, its user or its container no more threads."""


class StopError(LakefoldError):
    """The work must not continue as it is. Trying again helps only after something else has changed.

    If a table is named, its entries wait in their order and other tables continue. Some of the subclasses
    below are conditions of a whole partition.
    """

    exit_code = 5


class FencedError(StopError):
    """Another process owns the work now: this process steps down."""


class OutnumberedError(FencedError):
    """A version has a higher number, `generation`, than this process has in the chain of owners.

    Another process has taken over, or the brokers lost the committed offset that this number was counted
    from. If the brokers accept a report, it is the latter.
    """

    def __init__(self, message: str, *, generation: int, where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.generation = generation


class OutcomesLostError(StopError):
    """The outcomes topic ends before answers that were given: the reporter has to check which are left."""


class GapError(StopError):
    """The log is not the recorded log, or lacks entries that are not known to be answered.

    This is a condition of the log, whatever the table: its partition stops. The message names what is
    recorded and what the log contains. `lakefold committer --accept-new-log` continues nevertheless.
    """


class InvalidError(LakefoldError):
    """The request is wrong and stays wrong: change it."""

    exit_code = 2


class DamagedError(LakefoldError):
    """Stored bytes are not what the format says: repair or restore the data."""

    exit_code = 4

    def __init__(self, message: str, *, where: str = "", hint: str = RESTORE) -> None:
        super().__init__(message, where=where, hint=hint)


class PreconditionError(InvalidError):
    """The table is not in a state in which this may be done. The hint says how to change that."""

    exit_code = 3


class LocationError(InvalidError):
    """No table or file can be at this location: its path is too long, passes a file, or leaves the root."""


class NotATableError(LocationError):
    """There is no table at this location: nothing at all, or a folder with other files."""


class VersionExpiredError(InvalidError):
    """A requested version is gone. `oldest` is the oldest that exists (0 if none is known)."""

    def __init__(self, message: str, *, oldest: int, where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.oldest = oldest


class NotFoldedYetError(RetryError):
    """A requested position of the log is not folded yet. `newest` is the last position that is folded."""

    def __init__(self, message: str, *, newest: Position, where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.newest = newest

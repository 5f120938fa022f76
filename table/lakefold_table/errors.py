"""The few kinds of error, named by what the caller must do next.

A conflict or a refusal is not an error: it is an `Outcome`, a value (see `entry`, which has `RefusedError`
for callers that wait for one). An error means that no
answer could be given, and its class says whether to try again, to stop, to change the request, or to repair
the data.
"""

from __future__ import annotations

import copyreg
import re
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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


class OptionName(str):
    """An option in a text of an error, by its parameter in Python. See `options_named`."""

    __slots__ = ()


Text = str | tuple[str, ...]
"""A text of an error. It is in parts if one of them is an `OptionName`."""
_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


def shown_text(text: Text, names: Mapping[str, str] = _NO_NAMES) -> str:
    """Returns the text with its options by `names`, which are by those in Python, else as in Python."""
    parts = (text,) if isinstance(text, str) else text
    return "".join(names.get(part, part) if isinstance(part, OptionName) else part for part in parts)


def shown_texts(texts: Iterable[Text]) -> list[str]:
    """Returns the texts of a fault as they leave a process: with options as in Python."""
    return [shown_text(text) for text in texts]


class LakefoldError(Exception):
    """The base of every error that Lakefold raises on purpose.

    `message` says what is wrong, `where` names the location (a path, a position, a setting; may be empty),
    `hint` says what to do about it (may be empty). These are whole; as a text the error is `shortened`.
    `texts` has them in parts, and `names` the names of options in them, by those in Python.
    `exit_code` is the exit code of a command that fails with it.
    """

    exit_code = 1
    names: Mapping[str, str] = _NO_NAMES

    def __init__(self, message: Text, *, where: Text = "", hint: Text = "") -> None:
        super().__init__(message, where, hint)
        self.texts = message, where, hint

    def __reduce__(self) -> tuple[object, ...]:
        """Lets an error be copied, also to another process, whatever the parameters of its class are."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined] # typeshed lacks it

    @property
    def message(self) -> str:
        """What is wrong."""
        return shown_text(self.texts[0], self.names)

    @property
    def where(self) -> str:
        """The location, empty if there is none."""
        return shown_text(self.texts[1], self.names)

    @property
    def hint(self) -> str:
        """What to do about it, empty if that is not known."""
        return shown_text(self.texts[2], self.names)

    @property
    def reason(self) -> str:
        """The message and the place, `shortened`, for a text that has advice of its own."""
        return shortened(f"{self.where}: {self.message}" if self.where else self.message)

    def __str__(self) -> str:
        return f"{self.reason} ({shortened(self.hint)})" if self.hint else self.reason


@contextmanager
def options_named(names: Mapping[str, str]) -> Iterator[None]:
    """Has errors of the block show options by the names by which a user gave them: `names` by Python's.

    So do the errors that they name as their causes, which a traceback shows as well.
    """
    try:
        yield
    except LakefoldError as error:
        cause: BaseException | None = error
        while isinstance(cause, LakefoldError):
            cause.names = names
            cause = cause.__cause__
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
    """There is no table at this location: nothing at all, or a folder with other files.

    try:
        lakefold.open("s3://lake/none")
    except lakefold.NotATableError as error:
        print(error.message, error.hint)
    """


class VersionExpiredError(InvalidError):
    """A requested version is gone. `oldest` is the oldest that exists (0 if none is known).

    try:
        lakefold.open("s3://lake/flights.lance", version=7)
    except lakefold.VersionExpiredError as error:
        lakefold.open("s3://lake/flights.lance", version=error.oldest)
    """

    def __init__(self, message: str, *, oldest: int, where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.oldest = oldest


class NotPublishedYetError(VersionExpiredError):
    """A requested version does not exist yet. `newest` is the newest that exists.

    It is a `VersionExpiredError` for those who ask for another version whatever the reason is.
    """

    def __init__(self, version: int, *, newest: int, oldest: int, where: str = "") -> None:
        message = f"version {version} does not exist yet, the newest is {newest}"
        super().__init__(message, oldest=oldest, where=where, hint="wait for it, or ask for an older one")
        self.newest = newest


class NotFoldedYetError(RetryError):
    """A requested position of the log is not folded yet. `newest` is the last position that is folded."""

    def __init__(self, message: str, *, newest: Position, where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.newest = newest

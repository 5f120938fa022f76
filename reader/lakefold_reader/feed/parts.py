"""What a change feed is made of before a row is read: values, small enough to be sent elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from lakefold_reader.feed.columns import Followed


class ChangeType(StrEnum):
    """What became of a row, as the column `_change_type` says it."""

    INSERT = "insert"
    UPDATE_PREIMAGE = "update_preimage"
    UPDATE_POSTIMAGE = "update_postimage"
    DELETE = "delete"


class Rewritten(StrEnum):
    """What a feed does where a version put other content in the table's place: an Overwrite or a Restore.

    `ROWS`: the old rows are deleted and the new ones inserted, of a Restore those that differ. `FAIL`:
    `RewrittenError`. `SKIP`: nothing of that version is shown.
    """

    ROWS = "rows"
    FAIL = "fail"
    SKIP = "skip"


class Misfits(StrEnum):
    """What a feed does with a value of an older version that the last version's type has no room for.

    `FAIL`: `MisfitError`. `NULL`: the value is null, and a warning in the log says of which version and
    column how many are.
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
    """The choice that a word names. Raises `InvalidError`."""
    try:
        return Misfits(text)
    except ValueError as error:
        raise InvalidError(
            f"a feed can't treat values that don't fit as {text!r}",
            hint=f"choose one of {', '.join(Misfits)}",
        ) from error


class RewrittenError(InvalidError):
    """A version put other content in the table's place, and the feed was asked to stop there: `version`."""

    def __init__(self, message: str, *, version: int, where: str = "", hint: str = "") -> None:
        super().__init__(message, where=where, hint=hint)
        self.version = version


@dataclass(frozen=True, slots=True)
class ChangePart:
    """Some rows of one fragment and what one version did with all of them. Small, and can be pickled.

    `version` did it, at `time_us` (microseconds since 1970), for the log entry at `log_offset`. The rows are
    there in version `at`: `version` itself for what came, the one before for what went. `fragment` is that
    one's, encoded; `fragment_id` its id there (None: `at` is to be asked for it). `offsets` are the rows'
    places in it, a Roaring bitmap; None: all that aren't deleted there. `rows`: how many they are, None where
    nobody knows. `fields` is the schema of `at`, an encoded `lance.file.Schema`; `followed` tells which of
    its fields the feed's last version has: the id there, and the id in `at`.
    """

    version: int
    time_us: int
    change_type: ChangeType
    log_offset: int | None
    at: int
    fragment: bytes
    fragment_id: int | None
    offsets: bytes | None
    rows: int | None
    fields: bytes
    followed: Followed

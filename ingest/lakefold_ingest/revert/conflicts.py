"""The rows of an undone batch that later entries changed: as values, as text, and as an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from lakefold_table.errors import InvalidError, OptionName
from lakefold_table.values import value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LaterChange = Literal["changed", "deleted", "inserted again"]
SHOWN: Final = 24
"""How many conflicts a text lists at most."""


@value()
class RowConflict:
    """A row of an undone entry that a later entry changed.

    `version`: that of the undone entry; `row`: the row, by its key or its place. `later_version`,
    `later_offset` and `later_entry`: which version did it, and which entry of it (None and empty: not known,
    or another client); `operation`: the operation of that version. `change`: "changed", "deleted" (a row that
    the undone entry had changed), "inserted again" (a row that it had deleted, by its key).
    """

    version: int
    row: str
    change: LaterChange
    later_version: int
    later_offset: int | None
    later_entry: str
    operation: str

    def __str__(self) -> str:
        by = f"{self.later_entry} in " if self.later_entry else ""
        later = f"version {self.later_version} ({self.operation})"
        return f"{self.row} of version {self.version}: {self.change} by {by}{later}"

    def document(self) -> Mapping[str, object]:
        """Returns it as plain values."""
        return {
            "version": self.version,
            "row": self.row,
            "change": self.change,
            "later_version": self.later_version,
            "later_offset": self.later_offset,
            "later_entry": self.later_entry or None,
            "operation": self.operation,
        }


class RevertConflictError(InvalidError):
    """Rows of the batches that were to be undone were changed by later entries. Nothing was sent.

        lakefold.append("s3://lake/flights.lance", rows, app_id="loader", batch_id=9)
        try:
            lakefold.revert("s3://lake/flights.lance", ["loader:9"])
        except lakefold.RevertConflictError as error:
            print(error.conflicts)

    `conflicts` are all of them.
    """

    exit_code = 3

    def __init__(self, conflicts: Sequence[RowConflict], *, where: str) -> None:
        count = len(conflicts)
        message = f"{count:,} rows of what is to be undone were changed later: {listed(conflicts)}"
        hint = (
            "leave those rows as they are now: ",
            OptionName("keep_later"),
            "; or undo what was built on them as well: ",
            OptionName("with_dependents"),
        )
        super().__init__(message, where=where, hint=hint)
        self.conflicts = tuple(conflicts)


class PromoteConflictError(InvalidError):
    """Rows that a branch changed were changed on the main branch too since it began. Nothing was sent.

    `conflicts` are all of them.
    """

    exit_code = 3

    def __init__(self, conflicts: Sequence[RowConflict], *, where: str) -> None:
        message = f"{len(conflicts):,} rows were changed on both branches: {listed(conflicts)}"
        hint = "send these changes to a new branch that begins at the newest version, or to the main branch"
        super().__init__(message, where=where, hint=hint)
        self.conflicts = tuple(conflicts)


def listed(conflicts: Sequence[RowConflict]) -> str:
    """Returns the first conflicts as text."""
    more = len(conflicts) - SHOWN
    shown = "; ".join(map(str, conflicts[:SHOWN]))
    return f"{shown}; and {more:,} more" if more > 0 else shown

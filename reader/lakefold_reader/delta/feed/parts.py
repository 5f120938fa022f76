"""The planned parts of a change feed of a Delta table: values, small enough to be sent elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_reader.format.changes import Weight
from lakefold_reader.format.source import ChangePart

if TYPE_CHECKING:
    from lakefold_reader.delta.data_files import StoredRows

ROW_BYTES: Final = 16
"""The least that a row counts for if the number of rows is not known."""


@dataclass(frozen=True, slots=True)
class FilePart(ChangePart):
    """Some rows of a data file; see `ChangePart`.

    `in_change_file`: the file has changes of several kinds, and the rows are those of this kind.
    """

    rows: StoredRows
    in_change_file: bool = False

    @property
    def weight(self) -> Weight:
        """How many rows they are, and the bytes of the data file; all of its rows if that is not known."""
        counted = self.rows.rows
        return Weight(self.rows.size // ROW_BYTES if counted is None else counted, self.rows.size)

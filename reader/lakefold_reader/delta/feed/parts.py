"""The planned parts of a change feed of a Delta table: values, small enough to be sent elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakefold_reader.format.changes import Weight

if TYPE_CHECKING:
    from lakefold_reader.delta.data_files import StoredRows
    from lakefold_reader.format.changes import ChangeType

ROW_BYTES: Final = 16
"""The least that a row counts for if the number of rows is not known."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """Some rows of a data file, and what a version did with all of them. Small, and can be pickled.

    `version` did it, at `time_us` (microseconds since 1970), for the log entry at `log_offset`. `rows` are
    the rows. `in_change_file`: the file has changes of several kinds, and the rows are those of this kind.
    """

    version: int
    time_us: int
    change_type: ChangeType
    log_offset: int | None
    rows: StoredRows
    in_change_file: bool = False

    @property
    def weight(self) -> Weight:
        """How many rows they are, and the bytes of the data file; all of its rows if that is not known."""
        counted = self.rows.rows
        return Weight(self.rows.size // ROW_BYTES if counted is None else counted, self.rows.size)

"""The planned parts of a change feed of a Lance table: values, small enough to be sent elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_reader.format.changes import Weight
from lakefold_reader.lance.fragments import ROW_BYTES, bytes_of

if TYPE_CHECKING:
    from lakefold_reader.format.changes import ChangeType

Followed = tuple[tuple[int, int], ...]
"""The id of a field in the feed's last version, and its id in an older one."""


@dataclass(frozen=True, slots=True)
class FragmentPart:
    """Some rows of a fragment, and what a version did with all of them. Small, and can be pickled.

    `version` did it, at `time_us` (microseconds since 1970), for the log entry at `log_offset`. The rows are
    in version `at`: in `version` itself if they were added, in the version before if they were removed.
    `fragment` is that version's, encoded; `fragment_id` its id there (None: it is to be read from `at`).
    `offsets` are the rows' offsets in it, a Roaring bitmap; None: all rows that are not deleted there.
    `rows`: how many they are, None if that is not known. `fields` is the schema of `at`, an encoded
    `lance.file.Schema`; `followed` lists which of its fields the feed's last version has.
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

    @property
    def weight(self) -> Weight:
        """How many rows they are, and their share of the bytes of the fragment's data files."""
        fragment = DataFragment.FromString(self.fragment)
        stored = fragment.physical_rows
        rows = stored if self.rows is None else self.rows
        return Weight(rows, bytes_of(fragment) * rows // stored if stored else rows * ROW_BYTES)

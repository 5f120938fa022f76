"""The planned parts of a change feed of a Lance table: values, small enough to be sent elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_reader.format.changes import ReadCost
from lakefold_reader.format.source import ChangePart
from lakefold_reader.lance.units import ROW_BYTES, bytes_of

Followed = tuple[tuple[int, int], ...]
"""The id of a field in the feed's last version, and its id in an older one."""


@dataclass(frozen=True, slots=True)
class FragmentPart(ChangePart):
    """Some rows of a fragment; see `ChangePart`.

    The rows are in version `at`: in `version` itself if they were added, in the version before if they were
    removed. `fragment` is that version's, encoded; `fragment_id` its id there (None: it is to be read from
    `at`). `offsets` are the rows' offsets in it, a Roaring bitmap; None: all rows that are not deleted there.
    `rows`: how many they are, None if that is not known. `fields` is the schema of `at`, an encoded
    `lance.file.Schema`; `followed` lists which of its fields the feed's last version has.
    """

    at: int
    fragment: bytes
    fragment_id: int | None
    offsets: bytes | None
    rows: int | None
    fields: bytes
    followed: Followed

    @property
    def row_count(self) -> int | None:
        """See `ChangePart.row_count`."""
        return self.rows

    @property
    def cost(self) -> ReadCost:
        """How many rows they are, and their share of the bytes of the fragment's data files."""
        fragment = DataFragment.FromString(self.fragment)
        stored = fragment.physical_rows
        rows = stored if self.rows is None else self.rows
        return ReadCost(rows, bytes_of(fragment) * rows // stored if stored else rows * ROW_BYTES)

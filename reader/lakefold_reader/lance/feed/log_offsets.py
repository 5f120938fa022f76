"""Which entry of the log a change came with: the column `_log_offset`.

Where entries share a version, its record tells how many fragments each of them brought. Rows that such a
version deleted or changed in place are nobody's in particular: they bear the last offset that is in it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from lakefold_table.marks.record import decode_record

if TYPE_CHECKING:
    from lakefold_table.format import VersionSummary
    from lakefold_table.marks.record import Record


class EntryOffsets:
    """The entries of one version. `last`: the offset of what can't be told apart, None where no entry is."""

    def __init__(self, summary: VersionSummary, where: str = "") -> None:
        record = decode_record(summary.properties, where) if summary.own else None
        self.last = _last(record)
        brought = (
            [] if record is None else [one for one in record.committed.items() if one[1].num_fragment_ids]
        )
        self._firsts = [answer.first_fragment_id for _, answer in brought]
        self._ends = [answer.first_fragment_id + answer.num_fragment_ids for _, answer in brought]
        self._offsets = [offset for offset, _ in brought]

    def id_at(self, place: int) -> int | None:
        """The id of the fragment at this place among all that the version added, where the record tells."""
        return self._firsts[0] + place if self._firsts and self._firsts[0] + place < self._ends[-1] else None

    def brought(self, fragment_id: int | None) -> int | None:
        """The offset of the entry that brought a fragment; `last` for one that none did."""
        if fragment_id is None:
            return self.last
        place = bisect_right(self._firsts, fragment_id) - 1
        return self._offsets[place] if place >= 0 and fragment_id < self._ends[place] else self.last


def _last(record: Record | None) -> int | None:
    """The one entry that was folded, else the last position of the version."""
    if record is None or record.last_offset < record.first_offset:
        return None
    return next(iter(record.committed)) if len(record.committed) == 1 else record.last_offset

"""What the conflict rules are asked about: footprints of proposals, and of versions that were published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.lance.bitmaps import Bitmap, decode_bitmap
from lakefold_table.lance.conflicts.reading import footprint_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_table.lance.conflicts import Footprint

REUSE_INDEX = "__lance_frag_reuse"
"""The name of the fragment-reuse index (format facts, section 5.5)."""


def affected_rows(envelope: Envelope) -> Mapping[int, Bitmap] | Invalid | None:
    """The row offsets that a proposal deletes or moves, by fragment id; None where nobody says."""
    if not envelope.affected_rows:
        return None
    rows: dict[int, Bitmap] = {}
    for number, data in sorted(envelope.affected_rows.items()):
        try:
            rows[number] = decode_bitmap(data, f"affected_rows[{number}]")
        except DamagedError as error:
            return Invalid(
                f"the affected rows of fragment {number} can't be read: {error}",
                "give a portable 32-bit Roaring bitmap of physical row offsets",
            )
    return rows


def proposed_footprint(envelope: Envelope, rows: Mapping[int, Bitmap] | None) -> Footprint:
    """What a proposal touches."""
    reuse = envelope.HasField("fragment_reuse_index")
    return footprint_of(envelope.lance, affected_rows=rows, carries_reuse=reuse)


def carries_reuse(index_section: bytes) -> bool:
    """Whether a version has a fragment-reuse index; a Rewrite that made it counts as one that brought it.

    Lance's message doesn't say whether it did (format facts, section 3.4).
    """
    return REUSE_INDEX.encode() in index_section

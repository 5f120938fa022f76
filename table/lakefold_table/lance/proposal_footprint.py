"""What the conflict rules are asked about: footprints of proposals, and of versions that were published."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from lakefold_protos.lance.table_pb2 import IndexSection
from lakefold_table.allocation import check_allocated
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.lance.conflicts.footprint import FRAGMENT_REUSE as REUSE_INDEX
from lakefold_table.lance.conflicts.index_conditions import FRAGMENT_IDS
from lakefold_table.lance.conflicts.reading import footprint_of
from lakefold_table.lance.rows.bitmaps import Bitmap, decode_bitmap
from lakefold_table.lance.schemas.schema import related

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.file_pb2 import Field
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.lance.conflicts import Footprint


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
                f"the affected rows of fragment {number} can't be read: {error.reason}",
                "give a portable 32-bit Roaring bitmap of physical row offsets",
            )
    return rows


def proposed_footprint(
    envelope: Envelope, rows: Mapping[int, Bitmap] | None, fields: Sequence[Field]
) -> Footprint:
    """What a proposal touches. `fields`: the schema, by which an index on a list is one on its items."""
    reuse = envelope.HasField("fragment_reuse_index")
    footprint = footprint_of(envelope.lance, affected_rows=rows, carries_reuse=reuse)
    if footprint.indexing is None:
        return footprint
    added = tuple(replace(one, fields=related(fields, one.fields)) for one in footprint.indexing.added)
    return replace(footprint, indexing=replace(footprint.indexing, added=added))


def published_footprint(transaction: Transaction | None, index_section: bytes) -> Footprint:
    """What a version did, by its transaction and its indices. Raises as `carries_reuse` does."""
    return footprint_of(transaction, carries_reuse=carries_reuse(transaction, index_section))


def known_version(transaction: Transaction) -> int:
    """The version whose rows a proposal knows: the one that it read, or an older one that an index is of.

    An index may be committed long after it was built, on the newest version. What happened to its rows in
    between it doesn't know; pylance looks only at what came after the version read, and then finds wrong rows
    (Lance fact 10.8). One that is made of the table's own entries of its name keeps their version: those were
    held against what came since.
    """
    if not transaction.HasField("create_index"):
        return transaction.read_version
    create = transaction.create_index
    made_of = {one.name for one in create.removed_indices}
    built = [one.dataset_version for one in create.new_indices if one.fields and one.name not in made_of]
    return min([transaction.read_version, *(number for number in built if number)])


def carries_reuse(transaction: Transaction | None, index_section: bytes) -> bool:
    """Whether a version's Rewrite brought a fragment-reuse index, as far as the version's own indices tell.

    Lance's message doesn't say so (Lance fact 3.4). The index covers the fragments that rows went
    to; so a Rewrite whose new fragments it doesn't cover added nothing to it, even if the table has one.
    `DamagedError` where the section can't be read.
    """
    if (
        transaction is None
        or not transaction.HasField("rewrite")
        or REUSE_INDEX.encode() not in index_section
    ):
        return False
    new = {one.id for group in transaction.rewrite.groups for one in group.new_fragments}
    try:
        indices = IndexSection.FromString(index_section).indices
    except DecodeError as error:
        check_allocated(error)
        raise DamagedError(f"the index section can't be decoded: {error}") from error
    return bool(new) and any(
        _covers(decode_bitmap(one.fragment_bitmap), new)
        for one in indices
        if one.name == REUSE_INDEX and one.fragment_bitmap
    )


def _covers(bitmap: Bitmap, ids: Collection[int]) -> bool:
    return all(number < FRAGMENT_IDS and number in bitmap for number in ids)

"""Footprints for the conflict rules: of proposals, and of versions that were published."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from lakefold_protos.lance.table_pb2 import IndexSection
from lakefold_table.allocation import check_allocated
from lakefold_table.bitmaps import Bitmap, decode_bitmap
from lakefold_table.entry import Invalid
from lakefold_table.errors import DamagedError
from lakefold_table.lance.conflicts.footprint import Reads
from lakefold_table.lance.conflicts.index_conditions import FRAGMENT_IDS
from lakefold_table.lance.conflicts.transaction_footprint import filter_of, footprint_of
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE as REUSE_INDEX
from lakefold_table.lance.isolation import READING, is_serializable
from lakefold_table.lance.manifests.features import has_stable_row_ids
from lakefold_table.lance.rows.row_order import committed_in_order, states_order
from lakefold_table.lance.schemas.schema import related

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import Manifest
    from lakefold_protos.lance.transaction_pb2 import Transaction
    from lakefold_table.lance.conflicts import Footprint
    from lakefold_table.lance.kinds import Kind


def affected_rows(envelope: Envelope) -> Mapping[int, Bitmap] | Invalid | None:
    """Returns the row offsets that a proposal deletes or moves, by fragment id; None if it names none."""
    return _rows(envelope.affected_rows, "affected") if envelope.affected_rows else None


def read_rows(envelope: Envelope) -> Mapping[int, Bitmap] | Invalid:
    """Returns the offsets of the rows that a proposal has read and does not change, by fragment id."""
    return _rows(envelope.reads.rows, "read")


def _rows(encoded: Mapping[int, bytes], which: str) -> Mapping[int, Bitmap] | Invalid:
    rows: dict[int, Bitmap] = {}
    for number, data in sorted(encoded.items()):
        try:
            rows[number] = decode_bitmap(data, f"{which}_rows[{number}]")
        except DamagedError as error:
            return Invalid(
                f"the {which} rows of fragment {number} can't be read: {error.reason}",
                "give a portable 32-bit Roaring bitmap of physical row offsets",
            )
    return rows


def proposed_footprint(envelope: Envelope, rows: Mapping[int, Bitmap] | None, head: Manifest) -> Footprint:
    """Returns what a proposal touches.

    `head`: the table's manifest, whose schema maps an index on a list to the list's items. With stable row
    ids the operation itself checks the order in which a Rewrite has the rows.
    """
    reuse = envelope.HasField("fragment_reuse_index")
    keeps_order = reuse or has_stable_row_ids(head) or states_order(envelope.lance)
    footprint = footprint_of(
        envelope.lance, affected_rows=rows, carries_reuse=reuse, keeps_order=keeps_order, last_id=FRAGMENT_IDS
    )
    reads = _reads(envelope, footprint.kind, head)
    if reads is not None:
        footprint = replace(footprint, reads=reads)
    if footprint.indexing is None:
        return footprint
    added = tuple(
        replace(index, fields=related(head.fields, index.fields)) for index in footprint.indexing.added
    )
    return replace(footprint, indexing=replace(footprint.indexing, added=added))


def _reads(envelope: Envelope, kind: Kind, head: Manifest) -> Reads | None:
    """Returns what a proposal has read, None if that is not judged."""
    if envelope.HasField("reads") and kind in READING:
        said = envelope.reads
        keys = filter_of(said.keys) if said.HasField("keys") else None
        return Reads(keys, said.any_row, is_named=True)
    return Reads() if kind in READING and is_serializable(head.config) else None


def published_footprint(
    transaction: Transaction | None, index_section: bytes, head: Manifest | None = None
) -> Footprint:
    """Returns what a version touched, by its transaction and its indices. Raises as `carries_reuse` does.

    `head`: its manifest; not needed for a version that a committer makes.
    """
    reuse = carries_reuse(transaction, index_section)
    if transaction is None or not transaction.HasField("rewrite"):
        return footprint_of(transaction)
    return footprint_of(
        transaction,
        carries_reuse=reuse,
        keeps_order=committed_in_order(transaction, head, carries_reuse=reuse),
        last_id=0 if head is None else head.max_fragment_id,
    )


def known_version(transaction: Transaction) -> int:
    """Returns the version whose rows a proposal knows: that which it read, or an older version of its index.

    An index may be committed on the newest version, long after it was built. It doesn't cover what happened
    to its rows in between; pylance checks only what came after the version read, and then finds wrong rows
    (Lance fact 10.8). An index that is made of the table's own entries of its name keeps the version of one
    of them, because those were checked against what came since.
    """
    if not transaction.HasField("create_index"):
        return transaction.read_version
    create = transaction.create_index
    made_of = {(index.name, index.dataset_version) for index in create.removed_indices}
    named = ((index.name, index.dataset_version) for index in create.new_indices if index.fields)
    built = [version for name, version in named if (name, version) not in made_of]
    return min([transaction.read_version, *(number for number in built if number)])


def carries_reuse(transaction: Transaction | None, index_section: bytes) -> bool:
    """Returns whether a version's Rewrite contained a fragment-reuse index.

    This is known only as far as the version's own indices show it.

    Lance's message doesn't say so (Lance fact 3.4). The index covers the fragments into which rows were
    moved. So a Rewrite whose new fragments it doesn't cover added nothing to it, even if the table has such
    an index. Raises `DamagedError` if the section can't be read.
    """
    if (
        transaction is None
        or not transaction.HasField("rewrite")
        or REUSE_INDEX.encode() not in index_section
    ):
        return False
    new = {item.id for group in transaction.rewrite.groups for item in group.new_fragments}
    try:
        indices = IndexSection.FromString(index_section).indices
    except DecodeError as error:
        check_allocated(error)
        raise DamagedError(f"the index section can't be decoded: {error}") from error
    return bool(new) and any(
        _covers(decode_bitmap(item.fragment_bitmap), new)
        for item in indices
        if item.name == REUSE_INDEX and item.fragment_bitmap
    )


def _covers(bitmap: Bitmap, ids: Collection[int]) -> bool:
    return all(number < FRAGMENT_IDS and number in bitmap for number in ids)

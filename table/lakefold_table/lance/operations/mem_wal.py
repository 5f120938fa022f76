"""UpdateMemWalState: records how much of a write-ahead log the table contains (Lance facts 6.14, 10.9).

The index `__lance_mem_wal` lists for each shard of the log the newest generation whose rows are in the table.
A transaction advances shards: this operation alone, or an Update that also adds the rows. pylance gives the
changed entry a random uuid and the current time; here the uuid follows from the content, and the time stays.
pylance can only create the Update from Python, so tests compare this operation with that.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from lakefold_protos.lance.table_pb2 import IndexMetadata, MemWalIndexDetails
from lakefold_table.allocation import check_allocated
from lakefold_table.entry import Invalid
from lakefold_table.lance.change import Proposal, TableChange
from lakefold_table.lance.indexing.indices import MEM_WAL, Indices
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakefold_protos.lance.table_pb2 import CompactedSsTable
    from lakefold_table.lance.version_builder import VersionBuilder

UUID_BYTES = 16


def change(table: VersionBuilder, proposal: Proposal) -> TableChange | Invalid:
    """Returns a change that advances the shards."""
    sstables = proposal.transaction.update_mem_wal_state.compacted_sstables
    indices = advanced(table.indices, sstables, table.version)
    return indices if isinstance(indices, Invalid) else TableChange(proposal.transaction, indices=indices)


def advanced(indices: Indices, sstables: Sequence[CompactedSsTable], version: int) -> Indices | Invalid:
    """Returns the indices of the version in the making (`version`) with the shards of `sstables` advanced.

    Returns `Invalid` if the table doesn't have the index, or if a shard is named twice or doesn't advance
    (Lance fact 6.14). Returns the indices themselves if `sstables` is empty.
    """
    if not sstables:
        return indices
    entry = next((index for index in indices if index.name == MEM_WAL), None)
    if entry is None:
        return Invalid(
            f"the table has no index {MEM_WAL} to record generations in", "initialize its write-ahead log"
        )
    details = details_of(entry)
    if isinstance(details, Invalid):
        return details
    fault = _fault(generations(details), sstables)
    if fault is not None:
        return fault
    moved = IndexMetadata()
    moved.CopyFrom(with_generations(entry, details, sstables))
    moved.uuid.uuid = _uuid(entry.uuid.uuid, version, sstables)
    moved.dataset_version = version
    return tuple(moved if index is entry else index for index in indices)


def details_of(entry: IndexMetadata) -> MemWalIndexDetails | Invalid:
    """Returns the details of the write-ahead log's index. Returns `Invalid` if they can't be decoded."""
    try:
        return MemWalIndexDetails.FromString(entry.index_details.value)
    except DecodeError as error:
        check_allocated(error)
        return Invalid(
            f"the details of {entry.name} can't be decoded: {error}",
            "drop the index and initialize the write-ahead log again",
        )


def generations(details: MemWalIndexDetails) -> Mapping[bytes, int]:
    """Returns the newest generation that was merged, by shard id."""
    return {sstable.shard_id.uuid: sstable.generation for sstable in details.compacted_sstables}


def with_generations(
    entry: IndexMetadata, details: MemWalIndexDetails, sstables: Iterable[CompactedSsTable]
) -> IndexMetadata:
    """Returns the entry with its shards at least at these generations; new shards are appended."""
    changed = MemWalIndexDetails()
    changed.CopyFrom(details)
    shards = {sstable.shard_id.uuid: sstable for sstable in changed.compacted_sstables}
    for proposed in sstables:
        shard = shards.get(proposed.shard_id.uuid)
        if shard is None:
            changed.compacted_sstables.add().CopyFrom(proposed)
        else:
            shard.generation = max(shard.generation, proposed.generation)
    moved = IndexMetadata()
    moved.CopyFrom(entry)
    moved.index_details.value = changed.SerializeToString(deterministic=True)
    return moved


def _fault(current: Mapping[bytes, int], sstables: Sequence[CompactedSsTable]) -> Invalid | None:
    """Returns why the shards can't advance in this way."""
    shards = [sstable.shard_id.uuid for sstable in sstables]
    if any(len(shard) != UUID_BYTES for shard in shards):
        return Invalid("a shard's id is not a UUID", f"send {UUID_BYTES} bytes")
    repeated = [shard.hex() for shard, count in Counter(shards).items() if count > 1]
    if repeated:
        return Invalid(
            f"shards {some(repeated)} are named twice", "name each shard once, with its newest generation"
        )
    behind = [sstable for sstable in sstables if sstable.generation <= current.get(sstable.shard_id.uuid, -1)]
    if behind:
        named = {sstable.shard_id.uuid.hex(): current[sstable.shard_id.uuid] for sstable in behind}
        first = min(named)
        return Invalid(
            f"shards {some(named)} don't advance: shard {first} is at generation {named[first]}",
            "these generations are in the table already; send newer ones",
        )
    return None


def _uuid(before: bytes, version: int, sstables: Iterable[CompactedSsTable]) -> bytes:
    """Returns the uuid of the changed entry, in the form for custom content (RFC 9562, version 8)."""
    digest = hashlib.blake2b(before + version.to_bytes(8, "little"), digest_size=UUID_BYTES)
    for sstable in sstables:
        digest.update(sstable.shard_id.uuid + sstable.generation.to_bytes(8, "little"))
    number = bytearray(digest.digest())
    number[6], number[8] = number[6] & 0x0F | 0x80, number[8] & 0x3F | 0x80
    return bytes(number)

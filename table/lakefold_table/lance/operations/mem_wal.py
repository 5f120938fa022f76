"""UpdateMemWalState: how far the table has caught up with its write-ahead log (Lance facts 6.14 and 10.9).

The index `__lance_mem_wal` lists for each shard of the log the newest generation whose rows the table holds.
A transaction moves shards forward: this operation alone, or an Update that brings the rows too. pylance gives
the entry a random uuid and the time of day each time; here the uuid follows from what it is made of, and the
time stays. Only the Update can be made from Python, so the operation alone is compared with that.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from lakefold_protos.lance.table_pb2 import IndexMetadata, MemWalIndexDetails
from lakefold_table.entry import Invalid
from lakefold_table.format import Requirements
from lakefold_table.lance.indexing.indices import MEM_WAL
from lakefold_table.lance.manifests.allocation import check_allocated
from lakefold_table.lance.operations.change import Change
from lakefold_table.lance.schemas.columns import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakefold_protos.lakefold.log_pb2 import Envelope
    from lakefold_protos.lance.table_pb2 import CompactedSsTable
    from lakefold_table.lance.indexing.indices import Indices
    from lakefold_table.lance.operations.change import Proposal
    from lakefold_table.lance.state import LanceState
    from lakefold_table.lance.version_builder import VersionBuilder

UUID_BYTES = 16
KIND = "MemWalIndexDetails"


def needs(_state: LanceState | None, _envelope: Envelope) -> Requirements:
    """Nothing."""
    return Requirements()


def change(table: VersionBuilder, proposal: Proposal) -> Change | Invalid:
    """The shards, moved forward."""
    sstables = proposal.transaction.update_mem_wal_state.compacted_sstables
    indices = advanced(table.indices, sstables, table.version)
    return indices if isinstance(indices, Invalid) else Change(proposal.transaction, indices=indices)


def advanced(indices: Indices, sstables: Sequence[CompactedSsTable], version: int) -> Indices | Invalid:
    """The indices of `version` (the one in the making), the shards of `sstables` moved forward.

    Each shard may move once, and forward only, and the table must have the index (Lance fact 6.14).
    Without any SSTable the indices stay as they are.
    """
    if not sstables:
        return indices
    entry = next((index for index in indices if index.name == MEM_WAL), None)
    if entry is None:
        return Invalid(
            f"the table has no index {MEM_WAL} to note generations in", "initialize its write-ahead log"
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
    """What the entry of the write-ahead log's index says."""
    try:
        return MemWalIndexDetails.FromString(entry.index_details.value)
    except DecodeError as error:
        check_allocated(error)
        return Invalid(
            f"the details of {entry.name} can't be decoded: {error}", "drop and initialize it again"
        )


def generations(details: MemWalIndexDetails) -> Mapping[bytes, int]:
    """The newest generation merged, by the shard's id."""
    return {one.shard_id.uuid: one.generation for one in details.compacted_sstables}


def with_generations(
    entry: IndexMetadata, details: MemWalIndexDetails, sstables: Iterable[CompactedSsTable]
) -> IndexMetadata:
    """The entry with its shards at least at these generations; new shards come last."""
    changed = MemWalIndexDetails()
    changed.CopyFrom(details)
    there = {one.shard_id.uuid: one for one in changed.compacted_sstables}
    for proposed in sstables:
        shard = there.get(proposed.shard_id.uuid)
        if shard is None:
            changed.compacted_sstables.add().CopyFrom(proposed)
        else:
            shard.generation = max(shard.generation, proposed.generation)
    moved = IndexMetadata()
    moved.CopyFrom(entry)
    moved.index_details.value = changed.SerializeToString(deterministic=True)
    return moved


def _fault(there: Mapping[bytes, int], sstables: Sequence[CompactedSsTable]) -> Invalid | None:
    """Why the shards can't move so."""
    shards = [one.shard_id.uuid for one in sstables]
    if any(len(shard) != UUID_BYTES for shard in shards):
        return Invalid("a shard's id is no UUID", f"give its {UUID_BYTES} bytes")
    twice = [shard.hex() for shard, count in Counter(shards).items() if count > 1]
    if twice:
        return Invalid(f"shards {some(twice)} move twice", "name each shard once, with its newest generation")
    behind = [one for one in sstables if one.generation <= there.get(one.shard_id.uuid, -1)]
    if behind:
        named = {one.shard_id.uuid.hex(): there[one.shard_id.uuid] for one in behind}
        first = min(named)
        return Invalid(
            f"shards {some(named)} don't move forward: shard {first} is at generation {named[first]}",
            "these generations are in the table already: go on with newer ones",
        )
    return None


def _uuid(before: bytes, version: int, sstables: Iterable[CompactedSsTable]) -> bytes:
    """The uuid of the moved entry, of the kind for numbers of one's own making (RFC 9562, version 8)."""
    digest = hashlib.blake2b(before + version.to_bytes(8, "little"), digest_size=UUID_BYTES)
    for one in sstables:
        digest.update(one.shard_id.uuid + one.generation.to_bytes(8, "little"))
    number = bytearray(digest.digest())
    number[6], number[8] = number[6] & 0x0F | 0x80, number[8] & 0x3F | 0x80
    return bytes(number)

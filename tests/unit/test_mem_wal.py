"""How far a table has caught up with its write-ahead log: shards move forward, once each, or not at all."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import (
    UUID,
    CompactedSsTable,
    IndexMetadata,
    IndexSection,
    MemWalIndexDetails,
)
from lakefold_table.entry import Committed, Invalid
from lakefold_table.lance.indexing.indices import MEM_WAL
from lakefold_table.lance.operations.mem_wal import advanced, details_of, generations
from tests.folding import URI, MemoryTable, created

ONE, TWO, THREE = (bytes([number]) * 16 for number in (1, 2, 3))


def sstable(shard: bytes, generation: int) -> CompactedSsTable:
    return CompactedSsTable(shard_id=UUID(uuid=shard), generation=generation)


def log_index(*merged: CompactedSsTable) -> IndexMetadata:
    entry = IndexMetadata(name=MEM_WAL, dataset_version=1, created_at=7, index_version=0)
    entry.uuid.uuid = b"u" * 16
    details = MemWalIndexDetails(num_shards=4, compacted_sstables=merged)
    entry.index_details.type_url = "/lance.table.MemWalIndexDetails"
    entry.index_details.value = details.SerializeToString()
    return entry


OTHER = IndexMetadata(uuid=UUID(uuid=b"o" * 16), name="other", fields=[0])


def merged(entry: IndexMetadata) -> dict[bytes, int]:
    details = details_of(entry)
    assert isinstance(details, MemWalIndexDetails)
    assert details.num_shards == 4
    return dict(generations(details))


def test_shards_move_and_others_stay() -> None:
    before = [log_index(sstable(ONE, 3), sstable(TWO, 5)), OTHER]
    after = advanced(before, [sstable(TWO, 6), sstable(THREE, 0)], 9)
    assert not isinstance(after, Invalid)
    moved, other = after
    assert other is OTHER
    assert list(merged(moved).items()) == [(ONE, 3), (TWO, 6), (THREE, 0)]
    assert (moved.dataset_version, moved.created_at, moved.name) == (9, 7, MEM_WAL)
    assert merged(before[0]) == {ONE: 3, TWO: 5}


def test_the_uuid_follows_from_what_it_is_made_of() -> None:
    def uuid_of(number: bytes, generation: int, version: int) -> bytes:
        entry = log_index()
        entry.uuid.uuid = number
        after = advanced([entry], [sstable(ONE, generation)], version)
        assert not isinstance(after, Invalid)
        return after[0].uuid.uuid

    first = uuid_of(ONE, 1, 2)
    assert first == uuid_of(ONE, 1, 2)
    assert len({first, uuid_of(TWO, 1, 2), uuid_of(ONE, 2, 2), uuid_of(ONE, 1, 3), ONE}) == 5
    assert (len(first), first[6] >> 4, first[8] >> 6) == (16, 8, 2)


@pytest.mark.parametrize(
    ("sstables", "message"),
    [
        ([sstable(ONE, 3)], "don't advance: shard 0101.* is at generation 3"),
        ([sstable(TWO, 1), sstable(ONE, 2)], r"\['01010101010101010101010101010101'\] don't advance"),
        ([sstable(TWO, 1), sstable(TWO, 2)], "are named twice"),
        ([sstable(b"short", 1)], "not a UUID"),
    ],
)
def test_what_is_refused(sstables: list[CompactedSsTable], message: str) -> None:
    result = advanced([log_index(sstable(ONE, 3))], sstables, 9)
    assert isinstance(result, Invalid)
    assert re.search(message, result.message)


def test_a_table_without_the_index_can_note_nothing() -> None:
    result = advanced([OTHER], [sstable(ONE, 1)], 9)
    assert isinstance(result, Invalid)
    assert MEM_WAL in result.message


def test_details_that_are_none_are_refused() -> None:
    entry = log_index()
    entry.index_details.value = b"\xff"
    result = advanced([entry], [sstable(ONE, 1)], 9)
    assert isinstance(result, Invalid)
    assert "can't be decoded" in result.message


def test_nothing_merged_changes_nothing() -> None:
    before = [OTHER]
    assert advanced(before, [], 9) is before


def with_indices(*indices: IndexMetadata) -> MemoryTable:
    table = created()
    section = IndexSection(indices=indices).SerializeToString()
    table.table = replace(table.table, state=replace(table.state, index_section=section))
    return table


def update(*sstables: CompactedSsTable) -> Envelope:
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = "mem-wal", 1
    envelope.lance.update_mem_wal_state.compacted_sstables.extend(sstables)
    return envelope


def test_the_operation_moves_the_table_forward() -> None:
    table = with_indices(log_index(sstable(ONE, 3)), OTHER)
    assert isinstance(table.result(update(sstable(ONE, 4))), Committed)
    moved, other = IndexSection.FromString(table.state.index_section).indices
    assert (other, merged(moved), moved.dataset_version) == (OTHER, {ONE: 4}, 2)
    assert table.reopened().state.index_section == table.state.index_section


def test_the_operation_is_refused_if_it_moves_back() -> None:
    table = with_indices(log_index(sstable(ONE, 3)))
    assert isinstance(table.result(update(sstable(ONE, 3))), Invalid)
    assert table.state.version == 1

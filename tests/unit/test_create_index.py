"""CreateIndex in the core: entries that are refused, and the table's own two indices."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakefold_protos.lakefold.log_pb2 import Envelope
from lakefold_protos.lance.table_pb2 import (
    UUID,
    CompactedSsTable,
    FragmentReuseIndexDetails,
    IndexFile,
    IndexMetadata,
    IndexSection,
    MemWalIndexDetails,
)
from lakefold_table.bitmaps import Bitmap, encode_bitmap
from lakefold_table.entry import Committed, Invalid, Rejected
from lakefold_table.lance.indexing.indices import FRAGMENT_REUSE, MEM_WAL
from tests.folding import URI, MemoryTable, append, created

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = "_indices/01010101-0101-0101-0101-010101010101"
FILES = {f"{FOLDER}/page_lookup.lance": 10, f"{FOLDER}/page_data.lance": 20}
LOG_UUID, OTHER_UUID = b"l" * 16, b"m" * 16


def btree(name: str = "a_idx") -> IndexMetadata:
    index = IndexMetadata(
        uuid=UUID(uuid=b"\x01" * 16),
        name=name,
        fields=[0],
        dataset_version=2,
        fragment_bitmap=encode_bitmap(Bitmap([0, 1])),
        files=[IndexFile(path="page_lookup.lance", size_bytes=10), IndexFile(path="page_data.lance")],
    )
    index.index_details.type_url = "/lance.table.BTreeIndexDetails"
    return index


def log_index(uuid: bytes, **generations: int) -> IndexMetadata:
    index = IndexMetadata(uuid=UUID(uuid=uuid), name=MEM_WAL, dataset_version=1)
    index.index_details.type_url = "/lance.table.MemWalIndexDetails"
    details = MemWalIndexDetails(
        compacted_sstables=[sstable(*generation) for generation in generations.items()]
    )
    index.index_details.value = details.SerializeToString()
    return index


def sstable(shard: str, generation: int) -> CompactedSsTable:
    return CompactedSsTable(shard_id=UUID(uuid=shard.encode() * 16), generation=generation)


def merged(index: IndexMetadata) -> dict[str, int]:
    details = MemWalIndexDetails.FromString(index.index_details.value)
    return {table.shard_id.uuid[:1].decode(): table.generation for table in details.compacted_sstables}


def create(*new: IndexMetadata, removed: tuple[IndexMetadata, ...] = (), read: int = 2) -> Envelope:
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = "create-index", read
    envelope.lance.create_index.new_indices.extend(new)
    envelope.lance.create_index.removed_indices.extend(removed)
    return envelope


def move(shard: str, generation: int, read: int = 2) -> Envelope:
    envelope = Envelope(table=URI)
    envelope.lance.uuid, envelope.lance.read_version = f"move-{shard}-{generation}", read
    envelope.lance.update_mem_wal_state.compacted_sstables.append(sstable(shard, generation))
    return envelope


def table_with(*indices: IndexMetadata) -> MemoryTable:
    """A table at version 2 with two fragments and these indices."""
    table = created()
    table.fold(append(fragments=2))
    section = IndexSection(indices=indices).SerializeToString()
    table.table = replace(table.table, state=replace(table.state, index_section=section))
    return table


def section(table: MemoryTable) -> list[IndexMetadata]:
    return list(IndexSection.FromString(table.state.index_section).indices)


def test_an_index_is_added() -> None:
    table = table_with()
    assert isinstance(table.result(create(btree()), sizes=FILES), Committed)
    assert section(table) == [btree()]
    assert table.state.head.max_fragment_id == 1


def edited(change: Callable[[IndexMetadata], object]) -> IndexMetadata:
    index = btree()
    change(index)
    return index


def set_uuid(index: IndexMetadata) -> None:
    index.uuid.uuid = b"short"


def set_base(index: IndexMetadata) -> None:
    index.base_id = 3


def set_size(index: IndexMetadata) -> None:
    index.files[1].size_bytes = 21


def set_file(index: IndexMetadata) -> None:
    index.files[1].path = "gone.lance"


def file_up(index: IndexMetadata) -> None:
    index.files[1].path = "../../data/f.lance"


def file_elsewhere(index: IndexMetadata) -> None:
    index.files[1].path = "/etc/passwd"


def no_files(index: IndexMetadata) -> None:
    del index.files[:]


def set_bitmap(index: IndexMetadata) -> None:
    index.fragment_bitmap = b"\x01"


def empty_bitmap(index: IndexMetadata) -> None:
    index.fragment_bitmap = b""


def future(index: IndexMetadata) -> None:
    index.fragment_bitmap = encode_bitmap(Bitmap([2]))


def old_version(index: IndexMetadata) -> None:
    index.dataset_version = 0


def new_version(index: IndexMetadata) -> None:
    index.dataset_version = 3


def covering_fields(index: IndexMetadata) -> None:
    index.covering_fields.append(0)


def own_kind(index: IndexMetadata) -> None:
    index.index_details.type_url = "/lance.table.FragmentReuseIndexDetails"


def own_name(index: IndexMetadata) -> None:
    index.name = MEM_WAL


def far_future(index: IndexMetadata) -> None:
    index.created_at = 2**63


def no_name(index: IndexMetadata) -> None:
    index.name = ""


WRONG: dict[str, Callable[[IndexMetadata], None]] = {
    "uuid of 5 bytes": set_uuid,
    "ms after 1970, which no client can show": far_future,
    "base 3": set_base,
    "has 20 bytes, the transaction says 21": set_size,
    "gone.lance of index 'a_idx' is missing": set_file,
    r"files \['\.\./\.\./data/f\.lance'\] of index 'a_idx' are not plain names": file_up,
    r"files \['/etc/passwd'\] of index 'a_idx' are not plain names": file_elsewhere,
    "bitmap of index a_idx": set_bitmap,
    "doesn't state which fragments": empty_bitmap,
    "covers fragment 2, but ids were used up to 1": future,
    "built from version 0": old_version,
    "built from version 3": new_version,
    "flag 128": covering_fields,
    "can't be the name of an index of type 'FragmentReuseIndexDetails'": own_kind,
    "must be of type MemWalIndexDetails": own_name,
    "'' can't be the name": no_name,
}


@pytest.mark.parametrize("message", WRONG)
def test_an_entry_that_is_wrong_is_refused(message: str) -> None:
    table = table_with()
    sizes = {**FILES, f"{FOLDER}/gone.lance": None}
    result = table.result(create(edited(WRONG[message])), sizes=sizes)
    assert isinstance(result, Invalid), result
    assert re.search(message, result.message)
    assert result.hint
    assert section(table) == []


def test_a_file_that_every_such_index_has_is_looked_for() -> None:
    index = edited(no_files)
    asked = table_with()
    assert isinstance(asked.result(create(index), sizes={f"{FOLDER}/page_lookup.lance": None}), Invalid)
    assert isinstance(asked.result(create(index), sizes={f"{FOLDER}/page_lookup.lance": 5}), Committed)


def test_a_uuid_is_listed_once() -> None:
    result = table_with().result(create(btree(), btree("b_idx")), sizes=FILES)
    assert isinstance(result, Invalid)
    assert "uuid" in result.message


def test_an_entry_sent_again_under_its_uuid_is_replaced() -> None:
    table = table_with(btree(), log_index(LOG_UUID))
    again = btree()
    again.fragment_bitmap = encode_bitmap(Bitmap([0]))
    assert isinstance(table.result(create(again), sizes=FILES), Committed)
    assert section(table) == [log_index(LOG_UUID), again]


def test_what_replaces_an_index_that_was_dropped_since_is_built_again() -> None:
    table = table_with(btree())
    table.fold(create(removed=(btree(),)))
    late = create(edited(lambda index: setattr(index, "name", "other")), removed=(btree(),))
    late.lance.uuid = "late"
    result = table.result(late, sizes=FILES)
    assert isinstance(result, Rejected), result
    assert (result.conflict.retryable, result.conflict.keys) == (True, ("a_idx",))


def test_the_write_ahead_log_is_initialized_once() -> None:
    table = table_with()
    assert isinstance(table.result(create(log_index(LOG_UUID))), Committed)
    again = create(log_index(OTHER_UUID), read=3)
    again.lance.uuid = "again"
    result = table.result(again)
    assert isinstance(result, Invalid)
    assert "initialized already" in result.message


def test_its_details_must_be_readable() -> None:
    broken = log_index(LOG_UUID)
    broken.index_details.value = b"\xff"
    assert isinstance(table_with().result(create(broken)), Invalid)


def test_it_is_replaced_by_its_uuid() -> None:
    table = table_with(log_index(LOG_UUID, a=3))
    after = log_index(OTHER_UUID, a=4)
    assert isinstance(table.result(create(after, removed=(log_index(LOG_UUID, a=3),))), Committed)
    assert section(table) == [after]


def test_one_that_is_replaced_keeps_what_was_merged_since() -> None:
    before = log_index(LOG_UUID, a=3)
    table = table_with(before, btree())
    assert isinstance(table.result(move("a", 5)), Committed)
    assert isinstance(table.result(move("b", 1, read=3)), Committed)
    moved = section(table)[0]
    result = table.result(create(log_index(OTHER_UUID, a=4, c=9), removed=(before,)))
    assert isinstance(result, Committed), result
    kept, after = section(table)
    assert (kept, after.uuid.uuid) == (btree(), OTHER_UUID)
    assert merged(after) == {"a": 5, "c": 9, "b": 1}
    transaction = table.state.transaction
    assert transaction is not None
    assert list(transaction.create_index.removed_indices) == [moved]
    assert list(transaction.create_index.new_indices) == [after]


def test_a_fragment_reuse_index_comes_with_a_compaction_only() -> None:
    index = IndexMetadata(uuid=UUID(uuid=b"r" * 16), name=FRAGMENT_REUSE, dataset_version=2)
    index.index_details.type_url = "/lance.table.FragmentReuseIndexDetails"
    index.index_details.value = FragmentReuseIndexDetails().SerializeToString()
    index.fragment_bitmap = encode_bitmap(Bitmap())
    result = table_with().result(create(index))
    assert isinstance(result, Invalid)
    assert "can't be added by itself" in result.message

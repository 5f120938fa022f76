"""How far a table has caught up with its write-ahead log, as pylance notes it and as we do."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from lance.mem_wal import CompactedSsTable

from lakefold_protos.lance.table_pb2 import UUID
from lakefold_protos.lance.table_pb2 import CompactedSsTable as Merged
from lakefold_table.entry import Committed, Invalid
from lakefold_table.lance.operations.mem_wal import advanced
from lakefold_table.uri import canonical, local_path
from tests.oracle.operations import both_ways, comparable, version_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SCHEMA = pa.schema(
    [
        pa.field("a", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("s", pa.string()),
    ]
)


def rows(*ids: int) -> pa.Table:
    return pa.table({"a": pa.array(ids, pa.int64()), "s": ["x"] * len(ids)}, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    dataset = lance.write_dataset(rows(*range(10)), str(tmp_path / "t"))
    dataset.initialize_mem_wal(bucket_column="a", num_buckets=2)
    lance.dataset(str(tmp_path / "t")).create_scalar_index("a", "BTREE")
    return tmp_path / "t"


def shard(number: int) -> str:
    return str(uuid.UUID(int=number))


def merge(table: Path | str, pairs: Sequence[tuple[int, int]]) -> None:
    merged = [CompactedSsTable(shard(number), generation) for number, generation in pairs]
    upsert = lance.dataset(str(table)).merge_insert("a").when_matched_update_all()
    upsert.when_not_matched_insert_all().mark_sstables_as_compacted(merged).execute(rows(3))


@pytest.mark.parametrize(
    "steps",
    [
        [[(1, 0)]],
        [[(2, 5)], [(1, 7)], [(2, 6)]],
        [[(3, 1), (1, 2)], [(2, 2), (3, 4)]],
    ],
)
def test_shards_move_as_in_pylance(table: Path, steps: list[list[tuple[int, int]]]) -> None:
    for pairs in steps:
        before = version_of(table)
        merge(table, pairs)
        after = version_of(table)
        assert after.transaction is not None
        sstables = after.transaction.update.compacted_sstables
        ours = advanced(before.indices.indices, sstables, after.manifest.version)
        assert not isinstance(ours, Invalid)
        assert list(map(comparable, ours)) == list(map(comparable, after.indices.indices))


@pytest.mark.parametrize("pairs", [[(1, 4)], [(1, 4), (2, 0)]])
def test_an_update_that_brings_the_rows_moves_them_too(table: Path, pairs: list[tuple[int, int]]) -> None:
    merge(table, [(1, 3)])
    both = both_ways(table, lambda dataset: merge(local_path(canonical(dataset.uri)), pairs))
    assert isinstance(both.result, Committed)
    assert both.differences == {}


@pytest.mark.parametrize("pairs", [[(1, 3)], [(1, 2)], [(2, 1), (2, 2)]])
def test_what_pylance_refuses_is_refused(table: Path, pairs: list[tuple[int, int]]) -> None:
    merge(table, [(1, 3)])
    before = version_of(table)
    with pytest.raises(OSError, match=r"Stale SSTable compaction|Duplicate shard"):
        merge(table, pairs)
    sstables = [
        Merged(shard_id=UUID(uuid=uuid.UUID(int=number).bytes), generation=generation)
        for number, generation in pairs
    ]
    assert isinstance(advanced(before.indices.indices, sstables, 99), Invalid)

"""Rows of Delta tables are taken by their ids, and only the files and row groups that have them are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import lakefold
from lakefold_ingest.merge.clauses import Merge
from lakefold_ingest.operations.delete import DeleteWhere
from lakefold_ingest.operations.upsert import UpsertRows
from lakefold_reader.format.snapshots import RowsNotFoundError
from lakefold_table.errors import DamagedError
from lakefold_table.uri import canonical
from tests.delta_logs.actions import metadata, protocol_with, text
from tests.delta_merging import TRACKED, VECTORS, DeltaFolding
from tests.oracle.delta_maintenance import DeltaWorld

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakefold_reader.snapshot.snapshot import Table

MERGE = Merge(("x",))
SCHEMA = pa.schema([("x", pa.int64()), ("word", pa.string()), ("part", pa.string())])


def rows(*numbers: int, word: str = "") -> pa.Table:
    words = [f"{word}{number}" for number in numbers]
    parts = [f"p{number % 2}" for number in numbers]
    return pa.table({"x": list(numbers), "word": words, "part": parts}, schema=SCHEMA)


def made(path: Path, **configuration: str) -> DeltaFolding:
    """A table in two partitions: files of which some lose rows, and others have rows that were changed."""
    table = DeltaFolding(path)
    table.create(SCHEMA, configuration, ["part"])
    for start in (0, 10, 20):
        table.append(rows(*range(start, start + 10)))
    table.put(DeleteWhere("x in (3, 14, 15)"))
    table.put(UpsertRows(rows(4, 5, 26, 30, word="new "), MERGE))
    return table


def ids_of(table: Table) -> dict[int, int]:
    """The id of each row by its value of `x`."""
    read = table.to_arrow(["_rowid", "x"])
    return dict(zip(read["x"].to_pylist(), read["_rowid"].to_pylist(), strict=True))


KINDS = pytest.mark.parametrize(
    "configuration", [{}, VECTORS, {**VECTORS, **TRACKED}, TRACKED], ids=("plain", "vectors", "both", "ids")
)


@KINDS
def test_rows_come_in_the_order_of_their_ids_and_as_often(
    tmp_path: Path, configuration: dict[str, str]
) -> None:
    made(tmp_path / "t", **configuration)
    table = lakefold.open(tmp_path / "t")
    ids, expected = ids_of(table), {row["x"]: row for row in table.to_arrow().to_pylist()}
    assert len(set(ids.values())) == len(ids) == 28
    asked = [30, 4, 0, 26, 4, 13, 29, 1]
    for given in (
        [ids[x] for x in asked],
        np.array([ids[x] for x in asked]),
        pa.array(ids[x] for x in asked),
    ):
        assert table.take(given).to_pylist() == [expected[x] for x in asked]
    taken = table.take([ids[x] for x in asked], ["part", "_rowid", "x"])
    assert taken.schema == pa.schema([("part", pa.string()), ("_rowid", pa.uint64()), ("x", pa.int64())])
    assert taken.to_pylist() == [{"part": f"p{x % 2}", "_rowid": ids[x], "x": x} for x in asked]
    assert table.take([], ["x"]).schema == pa.schema([("x", pa.int64())])
    assert table.take([ids[4]] * 2, []).num_columns == 0
    addresses = table.to_arrow(["_rowaddr", "x"], "x = 26 or x = 13")
    numbers = table.take([ids[x] for x in addresses["x"].to_pylist()], ["_rowaddr"])
    assert numbers["_rowaddr"].to_pylist() == addresses["_rowaddr"].to_pylist()
    assert len(set(numbers["_rowaddr"].to_pylist())) == 2


@KINDS
def test_ids_without_a_row_are_unknown_or_deleted(tmp_path: Path, configuration: dict[str, str]) -> None:
    written = made(tmp_path / "t", **configuration)
    before = ids_of(lakefold.open(tmp_path / "t"))
    written.put(DeleteWhere("x = 11"))
    table = lakefold.open(tmp_path / "t")
    now = ids_of(table)
    if configuration == VECTORS or "delta.enableRowTracking" in configuration:
        with pytest.raises(RowsNotFoundError) as caught:
            table.take([now[10], before[11], 2**40, 2**64 - 1])
        assert caught.value.unknown[-2:] == [2**40, 2**64 - 1]
        both = caught.value.deleted + caught.value.unknown
        assert both == [before[11], 2**40, 2**64 - 1]
        # Without a deletion vector the row is in no file, so nothing is known of its id.
        assert bool(caught.value.deleted) == ("delta.enableDeletionVectors" in configuration)
        assert table.take([now[10], before[11], now[12]], ["x"], missing="skip")["x"].to_pylist() == [10, 12]
    with pytest.raises(lakefold.InvalidError, match="these are not row ids"):
        table.take(["x"])
    with pytest.raises(lakefold.InvalidError, match="there is no column 'nothing'"):
        table.take([now[10]], ["nothing"])


def test_ids_stay_when_rows_are_changed_and_compacted(tmp_path: Path) -> None:
    written = made(tmp_path / "t", **VECTORS, **TRACKED)
    before = ids_of(lakefold.open(tmp_path / "t"))
    written.put(UpsertRows(rows(0, 1, 12, word="again "), MERGE))
    assert ids_of(lakefold.open(tmp_path / "t")) == before
    DeltaWorld(tmp_path / "t", logs=1000).compaction().run(full=True)
    table = lakefold.open(tmp_path / "t")
    assert table.fragment_count == 2
    assert ids_of(table) == before
    asked = [12, 29, 0, 30, 7]
    assert table.take([before[x] for x in asked], ["x"])["x"].to_pylist() == asked
    # The deleted rows are in no file any more.
    with pytest.raises(RowsNotFoundError) as caught:
        table.take([max(before.values()) + 1, 0])
    assert caught.value.deleted == []


@pytest.mark.parametrize("configuration", [VECTORS, {**VECTORS, **TRACKED}], ids=("plain", "ids"))
def test_only_files_that_have_the_rows_are_read(tmp_path: Path, configuration: dict[str, str]) -> None:
    table = DeltaFolding(tmp_path / "t")
    table.create(SCHEMA, configuration)
    for start in (0, 10, 20):
        table.append(rows(*range(start, start + 10)))
    opened = lakefold.open(tmp_path / "t")
    ids = ids_of(opened)
    files = {path: pq.read_table(tmp_path / "t" / path)["x"][0].as_py() for path, _ in opened.data_files()}
    for path, first in files.items():
        if first != 10:
            (tmp_path / "t" / path).unlink()
    assert lakefold.open(tmp_path / "t").take([ids[19], ids[10]], ["x"])["x"].to_pylist() == [19, 10]
    with pytest.raises(DamagedError, match="the data file is missing"):
        lakefold.open(tmp_path / "t").take([ids[0]])


def stored(path: Path, ids: Sequence[int | None], row_group_size: int = 10) -> dict[str, Any]:
    """Writes a file of rows that keep these ids, and returns its action, without the first id."""
    name = f"{len(list(path.glob('*.parquet')))}.parquet"
    columns = {"x": pa.array(range(len(ids)), pa.int64()), "_row_id_kept": pa.array(ids, pa.int64())}
    versions = {"_row_version_kept": pa.nulls(len(ids), pa.int64())}
    pq.write_table(pa.table({**columns, **versions}), path / name, row_group_size=row_group_size)
    size = (path / name).stat().st_size
    return {"path": name, "size": size, "partitionValues": {}, "modificationTime": 1, "dataChange": True}


def tracked(path: Path, *files: tuple[dict[str, Any], int]) -> Table:
    """A table of files with these first ids."""
    (path / "_delta_log").mkdir(exist_ok=True)
    schema = '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
    adds = [
        {"add": {**file, "baseRowId": base, "defaultRowCommitVersion": 0, "stats": None}}
        for file, base in files
    ]
    mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":1000}', "removed": False}
    actions = [protocol_with("rowTracking", "domainMetadata"), metadata(schema, **TRACKED)]
    data = text([*actions, {"domainMetadata": mark}, *adds])
    (path / "_delta_log" / f"{0:020}.json").write_bytes(data)
    return lakefold.open(canonical(path))


def test_of_a_compacted_file_only_row_groups_with_the_ids_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [5, 7, None, 1, 2, None, 80, 90, 85]
    table = tracked(tmp_path, (stored(tmp_path, kept, row_group_size=3), 100))
    groups: list[int] = []
    read = pq.ParquetFile.read_row_group

    def recorded(file: pq.ParquetFile, group: int, columns: list[str], *, use_threads: bool) -> pa.Table:
        groups.append(group)
        return read(file, group, columns, use_threads=use_threads)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", recorded)
    assert table.take([7, 5], ["x"])["x"].to_pylist() == [1, 0]
    assert set(groups) == {0}
    groups.clear()
    assert table.take([102, 90], ["x"])["x"].to_pylist() == [2, 7]
    assert set(groups) == {0, 2}
    groups.clear()
    # The first row of the file kept another id. No row has that of its place.
    with pytest.raises(RowsNotFoundError) as caught:
        table.take([100, 3, 105])
    assert (caught.value.unknown, caught.value.deleted) == ([3, 100], [])
    assert table.take([105], ["x", "_rowid"]).to_pylist() == [{"x": 5, "_rowid": 105}]


def test_files_without_rows_have_the_first_id_of_another(tmp_path: Path) -> None:
    table = tracked(tmp_path, *((stored(tmp_path, ids), 100) for ids in ([], [None, None], [])))
    assert table.take([101, 100], ["x"])["x"].to_pylist() == [1, 0]


def test_ids_that_differ_in_the_last_digits_are_distinguished(tmp_path: Path) -> None:
    high = 2**63 - 1
    files = (stored(tmp_path, [2**60 + 1, 2**60 + 3]), 2**61), (stored(tmp_path, [high - 3, high - 1]), high)
    asked = [high - 1, 2**60 + 1, high - 3]
    table = tracked(tmp_path, *files)
    assert table.take(asked, ["_rowid"])["_rowid"].to_pylist() == asked
    with pytest.raises(RowsNotFoundError) as caught:
        table.take([2**60 + 2, high - 2])
    assert caught.value.unknown == [2**60 + 2, high - 2]


def test_an_id_of_two_rows_is_damage(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match="a row id belongs to two rows"):
        tracked(tmp_path, (stored(tmp_path, [8, 8]), 100)).take([8])


def test_files_of_other_clients_are_taken_by_addresses(tmp_path: Path) -> None:
    for start in (0, 5):
        write_deltalake(tmp_path, pa.table({"x": range(start, start + 5)}), mode="append")
    table = lakefold.open(tmp_path)
    assert (
        table.take(table.to_arrow(["_rowid"])["_rowid"])["x"].to_pylist() == table.to_arrow()["x"].to_pylist()
    )
    assert table.to_arrow(["_rowid", "_rowaddr"], limit=2, offset=4).to_pylist() == [
        {"_rowid": 4, "_rowaddr": 4},
        {"_rowid": 2**32, "_rowaddr": 2**32},
    ]
    with pytest.raises(RowsNotFoundError) as caught:
        table.take([5, 2 * 2**32])
    assert caught.value.unknown == [5, 2 * 2**32]

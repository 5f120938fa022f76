"""Spark's source reads Delta tables. Its methods are called in Spark's order, without Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.datasource import EqualTo, GreaterThan, In, IsNotNull, LessThanOrEqual, Not, StringStartsWith

import lakefold
from lakefold_reader.spark.changes import ChangedRowsError
from lakefold_reader.spark.data_source import LakefoldSource
from lakefold_table.bitmaps import Bitmap
from lakefold_table.delta.deletion_vectors.storage import inline_vector
from tests.delta_logs.actions import LISTED, add, data_file, metadata, remove, text
from tests.queries import Query, copied

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.datasource import Filter


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Version 0 has two rows, versions 1 and 2 append one each."""
    table = str(tmp_path / "t")
    write_deltalake(table, pa.table({"id": [0, 1]}))
    for number in (2, 3):
        write_deltalake(table, pa.table({"id": [number]}), mode="append")
    return table


def read(path: str, *filters: Filter, **options: str) -> tuple[list[dict[str, Any]], list[Filter]]:
    """Returns the rows of a batch read, and the filters that are left to Spark."""
    source = copied(LakefoldSource({"path": path, **options}))
    reader = source.reader(source.schema())
    left = list(reader.pushFilters(list(filters))) if filters else []
    tasks = [copied(task) for task in reader.partitions()]
    far = copied(reader)
    return [row for task in tasks for batch in far.read(task) for row in batch.to_pylist()], left


def test_a_version_is_read(path: str) -> None:
    assert sorted(row["id"] for row in read(path)[0]) == [0, 1, 2, 3]
    assert sorted(row["id"] for row in read(path, versionAsOf="0")[0]) == [0, 1]
    at = lakefold.open(path, 1).timestamp.isoformat()
    assert sorted(row["id"] for row in read(path, timestampAsOf=at)[0]) == [0, 1, 2]


def test_every_filter_that_is_pushed_is_answered(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "n": pa.array([1, None, 3], pa.int32()),
            "f": pa.array([0.5, float("nan"), None], pa.float32()),
            "s": ["it's", None, "x`y"],
            "d": pa.array([dt.date(2026, 1, 1), None, dt.date(2026, 2, 1)]),
            "t": pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * 3, pa.timestamp("us", "UTC")),
            "p": pa.array([Decimal("1.50"), None, Decimal("2.25")], pa.decimal128(9, 2)),
            "b": [b"\x00", None, b"\xff"],
        }
    )
    write_deltalake(tmp_path, rows)
    pushed = [
        (EqualTo(("n",), 3), [3]),
        (Not(EqualTo(("n",), 3)), [1]),
        (In(("n",), (1, 7)), [1]),
        (IsNotNull(("s",)), [1, 3]),
        (GreaterThan(("f",), 0.25), [1, None]),
        (LessThanOrEqual(("f",), 0.5), [1]),
        (StringStartsWith(("s",), "it's"), [1]),
        (EqualTo(("d",), dt.date(2026, 2, 1)), [3]),
        (GreaterThan(("t",), dt.datetime(2025, 1, 1, tzinfo=dt.UTC)), [1, None, 3]),
        (GreaterThan(("p",), Decimal("2.00")), [3]),
        (EqualTo(("b",), bytearray(b"\xff")), [3]),
    ]
    for given, expected in pushed:
        rows, left = read(str(tmp_path), given)
        assert ([row["n"] for row in rows], left) == (expected, []), given


def test_a_query_begins_with_the_content_and_takes_what_comes(path: str) -> None:
    query = Query(path)
    assert query.ids() == [[0, 1, 2, 3]]
    write_deltalake(path, pa.table({"id": [4]}), mode="append")
    DeltaTable(path).optimize.compact()
    query.start()
    assert query.ids() == [[4]]
    DeltaTable(path).delete("id = 4")
    with pytest.raises(ChangedRowsError):
        query.ids()


@pytest.mark.parametrize(
    ("start", "batches"),
    [("0", [[0, 1, 2, 3]]), ("1", [[2, 3]]), ("earliest", [[0, 1], [2, 3]]), ("latest", [])],
)
def test_a_query_begins_where_its_options_say(path: str, start: str, batches: list[list[int]]) -> None:
    assert Query(path, startingVersion=start).ids() == batches


def test_the_change_feed_is_read(path: str) -> None:
    DeltaTable(path).delete("id = 2")
    rows, _ = read(path, readChangeFeed="true", startingVersion="0")
    expected = lakefold.changes(path, -1).read_all().to_pylist()
    assert sorted(rows, key=str) == sorted(expected, key=str)
    query = Query(path, readChangeFeed="true", startingVersion="3", consumer="spark")
    assert [[(row["id"], row["_change_type"]) for row in batch] for batch in query.batches()] == [
        [(2, "delete")]
    ]


def test_rows_of_deletion_vectors_go_to_tasks(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    file = data_file(tmp_path, "a.parquet", 1, 2, 3)
    (log / f"{0:020}.json").write_bytes(text([LISTED, metadata(), file]))
    made = inline_vector({0: Bitmap([1])})
    vector = {
        "storageType": made.storage_type,
        "pathOrInlineDv": made.path_or_inline,
        "sizeInBytes": made.size,
        "cardinality": made.cardinality,
    }
    known = {"size": file["add"]["size"], "stats": file["add"]["stats"]}
    (log / f"{1:020}.json").write_bytes(text([remove("a.parquet"), add("a.parquet", vector, **known)]))
    assert [row["x"] for row in read(str(tmp_path))[0]] == [1, 3]
    rows, _ = read(str(tmp_path), readChangeFeed="true", startingVersion="1")
    assert [(row["x"], row["_change_type"]) for row in rows] == [(2, "delete")]

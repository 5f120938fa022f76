"""The columns of a change feed: every kind of them, and columns that were added, dropped or changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_table.errors import InvalidError
from tests.oracle.arrays import rows as any_rows
from tests.oracle.test_feed import DELETE, INSERT, feed_rows, foreign
from tests.oracle.test_rows_of_files import COLUMNS, MARKED, Version
from tests.proposals import rows

if TYPE_CHECKING:
    from pathlib import Path

BLOB_BELOW = pa.field("c", pa.struct([MARKED[0].with_name("b")]))


def alter(uri: str, **change: Any) -> None:  # noqa: ANN401 - a name, a path or a type
    lance.dataset(uri).alter_columns(cast("Any", change))


@pytest.mark.parametrize("field", [*COLUMNS, BLOB_BELOW], ids=str)
def test_every_kind_of_column_is_read_as_it_was(field: pa.Field, tmp_path: Path) -> None:
    """Of rows deleted and moved, from one data file and from two."""
    uri = str(tmp_path / "t")
    table = any_rows(pa.schema([pa.field("id", pa.int64()), field]), 40)
    table = table.set_column(0, "id", pa.array(range(40), pa.int64()))
    lance.write_dataset(table, uri, max_rows_per_file=20, enable_stable_row_ids=True)
    whole = lance.dataset(uri).scanner(blob_handling="all_binary").to_table()
    lance.dataset(uri).delete("id % 7 = 0")
    lance.dataset(uri).delete("id >= 15 and id < 20")
    lance.dataset(uri).delete("id >= 20")
    actual = lakefold.changes(uri, 1).read_all()
    assert set(actual["_change_type"].to_pylist()) == {DELETE}
    ids = [*range(0, 40, 7), *(n for n in range(15, 40) if n % 7)]
    assert actual["id"].to_pylist() == ids
    assert actual.schema.field("c").type == whole.schema.field("c").type
    expected = whole["c"].to_pylist()
    assert actual["c"].to_pylist() == [expected[number] for number in ids]


def many(uri: str) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", lakefold.changes(uri, 0).read_all().to_pylist())


def test_columns_renamed_one_after_the_other_are_followed(tmp_path: Path) -> None:
    """Each ends under a name that another column had."""
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"a": [1], "b": [2], "s": [{"x": 3, "y": 4}]}), uri)
    for path, name in (("a", "c"), ("b", "a"), ("c", "b"), ("s.x", "z"), ("s.y", "x"), ("s.z", "y")):
        alter(uri, path=path, name=name)
    lance.write_dataset(pa.table({"b": [5], "a": [6], "s": [{"y": 7, "x": 8}]}), uri, mode="append")
    assert [(row["a"], row["b"], row["s"]) for row in many(uri)] == [
        (2, 1, {"x": 4, "y": 3}),
        (6, 5, {"x": 8, "y": 7}),
    ]


def test_fields_below_a_column_may_come_and_go(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    kind = pa.struct(
        [
            ("x", pa.int64()),
            ("y", pa.string()),
            ("l", pa.list_(pa.struct([("u", pa.int8()), ("v", pa.int8())]))),
        ]
    )
    value = {"x": 1, "y": "one", "l": [{"u": 1, "v": 2}, None, {"u": 3, "v": 4}]}
    values = [value, None, {"x": 2, "y": None, "l": None}, {"x": 3, "y": "three", "l": []}]
    lance.write_dataset(pa.table({"s": pa.array(values, kind)}), uri)
    lance.dataset(uri).drop_columns(["s.x"])
    alter(uri, path="s.y", name="word")
    lance.dataset(uri).drop_columns(["s.l.item.u"])
    assert [row["s"] for row in many(uri)] == lance.dataset(uri).to_table()["s"].to_pylist()
    assert many(uri)[0]["s"] == {"word": "one", "l": [{"v": 2}, None, {"v": 4}]}


def test_a_dropped_column_is_not_the_one_that_got_its_id(tmp_path: Path) -> None:
    uri = foreign(tmp_path, count=2)
    lance.dataset(uri).add_columns(pa.schema([("old", pa.int64())]))
    lance.write_dataset(rows([7]).append_column("old", pa.array([70], pa.int64())), uri, mode="append")
    lance.dataset(uri).delete("id = 7")
    lance.dataset(uri).drop_columns(["old"])
    lance.dataset(uri).optimize.compact_files()
    lance.dataset(uri).add_columns(pa.schema([("new", pa.int64())]))
    seven = [row for row in many(uri) if row["id"] == 7]
    assert [(row["_change_type"], row["new"]) for row in seven] == [(INSERT, None), (DELETE, None)]


def test_values_that_the_last_type_cannot_hold(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"a": ["1", "2"]}), uri)
    lance.write_dataset(pa.table({"a": pa.array([3], pa.int64())}), uri, mode="overwrite")
    assert [(row["_change_type"], row["a"]) for row in many(uri)] == [
        (INSERT, 1),
        (INSERT, 2),
        (DELETE, 1),
        (DELETE, 2),
        (INSERT, 3),
    ]
    lance.write_dataset(pa.table({"a": ["x"]}), uri, mode="overwrite")
    lance.write_dataset(pa.table({"a": pa.array([4], pa.int64()), "b": [1]}), uri, mode="overwrite")
    with pytest.raises(InvalidError, match="column a is string in version 3 and int64 in the feed's last"):
        lakefold.changes(uri, 2).read_all()

    values = [(DELETE, None), (INSERT, None), (DELETE, None), (INSERT, 1)]
    assert feed_rows(uri, 2, key="b", columns=["b"]) == values


def test_columns_with_the_feed_s_own_names(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"a": [1], "_change_type": ["x"]}), uri)
    with pytest.raises(InvalidError, match="_change_type"):
        lakefold.changes(uri, 0)
    assert feed_rows(uri, 0, key="a", columns=["a"]) == [(INSERT, 1)]
    with pytest.raises(InvalidError, match="no columns"):
        lakefold.changes(uri, 0, columns=["b"])


@pytest.mark.parametrize("version", ["legacy", "2.0", "2.3"])
def test_every_version_of_data_files(version: Version, tmp_path: Path) -> None:
    """For few rows of a fragment, for many, and for none of its columns."""
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(range(2000)), uri, data_storage_version=version)
    gone: list[int] = []
    for few in ([3, 700, 1999], range(701, 1700), range(10)):
        here = [number for number in few if number not in gone]
        lance.dataset(uri).delete(f"id in ({', '.join(map(str, here))})")
        gone += here
    table = lakefold.changes(uri, 1).read_all()
    assert table["id"].to_pylist() == gone
    assert table["text"].to_pylist() == [f"row {number}" for number in gone]
    assert lakefold.changes(uri, 1, columns=[]).read_all().num_rows == len(gone)

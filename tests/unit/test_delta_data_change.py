"""Actions with dataChange false move rows: they may neither lose nor make any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakefold_table.entry import Committed, Invalid
from tests.delta_logs.actions import Members, data_file, remove
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_rows import Rows, log_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def moved(action: Members, *, counted: bool = True) -> Members:
    """The action of a file with dataChange false."""
    ((name, members),) = action.items()
    known = members if counted else {key: part for key, part in members.items() if key != "stats"}
    return {name: {**known, "dataChange": False}}


GONE = moved(remove("a.parquet"))
"""Removes a file of two rows."""
CASES: dict[str, tuple[Callable[[Table], list[Members]], str]] = {
    "rows that go": (lambda _: [GONE], "all rows are removed with dataChange false, and no file is added"),
    "a row that goes": (
        lambda table: [GONE, moved(table.file("b.parquet", 1))],
        "2 rows are removed with dataChange false, but the files that are added with it have 1",
    ),
    "rows that come": (
        lambda table: [GONE, moved(table.file("b.parquet", 1, 2, 3))],
        "3 rows are added with dataChange false, but the removed files have 2",
    ),
    "rows that are new for others": (
        lambda table: [GONE, table.file("b.parquet", 1, 2)],
        "all rows are removed with dataChange false, and no file is added",
    ),
    "rows that go in two files": (
        lambda table: [GONE, moved(table.file("b.parquet", 1)), moved(table.file("c.parquet", 2))],
        "",
    ),
    "rows that stay of those that are deleted": (
        lambda table: [remove("a.parquet"), moved(table.file("b.parquet", 1)), table.file("c.parquet", 9)],
        "",
    ),
    "more rows than are deleted": (
        lambda table: [remove("a.parquet"), moved(table.file("b.parquet", 1, 2, 3))],
        "3 rows are added with dataChange false",
    ),
    "an unknown number": (lambda table: [GONE, moved(table.file("b.parquet", 1), counted=False)], ""),
    "other statistics of a file that stays": (lambda table: [moved(table.file("a.parquet", 1, 2))], ""),
}


@pytest.mark.parametrize("append_only", ["false", "true"])
@pytest.mark.parametrize("name", CASES)
def test_rows_are_only_moved_if_no_data_changes(tmp_path: Path, name: str, append_only: str) -> None:
    actions, says = CASES[name]
    table = Table(tmp_path / "t")
    table.begin(table.file("a.parquet", 1, 2), **{"delta.appendOnly": append_only})
    proposed = actions(table)
    if append_only == "true" and remove("a.parquet") in proposed:
        says = "the table is append-only"
    (result,) = table.fold(table.propose(*proposed, read=1), log=log_id(1))
    if says:
        assert isinstance(result, Invalid), result
        assert says in result.message
        assert table.rows() == [1, 2]
    else:
        assert isinstance(result, Committed), result


def test_rows_that_a_vector_has_deleted_need_not_be_moved(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "t", 0, 1)
    assert isinstance(rows.fold(rows.delete(0, range(10), read=1))[0], Committed)
    assert isinstance(rows.fold(rows.delete(1, [1, 2], read=2))[0], Committed)
    removes = [
        moved(remove(f"{number}.parquet", rows.vector(deleted)))
        for number, deleted in ((0, range(10)), (1, [1, 2]))
    ]
    few, rest = (moved(rows.file(f"{len(x)}.parquet", x)) for x in ([10], [10, *range(13, 20)]))
    (refused,) = rows.fold(rows.table.propose(*removes, few, read=3))
    assert isinstance(refused, Invalid)
    assert "8 rows are removed with dataChange false" in refused.message
    assert rows.fold(rows.table.propose(removes[0], read=4)) == [Committed(5)]
    assert rows.fold(rows.table.propose(removes[1], rest, read=5)) == [Committed(6)]
    assert rows.rows() == [10, *range(13, 20)]


def test_who_removes_a_file_may_have_counted_its_rows(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    files = [data_file(table.path, "a.parquet"), data_file(table.path, "b.parquet", 1)]
    for file in files:
        del file["add"]["stats"]
    table.begin(*files)
    action = moved(remove("a.parquet"))["remove"]
    unknown, empty, full = (
        table.propose({"remove": {**action, **counted}}, read=1)
        for counted in ({}, {"stats": '{"numRecords":0}'}, {"stats": '{"numRecords":1}'})
    )
    results = table.fold(unknown, full, empty, log=log_id(1))
    assert [type(each) for each in results] == [Invalid, Invalid, Committed]


def test_a_vector_deletes_rows_only_if_data_change(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "t", 0)
    deletion = moved(rows.added("0.parquet", [3])), moved(remove("0.parquet"))
    (refused,) = rows.fold(rows.table.propose(*deletion, read=1))
    assert isinstance(refused, Invalid)
    assert "10 rows are removed with dataChange false" in refused.message

"""Rows are in an order within each file, whichever door appends them to a table of pylance or delta-rs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import lakefold
from lakefold.cli import run
from lakefold.writing.options import write_settings
from lakefold_ingest.formats import read_view
from lakefold_ingest.operations.append import append_source
from lakefold_ingest.options.write_options import WriteUse
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.rows.row_faults import BAD_ROWS
from lakefold_ingest.rows.row_source import RowSource
from lakefold_ingest.spark.given_options import read_write_options
from lakefold_ingest.spark.write_plan import plan_write
from lakefold_ingest.writing.bad_records import bad_records
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from lakefold_ingest.writing.settings import WriteSettings

NO_BROKER: Final[lakefold.WriteOptions] = {"bootstrap_servers": "127.0.0.1:1", "timeout": 1}
SCHEMA: Final = pa.schema({"at": pa.int64(), "text": pa.string(), "list": pa.list_(pa.int64())})
NUMBERS: Final = [*random.Random(3).sample(range(1000), 39), None]
ROWS: Final = pa.table({"at": NUMBERS, "text": map(str, NUMBERS), "list": [[1]] * 40}, schema=SCHEMA)


@pytest.fixture(params=["lance", "delta"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "lance":
        lance.write_dataset(SCHEMA.empty_table(), str(tmp_path / "t"))
    else:
        write_deltalake(tmp_path / "t", SCHEMA.empty_table())
    return tmp_path / "t"


def in_files(table: Path) -> list[list[int | None]]:
    """The column `at` of each data file, by the numbers of rows."""
    if (table / "_delta_log").exists():
        files = [pq.read_table(file)["at"].to_pylist() for file in table.glob("*.parquet")]
    else:
        reads = lance.file.LanceFileReader
        files = [
            reads(str(file)).read_all().to_table()["at"].to_pylist() for file in table.glob("data/*.lance")
        ]
    return sorted(files, key=len)


def by_append(settings: WriteSettings, rows: pa.Table) -> None:
    view = read_view(settings.table, {}, afresh=True)
    assert view is not None
    append_source(RowSource(rows)).build(view, Key("app", 0), settings)


def by_format(settings: WriteSettings, rows: pa.Table) -> None:
    """What the data source does in a streaming query with one task, which gets batches of some rows."""
    given = read_write_options({"path": settings.table})
    plan = plan_write(given, settings, rows.schema, Key("app", 0), use=WriteUse.STREAM, overwrite=False)
    (task,) = plan.with_few([plan.run(rows.to_batches(max_chunksize=7))])
    assert task.fault is None


@pytest.mark.parametrize("door", [by_append, by_format])
def test_each_file_is_in_order(table: Path, door: Callable[[WriteSettings, pa.Table], None]) -> None:
    settings = write_settings(table, {**NO_BROKER, "sort_by": "at", "max_rows_per_file": 16})
    door(settings, ROWS)
    files = in_files(table)
    assert [len(file) for file in files] == [8, 16, 16]
    parts = [NUMBERS[32:], NUMBERS[:16], NUMBERS[16:32]]
    assert sorted(map(str, files)) == sorted(map(str, map(ordered, parts)))


def ordered(numbers: Iterable[int | None]) -> list[int | None]:
    """Nulls first, as in Spark."""
    return sorted(numbers, key=lambda number: -1 if number is None else number)


def test_rows_that_do_not_fit_are_all_found_in_sorted_files_too(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("at", pa.int64())])
    lance.write_dataset(schema.empty_table(), str(tmp_path / "t"))
    rows = pa.table({"n": [None, 1, 2, None, 3, None], "at": [1, 6, 5, 4, 3, 2]})
    options: lakefold.WriteOptions = {**NO_BROKER, "sort_by": "at", "max_rows_per_file": 2}
    with pytest.raises(lakefold.BadRowsError, match="3 rows"):
        lakefold.append(tmp_path / "t", rows, **options)
    settings = write_settings(tmp_path / "t", {**options, "bad_records": tmp_path / "bad"})
    by_append(settings, rows)
    assert sorted(in_files(tmp_path / "t"), key=str) == [[3], [5], [6]]
    bad = bad_records(
        settings, Key("app", 0), [BAD_ROWS.empty_table(), pa.table([["c"], ["r"], ["{}"], ["{}"]], BAD_ROWS)]
    )
    assert bad is not None
    assert bad.settings.sort_by == ()


@pytest.mark.parametrize(
    ("sort_by", "words"), [("nope", "nope is not in the batch"), ("list", "rows can't be sorted by list")]
)
def test_an_order_that_rows_can_not_have_is_refused(table: Path, sort_by: str, words: str) -> None:
    options: lakefold.WriteOptions = {**NO_BROKER, "sort_by": sort_by}
    with pytest.raises(InvalidError, match=words):
        lakefold.append(table, ROWS, **options)
    path = table.parent / "rows.parquet"
    pq.write_table(ROWS, path)
    assert (
        run(["append", str(table), str(path), "--sort-by", sort_by, "--bootstrap-servers", "127.0.0.1:1"])
        == 2
    )


def test_rows_that_are_merged_have_no_order_of_their_own(table: Path) -> None:
    changes: list[Callable[..., Any]] = [
        lambda **given: lakefold.upsert(table, ROWS, keys="at", **given),
        lambda **given: lakefold.delete(table, rows=ROWS, keys="at", **given),
    ]
    for change in changes:
        with pytest.raises(InvalidError, match="sort_by: it is for rows that are appended"):
            change(sort_by="at", **NO_BROKER)
    given = read_write_options({"path": str(table), "sortBy": "at, text", "writeMode": "upsert"})
    assert given.settings()["sort_by"] == ("at", "text")
    with pytest.raises(InvalidError, match="no meaning in the mode upsert"):
        given.check(WriteUse.STREAM, given.mode(overwrite=False))

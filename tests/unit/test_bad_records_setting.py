"""A wrong table of bad rows is an error of the first call, before a batch has a bad row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import lakefold
from lakefold.spark_format import LakefoldFormat
from lakefold.writing.options import write_settings
from lakefold_ingest.formats import read_view
from lakefold_ingest.writing.bad_records import COLUMNS, check_bad_records

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings

BROKERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}


def settings(table: Path, bad: Path) -> WriteSettings:
    return write_settings(table, {"bootstrap_servers": "127.0.0.1:1", "bad_records": bad})


def plan(table: Path, bad: Path, **options: str) -> None:
    """Plans a write of Spark's. No broker can be reached, and none is needed if the table exists."""
    if not table.exists():
        lance.write_dataset(pa.table({"id": [1]}), table)
    given = BROKERS | {"path": str(table), "badRecords": str(bad), **options}
    LakefoldFormat(given).writer(StructType([StructField("id", LongType())]), overwrite=False)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (pa.schema({"reason": pa.string()}), r"table \(string\) is not in the table; app_id"),
        (COLUMNS.set(2, pa.field("batch_id", pa.string())), "batch_id is uint64"),
        (COLUMNS.append(pa.field("n", pa.int8(), nullable=False)), r"n \(int8\) is missing"),
    ],
    ids=["missing", "other type", "required"],
)
def test_a_table_of_other_rows_is_noticed_when_a_write_begins(
    tmp_path: Path, columns: pa.Schema, said: str
) -> None:
    lance.write_dataset(columns.empty_table(), tmp_path / "bad")
    with pytest.raises(lakefold.InvalidError, match=rf"bad is a table of other rows: .*{said}") as raised:
        plan(tmp_path / "t", tmp_path / "bad")
    assert raised.value.where == "badRecords"


def test_a_folder_of_other_files_is_noticed_when_a_write_begins(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "rows.csv").write_text("1")
    with pytest.raises(lakefold.NotATableError, match="bad"):
        plan(tmp_path / "t", tmp_path / "bad")


def test_a_table_without_sources_and_one_that_does_not_exist_are_accepted(tmp_path: Path) -> None:
    """Nothing is created, and each is read once in a process."""
    lance.write_dataset(COLUMNS.remove(COLUMNS.get_field_index("source")).empty_table(), tmp_path / "bad")
    reads = list[str]()

    def noted(uri: str, options: dict[str, str]) -> View | None:
        reads.append(uri)
        return read_view(uri, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakefold_ingest.writing.bad_records.read_view", noted)
        for name in ("bad", "none", "bad", "none"):
            plan(tmp_path / "t", tmp_path / name)
            check_bad_records(settings(tmp_path / "t", tmp_path / name))
    assert [uri.rpartition("/")[2] for uri in reads] == ["bad", "none"]
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(("table", "bad"), [("a", "a/bad"), ("a/t", "a")])
def test_a_table_of_bad_rows_is_not_inside_of_the_other_one(tmp_path: Path, table: str, bad: str) -> None:
    with pytest.raises(lakefold.InvalidError, match="no table can be inside of another one") as raised:
        settings(tmp_path / table, tmp_path / bad)
    assert raised.value.where == "bad_records"


def test_a_table_of_bad_rows_is_below_the_roots_that_are_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless they don't have the written table either: then another committer folds it."""
    bad = tmp_path / "b" / "bad"
    settings(tmp_path / "a" / "t", bad)
    monkeypatch.setenv("LAKEFOLD_ROOTS", str(tmp_path / "a"))
    settings(tmp_path / "c" / "t", bad)
    with pytest.raises(lakefold.InvalidError, match=f"{re.escape(str(bad))} is not below the roots"):
        settings(tmp_path / "a" / "t", bad)

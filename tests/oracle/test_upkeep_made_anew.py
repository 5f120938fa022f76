"""A maintainer that runs on while a table is dropped and made anew works on the table that is there now."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import TYPE_CHECKING

import lance
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefold_maintenance.files.clean_up import EVERY_S
from lakefold_maintenance.files.removal_note import NOTICE_S
from tests.oracle.test_upkeep import Surroundings

if TYPE_CHECKING:
    from pathlib import Path

PAUSES = [timedelta(seconds=max(NOTICE_S, EVERY_S) + 1), timedelta(days=7, seconds=1)]
FORMATS = ("lance", "delta")


def write(table: Path, table_format: str, number: int) -> None:
    """Another client appends a row."""
    rows = pa.table({"x": [number]})
    if table_format == "delta":
        write_deltalake(table, rows, mode="append")
    else:
        lance.write_dataset(rows, table, mode="append" if table.exists() else "create")


def read(table: Path, table_format: str) -> list[int]:
    if table_format == "delta":
        rows = DeltaTable(table).to_pyarrow_table()
    else:
        rows = lance.dataset(str(table)).to_table()
    return sorted(rows["x"].to_pylist())


@pytest.mark.parametrize("now", FORMATS)
@pytest.mark.parametrize("before", FORMATS)
@pytest.mark.parametrize("appends", [1, 2, 3])
def test_no_file_of_the_new_table_is_removed(tmp_path: Path, before: str, now: str, appends: int) -> None:
    """Its newest version may have the number of the old table's, which the maintainer has read."""
    table = tmp_path / "t"
    for number in range(2):
        write(table, before, number)
    around = Surroundings(table)
    upkeep = around.upkeep(compaction="false")
    upkeep.round()
    shutil.rmtree(table)
    for number in range(100, 100 + appends):
        write(table, now, number)
    files = {path for path in table.rglob("*") if path.suffix in {".lance", ".parquet"}}
    for pause in [*PAUSES, *PAUSES, PAUSES[0]]:
        around.now += pause
        report = upkeep.round()
        assert report.format == now
        assert report.fragments == appends
        assert report.removed_files.count == 0
    assert {path for path in table.rglob("*") if path.suffix in {".lance", ".parquet"}} == files
    assert read(table, now) == [*range(100, 100 + appends)]

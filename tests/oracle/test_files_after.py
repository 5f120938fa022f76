"""The files after a version, as a checkpoint, get into no other table.

The table is dropped, and another one is created at its path, before each store call of a committer that
publishes a version: as if it were suspended there. delta-rs reads the other table. Promise:
dropped-by-a-version (docs/operations/promises.md).
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakefold
from lakefold_table.errors import LakefoldError
from tests.oracle.test_refs_while_cleaning import MOST, At
from tests.unit.test_delta_format import Table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

INTERVAL = "delta.checkpointInterval"
AFTER = ("checkpoint", ".crc")


def names_after(path: Path) -> set[str]:
    """The names of checkpoints, of their checksum files and of the hint, in the log of a table."""
    log = path / "_delta_log"
    return {entry.name for entry in log.iterdir() if any(part in entry.name for part in AFTER)}


def published_at_each_call(tmp_path: Path, act: Callable[[Path], None], check: Callable[[Path], None]) -> int:
    """Publishes a version with a checkpoint; `act` comes before each call. Returns how many there are."""
    for number in range(1, MOST):
        table = Table(tmp_path / str(number) / "t")
        table.begin(table.file("a.parquet", 1), **{INTERVAL: "1"})
        assert names_after(table.path)
        sent = table.propose(table.file("b.parquet", 2), table.file("c.parquet", 3))
        with pytest.MonkeyPatch.context() as patched, suppress(LakefoldError):
            at = At(patched, number, lambda path=table.path: act(path))  # type: ignore[misc]
            table.fold(sent)
        if at.left > 0:
            return number - 1
        check(table.path)
        shutil.rmtree(table.path.parent)
    raise AssertionError("it makes too many calls")


def test_of_a_table_that_is_made_again_at_each_call_no_file_is_the_old_ones(tmp_path: Path) -> None:
    small = tmp_path / "small"
    for number in (7, 8):
        write_deltalake(small, pa.table({"x": pa.array([number], pa.int64())}), mode="append")

    def make_again(path: Path) -> None:
        shutil.rmtree(path)
        shutil.copytree(small, path)

    def is_the_other(path: Path) -> None:
        rows = sorted(pa.table(DeltaTable(path).to_pyarrow_table())["x"].to_pylist())
        assert rows == [7, 8]
        assert names_after(path) == set()
        assert sorted(lakefold.open(path).to_arrow()["x"].to_pylist()) == rows

    assert published_at_each_call(tmp_path, make_again, is_the_other) > 15


def test_of_a_table_that_is_dropped_at_each_call_nothing_is_stored(tmp_path: Path) -> None:
    def is_gone(path: Path) -> None:
        assert not (path / "_delta_log").exists() or names_after(path) == set()

    assert published_at_each_call(tmp_path, shutil.rmtree, is_gone) > 15

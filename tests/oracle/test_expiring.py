"""A version that is read while another process cleans it up is reported as gone, and never as damaged.

The clean-up is stopped after each file that it removes. It removes what versions name first, and the versions
last.

Promise: expired-not-damaged (docs/operations/promises.md).
"""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import lance
import pytest

import lakefold
from lakefold_reader.formats import open_source
from lakefold_reader.lance.scan.columns import schema_of
from lakefold_reader.lance.versions import read_state
from lakefold_reader.spark.rows import VersionRows
from lakefold_table.errors import DamagedError, VersionExpiredError
from tests.proposals import rows

if TYPE_CHECKING:
    from collections.abc import Callable

READ = 4
"""The version that is read: it has deleted rows and an index."""


def written(path: Path) -> str:
    """Version 5 has no file in common with earlier versions."""
    uri = str(path)
    lance.write_dataset(rows(range(8)), uri, enable_stable_row_ids=True)
    lance.write_dataset(rows(range(8, 16)), uri, mode="append")
    lance.dataset(uri).delete("id % 4 = 0")
    lance.dataset(uri).create_scalar_index("id", "BTREE")
    lance.write_dataset(rows([100]), uri, mode="overwrite")
    return uri


def removed(uri: str) -> list[str]:
    """The files that a clean-up removes, in its order."""
    copy = f"{uri}-cleaned"
    shutil.copytree(uri, copy)
    lance.dataset(copy).cleanup_old_versions(timedelta(0), delete_unverified=True)
    gone = {
        path
        for path in Path(uri).rglob("*")
        if path.is_file() and not Path(copy, path.relative_to(uri)).exists()
    }
    names = sorted(str(path.relative_to(uri)) for path in gone)
    assert {name.partition("/")[0] for name in names} >= {"data", "_deletions", "_indices", "_versions"}
    return sorted(names, key=lambda name: (name.startswith("_versions"), name))


def everything(uri: str) -> object:
    return lakefold.open(uri, READ).to_arrow().num_rows


def by_index(uri: str) -> object:
    return lakefold.open(uri, READ).to_arrow(filter="id > 9").num_rows


def counted(uri: str) -> object:
    return lakefold.open(uri, READ).count_rows("id > 9")


def taken(uri: str) -> object:
    return lakefold.open(uri, READ).take([1, 9, 10]).num_rows


def changed(uri: str) -> object:
    return lakefold.changes(uri, 0, 4).read_all().num_rows


def tailed(uri: str) -> object:
    with lakefold.tail(uri, 1) as tail:
        return next(tail).inserted().num_rows


READS: dict[Callable[[str], object], int] = {
    everything: 12,
    by_index: 5,
    counted: 5,
    taken: 3,
    changed: 20,
    tailed: 8,
}


@pytest.mark.parametrize("read", READS)
def test_at_each_file_that_a_clean_up_removes(tmp_path: Path, read: Callable[[str], object]) -> None:
    uri = written(tmp_path / "t")
    assert read(uri) == READS[read]
    oldest: list[int] = []
    for name in removed(uri):
        Path(uri, name).unlink()
        try:
            assert read(uri) == READS[read]
        except VersionExpiredError as error:
            oldest.append(error.oldest)
    assert oldest
    assert min(oldest) > 1
    with pytest.raises(VersionExpiredError):
        read(uri)


def test_a_table_that_was_open_before(tmp_path: Path) -> None:
    uri = written(tmp_path / "t")
    table = lakefold.open(uri, READ)
    reader = lakefold.changes(uri, 0, READ)
    source = open_source(uri)
    state = read_state(source, READ)
    task = VersionRows(source.uri, READ, schema_of(state.head))
    spark = task.read(source.format.scan_units(source, READ), table.schema)
    for name in removed(uri)[:-1]:
        Path(uri, name).unlink()
    for read in (table.to_arrow, reader.read_all, lambda: table.take([1]), lambda: list(spark)):
        with pytest.raises(VersionExpiredError):
            read()


def test_what_the_newest_version_or_a_tagged_one_loses_is_damage(tmp_path: Path) -> None:
    uri = written(tmp_path / "t")
    lance.dataset(uri).tags.create("kept", READ)
    tables = [lakefold.open(uri, version) for version in (READ, 5)]
    for path in Path(uri, "data").iterdir():
        path.unlink()
    for table in tables:
        with pytest.raises(DamagedError, match="names a file that is missing"):
            table.to_arrow()

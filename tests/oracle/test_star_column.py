"""A column may be named `*`, which pylance takes for all columns in a list of names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import lance
import pyarrow as pa
import pytest

import lakefold
from lakefold_reader.formats import open_source
from lakefold_reader.spark.rows import VersionRows

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [["*"], ["a", "*"], ["*", "b b"], ["*", "a", "b b"]]
FileVersion = Literal["legacy", "2.0", "2.1"]


def rows(first: int) -> pa.Table:
    return pa.table({"a": [first, first + 1], "*": ["x", "y"], "b b": [1.5, 2.5]})


@pytest.fixture(params=["legacy", "2.0", "2.1"])
def uri(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A table of two fragments. In one of them a row is deleted, so that it is read by the scanner."""
    version: FileVersion = request.param
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(0), uri, data_storage_version=version)
    lance.write_dataset(rows(2), uri, mode="append")
    lance.dataset(uri).delete("a = 1")
    return uri


@pytest.mark.parametrize("names", NAMES)
def test_it_is_read_like_any_other_column(uri: str, names: list[str]) -> None:
    table = lakefold.open(uri)
    expected = pa.concat_tables([rows(0).slice(0, 1), rows(2)]).select(names)
    assert table.to_arrow(names).equals(expected)
    assert table.to_arrow(names, "`*` = 'y'").equals(expected.slice(2))
    ids = table.to_arrow(["_rowid"])["_rowid"].to_pylist()
    assert table.take(ids, names).equals(expected)
    assert table.to_arrow([*names, "_rowid"]).column_names == [*names, "_rowid"]


@pytest.mark.parametrize("names", NAMES)
def test_changes_show_it(uri: str, names: list[str]) -> None:
    with lakefold.tail(uri, "earliest") as tail:
        whole, *_ = tail
    assert whole.inserted(names).equals(rows(0).select(names))
    shown = lakefold.changes(uri, 0, columns=names).read_all()
    assert shown["_change_type"].to_pylist() == ["insert"] * 4 + ["delete"]
    changed = pa.concat_tables([rows(0), rows(2), rows(0).slice(1)])
    assert shown.select(names).to_pylist() == changed.select(names).to_pylist()


@pytest.mark.parametrize("where", [None, "a >= 0"])
def test_spark_gets_it(uri: str, where: str | None) -> None:
    source = open_source(uri)
    table = lakefold.open(uri)
    reader = VersionRows(source.uri, 3, table._snapshot.schema, where)
    units = source.format.scan_units(source, 3)
    actual = pa.Table.from_batches(reader.read(units, table.schema))
    assert actual.to_pylist() == pa.concat_tables([rows(0).slice(0, 1), rows(2)]).to_pylist()


def test_a_table_without_such_a_column_gives_all_columns_for_it(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"a": [1], "b": [2]}), uri)
    assert lakefold.open(uri).to_arrow(["*"]).to_pylist() == [{"a": 1, "b": 2}]

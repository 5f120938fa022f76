"""Files of a proposal beside those of a Delta table: other spellings of a path, files that stay; reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pytest

from lakefold_table.delta.actions.paths import other_spellings
from lakefold_table.delta.log_segment.names import commit_path
from lakefold_table.entry import Committed, Invalid, Rejected
from tests.delta_logs.actions import (
    LISTED,
    VECTORS,
    Members,
    data_file,
    metadata,
    protocol_with,
    remove,
    text,
)
from tests.unit.test_delta_format import Table
from tests.unit.test_delta_requirements import described, field
from tests.unit.test_delta_rows import Rows, log_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ABSOLUTE: dict[str, Callable[[str], str]] = {
    "a URI": lambda uri: uri,
    "one slash": lambda uri: uri.replace("file://", "file:"),
    "a path": lambda uri: uri.removeprefix("file://"),
    "a path that is not escaped": lambda uri: unquote(urlparse(uri).path),
}


@pytest.mark.parametrize("name", ABSOLUTE)
@pytest.mark.parametrize("folder", ["t", "t a"])
def test_a_file_that_the_table_names_by_an_absolute_path_is_not_added_again(
    tmp_path: Path, folder: str, name: str
) -> None:
    table = Table(tmp_path / folder)
    table.begin()
    theirs, again = (table.file("p=1/a.parquet", 1) for _ in range(2))
    absolute = theirs["add"]["path"] = f"{ABSOLUTE[name](table.uri)}/p%3D1/a.parquet"
    (table.path / commit_path(1)).write_bytes(text([theirs]))
    (refused,) = table.fold(table.propose(again), log=log_id(1))
    assert isinstance(refused, Invalid), refused
    assert f"is in the table already, as {absolute!r}" in refused.message
    (removed,) = table.fold(table.propose(remove("p=1/a.parquet"), read=1), log=log_id(2))
    assert isinstance(removed, Invalid)
    assert removed.hint == f"name it as the table's log does: {absolute!r}"
    (moved,) = table.fold(table.propose(remove(absolute), again, read=1), log=log_id(3))
    assert isinstance(moved, Committed), moved


def test_a_file_is_removed_by_the_path_that_the_log_has(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.begin(table.file("p=1/a.parquet", 1))
    for number, path in enumerate(
        ("p%3D1/a.parquet", f"{table.uri}/p=1/a.parquet", "b.parquet", "%zz", "s3://other/p=1/a.parquet")
    ):
        (refused,) = table.fold(table.propose(remove(path), read=1), log=log_id(number))
        assert isinstance(refused, Invalid)
        assert "is not in the table" in refused.message
        assert refused.hint.endswith("'p=1/a.parquet'") is (number < 2)


def test_files_in_a_bucket_have_absolute_paths_of_two_schemes() -> None:
    spellings = other_spellings("a%20b.parquet", "s3://lake/t")
    assert {"s3://lake/t/a%20b.parquet", "s3a://lake/t/a%20b.parquet"} <= spellings
    assert other_spellings("s3a://lake/t/a.parquet", "s3://lake/t") == {
        "a.parquet",
        "s3://lake/t/a.parquet",
    }
    assert other_spellings("a.parquet", "gs://lake/t") == {"gs://lake/t/a.parquet"}
    assert other_spellings("a.parquet") == set()
    percent = other_spellings("a.parquet", "s3://lake/100%/t")
    assert {"s3://lake/100%/t/a.parquet", "s3://lake/100%25/t/a.parquet"} <= percent


def test_what_was_read_was_in_the_table(tmp_path: Path) -> None:
    """A file that is named in another way would conflict with nothing that happens to it."""
    table = Table(tmp_path / "t")
    table.begin(table.file("p=1/a.parquet", 1), table.file("b.parquet", 2))
    new = [table.file(f"{number}.parquet", number) for number in range(4)]

    def read(number: int, path: str) -> object:
        proposal = table.propose(new[number], read=1, read_files=[path])
        return table.fold(proposal, log=log_id(number))[0]

    for number, path in enumerate(("p%3D1/a.parquet", "c.parquet")):
        refused = read(number, path)
        assert isinstance(refused, Invalid), refused
        assert f"has read the file {path!r}, which version 1 lacks" in refused.message
    assert isinstance(read(2, "p=1/a.parquet"), Committed)
    assert isinstance(table.fold(table.propose(remove("b.parquet"), read=2), log=log_id(9))[0], Committed)
    rejected = read(3, "b.parquet")
    assert isinstance(rejected, Rejected), rejected
    assert rejected.conflict.keys == ("b.parquet",)


def test_a_table_is_created_with_files_that_have_deletion_vectors(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "other", 0)
    for number, properties in enumerate((VECTORS, {})):
        table = Table(tmp_path / str(number))
        file = data_file(table.path, "0.parquet", *range(10))
        file["add"]["deletionVector"] = rows.vector([3])
        (result,) = table.fold(table.propose(LISTED, metadata(**properties), file))
        assert isinstance(result, Committed if properties else Invalid), result


AGAIN: dict[str, tuple[Members, str]] = {
    "as it is": ({}, ""),
    "other partition values": ({"partitionValues": {"p": "2"}}, "other values of the partition columns"),
    "no partition value": ({"partitionValues": {"p": None}}, "other values of the partition columns"),
    "wider statistics": ({"stats": {"numRecords": 10, "tightBounds": False, "maxValues": {"x": 99}}}, ""),
    "another number of rows": ({"stats": {"numRecords": 9}}, "has 10 rows by its statistics, and gets"),
    "statistics of another type": (
        {"stats": {"numRecords": 10, "maxValues": {"x": "z"}}},
        'maxValues.x is "z", and the type of the column is long',
    ),
    "too many nulls": (
        {"stats": {"numRecords": 10, "nullCount": {"x": 11}}},
        "so many nulls in the column 'x'",
    ),
}


@pytest.mark.parametrize("name", AGAIN)
def test_a_file_that_loses_rows_stays_as_it_is_otherwise(tmp_path: Path, name: str) -> None:
    changed, says = AGAIN[name]
    rows = Rows(tmp_path / "of_vectors", 0)
    table = Table(tmp_path / "t")
    created = described(field("x"), field("p"), by=("p",), **VECTORS)
    assert table.fold(table.propose(LISTED, created), log=log_id(1)) == [Committed(0)]
    file = data_file(table.path, "a.parquet", *range(10))
    file["add"]["partitionValues"] = {"p": "1"}
    assert isinstance(table.fold(table.propose(file), log=log_id(2))[0], Committed)
    again: dict[str, Any] = {**file["add"], **changed, "deletionVector": rows.vector([3])}
    again["stats"] = again["stats"] if isinstance(again["stats"], str) else json.dumps(again["stats"])
    proposal = table.propose(remove("a.parquet"), {"add": again}, read=1, operation="DELETE")
    (result,) = table.fold(proposal, log=log_id(3))
    if not says:
        assert isinstance(result, Committed), result
        return
    assert isinstance(result, Invalid), result
    assert says in result.message
    assert result.hint


def test_a_file_that_stays_keeps_the_values_of_its_partition(tmp_path: Path) -> None:
    """Its rows would change, and no reader of changes would see it."""
    table = Table(tmp_path / "t")
    created = described(field("x"), field("p"), by=("p",))
    table.fold(table.propose(protocol_with("appendOnly"), created), log=log_id(1))
    file = data_file(table.path, "a.parquet", 1)
    file["add"]["partitionValues"] = {"p": "1"}
    table.fold(table.propose(file), log=log_id(2))
    moved = {**file["add"], "dataChange": False}
    (same,) = table.fold(table.propose({"add": {**moved, "tags": {"a": "b"}}}, read=1), log=log_id(3))
    assert isinstance(same, Committed), same
    (other,) = table.fold(
        table.propose({"add": {**moved, "partitionValues": {"p": "2"}}}, read=2), log=log_id(4)
    )
    assert isinstance(other, Invalid), other
    assert "gets other values of the partition columns" in other.message


def test_what_was_wrong_with_the_statistics_of_others_may_stay(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "t", 0)
    theirs = rows.file("9.parquet", range(10))
    theirs["add"]["stats"] = json.dumps({"numRecords": 10, "maxValues": {"x": "z"}, "nullCount": {"x": 11}})
    (rows.table.path / commit_path(2)).write_bytes(text([theirs]))
    wide = json.dumps({**json.loads(theirs["add"]["stats"]), "tightBounds": False})
    again = {"add": {**theirs["add"], "stats": wide, "deletionVector": rows.vector([3])}}
    (result,) = rows.fold(rows.table.propose(remove("9.parquet"), again, read=2, operation="DELETE"))
    assert isinstance(result, Committed), result

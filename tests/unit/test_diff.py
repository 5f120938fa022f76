"""What a diff says of branches, tags and columns, what it reads for that, and what it refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakefold
from lakefold import cli
from lakefold_reader.delta.feed.rows import FilePartReader
from lakefold_reader.lance.feed.rows import FragmentPartReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakefold_reader.format.source import ChangePart

ROWS = pa.table({"id": pa.array(range(6), pa.int64()), "name": list("abcdef")})


def write_lance(path: Path) -> lance.LanceDataset:
    """Version 1 has six rows, version 2 them twice, 3 lacks two, 5 is compacted."""
    lance.write_dataset(ROWS, path)
    dataset = lance.write_dataset(ROWS, path, mode="append")
    dataset.delete("id = 3")
    dataset.optimize.compact_files()
    return dataset


def write_delta(path: Path) -> None:
    write_deltalake(path, ROWS)
    write_deltalake(path, ROWS, mode="append")
    DeltaTable(path).delete("id = 3")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int | None]]:
    """The version and the rows of each part that is read, once for each reading."""
    parts = list[tuple[int, int | None]]()
    for reader in (FragmentPartReader, FilePartReader):

        def noted(self: Any, part: ChangePart, whole: Any = reader.read) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - of either format
            parts.append((part.version, part.row_count))
            return iter(whole(self, part))

        monkeypatch.setattr(reader, "read", noted)
    return parts


def counts(difference: lakefold.Diff) -> tuple[int | None, int | None]:
    return difference.rows_added, difference.rows_removed


def test_no_file_is_read_if_only_one_version_has_rows(
    tmp_path: Path, read: list[tuple[int, int | None]]
) -> None:
    write_lance(tmp_path / "t")
    write_delta(tmp_path / "d")
    assert counts(lakefold.diff(tmp_path / "t", 1, 2)) == (6, 0)
    assert counts(lakefold.diff(tmp_path / "t", 3, 2)) == (2, 0)
    assert counts(lakefold.diff(tmp_path / "d", 0, 1)) == (6, 0)
    difference = lakefold.diff(tmp_path / "t", 1, 5, rows=False)
    assert counts(difference) == (None, None)
    assert (difference.files_added.files, difference.files_removed.files) == (1, 1)
    assert read == []
    assert difference.to_arrow().num_rows == 6
    assert read


def test_of_a_shared_file_only_the_deleted_rows_are_read(
    tmp_path: Path, read: list[tuple[int, int | None]]
) -> None:
    write_lance(tmp_path / "t")
    shown = lakefold.diff(tmp_path / "t", 2, 3).to_arrow()
    assert shown.to_pylist() == [{"id": 3, "name": "d", "_difference": "removed"}] * 2
    assert {rows for _, rows in read} == {1}


def test_rows_that_were_deleted_before_are_no_difference(tmp_path: Path) -> None:
    dataset = lance.write_dataset(ROWS, tmp_path / "t")
    dataset.delete("id = 3")
    dataset.delete("id = 4")
    assert lakefold.diff(tmp_path / "t", 2, 3).to_arrow()["id"].to_pylist() == [4]
    assert lakefold.diff(tmp_path / "t", 3, 2).to_arrow()["id"].to_pylist() == [4]


def test_a_compaction_is_passed_by(
    tmp_path: Path, read: list[tuple[int, int | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakefold_reader.diff.differing_rows.BYTES_OF_VERSION", 0)
    many = pa.table({"id": range(4000), "name": ["some text"] * 4000})
    dataset = lance.write_dataset(many, tmp_path / "t")
    dataset = lance.write_dataset(many, tmp_path / "t", mode="append")
    dataset.optimize.compact_files()
    dataset.update({"name": "'z'"}, where="id = 4")
    assert dataset.version == 5
    assert counts(lakefold.diff(tmp_path / "t", 2, 5)) == (2, 2)
    assert {rows for _, rows in read} == {2}
    assert counts(lakefold.diff(tmp_path / "t", 5, 2)) == (2, 2)
    # Without the versions in between the files of both are compared.
    (tmp_path / "t/_versions" / f"{2**64 - 1 - 4}.manifest").unlink()
    assert counts(lakefold.diff(tmp_path / "t", 2, 5)) == (2, 2)
    assert {rows for _, rows in read} > {2}


def test_columns_and_rows_that_got_values(tmp_path: Path) -> None:
    dataset = write_lance(tmp_path / "t")
    renamed: Any = {"path": "name", "name": "title"}
    dataset.alter_columns(renamed)
    dataset.drop_columns(["id"])
    dataset.add_columns({"size": "length(title)"})
    difference = lakefold.diff(tmp_path / "t", 5, 6)
    assert [(each.before, each.name) for each in difference.columns_changed] == [("name", "title")]
    assert counts(difference) == (0, 0)
    difference = lakefold.diff(tmp_path / "t", 5, "main")
    assert (difference.columns_added, difference.columns_dropped) == (("size",), ("id",))
    assert counts(difference) == (10, 10)
    assert difference.to_arrow().column_names == ["title", "size", "_difference"]
    back = lakefold.diff(tmp_path / "t", "main", 5)
    assert (back.columns_added, back.columns_dropped) == (("id",), ("size",))
    assert [(each.before, each.name) for each in back.columns_changed] == [("title", "name")]
    assert {row["size"] for row in back.to_arrow().to_pylist() if row["_difference"] == "added"} == {None}


def test_a_branch_against_its_fork_and_against_main(
    tmp_path: Path, read: list[tuple[int, int | None]]
) -> None:
    dataset = write_lance(tmp_path / "t")
    dataset.tags.create("fork", 5)
    branch = dataset.create_branch("audit", 5)
    branch.delete("id = 5")
    lance.write_dataset(ROWS.slice(0, 1), tmp_path / "t", mode="append")
    difference = lakefold.diff(tmp_path / "t", "fork", "audit")
    assert (difference.a.branch, difference.b.branch, difference.b.version) == ("main", "audit", 6)
    assert counts(difference) == (0, 2)
    assert difference.files_added.files == difference.files_removed.files == 0
    assert {rows for _, rows in read} == set()
    assert counts(lakefold.diff(tmp_path / "t", "audit@6", "branch:main")) == (3, 0)
    assert counts(lakefold.diff(tmp_path / "t", "branch:audit@5", "fork")) == (0, 0)
    assert counts(lakefold.diff(tmp_path / "t", 5, "6", branch="audit")) == (0, 2)
    assert counts(lakefold.diff(tmp_path / "t/tree/audit", "main", 6)) == (0, 3)
    assert lakefold.diff(tmp_path / "t", "main", "audit").to_arrow()["id"].to_pylist() == [5, 5, 0]


def test_equal_rows_count_as_often_as_they_are(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "d", pa.table({"v": pa.array([[1.0], [1.0], None, [None]])}))
    table = pa.table({"v": pa.array([[None], [1.0], [1.0], [1.0]])})
    write_deltalake(tmp_path / "d", table, mode="overwrite")
    shown = lakefold.diff(tmp_path / "d", 0, 1).to_arrow().to_pylist()
    assert shown == [{"v": None, "_difference": "removed"}, {"v": [1.0], "_difference": "added"}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nope", "no tag and no branch 'nope'"),
        ("tag:nope", "the tag nope does not exist"),
        ("branch:nope", "the branch nope does not exist"),
        ("main@x", "'x' is not the number of a version"),
        ("branch:@3", "names no branch"),
        ("", "'' names no version"),
        (None, "None names no version"),
        (True, "True names no version"),
        (-1, "-1 is not the number of a version"),
        ("a b", "can't be the name"),
        ("main@99", "version 99 does not exist yet"),
        (99, "version 99 does not exist yet"),
    ],
)
@pytest.mark.parametrize("write", [write_lance, write_delta])
def test_what_names_no_version(tmp_path: Path, write: Any, name: Any, text: str) -> None:  # noqa: ANN401 - wrong types on purpose
    write(tmp_path / "t")
    with pytest.raises(lakefold.InvalidError, match=text) as caught:
        lakefold.diff(tmp_path / "t", name, 1)
    assert caught.value.hint


def test_a_table_with_a_column_of_the_diff(tmp_path: Path) -> None:
    lance.write_dataset(ROWS.rename_columns(["id", "_difference"]), tmp_path / "t")
    lance.write_dataset(ROWS.slice(0, 0).rename_columns(["id", "_difference"]), tmp_path / "t", mode="append")
    assert counts(lakefold.diff(tmp_path / "t", 1, 2)) == (0, 0)
    with pytest.raises(lakefold.InvalidError, match="has the name of a diff's column"):
        lakefold.diff(tmp_path / "t", 1, 2).to_arrow()


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_lance(tmp_path / "t")
    assert cli.run(["diff", str(tmp_path / "t"), "3", "main", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["rows_added"], document["rows_removed"], document["files_removed"]["files"]) == (0, 0, 2)
    assert document["b"] == {"version": 5, "branch": "main"}
    assert cli.run(["diff", str(tmp_path / "t"), "1", "3", "--rows"]) == 0
    out = capsys.readouterr().out
    assert "rows          + 5, - 1" in out
    assert "\n- id=3  name=d\n" in out
    assert cli.run(["diff", str(tmp_path / "t"), "1", "3", "--rows", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 6
    assert lines[0] == {"id": 3, "name": "d", "_difference": "removed"}
    assert cli.run(["diff", str(tmp_path / "t"), "1", "nope"]) == cli.USAGE

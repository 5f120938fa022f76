"""`show`, `log` and `tail` print for people, and the same as JSON for programs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from lakefold import cli
from lakefold_table.storage import open_storage
from lakefold_table.uri import canonical
from tests.proposals import rows
from tests.tables import Folded

if TYPE_CHECKING:
    from pathlib import Path

LAKEFOLD = (sys.executable, "-c", "from lakefold.cli import main; main()")


@pytest.fixture
def table(tmp_path: Path) -> Folded:
    made = Folded(open_storage(tmp_path / "t"))
    made.append(rows(range(5)), rows(range(5, 12)), app_id="app")
    lance.dataset(str(tmp_path / "t")).delete("id = 3")
    made.append(rows([20]))
    return made


def printed(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    assert cli.run(args) == code
    return capsys.readouterr().out


def documents(capsys: pytest.CaptureFixture[str], *args: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed(capsys, *args, "--json").splitlines()]


def test_show(table: Folded, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "show", table.uri)
    for part in (
        "version       4",
        "rows          12",
        "deleted rows  1",
        "id      int64   no",
        "lakefold.transactions/0@3",
    ):
        assert part in text
    assert "deletion files" in text
    (document,) = documents(capsys, "show", table.uri)
    assert (document["version"], document["rows"], document["deleted_rows"], document["fragments"]) == (
        4,
        12,
        1,
        3,
    )
    assert document["schema"] == [
        {"name": "id", "type": "int64", "nullable": False},
        {"name": "text", "type": "string", "nullable": True},
    ]
    assert document["features"][0]["flag"] == 1
    assert document["marks"]["position"]["offset"] == 3


def test_show_another_version(table: Folded, capsys: pytest.CaptureFixture[str]) -> None:
    (second,) = documents(capsys, "show", table.uri, "--version", "2")
    assert (second["version"], second["rows"]) == (2, 12)
    assert second["marks"]["apps"]["app"]["batches"] == [[1, 2]]
    assert documents(capsys, "show", table.uri, "--as-of", second["timestamp"]) == [second]
    printed(capsys, "show", table.uri, "--tag", "x", code=2)
    printed(capsys, "show", table.uri, "--tag", "x", "--version", "1", code=2)
    printed(capsys, "show", table.uri, "--version", "1", "--as-of", "2026-01-01", code=2)
    printed(capsys, "show", table.uri, "--version", "99", code=2)
    printed(capsys, "show", table.uri, "--as-of", "noon", code=2)


@pytest.mark.parametrize("option", ["2", "lakefold.transactions/0@2", "lakefold.transactions/0@1-2", "JSON"])
def test_a_version_named_by_its_position(
    table: Folded, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    if option == "JSON":
        (change,) = documents(capsys, "tail", table.uri, "--from", "1")[:1]
        option = json.dumps(change["position"])
    named = (table.uri, "--at-position", option)
    assert documents(capsys, "show", *named) == documents(capsys, "show", table.uri, "--version", "2")
    assert [document["version"] for document in documents(capsys, "log", *named)] == [2, 1]
    assert [document["version"] for document in documents(capsys, "tail", *named)] == [3, 4]


def test_a_version_named_by_its_time_or_tag(table: Folded, capsys: pytest.CaptureFixture[str]) -> None:
    (third,) = documents(capsys, "show", table.uri, "--version", "3")
    lance.dataset(table.uri.removeprefix("file://")).tags.create("third", 3)
    for method in (("--as-of", third["timestamp"]), ("--tag", "third")):
        assert documents(capsys, "show", table.uri, *method) == [third]
        assert [document["version"] for document in documents(capsys, "log", table.uri, *method)] == [3, 2, 1]
    assert [
        document["version"]
        for document in documents(capsys, "tail", table.uri, "--as-of", third["timestamp"])
    ] == [4]


def test_one_version_is_named_once_and_must_be_there(
    table: Folded, capsys: pytest.CaptureFixture[str]
) -> None:
    for args in (
        ("show", table.uri, "--version", "1", "--at-position", "1"),
        ("show", table.uri, "--as-of", "2026-01-01", "--at-position", "1"),
        ("log", table.uri, "--to", "1", "--as-of", "2026-01-01"),
        ("log", table.uri, "--tag", "x", "--at-position", "1"),
        ("tail", table.uri, "--from", "1", "--at-position", "1"),
        ("show", table.uri, "--at-position", "lakefold.transactions/7@1"),
    ):
        printed(capsys, *args, code=2)
    printed(capsys, "show", table.uri, "--at-position", "99", code=5)


def test_show_lists_indices_with_what_they_cover(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(range(20)), uri, max_rows_per_file=10)
    lance.dataset(uri).create_scalar_index("id", "BTREE")
    lance.write_dataset(rows([20]), uri, mode="append")
    lance.dataset(uri).create_scalar_index("text", "BITMAP", name="words")
    text = printed(capsys, "show", uri)
    assert "id_idx  id       BTree   2 of 3 fragments" in text
    assert "words   text     Bitmap  3 of 3 fragments" in text
    (document,) = documents(capsys, "show", uri)
    assert document["indices"][0] == {
        "name": "id_idx",
        "columns": ["id"],
        "type": "BTree",
        "segments": 1,
        "covered_fragments": 2,
    }
    lance.dataset(uri).drop_index("id_idx")
    lance.dataset(uri).drop_index("words")
    assert documents(capsys, "show", uri)[0]["indices"] == []
    assert "\nindices" not in printed(capsys, "show", uri)


def test_show_by_tag_and_branch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "t")
    dataset = lance.write_dataset(rows([1]), uri)
    dataset.tags.create("first", 1)
    lance.write_dataset(rows([2, 3]), dataset.create_branch("side").uri, mode="append")
    (first,) = documents(capsys, "show", uri, "--tag", "first")
    (side,) = documents(capsys, "show", uri, "--branch", "side")
    assert (first["version"], first["rows"], first["branch"]) == (1, 1, "")
    assert (side["version"], side["rows"], side["branch"]) == (2, 3, "side")
    assert documents(capsys, "show", uri, "--branch", "side", "--version", "2") == [side]
    assert (first["roots"], side["roots"]) == ([], [{"id": 0, "name": "", "path": uri, "is_table": True}])
    assert f"other roots\nroot  name  path\n   0        {uri}" in printed(
        capsys, "show", uri, "--branch", "side"
    )
    assert "branch        side" in printed(capsys, "show", uri, "--branch", "side")
    assert "\nbranch " not in printed(capsys, "show", uri, "--tag", "first")
    printed(capsys, "show", uri, "--tag", "none", code=2)
    printed(capsys, "show", uri, "--branch", "none", code=2)
    printed(capsys, "show", uri, "--branch", "side", "--tag", "first", code=2)
    values = documents(capsys, "log", uri, "--branch", "side")
    assert [(row["version"], row["operation"], row["rows_in"]) for row in values] == [
        (2, "append", 2),
        (1, "clone", 1),
    ]
    (change,) = documents(capsys, "tail", uri, "--branch", "side", "--from", "1")
    assert (change["version"], change["rows"]) == (2, 2)
    assert [document["version"] for document in documents(capsys, "tail", uri, "--branch", "main")] == [1]
    for verb in ("log", "tail"):
        printed(capsys, verb, uri, "--branch", "none", code=2)


def test_show_a_table_that_no_committer_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lance.write_dataset(rows([1]), str(tmp_path / "t"))
    assert "no committer has written this table" in printed(capsys, "show", str(tmp_path / "t"))
    (document,) = documents(capsys, "show", str(tmp_path / "t"))
    assert document["marks"] is None


def test_log(table: Folded, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "log", table.uri).splitlines()
    assert lines[0].split()[:3] == ["version", "time", "operation"]
    assert [line.split()[0] for line in lines[1:]] == ["4", "3", "2", "1"]
    assert "lakefold.transactions/0@1-2" in lines[3]
    assert "app:1-2" in lines[3]
    assert "+12" in lines[3]
    values = documents(capsys, "log", table.uri, "--from", "2", "--to", "3")
    assert [row["version"] for row in values] == [3, 2]
    assert (values[0]["operation"], values[0]["rows_out"], values[0]["positions"]) == ("delete", 1, None)
    assert (values[1]["rows_in"], values[1]["files_in"], values[1]["positions"]["last_offset"]) == (12, 2, 2)
    assert isinstance(values[1]["seconds_to_visible"], float)
    printed(capsys, "log", table.uri, "--from", "3", "--to", "2", code=2)


def test_tail(table: Folded, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "tail", table.uri, "--from", "1").splitlines()
    assert [line.split()[1] for line in lines] == ["2", "3", "4"]
    assert lines[0].endswith("append  +12 rows  lakefold.transactions/0@2")
    assert lines[1].endswith("delete  +0 rows (and changed or removed others)")
    values = documents(capsys, "tail", table.uri, "--from", "2")
    assert [(row["version"], row["operation"], row["rows"]) for row in values] == [
        (3, "delete", 0),
        (4, "append", 1),
    ]
    assert documents(capsys, "tail", table.uri, "--from", values[0]["cursor"]) == values[1:]
    assert documents(capsys, "tail", table.uri, "--from", "latest") == []
    printed(capsys, "tail", table.uri, "--from", "x", code=2)


def test_tail_shows_the_last_versions_without_an_option_where_to_start(
    table: Folded, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(printed(capsys, "tail", table.uri).splitlines()) == 4
    for number in range(100, 109):
        table.append(rows([number]))
    assert [document["version"] for document in documents(capsys, "tail", table.uri)] == list(range(4, 14))


def test_tail_with_rows(table: Folded, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "tail", table.uri, "--from", "3", "--rows").splitlines()
    assert lines[1:] == ["  id=20  text=row 20"]
    values = documents(capsys, "tail", table.uri, "--from", "1", "--rows")
    assert [row["row"]["id"] for row in values if "row" in row] == [*range(12), 20]
    assert values[1] == {"version": 2, "row": {"id": 0, "text": "row 0"}}


def test_tail_says_if_rows_are_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(range(5)), uri)
    lance.dataset(uri).update({"text": "'x'"}, where="id = 3")
    assert cli.run(["tail", uri, "--from", "1", "--rows"]) == 0
    captured = capsys.readouterr()
    assert "update  rows unknown (and changed or removed others)" in captured.out
    assert captured.err == (
        f"{canonical(uri)} (lance table)\n"
        "version 2 (update) does not record which rows it inserted; "
        "`lakefold changes` with --from 1 shows what it changed\n"
    )
    assert cli.run(["changes", uri, "--from", "1", "--to", "2"]) == 0
    assert "text=x" in capsys.readouterr().out


def test_a_place_without_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("show", "log", "tail"):
        answer = json.loads(printed(capsys, verb, str(tmp_path / "nowhere"), "--json", code=2))
        assert answer["error"]["kind"] == "NotATableError"
    assert list(tmp_path.iterdir()) == []


def test_a_version_that_is_gone(table: Folded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lance.dataset(str(tmp_path / "t")).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    answer = json.loads(printed(capsys, "tail", table.uri, "--from", "1", "--json", code=2))
    assert answer["error"]["kind"] == "VersionExpiredError"
    assert "the oldest one left is 4" in answer["error"]["hint"]


def test_ctrl_c_ends_a_follower_quietly(table: Folded) -> None:
    with following(table) as follower:
        table.append(rows([30]))
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["version"] == 4
        assert json.loads(follower.stdout.readline())["version"] == 5
        follower.send_signal(signal.SIGINT)
        out, errors = follower.communicate()
    assert (follower.returncode, out, errors) == (0, "", "")


def test_a_closed_pipe_ends_a_follower_quietly(table: Folded) -> None:
    with following(table) as follower:
        assert follower.stdout is not None
        follower.stdout.readline()
        follower.stdout.close()
        table.append(rows([30]))
        assert follower.stderr is not None
        assert follower.stderr.read() == ""


def following(table: Folded) -> subprocess.Popen[str]:
    args = (*LAKEFOLD, "tail", table.uri, "--follow", "--json", "--from", "3")
    return subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_values_that_json_has_no_form_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "t")
    values = {
        "ns": pa.array([1_000_000_001], pa.timestamp("ns", "America/New_York")),
        "local": pa.array([1], pa.timestamp("us")),
        "day": pa.array([1], pa.date32()),
        "at": pa.array([1], pa.time64("ns")),
        "span": pa.array([5], pa.duration("ms")),
        "money": pa.array(["1.50"]).cast(pa.decimal128(5, 2)),
        "bytes": pa.array([b"\x00\xff"]),
        "nan": pa.array([float("nan")]),
        "low": pa.array([float("-inf")]),
        "half": pa.array([1.5], pa.float16()),
        "big": pa.array([2**63], pa.uint64()),
        "pairs": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        "inside": pa.array(
            [{"t": 1, "l": [b"a", None]}], pa.struct([("t", pa.date32()), ("l", pa.list_(pa.binary()))])
        ),
        "word": pa.array(["w"]).dictionary_encode(),
        "none": pa.nulls(1, pa.struct([("x", pa.int64())])),
        "id": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16))),
    }
    lance.write_dataset(pa.table(values), uri)
    _, line = documents(capsys, "tail", uri, "--rows")
    assert line["row"] == {
        "ns": "1970-01-01T00:00:01.000000001Z",
        "local": "1970-01-01T00:00:00.000001",
        "day": "1970-01-02",
        "at": "00:00:00.000000001",
        "span": 5,
        "money": "1.50",
        "bytes": "AP8=",
        "nan": "NaN",
        "low": "-Infinity",
        "half": 1.5,
        "big": 2**63,
        "pairs": [["k", 1]],
        "inside": {"t": "1970-01-02", "l": ["YQ==", None]},
        "word": "w",
        "none": None,
        "id": "AAAAAAAAAAAAAAAAAAAAAA==",
    }


@pytest.mark.parametrize("columns", ["", " ", ",", "id,,text", "id,"])
def test_an_empty_name_among_the_columns_is_refused(
    table: Folded, capsys: pytest.CaptureFixture[str], columns: str
) -> None:
    assert cli.run(["changes", table.uri, "--from", "0", "--columns", columns]) == 2
    assert "--columns" in capsys.readouterr().err
    for row in documents(capsys, "changes", table.uri, "--from", "0", "--columns", " id , text"):
        assert set(row) > {"id", "text"}

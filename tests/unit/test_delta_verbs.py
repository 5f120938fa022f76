"""`lakefold propose --actions` and `lakefold fold` on Delta tables."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakefold
from lakefold import cli
from lakefold_maintenance.rewriting.on_spark import OnSpark
from tests.delta_logs.actions import PROTOCOL, data_file, metadata, remove, text, txn
from tests.unit.test_delta_rows import Rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakefold_maintenance.format import TableSurvey
    from lakefold_maintenance.rewriting.engines import RewriteEngine
    from tests.delta_logs.actions import Members


class Files:
    """Files of actions, and the file of envelopes that is made from them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.table = folder / "t"
        self._folder = folder
        self._capsys = capsys
        self._number = 0

    def propose(self, *actions: Members, options: tuple[str, ...] = ()) -> None:
        """Appends a proposal to the file of envelopes."""
        self._number += 1
        file = self._folder / f"{self._number}.json"
        file.write_bytes(text(actions))
        into = ["--into", str(self._folder / "log.bin")]
        assert cli.run(["propose", str(self.table), "--actions", str(file), *into, *options]) == 0
        self._capsys.readouterr()

    def fold(self, *options: str, code: int = 0) -> list[dict[str, Any]]:
        """Folds the file and returns the outcomes."""
        log = str(self._folder / "log.bin")
        assert cli.run(["fold", str(self.table), log, "--json", *options]) == code
        return [json.loads(line) for line in self._capsys.readouterr().out.splitlines()]


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    return Files(tmp_path, capsys)


def test_actions_become_versions_that_delta_rs_opens(files: Files) -> None:
    files.propose(PROTOCOL, metadata(), options=("--operation", "CREATE TABLE"))
    files.propose(data_file(files.table, "a.parquet", 1, 2), options=("--app-id", "a", "--batch-id", "1"))
    files.propose(
        remove("a.parquet"),
        data_file(files.table, "b.parquet", 2),
        options=("--read-version", "1", "--read-file", "a.parquet", "--operation", "DELETE"),
    )
    # The third was made for the version that the second makes.
    preview = files.fold("--dry-run", "--group-max-entries", "1")
    outcomes = files.fold("--group-max-entries", "1")
    assert [outcome["committed"]["version"] for outcome in outcomes] == ["0", "1", "2"]
    assert [outcome["committed"]["version"] for outcome in preview] == ["0", "1", "2"]
    theirs = DeltaTable(str(files.table))
    assert theirs.to_pyarrow_table()["x"].to_pylist() == [2]
    assert [commit["operation"] for commit in theirs.history()] == ["DELETE", "WRITE", "CREATE TABLE"]


def test_a_replay_of_a_delta_table_is_the_same(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files.propose(PROTOCOL, metadata())
    files.propose(data_file(files.table, "a.parquet", 1, 2))
    files.fold()
    log = str(tmp_path / "log.bin")
    assert cli.run(["replay", str(files.table), "--file", log, "--from", "0", "--json"]) == 0
    verdicts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["version"], each["verdict"]) for each in verdicts][1:] == [(1, "same")]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "give either --transaction or --actions"),
        (("--transaction", "{file}", "--actions", "{file}"), "give either --transaction or --actions"),
        (("--actions", "{file}", "--branch", "side"), "--branch needs --transaction"),
        (("--transaction", "{file}", "--read-file", "a"), "--read-file needs --actions"),
        (("--transaction", "{file}", "--read-where", "x = 1"), "--read-where needs --actions"),
        (("--transaction", "{file}", "--read-app-id", "a"), "--read-app-id needs --actions"),
        (("--actions", "{file}"), "line 1 of the file is not a JSON object"),
    ],
)
def test_wrong_options_and_files_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], says: str
) -> None:
    file = tmp_path / "actions.json"
    file.write_text("[1]\n")
    given = [option.format(file=file) for option in options]
    assert cli.run(["propose", str(tmp_path / "t"), *given, "--into", str(tmp_path / "log")]) == 2
    assert says in capsys.readouterr().err


def added(rows: Rows, number: int, *deleted: int) -> list[Members]:
    """The actions that delete the first rows of a file, of which others delete others."""
    path = f"{number}.parquet"
    return [remove(path), rows.added(path, list(deleted))]


def test_rows_of_one_file_that_two_proposals_delete_are_merged(tmp_path: Path, files: Files) -> None:
    rows = Rows(files.table, 0)
    given = tmp_path / "rows.json"
    for deleted in (3, 7):
        given.write_text(json.dumps({"0.parquet": [deleted]}))
        options = ("--read-version", "1", "--affected-rows", str(given), "--operation", "DELETE")
        files.propose(*added(rows, 0, deleted), options=options)
    outcomes = files.fold("--group-max-entries", "1")
    assert [each["committed"]["rows_deleted"] for each in outcomes] == ["1", "1"]
    assert pa.table(lakefold.open(str(files.table)).to_arrow())["x"].to_pylist() == [0, 1, 2, 4, 5, 6, 8, 9]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "the file is not JSON"),
        ("[" * 100_000, "the file is not JSON"),
        ("[]", "not a JSON object"),
        ('{"a": 1}', "a has no list of row offsets"),
        ('{"a": [-1]}', "a has no list of row offsets"),
        ('{"a": [1], "a": [2]}', "'a' is repeated"),
    ],
)
def test_affected_rows_that_are_none_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, says: str
) -> None:
    actions, given = tmp_path / "actions.json", tmp_path / "rows.json"
    actions.write_bytes(text([remove("a")]))
    given.write_text(content)
    options = ["--actions", str(actions), "--affected-rows", str(given), "--into", str(tmp_path / "log")]
    assert cli.run(["propose", str(tmp_path / "t"), *options]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "log").exists()


def test_what_was_read_turns_back_a_proposal(files: Files) -> None:
    files.propose(PROTOCOL, metadata())
    files.propose(data_file(files.table, "a.parquet", 1), txn("job", 1), options=("--operation", "WRITE"))
    for option, value in (("--read-where", "x > 0"), ("--read-app-id", "job")):
        file = data_file(files.table, f"{option}.parquet", 2)
        files.propose(file, options=("--read-version", "0", option, value))
    outcomes = files.fold("--group-max-entries", "1", code=3)
    assert ["rejected" in each for each in outcomes] == [False, False, True, True]
    assert "concurrent" not in outcomes[2]["rejected"]["message"]
    assert outcomes[3]["rejected"]["keys"] == ["job"]


def test_positions_lead_to_versions_of_a_delta_table(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    files.propose(PROTOCOL, metadata())
    files.propose(data_file(files.table, "a.parquet", 1, 2), options=("--app-id", "a", "--batch-id", "1"))
    files.propose(data_file(files.table, "b.parquet", 3), options=("--app-id", "a", "--batch-id", "2"))
    outcomes = files.fold()
    # The creation is alone, the appends share a version.
    assert [outcome["committed"]["version"] for outcome in outcomes] == ["0", "1", "1"]
    write_deltalake(files.table, pa.table({"x": [4]}), mode="append")
    changes = lakefold.changes(files.table, -1).read_all().to_pylist()
    assert [(row["x"], row["_commit_version"], row["_log_offset"]) for row in changes] == [
        (1, 1, 1),
        (2, 1, 1),
        (3, 1, 2),
        (4, 2, None),
    ]
    created, appended, foreign = lakefold.tail(files.table, -1)
    assert [change.operations for change in (created, appended, foreign)] == [
        {"CREATE TABLE": 1},
        {"WRITE": 2},
        {},
    ]
    position = appended.position
    assert position is not None
    assert (position.offset, foreign.position) == (2, None)
    assert appended.cursor.table_id
    for offset, version in ((0, 0), (1, 1), (2, 1)):
        at = replace(position, offset=offset)
        assert lakefold.open(files.table, at_position=at).version == version
    with pytest.raises(lakefold.NotFoldedYetError):
        lakefold.open(files.table, at_position=replace(position, offset=3))
    for proposal, version in (("a:2", 1), ("0", 0)):
        assert cli.run(["explain", str(files.table), proposal, "--json"]) == 0
        explained = json.loads(capsys.readouterr().out)
        assert (explained["state"], explained["committed_in"]) == ("committed", version)
        assert explained["format"] == "delta"


def test_a_table_is_folded_on_after_a_clean_up(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.propose(PROTOCOL, metadata(**{"delta.checkpointInterval": "1"}))
    for number in range(1, 4):
        files.propose(data_file(files.table, f"{number}.parquet", number))
    log = ("--log-id", "6d9b4a4e-6f1c-4f0b-9a5e-0f3b7a1c2d3e")
    files.fold("--group-max-entries", "1", *log)
    for number in (4, 5):
        write_deltalake(files.table, pa.table({"x": [number]}), mode="append")
    DeltaTable(files.table).create_checkpoint()
    assert cli.run(["cleanup", str(files.table), "--older-than", "0s", "--json"]) == 0
    # Version 3 has the marks: it is the last one that a committer made.
    assert json.loads(capsys.readouterr().out)["removed_versions"] == 3
    files.propose(data_file(files.table, "6.parquet", 6))
    *_, last = files.fold(*log)
    assert last["committed"]["version"] == "6"
    assert sorted(lakefold.open(files.table).to_arrow()["x"].to_pylist()) == [1, 2, 3, 4, 5, 6]
    assert cli.run(["explain", str(files.table), "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "committed"


def test_spark_rewrites_no_files_of_delta_tables() -> None:
    """The verbs pass the engine that `--engine spark` names to a round of maintenance."""
    survey = SimpleNamespace(format=SimpleNamespace(name="delta"), table="file:///t")
    engine = OnSpark(cast("SparkSession", None))
    with pytest.raises(lakefold.InvalidError, match="Spark rewrites Lance tables, and this is a Delta table"):
        next(engine.ended(cast("TableSurvey", survey), []))
    own = SimpleNamespace(ended=lambda *given: iter([given]))
    mixed = OnSpark(cast("SparkSession", None), others=cast("RewriteEngine", own))
    ended: list[object] = [*mixed.ended(cast("TableSurvey", survey), [])]
    assert ended == [(survey, [])]

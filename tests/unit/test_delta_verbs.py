"""`lakefold propose --actions` and `lakefold fold` on Delta tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from lakefold import cli
from tests.delta_logs.actions import PROTOCOL, data_file, metadata, remove, text

if TYPE_CHECKING:
    from pathlib import Path

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

"""`lakefold tag`, `branch` and `restore` go through the log, for every Lance client to see.

Promise: keys-of-a-branch (docs/operations/promises.md).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakefold
from lakefold import cli

if TYPE_CHECKING:
    from lakefold import WriteOptions


class Table:
    """A table with four batches, and the verbs on it."""

    def __init__(
        self,
        folder: Path,
        options: WriteOptions,
        output: pytest.CaptureFixture[str],
        patch: pytest.MonkeyPatch,
    ) -> None:
        self.path = str(folder / "flights")
        self.options = options
        self._output = output
        for name in ("bootstrap_servers", "transactions_topic", "outcomes_topic"):
            patch.setenv(f"LAKEFOLD_{name.upper()}", str(options[name]))
        self.append([1], "a", 1)
        self.append([2], "a", 2)
        self.append([3])
        self.append([4], "b", 7)

    def append(self, ids: list[int], app_id: str | None = None, batch_id: int | None = None) -> Any:  # noqa: ANN401 - a report
        return lakefold.append(
            self.path, pa.table({"id": ids}), app_id=app_id, batch_id=batch_id, **self.options
        )

    def ids(self, **version: Any) -> list[int]:  # noqa: ANN401 - as `lakefold.open` takes it
        """The ids in a version."""
        ids: list[int] = lakefold.open(self.path, **version).to_arrow()["id"].to_pylist()
        return sorted(ids)

    def run(self, verb: str, *words: str, code: int = 0) -> Any:  # noqa: ANN401 - a JSON document
        """Runs a verb on the table with `--json`."""
        self._output.readouterr()
        assert cli.run([verb, self.path, *words, "--json"]) == code, self._output.readouterr()
        return json.loads(self._output.readouterr().out)

    def text(self, verb: str, *words: str) -> str:
        """Runs a verb on the table, and returns what it prints."""
        self._output.readouterr()
        assert cli.run([verb, self.path, *words]) == 0
        return self._output.readouterr().out


@pytest.fixture
def table(
    tmp_path: Path,
    options: WriteOptions,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Table:
    return Table(tmp_path, options, capsys, monkeypatch)


def version_with(table: Table, ids: list[int]) -> int:
    """The version that has exactly these ids."""
    newest = lakefold.open(table.path).version
    return next(number for number in range(1, newest + 1) if table.ids(version=number) == ids)


def test_a_restore_names_what_it_takes_back_and_how_to_send_it_again(table: Table) -> None:
    begin, before = version_with(table, [1]), lakefold.open(table.path).version
    expected = {
        "versions": 3,
        "apps": [
            {"app_id": "a", "first": 2, "last": 2, "count": 1},
            {"app_id": "b", "first": 7, "last": 7, "count": 1},
        ],
        "entries_without_app_id": 1,
        "foreign_versions": [],
    }
    dry = table.run("restore", "--version", str(begin), "--dry-run")
    assert (dry["outcome"], dry["taken_back"]) == (None, expected)
    assert table.ids() == [1, 2, 3, 4]

    done = table.run("restore", "--version", str(begin))
    assert int(done["outcome"]["committed"]["version"]) == before + 1
    assert (done["restored_version"], done["taken_back"]) == (begin, expected)
    assert "a new app id" in done["hint"]
    assert 'on_rolled_back="again"' in done["hint"]
    assert table.ids() == [1]
    with pytest.raises(lakefold.InvalidError):
        table.append([2], "a", 2)
    assert table.append([2], "a-again", 2).kind == "committed"
    again: lakefold.WriteOptions = {**table.options, "on_rolled_back": "again"}
    rows = pa.table({"id": [7]})
    assert lakefold.append(table.path, rows, app_id="b", batch_id=7, **again).kind == "committed"
    assert table.ids() == [1, 2, 7]


def test_a_restore_by_a_tag_or_a_time_is_printed_for_people(table: Table) -> None:
    table.run("tag", "good", "--version", str(version_with(table, [1, 2, 3])))
    shown = table.text("restore", "--tag", "good")
    assert "undid 1 version after version" in shown
    assert "; 1 row fewer\n" in shown
    assert "  b: batch 7 (1)" in shown
    assert "a new app id" in shown
    assert table.ids() == [1, 2, 3]
    table.run(
        "restore", "--as-of", lakefold.open(table.path, version_with(table, [1, 2])).timestamp.isoformat()
    )
    assert table.ids() == [1, 2]


def test_a_branch_begins_at_a_version_and_goes_on_by_itself(table: Table) -> None:
    begin = version_with(table, [1, 2])
    outcome = table.run("branch", "audit", "--version", str(begin))
    assert outcome["branch"] == "audit"
    assert int(outcome["committed"]["version"]) == begin
    assert table.ids(branch="audit") == [1, 2]
    again = table.run("branch", "audit", code=3)
    assert "exists already" in json.dumps(again)
    table.run("branch", "next", "--branch", "audit")
    assert table.ids(branch="next") == [1, 2]
    assert set(lance.dataset(table.path).branches.list()) == {"audit", "next"}
    written = lakefold.append(f"{table.path}/tree/audit", pa.table({"id": [5]}), **table.options)
    assert (written.kind, written.version) == ("committed", begin + 1)
    assert (table.ids(branch="audit"), table.ids(branch="next")) == ([1, 2, 5], [1, 2])
    assert table.ids() == [1, 2, 3, 4]
    for app, batch, kind in (("a", 2, "duplicate"), ("b", 7, "committed"), ("b", 7, "duplicate")):
        rows = pa.table({"id": [batch]})
        sent = lakefold.append(f"{table.path}/tree/audit", rows, app_id=app, batch_id=batch, **table.options)
        assert sent.kind == kind
    assert table.ids(branch="audit") == [1, 2, 5, 7]


def test_a_branch_is_deleted_with_its_files_and_begins_again_under_its_name(table: Table) -> None:
    table.run("branch", "audit", "--version", str(version_with(table, [1, 2])))
    folder = f"{table.path}/tree/audit"
    lakefold.append(folder, pa.table({"id": [5]}), **table.options)
    table.run("branch", "next", "--branch", "audit")
    table.run("tag", "audited", "--branch", "audit")
    refused = table.run("branch", "audit", "--delete", code=3)
    needed = "the branch audit is needed by tag audited, branch next"
    assert (refused["outcome"]["invalid"]["message"], refused["files_removed"]) == (needed, False)
    with pytest.raises(OSError, match="can not delete"):
        lance.dataset(table.path).branches.delete("audit")
    table.run("branch", "next", "--delete")
    table.run("tag", "audited", "--delete")

    deleted = table.run("branch", "audit", "--delete")
    position = deleted["outcome"]["position"]
    assert (deleted["branch"], deleted["files_removed"]) == ("audit", True)
    assert not Path(folder).exists()
    theirs = lance.dataset(table.path)
    assert theirs.branches.list() == {}
    assert theirs.to_table()["id"].to_pylist() == [1, 2, 3, 4]
    for read in (lambda: table.ids(branch="audit"), lambda: lakefold.open(folder)):
        with pytest.raises(lakefold.LakefoldError, match=r"does not exist|no table here yet"):
            read()
    again = table.run("branch", "audit", "--delete", code=3)["outcome"]["invalid"]["message"]
    assert again.endswith(f"{position['topic']}/{position['partition']}@{position['offset']}")

    table.run("branch", "audit", "--version", str(version_with(table, [1])))
    assert lakefold.append(folder, pa.table({"id": [6]}), **table.options).kind == "committed"
    assert (table.ids(branch="audit"), set(lance.dataset(table.path).branches.list())) == ([1, 6], {"audit"})
    assert "branch audit deleted, with its files" in table.text("branch", "audit", "--delete")
    table.run("branch", "audit", "--delete", "--version", "1", code=2)


def test_a_tag_is_made_moved_and_removed(table: Table) -> None:
    first, newest = version_with(table, [1]), lakefold.open(table.path).version
    outcome = table.run("tag", "v1", "--version", str(first))
    assert (int(outcome["committed"]["version"]), outcome["committed"]["tag"]) == (first, "v1")
    assert lance.dataset(table.path, version="v1").to_table()["id"].to_pylist() == [1]
    assert "exists already" in table.run("tag", "v1", code=3)["invalid"]["message"]
    moved = table.run("tag", "v1", "--move")
    assert (int(moved["committed"]["version"]), table.ids(tag="v1")) == (newest, [1, 2, 3, 4])
    assert "tag new names version" in table.text("tag", "new", "--move")
    explained = table.run("explain", outcome["uuid"])
    assert (explained["state"], explained["proposal"]["operation"]) == ("committed", "tag")
    assert explained["outcome"] == outcome
    removed = table.run("tag", "v1", "--delete")
    assert removed["committed"]["version"] == "0"
    assert set(lance.dataset(table.path).tags.list()) == {"new"}
    assert lakefold.open(table.path).version == newest, "a tag makes no version"
    assert "does not exist" in table.run("tag", "v1", "--delete", code=3)["invalid"]["message"]
    missing = table.run("tag", "v9", "--version", "999", code=2)["error"]
    assert "version 999 does not exist yet" in missing["message"]
    for words in (["lakefold-consumer-x"], ["x", "--delete", "--move"]):
        table.run("tag", *words, code=2)


def test_a_version_of_a_branch_is_tagged_in_the_order_of_the_log(table: Table) -> None:
    begin = version_with(table, [1, 2])
    table.run("branch", "audit", "--version", str(begin))
    table.run("tag", "audited", "--branch", "audit")
    assert table.ids(tag="audited") == [1, 2]
    listed = lance.dataset(table.path).tags.list()["audited"]
    assert (listed["branch"], listed["version"]) == ("audit", begin)
    lance.dataset(table.path).tags.update("audited", begin + 1)
    assert table.ids(tag="audited") == [1, 2, 3]
    table.run("tag", "audited", "--branch", "audit", "--move")
    assert table.ids(tag="audited") == [1, 2]


def test_a_delta_table_is_restored_by_the_same_verb_and_has_no_tags_and_branches(
    tmp_path: Path,
    options: WriteOptions,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(tmp_path, {**options, "format": "delta"}, capsys, monkeypatch)
    begin = version_with(table, [1])
    before = lakefold.open(table.path).version
    dry = table.run("restore", "--version", str(begin), "--dry-run")
    assert (dry["outcome"], dry["taken_back"]["entries_without_app_id"]) == (None, 1)
    assert lakefold.open(table.path).version == before
    done = table.run("restore", "--version", str(begin))
    assert int(done["outcome"]["committed"]["version"]) == before + 1
    assert done["taken_back"] == dry["taken_back"]
    assert done["taken_back"]["apps"] == [
        {"app_id": "a", "first": 2, "last": 2, "count": 1},
        {"app_id": "b", "first": 7, "last": 7, "count": 1},
    ]
    theirs = DeltaTable(table.path)
    assert pa.table(theirs.to_pyarrow_table())["id"].to_pylist() == table.ids() == [1]
    assert theirs.history(1)[0]["operation"] == "RESTORE"
    # A batch stays folded under its key, and is added under another.
    with pytest.raises(lakefold.InvalidError, match="batch 2"):
        table.append([2], "a", 2)
    assert table.append([2], "a-again", 2).kind == "committed"
    table.run("restore", "--version", "0")
    assert table.ids() == []
    assert "nothing to restore" in table.run("restore", "--version", "0", code=2)["error"]["message"]
    for verb in ("tag", "branch"):
        error = table.run(verb, "x", "--version", "0", code=2)["error"]
        assert "delta" in error["message"]
        assert table.path not in error["hint"]

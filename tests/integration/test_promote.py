"""A branch is promoted through a real log: by the verb and in Python, beside writers, with kills.

Promise: a-promote-is-exact (docs/operations/promises.md).
"""

from __future__ import annotations

import json
import subprocess
import sys
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakefold
from lakefold import cli
from tests.integration.committers import running_committer
from tests.integration.own_log import OwnLog
from tests.integration.test_revert import in_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakefold import WriteOptions
    from tests.integration.conftest import TopicNames

KILLED = """
import importlib, os, signal
from pathlib import Path
from lakefold.cli import main

module, owner, name = {step!r}
owner = getattr(importlib.import_module(module), owner)
call = getattr(owner, name)

def killed(*arguments, **options):
    marker = Path(os.environ["LAKEFOLD_TEST_KILL"])
    if marker.exists():
        marker.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return call(*arguments, **options)

setattr(owner, name, killed)
main()
"""
BEFORE_PUBLISHING = ("lakefold_table.versions.versions", "Versions", "publish")
BEFORE_REPORTING = ("lakefold_log.write.reporter", "Reporter", "report")
BEFORE_SENDING = ("lakefold_ingest.writing.log_client", "LogClient", "propose")


def people(*ids: int, name: str = "first") -> pa.Table:
    return pa.table({"id": list(ids), "name": [f"{name} {n}" for n in ids]})


def rows(uri: str) -> dict[int, str]:
    """The rows of the newest version by pylance; no id is there twice."""
    table = lance.dataset(uri).to_table()
    names = dict(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))
    assert len(names) == table.num_rows
    return names


def branched(uri: str, options: WriteOptions) -> dict[int, str]:
    """Makes a table with a branch that got three batches; returns the rows of the branch."""
    lakefold.append(uri, people(*range(6)), **options)
    lakefold.branch(uri, "audit", timeout=120)
    audit = f"{uri}/tree/audit"
    lakefold.append(audit, people(20, 21), app_id="loader", batch_id=1, **options)
    lakefold.upsert(audit, people(1, 22, name="new"), keys="id", app_id="loader", batch_id=2, **options)
    lakefold.delete(audit, where="id in (4, 20)", app_id="loader", batch_id=3, **options)
    return {n: f"first {n}" for n in (0, 2, 3, 5, 21)} | {1: "new 1", 22: "new 22"}


def test_by_the_verb_and_in_python(
    tmp_path: Path, options: WriteOptions, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "people")
    in_environment(monkeypatch, options)
    expected = branched(uri, options)
    lakefold.append(uri, people(30), **options)

    def run(*words: str, code: int = 0) -> Any:  # noqa: ANN401 - a JSON document
        capsys.readouterr()
        assert cli.run([*words, "--json"]) == code, capsys.readouterr()
        return json.loads(capsys.readouterr().out)

    planned = run("branch", uri, "audit", "--promote", "--dry-run")
    assert (planned["kind"], planned["rows_added"], planned["rows_removed"]) == ("planned", 3, 2)
    assert len(rows(uri)) == 7
    done = run("branch", uri, "audit", "--promote", "--commit-message", "checked")
    assert (done["kind"], done["batches"], done["branch_version"]) == (
        "committed",
        3,
        planned["branch_version"],
    )
    assert rows(uri) == {**expected, 30: "first 30"}
    again: WriteOptions = {**options, "on_reused_key": "skip"}
    kinds = [
        lakefold.append(uri, people(90), app_id="loader", batch_id=batch, **again).kind for batch in (1, 2, 3)
    ]
    assert kinds == ["duplicate"] * 3
    assert run("branch", uri, "audit", "--promote")["kind"] == "empty"
    (row,) = (each for each in lakefold.open(uri).history() if each.version == done["version"])
    assert (row.operations, row.authors[0].message) == ({"promote": 1}, "checked")
    assert row.properties["promotes"] == f"audit@{done['branch_version']}"
    explained = run("explain", uri, "loader:2")
    assert (explained["state"], explained["committed_in"]) == ("committed", done["version"])
    assert explained["version"]["operations"] == {"promote": 1}
    assert explained["another_entry"] is None
    lakefold.append(f"{uri}/tree/audit", people(40), app_id="loader", batch_id=4, **options)
    report = lakefold.promote(uri, "audit", timeout=120)
    assert (report.kind, report.rows_added, report.rows_removed, report.batches) == ("committed", 1, 0, 1)
    lakefold.branch(uri, "audit", delete=True, timeout=120)
    assert rows(uri) == {**expected, 30: "first 30", 40: "first 40"}
    lance.dataset(uri).validate()
    capsys.readouterr()
    assert cli.run(["replay", uri, "--check"]) == 0, capsys.readouterr()


def test_conflicts_are_evidence_and_exit_with_3(
    tmp_path: Path, options: WriteOptions, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "people")
    in_environment(monkeypatch, options)
    branched(uri, options)
    lakefold.upsert(uri, people(1, name="main"), keys="id", app_id="svc", batch_id=5, **options)
    lakefold.append(uri, people(21), app_id="loader", batch_id=1, **options)
    before = rows(uri)
    capsys.readouterr()
    assert cli.run(["branch", uri, "audit", "--promote", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "changed on both: id=1" in text
    assert "changed by svc:5" in text
    assert "folded into both: loader:1" in text
    assert cli.run(["branch", uri, "audit", "--promote"]) == 3
    assert "changed by svc:5" in capsys.readouterr().err
    with pytest.raises(lakefold.PromoteConflictError):
        lakefold.promote(uri, "audit", timeout=120)
    lakefold.branch(uri, "other", timeout=120)
    for branch in (uri, f"{uri}/tree/other"):
        lakefold.append(branch, people(50 + len(branch)), app_id="both", batch_id=1, **options)
    with pytest.raises(lakefold.RefusedError, match="both:1 was folded on branch other and here"):
        lakefold.promote(uri, "other", timeout=120)
    assert rows(uri).keys() == {*before, 50 + len(uri)}


def test_delta_tables_have_no_branches(
    tmp_path: Path, options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_environment(monkeypatch, options)
    delta: WriteOptions = {**options, "format": "delta"}
    lakefold.append(str(tmp_path / "d"), people(1), **delta)
    with pytest.raises(lakefold.InvalidError, match=r"delta|Delta"):
        lakefold.promote(str(tmp_path / "d"), "audit")
    assert DeltaTable(str(tmp_path / "d")).version() >= 0


def test_beside_live_writers_of_both_branches(
    tmp_path: Path, options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "people")
    in_environment(monkeypatch, options)
    expected, ends = branched(uri, options), Event()
    sent: dict[str, list[int]] = {"main": [], "audit": []}

    def writer(name: str, step: str, first: int) -> Callable[[], None]:
        def write() -> None:
            while not ends.is_set():
                number = first + len(sent[name])
                rows = people(number, number + 5000, name=name)
                lakefold.upsert(step, rows, keys="id", app_id=name, batch_id=number, **options)
                sent[name].append(number)

        return write

    writers = [
        Thread(target=writer("main", uri, 1000)),
        Thread(target=writer("audit", f"{uri}/tree/audit", 2000)),
    ]
    for each in writers:
        each.start()
    try:
        reports = [lakefold.promote(uri, "audit", timeout=120) for _ in range(4)]
    finally:
        ends.set()
        for each in writers:
            each.join()
    reports.append(lakefold.promote(uri, "audit", timeout=120))
    assert reports[0].kind == "committed"
    numbers = {name: {number + more for number in each for more in (0, 5000)} for name, each in sent.items()}
    written = {number: f"{name} {number}" for name, each in numbers.items() for number in each}
    assert rows(uri) == expected | written


@pytest.mark.parametrize("step", [BEFORE_PUBLISHING, BEFORE_REPORTING], ids=["publishing", "reporting"])
def test_a_committer_that_is_killed_promotes_it_once(
    tmp_path: Path,
    bootstrap: str,
    topic_names: TopicNames,
    step: tuple[str, str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    OwnLog.make(bootstrap, topic_names)
    options: WriteOptions = {
        "bootstrap_servers": bootstrap,
        "transactions_topic": topic_names.transactions,
        "outcomes_topic": topic_names.outcomes,
        "timeout": 120,
    }
    uri, marker = str(tmp_path / "people"), tmp_path / "kill"
    monkeypatch.setenv("LAKEFOLD_TEST_KILL", str(marker))
    in_environment(monkeypatch, options)
    killed = ("-c", KILLED.format(step=step))
    with running_committer(bootstrap, topic_names, tmp_path, interpreter=killed) as committer:
        committer.wait_until_ready()
        expected = branched(uri, options)
        before = rows(uri)
        marker.touch()
        reports: list[lakefold.PromoteReport] = []
        sent = Thread(target=lambda: reports.append(lakefold.promote(uri, "audit", timeout=120)))
        sent.start()
        committer.process.wait()
        assert rows(uri) == (before if step == BEFORE_PUBLISHING else expected)
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        sent.join()
    assert [each.kind for each in reports] == ["committed"]
    assert rows(uri) == expected
    marks = lakefold.open(uri).marks
    assert marks is not None
    assert all(marks.apps["loader"].has(batch) for batch in (1, 2, 3))


def test_a_client_that_is_killed_before_it_sends_leaves_nothing_but_unnamed_files(
    tmp_path: Path, options: WriteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, marker = str(tmp_path / "people"), tmp_path / "kill"
    in_environment(monkeypatch, options)
    monkeypatch.setenv("LAKEFOLD_TEST_KILL", str(marker))
    expected = branched(uri, options)
    before, files = rows(uri), {*(tmp_path / "people/data").iterdir()}
    marker.touch()
    words = (sys.executable, "-c", KILLED.format(step=BEFORE_SENDING), "branch", uri, "audit", "--promote")
    assert subprocess.run(words, check=False, capture_output=True).returncode == -9
    assert rows(uri) == before
    assert {*(tmp_path / "people/data").iterdir()} - files
    assert lakefold.promote(uri, "audit", timeout=120).kind == "committed"
    assert rows(uri) == expected

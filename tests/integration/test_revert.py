"""`lakefold revert` through a real log: by the verb and in Python, judged by pylance and delta-rs."""

from __future__ import annotations

import json
from threading import Thread
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

import lakefold
from lakefold import cli
from tests.integration.committers import running_committer
from tests.integration.own_log import OwnLog

if TYPE_CHECKING:
    from pathlib import Path

    from lakefold import WriteOptions
    from lakefold.maintaining.compaction import CompactOptions
    from tests.integration.conftest import TopicNames

FORMATS = pytest.mark.parametrize("format_name", ["lance", "delta"])
KILLED_BEFORE_ITS_REPORT = """
import os, signal
from pathlib import Path
from lakefold.cli import main
from lakefold_log.write.reporter import Reporter

report = Reporter.report

def killed(*arguments, **options):
    marker = Path(os.environ["LAKEFOLD_TEST_KILL"])
    if marker.exists():
        marker.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return report(*arguments, **options)

Reporter.report = killed
main()
"""


def people(*ids: int, name: str = "first") -> pa.Table:
    return pa.table({"id": list(ids), "name": [f"{name} {n}" for n in ids]})


def rows(path: Path, format_name: str) -> dict[int, str]:
    """The rows of the newest version by the format's own client."""
    if format_name == "lance":
        table = lance.dataset(str(path)).to_table()
    else:
        query = QueryBuilder().register("t", DeltaTable(str(path))).execute("select id, name from t")
        table = pa.table(query.read_all())
    return dict(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))


def connection(options: WriteOptions) -> CompactOptions:
    """The brokers and topics of these options."""
    return {
        "bootstrap_servers": str(options["bootstrap_servers"]),
        "transactions_topic": str(options["transactions_topic"]),
        "outcomes_topic": str(options["outcomes_topic"]),
        "timeout": 120,
    }


def in_environment(patch: pytest.MonkeyPatch, options: WriteOptions) -> None:
    """Sets the brokers and topics for verbs and functions that get none."""
    for name, value in connection(options).items():
        if name != "timeout":
            patch.setenv(f"LAKEFOLD_{name.upper()}", str(value))


def filled(path: Path, format_name: str, options: WriteOptions) -> dict[int, str]:
    """Makes a table with a bad upsert and a bad delete among good batches; returns its good rows."""
    uri = str(path)
    begun: WriteOptions = {**options, "format": format_name}
    lakefold.append(uri, people(*range(6)), **begun)
    lakefold.upsert(uri, people(1, 2, 50, name="bad"), keys="id", app_id="loader", batch_id=7, **options)
    lakefold.append(uri, people(10), app_id="good", batch_id=1, **options)
    lakefold.delete(uri, where="id = 4", app_id="loader", batch_id=8, **options)
    lakefold.append(uri, people(11), app_id="good", batch_id=2, **options)
    lakefold.compact(uri, **connection(options))
    return {n: f"first {n}" for n in (*range(6), 10, 11)}


@FORMATS
def test_by_the_verb_and_in_python(
    tmp_path: Path,
    options: WriteOptions,
    format_name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "people"
    good = filled(path, format_name, options)
    in_environment(monkeypatch, options)

    def run(*words: str, code: int = 0) -> Any:  # noqa: ANN401 - a JSON document
        capsys.readouterr()
        assert cli.run([*words, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    both = run("revert", str(path), "loader:7-8", "--dry-run")
    assert (both["format"], both["rows_removed"], both["rows_returned"]) == (format_name, 3, 3)
    planned = run("revert", str(path), "loader:7", "--dry-run")
    assert (planned["kind"], planned["rows_removed"], planned["rows_returned"]) == ("planned", 3, 2)
    done = run("revert", str(path), "loader:7")
    assert planned["format"] == done["format"] == format_name
    assert (done["kind"], done["rows_removed"], done["rows_returned"]) == ("committed", 3, 2)
    assert rows(path, format_name) == {n: name for n, name in good.items() if n != 4}
    report = lakefold.revert(path, ["loader:8"], timeout=120)
    assert (report.kind, report.rows_returned) == ("committed", 1)
    assert rows(path, format_name) == good
    explained = run("explain", str(path), "loader:7")
    assert explained["undone"] == f"undone by the revert in version {done['version']}"
    versions = {row.version: row for row in lakefold.open(path).history()}
    assert {each.by for row in versions.values() for each in row.undone} == {done["version"], report.version}
    capsys.readouterr()
    assert cli.run(["revert", str(path), "loader:7"]) == 3
    assert f"loader:7 was undone before, in version {done['version']}" in capsys.readouterr().err
    with pytest.raises(lakefold.InvalidError, match="undone in version"):
        lakefold.append(path, people(1), app_id="loader", batch_id=7, **options)
    pq.write_table(people(60), tmp_path / "corrected.parquet")
    corrected = ["append", str(path), str(tmp_path / "corrected.parquet"), "--app-id", "loader"]
    corrected += ["--batch-id", "7", "--on-rolled-back", "again", "--commit-message", "the right rows"]
    assert [run(*corrected)["kind"] for _ in range(2)] == ["committed", "duplicate"]
    assert run("explain", str(path), "loader:7")["author"]["message"] == "the right rows"
    assert rows(path, format_name) == {**good, 60: "first 60"}
    capsys.readouterr()
    assert cli.run(["replay", str(path), "--check"]) == 0, capsys.readouterr()


@FORMATS
def test_a_restore_that_keeps_all_later_batches_but_some(
    tmp_path: Path,
    options: WriteOptions,
    format_name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "people"
    good = filled(path, format_name, options)
    in_environment(monkeypatch, options)
    start = list(lakefold.open(path).history())[-2].version
    assert cli.run(["restore", str(path), "--version", str(start), "--reapply"]) == 2
    words = ["restore", str(path), "--version", str(start), "--except", "loader:7", "loader:8", "--json"]
    capsys.readouterr()
    assert cli.run([*words, "--dry-run"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["kind"], planned["rows_removed"], planned["rows_returned"]) == ("planned", 3, 3)
    report = lakefold.restore(path, version=start, except_="loader:7", commit_message="it was bad")
    assert report.kind == "committed"
    assert lakefold.explain(path, "loader:7").undoing == "revert"
    later = lakefold.open(path).version
    with pytest.raises(lakefold.InvalidError, match=f"loader:8 is in version .*, so version {later} has it"):
        lakefold.restore(path, version=later, except_=["loader:8"])
    assert cli.run([*words[:-3], "loader:8"]) == 0
    assert rows(path, format_name) == good
    assert [each.message for each in list(lakefold.open(path).history())[1].authors] == ["it was bad"]


def test_what_a_table_would_be_without_batches(
    tmp_path: Path,
    options: WriteOptions,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "people"
    good = filled(path, "lance", options)
    before = lakefold.open(path)
    in_environment(monkeypatch, options)

    def replayed(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert cli.run(["replay", str(path), "--onto-branch", *words]) == code
        return capsys.readouterr().out

    document = json.loads(replayed("good-only", "--without", "loader:7", "--without", "loader:8", "--json"))
    assert (document["diff"]["rows_added"], document["diff"]["rows_removed"]) == (3, 3)
    assert rows(path / "tree" / "good-only", "lance") == good
    assert "undone in version" in replayed("first", "--until", "3", "--without", "loader:7")
    assert rows(path / "tree" / "first", "lance") == {n: f"first {n}" for n in range(6)}
    replayed("none", "--without", "loader:9", code=2)
    replayed("first", "--without", "loader:7", code=3)
    lakefold.upsert(path, people(50, name="later"), keys="id", **options)
    replayed("none", "--without", "loader:7", code=3)
    assert "changed later" in replayed("kept", "--without", "loader:7", "--keep-later")
    assert rows(path / "tree" / "kept", "lance") == {**{n: good[n] for n in good if n != 4}, 50: "later 50"}
    corrected, odd = tmp_path / "corrected.parquet", tmp_path / "odd.parquet"
    pq.write_table(people(70, 71, name="corrected"), corrected)
    pq.write_table(pa.table({"unknown": [1]}), odd)
    replayed("odd", "--without", "loader:8", "--with", str(odd), code=2)
    document = json.loads(
        replayed("more", "--with", str(corrected), "--until", str(before.version), "--json")
    )
    assert (document["diff"]["rows_added"], document["diff"]["rows_removed"]) == (2, 0)
    then = dict(zip(*before.to_arrow().to_pydict().values(), strict=True))
    assert rows(path / "tree" / "more", "lance") == then | {70: "corrected 70", 71: "corrected 71"}
    branches = {each["name"] for each in lakefold.refs(path)["branches"]}
    assert branches == {"good-only", "first", "kept", "more"}
    assert lakefold.open(path, version=before.version).to_arrow() == before.to_arrow()


@FORMATS
def test_a_committer_that_is_killed_before_its_report_undoes_it_once(
    tmp_path: Path,
    bootstrap: str,
    topic_names: TopicNames,
    format_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    OwnLog.make(bootstrap, topic_names)
    options: WriteOptions = {
        "bootstrap_servers": bootstrap,
        "transactions_topic": topic_names.transactions,
        "outcomes_topic": topic_names.outcomes,
        "timeout": 120,
    }
    path, marker = tmp_path / "people", tmp_path / "kill"
    monkeypatch.setenv("LAKEFOLD_TEST_KILL", str(marker))
    in_environment(monkeypatch, options)
    with running_committer(
        bootstrap, topic_names, tmp_path, interpreter=("-c", KILLED_BEFORE_ITS_REPORT)
    ) as committer:
        committer.wait_until_ready()
        good = filled(path, format_name, options)
        marker.touch()
        reports: list[lakefold.RevertReport] = []
        sent = Thread(
            target=lambda: reports.append(lakefold.revert(path, ["loader:7", "loader:8"], timeout=120))
        )
        sent.start()
        committer.process.wait()
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        sent.join()
    (report,) = reports
    assert report.kind == "committed"
    assert rows(path, format_name) == good
    marks = lakefold.open(path).marks
    assert marks is not None
    assert [marks.rolled_back_by("loader", batch, "") for batch in (7, 8)] == [report.version] * 2

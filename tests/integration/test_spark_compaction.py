"""Compactions whose tasks Spark runs (`--engine spark`)."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, cast

import lance
import pytest
from py4j.protocol import Py4JNetworkError

import lakefold
from lakefold.cli import run
from lakefold.maintaining.engine import SPARK
from lakefold_ingest.writing.log_client import close_clients
from lakefold_maintenance.lance import rewriter
from lakefold_maintenance.lance.rewriter import RewrittenTask
from lakefold_maintenance.planning.plan import plan
from lakefold_maintenance.rewriting.on_spark import OnSpark
from lakefold_maintenance.rewriting.survey import Surveyor
from lakefold_reader.formats import open_source
from lakefold_table.errors import DamagedError, RetryError
from tests.integration.committers import running_committer
from tests.integration.own_log import OwnLog
from tests.integration.test_compacting_tables import CompactedTable
from tests.oracle.test_compacting import FoldingLog, check, compaction, data_files, made

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.conftest import TopicNames


@pytest.fixture
def engine(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> OnSpark:
    """The engine, in a driver that can't rewrite anything itself."""

    def run_here(*_: object, **__: object) -> None:
        pytest.fail("the driver has run a task")

    monkeypatch.setattr(rewriter.Rewriter, "run", run_here)
    return OnSpark(spark)


@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_executors_rewrite_the_fragments(engine: OnSpark, tmp_path: Path, stable: bool) -> None:  # noqa: FBT001 - a parameter
    table = made(tmp_path / "t", stable=stable, version="2.1")
    lance.dataset(str(table)).create_scalar_index("a", "BTREE")
    lance.dataset(str(table)).delete("a % 4 = 1")
    before = lance.dataset(str(table)).to_table()
    report = compaction(table, FoldingLog(table), engine, target_rows="20").run(full=True)
    check(table, before)
    assert (report.fragments_before, report.fragments_after, report.failed) == (9, 3, [])
    assert (report.rows, report.deleted_rows) == (len(before), 23)


def test_a_damaged_file_fails_its_task_alone(engine: OnSpark, tmp_path: Path) -> None:
    table = made(tmp_path / "t", stable=False, version="2.1", appends=8)
    (broken,) = lance.dataset(str(table)).get_fragments()[2].data_files()
    (table / "data" / broken.path).write_bytes(b"x" * 100)
    report = compaction(table, FoldingLog(table), engine, target_rows="40").run(full=True)
    (failed,) = report.failed
    assert failed.fragment_ids == (0, 1, 2, 3)
    assert isinstance(failed.error, DamagedError)
    assert broken.path in failed.message
    assert report.fragments_after == 5


class LostSession:
    """A session whose driver has ended."""

    def range(self, *_: int) -> None:
        raise Py4JNetworkError("the driver has ended")


def test_a_task_that_spark_does_not_run_is_reported(tmp_path: Path) -> None:
    table = made(tmp_path / "t", stable=False, version="2.1", appends=2)
    before = data_files(table)
    log = FoldingLog(table)
    report = compaction(table, log, OnSpark(cast("SparkSession", LostSession()))).run(full=True)
    (failed,) = report.failed
    assert isinstance(failed.error, RetryError)
    assert failed.error.message == "Spark has not run the task: the driver has ended"
    assert (log.asked, data_files(table)) == ([], before)


def test_what_is_left_when_it_is_closed_leaves_no_file(engine: OnSpark, tmp_path: Path) -> None:
    table = made(tmp_path / "t", stable=False, version="2.1", appends=40)
    before = data_files(table)
    survey = Surveyor(open_source(str(table)), {"target_rows": "20"}).survey()
    planned = plan(survey.figures, survey.policy)
    assert len(planned) == 20
    with closing(engine.ended(survey, planned)) as ended:
        task, end = next(ended)
    assert task in planned
    assert isinstance(end, RewrittenTask)
    left = {path.name for path in (table / "data").iterdir()} - before
    named = {path.rpartition("/")[2] for path in end.files}
    assert left == named


def test_the_verb_and_the_function_compact_on_spark(
    engine: OnSpark,
    tmp_path: Path,
    bootstrap: str,
    topic_names: TopicNames,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del engine
    OwnLog.make(bootstrap, topic_names)
    table = CompactedTable(tmp_path, topic_names, bootstrap)
    with running_committer(bootstrap, topic_names, tmp_path) as committer:
        committer.wait_until_ready()
        for number in range(6):
            table.append(number * 10)
        capsys.readouterr()
        assert run(["compact", table.path, *table.flags, "--engine", SPARK, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["fragments_before"], report["fragments_after"]) == (6, 1)
        table.append(60)
        done = lakefold.compact(table.path, engine=SPARK, **table.options)  # type: ignore[arg-type] # names
        assert (done.fragments_before, done.fragments_after) == (2, 1)
        assert table.check(70) == 1
        for number in (7, 8):
            table.append(number * 10)
        names = ("--group", topic_names.group, "--dead-letters-topic", topic_names.dead_letters)
        policy = ("--maintenance", "target_rows=20")
        verb = ["maintain", table.path, *table.flags, *names, *policy, "--engine", SPARK, "--once", "--json"]
        capsys.readouterr()
        assert run(verb) == 0
        assert json.loads(capsys.readouterr().out)["rewrites"] == 1
        assert table.check(90) == 2
    close_clients()

"""Streaming queries of Spark read tables through the real engine: each row once, by trigger, across kills."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from lakefold.spark import register, sink
from lakefold_ingest.writing.log_client import close_clients
from lakefold_table.storage import open_storage
from tests.integration.committers import running_committer
from tests.integration.drivers import kill_driver_in_a_batch
from tests.integration.source_driver import stream
from tests.tables import Folded
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.integration.conftest import TopicNames


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """The shared session, once the source is registered."""
    register(spark)
    return spark


@pytest.fixture
def table(tmp_path: Path) -> Folded:
    """Versions 2 to 6 append two rows each."""
    folded = Folded(open_storage(f"file://{tmp_path}/t"))
    for first in (10, 20, 30, 40, 50):
        folded.append_ids([first, first + 1])
    return folded


class Collecting:
    """Runs a query to its end, repeatedly with a checkpoint; what each batch held."""

    def __init__(self, session: SparkSession, table: str, checkpoint: Path, **options: str | int) -> None:
        self.session = session
        self.table = table
        self.checkpoint = checkpoint
        self.options = options
        self.batches: dict[int, list[Any]] = {}

    def run(self, columns: str = "id", **trigger: Any) -> dict[int, list[Any]]:  # noqa: ANN401 - Spark's own
        """The batches of a run, by number."""
        self.batches = {}

        def take(frame: DataFrame, batch_id: int) -> None:
            rows = frame.selectExpr(*columns.split(",")).collect()
            self.batches[batch_id] = sorted(row[0] if len(row) == 1 else tuple(row) for row in rows)

        query = (
            self.session.readStream.format("lakefold")
            .options(**self.options)
            .load(self.table)
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return self.batches


def test_available_now_reads_all_in_batches_of_the_limit_and_goes_on_from_its_checkpoint(
    session: SparkSession, table: Folded, tmp_path: Path
) -> None:
    query = Collecting(
        session, table.uri, tmp_path / "checkpoint", startingVersion=2, maxVersionsPerTrigger=2
    )
    assert query.run() == {0: [10, 11, 20, 21], 1: [30, 31, 40, 41], 2: [50, 51]}
    assert query.run() == {}
    table.append_ids([60])
    assert query.run() == {3: [60]}


def test_a_trigger_for_once_reads_the_content_and_what_came_since(
    session: SparkSession, table: Folded, tmp_path: Path
) -> None:
    query = Collecting(session, table.uri, tmp_path / "checkpoint")
    assert query.run(once=True) == {0: [10, 11, 20, 21, 30, 31, 40, 41, 50, 51]}
    table.append_ids([60])
    assert query.run(once=True) == {1: [60]}


def _is_in(session: SparkSession, number: int) -> bool:
    return session.table("followed").where(f"id = {number}").count() == 1


def test_a_running_query_follows_the_table(session: SparkSession, table: Folded, tmp_path: Path) -> None:
    frame = session.readStream.format("lakefold").option("startingVersion", "latest").load(table.uri)
    query = (
        frame.writeStream.format("memory")
        .queryName("followed")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        until(lambda: query.lastProgress is not None, "the first look", seconds=120)
        for number in (60, 70):
            table.append_ids([number])
            until(partial(_is_in, session, number), "its row", seconds=120)
    finally:
        query.stop()
    assert session.table("followed").count() == 2


def test_the_change_feed_comes_with_what_it_says_of_each_row(session: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "p")
    lance.write_dataset(pa.table({"id": [1, 2, 3], "v": [0, 0, 0]}), path, enable_stable_row_ids=True)
    lance.dataset(path).delete("id = 1")
    lance.dataset(path).update({"v": "7"}, where="id = 2")
    columns = "_commit_version,_change_type,id,v"
    given = {
        (1, "insert", 1, 0),
        (1, "insert", 2, 0),
        (1, "insert", 3, 0),
        (2, "delete", 1, 0),
        (3, "update_preimage", 2, 0),
        (3, "update_postimage", 2, 7),
    }
    options: dict[str, str | int] = {"readChangeFeed": "true", "startingVersion": 1}
    query = Collecting(session, path, tmp_path / "checkpoint", **options)
    assert {row for rows in query.run(columns).values() for row in rows} == given
    reading = session.read.format("lakefold").options(**options)
    rows = reading.load(path).selectExpr(*columns.split(",")).collect()
    assert {tuple(row) for row in rows} == given
    rows = reading.option("startingVersion", 2).option("endingVersion", 2).load(path).collect()
    assert [(row["id"], row["_change_type"]) for row in rows] == [(1, "delete")]
    assert rows[0]["_commit_timestamp"] is not None


def test_what_a_query_can_not_go_over_ends_it_with_what_to_set(
    session: SparkSession, table: Folded, tmp_path: Path
) -> None:
    lance.dataset(table.uri).delete("id = 10")
    query = Collecting(session, table.uri, tmp_path / "checkpoint", startingVersion=6)
    with pytest.raises(StreamingQueryException, match=r"version 7 \(delete\).*set skipChangeCommits"):
        query.run()
    query.options["ignoreDeletes"] = "true"
    assert query.run() == {0: [50, 51]}


@pytest.mark.timeout(900)
def test_a_driver_killed_in_a_batch_reads_the_same_batch_again(
    session: SparkSession, table: Folded, tmp_path: Path
) -> None:
    given = {
        "folder": str(tmp_path),
        "table": table.uri,
        "options": {"startingVersion": "2", "maxVersionsPerTrigger": "2"},
    }
    kill_driver_in_a_batch("source_driver", tmp_path, {**given, "hang_after": 1})
    table.append_ids([60])
    stream(session, {**given, "hang_after": None})
    runs = {
        int(folder.name): [json.loads(run.read_text()) for run in sorted(folder.iterdir())]
        for folder in (tmp_path / "batches").iterdir()
    }
    assert runs[0] == [[10, 11, 20, 21]]
    assert runs[1] == [[30, 31, 40, 41]] * 2
    rest = [each for number, batches in runs.items() if number > 1 for batch in batches for each in batch]
    assert sorted(rest) == [50, 51, 60]


@pytest.mark.timeout(600)
def test_a_table_copied_through_the_log_by_a_query_equals_its_origin(
    session: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    topics = {"transactions_topic": topic_names.transactions, "outcomes_topic": topic_names.outcomes}
    given: dict[str, Any] = {"bootstrap_servers": bootstrap, "timeout": 120.0, **topics}
    first, second = tmp_path / "first", tmp_path / "second"
    put = sink(first, app_id="writer", **given)
    with running_committer(bootstrap, topic_names, tmp_path) as running:
        running.wait_until_ready()
        for batch in range(3):
            rows = session.range(batch * 100, batch * 100 + 100)
            put(rows.selectExpr("id", "concat('row ', id) text", "array(id, null) more"), batch)
            query = (
                session.readStream.format("lakefold")
                .option("maxRowsPerTrigger", 60)
                .load(str(first))
                .writeStream.foreachBatch(sink(second, **given))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        assert running.process.poll() is None, running.log.read_text()
    close_clients()
    origin, copied = (lance.dataset(path).to_table().sort_by("id") for path in (first, second))
    assert copied.num_rows == 300
    assert copied.to_pylist() == origin.to_pylist()

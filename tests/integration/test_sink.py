"""Streaming queries write through a real log: each row once, also when the driver is killed.

Promises: older-batches, different-content (docs/operations/promises.md).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkAttributeError, StreamingQueryException
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from lakefold.spark import sink
from lakefold_ingest.formats import read_view
from lakefold_ingest.merge.batch_keys import BadKeysError
from lakefold_ingest.merge.clauses import MatchedUpdate, NotMatchedBySourceDelete, NotMatchedInsert
from lakefold_ingest.operations.keyed_parts import KeyedParts, MergeTask
from lakefold_ingest.rows import staged_rows
from lakefold_ingest.spark import sink as sink_module
from lakefold_ingest.writing.log_client import close_clients
from lakefold_ingest.writing.report import BatchReport
from lakefold_log.client.topics import watermarks
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.errors import InvalidError
from lakefold_table.uri import canonical
from tests.integration.committers import fold_to_the_end, ready_committer
from tests.integration.drivers import kill_driver_in_a_batch
from tests.integration.own_log import OwnLog
from tests.integration.streaming_driver import stream
from tests.merging import row_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from lakefold_ingest.merge.clauses import Clause
    from lakefold_ingest.operations.keyed_parts import MergedPart
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lakefold.log_pb2 import Envelope
    from tests.integration.conftest import TopicNames

FILES = 4
ROWS = 50


@pytest.fixture(autouse=True)
def _no_line_is_left() -> Iterator[None]:
    yield
    close_clients()


def sink_options(bootstrap: str, names: TopicNames) -> dict[str, Any]:
    """The arguments of a sink for this test's log."""
    topics = {"transactions_topic": names.transactions, "outcomes_topic": names.outcomes}
    return {"bootstrap_servers": bootstrap, "timeout": 120.0, **topics}


def events_of(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """The events of a topic as a stream, 30 a batch."""
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("subscribe", topic).option("startingOffsets", "earliest")
    values = source.option("maxOffsetsPerTrigger", 30).load().selectExpr("cast(value as string) json")
    fields = "n long, at timestamp, tags array<string>, place struct<x: double, y: double>"
    return values.selectExpr(f"from_json(json, '{fields}') e").select("e.*")


def send_events(bootstrap: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in numbers:
        event = {"n": n, "at": f"2013-01-01T00:{n % 60:02}:00Z", "tags": ["a"] * (n % 3), "place": {"x": n}}
        producer.produce(topic, json.dumps(event).encode())
    assert producer.flush(120) == 0


def test_batches_are_merged_and_deleted_by_their_keys(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    table = tmp_path / "t"

    def batch(*rows: tuple[int, str, int]) -> DataFrame:
        return spark.createDataFrame(list(rows), "id long, name string, at int").repartition(2)

    more = sink_options(bootstrap, topic_names) | {"app_id": "people"}
    upserts = sink(table, write_mode="upsert", keys="id", order_by=["at"], **more)
    deletes = sink(table, write_mode="delete", keys=["id"], **more)
    with ready_committer(bootstrap, topic_names, tmp_path):
        upserts(batch((1, "a", 1), (2, "b", 1), (3, "c", 1)), 0)
        changes = batch((2, "older", 2), (4, "new", 2), (2, "newer", 3))
        assert isinstance(upserts(changes, 1), Committed)
        assert isinstance(upserts(changes, 1), Duplicate)
        assert isinstance(deletes(batch((3, "", 0), (3, "", 0), (9, "", 0)).select("id"), 2), Committed)
        older = [MatchedUpdate(assignments={"at": "target.at - 10"})]
        updates = sink(table, write_mode="upsert", keys="id", clauses=older, **more)
        assert isinstance(updates(batch((1, "aged", 0)).select("id", "name"), 3), Committed)
    rows = lance.dataset(table).to_table().to_pylist()
    assert sorted((row["id"], row["name"], row["at"]) for row in rows) == [
        (1, "aged", -9),
        (2, "newer", 3),
        (4, "new", 2),
    ]


def test_many_rows_are_merged_in_tasks_and_stay_there(
    spark: SparkSession,
    bootstrap: str,
    topic_names: TopicNames,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two tasks merge a batch. It is refused once, since rows with its keys are appended meanwhile."""
    table, reports = tmp_path / "t", list[BatchReport]()
    more = sink_options(bootstrap, topic_names) | {"app_id": "people", "stable_row_ids": True}
    adds = sink(table, driver_rows=0, **more | {"app_id": "first"})
    more["on_report"] = reports.append
    upserts = sink(table, write_mode="upsert", keys=["k", "n"], order_by="at", **more)
    deletes = sink(table, write_mode="delete", keys=["n", "k"], **more)

    def batch(numbers: range, name: str, at: int) -> DataFrame:
        rows = spark.range(numbers.start, numbers.stop, numbers.step, 3)
        return rows.selectExpr("id n", "cast(id % 7 as string) `k`", f"'{name}' name", f"{at} at")

    def overtaken(operation: KeyedParts, view: View, key: Key, settings: WriteSettings) -> Envelope | None:
        envelope = build(operation, view, key, settings)
        if not reports and view.version == read:
            adds(batch(range(150, 160), "added", 0), 1)
        return envelope

    build = KeyedParts.build
    monkeypatch.setattr(sink_module, "ROWS_A_TASK", 50)
    with ready_committer(bootstrap, topic_names, tmp_path):
        adds(batch(range(100), "first", 0), 0)
        ids, read = row_ids(table, "n"), lance.dataset(table).version
        monkeypatch.setattr(KeyedParts, "build", overtaken)
        with monkeypatch.context() as away:
            away.setattr(ClassicFrame, "toArrow", None)
            upserts(batch(range(80, 200), "older", 1).union(batch(range(90, 160), "newer", 2)), 0)
            deletes(batch(range(10), "", 0).union(batch(range(5, 100, 2), "", 0)), 1)
    assert [(report.kind, report.attempts) for report in reports] == [("committed", 2), ("committed", 1)]
    assert [(report.rows_added, report.rows_deleted) for report in reports] == [(120, 30), (0, 55)]
    rows = lance.dataset(table).to_table(columns=["n", "name"]).to_pylist()
    names = {row["n"]: row["name"] for row in rows}
    assert len(names) == len(rows)
    expected = dict.fromkeys(range(100), "first") | dict.fromkeys(range(80, 200), "older")
    expected |= dict.fromkeys(range(90, 160), "newer")
    assert names == {n: name for n, name in expected.items() if n >= 100 or (n >= 10 and n % 2 == 0)}
    after = row_ids(table, "n")
    assert {n: after[n] for n in names if n < 100} == {n: ids[n] for n in names if n < 100}


def test_rows_that_a_batch_lacks_are_changed_without_the_batch_on_the_driver(
    spark: SparkSession,
    bootstrap: str,
    topic_names: TopicNames,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tasks stage the rows, and the driver merges them in several parts."""
    table, more = tmp_path / "t", sink_options(bootstrap, topic_names)
    clauses: list[Clause] = [MatchedUpdate(), NotMatchedInsert(), NotMatchedBySourceDelete("target.n < 50")]
    merges = sink(table, write_mode="upsert", keys="n", clauses=clauses, app_id="merges", **more)
    parts = list[range]()

    def counted(task: MergeTask, rows: pa.Table, buckets: range) -> MergedPart:
        parts.append(buckets)
        return run(task, rows, buckets)

    run = MergeTask.run
    monkeypatch.setattr(MergeTask, "run", counted)
    monkeypatch.setattr(staged_rows, "PART_ROWS", 50)
    with ready_committer(bootstrap, topic_names, tmp_path):
        sink(table, app_id="adds", **more)(spark.range(100).selectExpr("id n", "'first' name"), 0)
        monkeypatch.setattr(ClassicFrame, "toArrow", None)
        merges(spark.range(80, 200, 1, 3).selectExpr("id n", "'second' name"), 0)
    assert len(parts) > 1
    rows = lance.dataset(table).to_table().to_pylist()
    assert sorted((row["n"], row["name"]) for row in rows) == [
        (n, "first" if n < 80 else "second") for n in range(50, 200)
    ]


def test_keys_that_tasks_can_not_match_fail_the_batch_and_leave_no_files(
    spark: SparkSession,
    bootstrap: str,
    topic_names: TopicNames,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = tmp_path / "t"
    upserts = sink(table, write_mode="upsert", keys="n", app_id="a", **sink_options(bootstrap, topic_names))
    monkeypatch.setattr(sink_module, "ROWS_A_TASK", 50)
    rows = spark.range(0, 100).selectExpr("id n", "id * 2 m")
    with ready_committer(bootstrap, topic_names, tmp_path):
        upserts(rows, 0)
        files = set((table / "data").iterdir())
        with pytest.raises(BadKeysError, match="keys that are in several rows of the batch") as caught:
            upserts(rows.unionAll(rows.where("n in (7, 9)")), 1)
        assert (caught.value.columns, set((table / "data").iterdir())) == (("n",), files)
        with pytest.raises(InvalidError, match="key n is not in the batch"):
            upserts(rows.select("m"), 1)
    assert lance.dataset(table).count_rows() == 100


def test_small_batches_become_few_files_in_order(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    reports = list[BatchReport]()
    more = sink_options(bootstrap, topic_names) | {"app_id": "a", "on_report": reports.append}
    batch = spark.range(0, 1000, 1, 8).selectExpr("(id * 7) % 1000 n", "repeat('x', cast(id as int)) text")
    few = sink(tmp_path / "few", target_rows_per_file=600, **more)
    sorted_ = sink(tmp_path / "sorted", target_rows_per_file=250, sort_by=["n"], **more)
    within = sink(tmp_path / "within", sort_by="n", **more)
    sized = sink(tmp_path / "sized", target_file_size="32k", driver_rows=0, **more)
    with ready_committer(bootstrap, topic_names, tmp_path):
        few(batch, 0)
        sorted_(batch, 0)
        within(batch, 0)
        few(batch.where("n < 0"), 1)
        with pytest.raises(InvalidError, match="m is not in the batch"):
            sink(tmp_path / "few", sort_by="m", **more)(batch, 2)
        sized(batch, 0)
        sized(batch, 1)
    *_, unsized, resized = reports
    assert [report.figures.files for report in reports[:-1]] == [2, 4, 8, 0, 8]
    assert resized.figures.files == -(-1000 // int(32_768 / (unsized.figures.bytes / 1000)))
    assert 1 < resized.figures.files < 8
    figures = reports[0].figures
    assert 0 < figures.smallest_file < figures.largest_file < figures.bytes
    assert figures.smallest_file + figures.largest_file == figures.bytes
    ranges = []
    for fragment in lance.dataset(tmp_path / "sorted").get_fragments():
        numbers = fragment.to_table()["n"].to_pylist()
        assert numbers == sorted(numbers)
        ranges.append((numbers[0], numbers[-1]))
    assert all(first[1] < second[0] for first, second in pairwise(sorted(ranges)))
    assert lance.dataset(tmp_path / "within").count_rows() == 1000
    assert not batch.storageLevel.useMemory


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"write_mode": "upsert"}, "no key column is named"),
        ({"write_mode": "upsert", "keys": "id", "wait": "log"}, "have to wait for their outcome"),
        ({"write_mode": "merge", "keys": "id"}, "no write mode 'merge'"),
        ({"keys": "id"}, "rows that are appended need no keys"),
        ({"write_mode": "delete", "keys": "id", "order_by": "at"}, "need no order"),
        ({"write_mode": "upsert", "keys": "id", "sort_by": "id"}, "for rows that are appended"),
        ({"target_rows_per_file": 0}, "0 is not above 0"),
    ],
)
def test_write_modes_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidError, match=words):
        sink("/tables/t", "127.0.0.1:1", **options)


def test_a_query_from_a_topic_goes_on_under_its_key_after_a_restart(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(topic_names.events, 1, 1)])[topic_names.events].result()
    query_ids = set()
    with ready_committer(bootstrap, topic_names, tmp_path):
        for numbers in (range(100), range(100, 150)):
            send_events(bootstrap, topic_names.events, numbers)
            query = (
                events_of(spark, bootstrap, topic_names.events)
                .writeStream.foreachBatch(sink(tmp_path / "t", **sink_options(bootstrap, topic_names)))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            query_ids.add(query.id)
    dataset = lance.dataset(tmp_path / "t")
    dataset.validate()
    assert dataset.schema.field("at").type == pa.timestamp("us", "UTC")
    rows = sorted(dataset.to_table().to_pylist(), key=lambda row: row["n"])
    assert [row["n"] for row in rows] == list(range(150))
    assert rows[7]["tags"] == ["a"]
    assert rows[7]["place"] == {"x": 7.0, "y": None}
    view = read_view(canonical(tmp_path / "t"), {})
    assert view is not None
    assert {app: mark.intervals for app, mark in view.marks.apps.items()} == {query_ids.pop(): ((0, 5),)}


def test_a_query_whose_checkpoint_was_restored_to_an_earlier_copy_drops_nothing(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """Its next batch has the number of a batch that was folded, and more rows than that batch had."""
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"
    (tmp_path / "events").mkdir()

    def run(*, files: int) -> None:
        events = spark.readStream.schema("n long").option("maxFilesPerTrigger", files)
        query = (
            events.json(str(tmp_path / "events"))
            .writeStream.foreachBatch(sink(tmp_path / "t", **sink_options(bootstrap, topic_names)))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def send(first: int, last: int) -> None:
        for n in range(first, last):
            (tmp_path / "events" / f"{n}.json").write_text(json.dumps({"n": n}))

    with ready_committer(bootstrap, topic_names, tmp_path):
        send(0, 2)
        run(files=1)
        shutil.copytree(checkpoint, copy)
        send(2, 5)
        run(files=1)
        shutil.rmtree(checkpoint)
        shutil.copytree(copy, checkpoint)
        send(5, 9)
        with pytest.raises(StreamingQueryException, match="checkpoint is older than the table"):
            run(files=100)
    assert sorted(lance.dataset(tmp_path / "t").to_table()["n"].to_pylist()) == list(range(5))


def test_a_second_query_with_the_same_app_id_is_noticed(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """It has another source, and the other query is never ahead of it."""
    options = sink_options(bootstrap, topic_names)
    other = sink(tmp_path / "t", app_id="app", **options)
    own = sink(tmp_path / "t", app_id="app", **options)
    (tmp_path / "events").mkdir()
    for n in range(3):
        (tmp_path / "events" / f"{n}.json").write_text(json.dumps({"n": n}))

    def both(frame: DataFrame, batch: int) -> None:
        # In a thread of its own, so that it is not part of this query.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(other, spark.createDataFrame([(100 + batch,)], "n long"), batch).result()
        own(frame, batch)

    def run(put: Callable[[DataFrame, int], None]) -> None:
        events = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
        frames = events.json(str(tmp_path / "events"))
        query = frames.writeStream.foreachBatch(put).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        query.trigger(availableNow=True).start().awaitTermination()

    def first_alone(frame: DataFrame, batch: int) -> None:
        (both if batch else own)(frame, batch)

    with ready_committer(bootstrap, topic_names, tmp_path):
        with pytest.raises(StreamingQueryException, match=r"batch 1 of app .* another query uses"):
            run(first_alone)
        # Spark may read the files in any order.
        first, second = sorted(lance.dataset(tmp_path / "t").to_table()["n"].to_pylist())
        assert first in range(3)
        assert second == 101


@pytest.mark.parametrize("mode", [{}, {"write_mode": "upsert", "keys": "n"}], ids=["append", "upsert"])
def test_a_function_that_calls_the_sink_with_other_rows_of_a_batch_is_told_so(
    mode: dict[str, Any], spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """As many rows, in the same columns. Called with the same rows again, it is a repetition."""
    put = sink(tmp_path / "t", **sink_options(bootstrap, topic_names), **mode)
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "0.json").write_text('{"n": 0}\n{"n": 1}')
    called = []

    def halves(frame: DataFrame, batch: int) -> None:
        for rest in (0, 0, 1):
            put(frame.where(f"n % 2 = {rest}"), batch)
            called.append(rest)

    query = spark.readStream.schema("n long").json(str(tmp_path / "events")).writeStream.foreachBatch(halves)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    with (
        ready_committer(bootstrap, topic_names, tmp_path),
        pytest.raises(StreamingQueryException, match="other rows of its batch"),
    ):
        query.start().awaitTermination()
    assert called == [0, 0]
    assert lance.dataset(tmp_path / "t").to_table()["n"].to_pylist() == [0]


def test_instants_are_kept_whatever_zone_the_session_shows(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    put = sink(tmp_path / "t", app_id="app", **sink_options(bootstrap, topic_names))
    with ready_committer(bootstrap, topic_names, tmp_path):
        for batch, zone in enumerate(("Asia/Tokyo", "America/New_York")):
            spark.conf.set("spark.sql.session.timeZone", zone)
            put(spark.sql("select timestamp '2013-01-01 00:00:00Z' as at"), batch)
    spark.conf.unset("spark.sql.session.timeZone")
    times = lance.dataset(tmp_path / "t").to_table()["at"]
    assert times.type == pa.timestamp("us", "UTC")
    assert len(set(times.to_pylist())) == 1


def test_what_does_not_fit_is_named_before_anything_is_sent(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    put = sink(tmp_path / "t", app_id="app", **sink_options(bootstrap, topic_names))
    with ready_committer(bootstrap, topic_names, tmp_path):
        put(spark.range(10).selectExpr("id", "cast(id as int) as small"), 0)
    log = OwnLog.make(bootstrap, topic_names)
    before = watermarks(log.admin, topic_names.transactions, 0)
    with pytest.raises(
        InvalidError, match=r"small is double in the batch, int32 in the table; more .* is not in"
    ):
        put(spark.range(10).selectExpr("id", "cast(id as double) as small", "1 as more"), 1)
    with pytest.raises(InvalidError, match="small in 1: it is null") as caught:
        put(spark.range(10).selectExpr("id", "if(id = 7, null, 1) as small"), 1)
    assert caught.value.hint
    assert watermarks(log.admin, topic_names.transactions, 0) == before
    with pytest.raises(InvalidError, match=r"small \(interval year to month\)"):
        put(spark.range(10).selectExpr("id", "make_ym_interval(1, 2) as small"), 1)


def test_a_query_that_fails_says_which_column_is_wrong(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "0.json").write_text('{"id": 1, "more": 2}')
    put = sink(tmp_path / "t", **sink_options(bootstrap, topic_names))
    with ready_committer(bootstrap, topic_names, tmp_path):
        sink(tmp_path / "t", app_id="first", **sink_options(bootstrap, topic_names))(spark.range(1), 0)
    events = spark.readStream.schema("id long, more long").json(str(tmp_path / "events"))
    query = (
        events.writeStream.foreachBatch(put)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException, match=r"more .* is not in the table"):
        query.awaitTermination()


def test_a_frame_of_spark_connect_is_sent_to_the_format() -> None:
    """Its session has no context, and says so by this error."""

    class ConnectSession:
        @property
        def sparkContext(self) -> Any:  # noqa: ANN401, N802 - Spark's name
            raise PySparkAttributeError(
                errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "sparkContext"}
            )

    frame: Any = SimpleNamespace(sparkSession=ConnectSession())
    with pytest.raises(InvalidError, match="Spark Connect") as caught:
        sink("/data/t", "broker:9092", app_id="app")(frame, 0)
    assert 'writeStream.format("lakefold")' in caught.value.hint


def test_outside_of_a_query_an_app_id_is_asked_for(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    with pytest.raises(InvalidError, match="app_id"):
        sink(tmp_path / "t", **sink_options(bootstrap, topic_names))(spark.range(1), 0)
    with pytest.raises(InvalidError, match="can't be an app id"):
        sink(tmp_path / "t", app_id="", **sink_options(bootstrap, topic_names))


def test_the_function_returns_what_became_of_each_batch(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    reports: list[BatchReport] = []
    put = sink(
        tmp_path / "t",
        app_id="app",
        on_rolled_back="skip",
        on_report=reports.append,
        **sink_options(bootstrap, topic_names),
    )
    with ready_committer(bootstrap, topic_names, tmp_path):
        returned = [put(spark.range(count), batch) for batch, count in [(0, 3), (0, 3), (1, 0), (2, 4)]]
        lance.dataset(tmp_path / "t", version=2).restore()
        returned.append(put(spark.range(4), 2))
    first = returned[0]
    assert isinstance(first, Committed)
    assert (first.version, first.rows_added) == (2, 3)
    assert returned[1:3] == [Duplicate(2), Committed(3)]
    assert returned[4] == Duplicate(4, rolled_back_by=5)
    assert [report.result for report in reports] == returned
    assert [report.figures.rows for report in reports] == [3, 0, 0, 4, 0]
    assert reports[0].figures.bytes > 0


def test_files_end_at_the_limit_and_empty_partitions_write_none(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    put = sink(tmp_path / "t", app_id="app", max_rows_per_file=30, **sink_options(bootstrap, topic_names))
    with ready_committer(bootstrap, topic_names, tmp_path):
        put(spark.range(0, 100, 1, 2).where("id < 50"), 0)
        put(spark.range(10).where("id < 0"), 1)
    fragments = lance.dataset(tmp_path / "t").get_fragments()
    assert [fragment.count_rows() for fragment in fragments] == [30, 20]
    assert lance.dataset(tmp_path / "t").to_table()["id"].to_pylist() == list(range(50))


def test_spark_does_not_make_the_driver_load_lance(tmp_path: Path) -> None:
    """A process that has used pylance must not fork, and users fork."""
    program = (
        "import sys; from lakefold.spark import sink\n"
        f"sink({str(tmp_path)!r}, 'nowhere:1', 'app')\n"
        "print(*sorted({'lance', 'pyspark'} & set(sys.modules)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment
    )
    assert loaded.stdout.split() == []


@pytest.mark.timeout(900)
def test_a_driver_killed_between_the_log_and_its_checkpoint_doubles_nothing(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    for name in ("events", "lake"):
        (tmp_path / name).mkdir()
    for number in range(FILES):
        lines = [json.dumps({"n": number * ROWS + row, "s": str(row)}) for row in range(ROWS)]
        (tmp_path / "events" / f"{number}.json").write_text("\n".join(lines))
    arguments = sink_options(bootstrap, topic_names)
    job = {"folder": str(tmp_path), "sink": {**arguments, "wait": "commit"}, "hang_after": None}
    with (
        ready_committer(bootstrap, topic_names, tmp_path),
        pytest.raises(StreamingQueryException, match="batch 1 fails"),
    ):
        stream(spark, {**job, "fail_after": 1})
    # Now batch 1 is in the table when it comes again to another driver, batch 2 only in the log.
    job["sink"] = {**arguments, "wait": "log"}
    kill_driver_in_a_batch("streaming_driver", tmp_path, {**job, "hang_after": 2})
    stream(spark, job)
    fold_to_the_end(bootstrap, topic_names, tmp_path)

    rows = lance.dataset(tmp_path / "lake" / "t").to_table()
    assert sorted(rows["n"].to_pylist()) == list(range(FILES * ROWS))
    log = OwnLog.make(bootstrap, topic_names)
    outcomes = [type(outcome.result) for outcome in log.answers()]
    # The creation, the batches 0 and 1, then 2, 2 again and 3.
    assert outcomes == [Committed, Committed, Committed, Committed, Duplicate, Committed]

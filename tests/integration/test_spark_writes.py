"""Spark writes by `format("lakefold")`: each row once, nothing that doesn't fit, no files of failed tasks.

Promise: older-batches (docs/operations/promises.md).
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.types import LongType, StructField, StructType

from lakefold.spark import register, sink
from lakefold.spark_format import LakefoldFormat
from lakefold_ingest.formats import read_view
from lakefold_ingest.operations.append import AppendWritten
from lakefold_ingest.proposals.key import Key
from lakefold_ingest.spark.sink import ROWS_A_TASK
from lakefold_ingest.spark.write_plan import WritePlan
from lakefold_ingest.writing.report import BatchReport
from lakefold_ingest.writing.sending_query import Sender
from lakefold_log.client.topics import watermarks
from lakefold_table.entry import Committed, Duplicate
from lakefold_table.uri import canonical
from tests import waiting
from tests.code_blocks import pages
from tests.integration import killed_format
from tests.integration.committers import ready_committer
from tests.integration.own_log import OwnLog
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.integration.conftest import TopicNames

cloudpickle.register_pickle_by_value(waiting)  # type: ignore[no-untyped-call] # as pyspark has it
cloudpickle.register_pickle_by_value(killed_format)  # type: ignore[no-untyped-call] # as pyspark has it


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    register(spark)
    spark.dataSource.register(killed_format.KilledFormat)


def options(bootstrap: str, names: TopicNames) -> dict[str, str]:
    """The options of a write for this test's log."""
    return {
        "kafka.bootstrap.servers": bootstrap,
        "transactionsTopic": names.transactions,
        "outcomesTopic": names.outcomes,
    }


def files_of(table: Path) -> tuple[int, int]:
    """How many data files the folder has, and how many of them the newest version names."""
    named = [file for fragment in lance.dataset(table).get_fragments() for file in fragment.data_files()]
    return len(list((table / "data").iterdir())), len(named)


def is_committed(query: StreamingQuery, batch_id: int) -> bool:
    """Whether the query has completed this batch."""
    return query.lastProgress is not None and query.lastProgress.batchId >= batch_id


def numbers(table: Path, column: str = "n") -> list[int]:
    values: list[int] = lance.dataset(table).to_table()[column].to_pylist()
    return sorted(values)


def run_first_block(page: str, addresses: dict[str, str], **names: object) -> None:
    """Runs the first block of a page of the documentation. `addresses`: what its addresses are here."""
    text = next(each for each in pages() if each.name == page).blocks[0].text
    for address, here in addresses.items():
        assert address in text
        text = text.replace(address, here)
    exec(compile(text, page, "exec"), dict(names))  # noqa: S102 - our own documentation


def test_the_code_on_the_pages_of_spark_works(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """The page about reading needs a table with twelve versions; the other writes twice, and names a sink."""
    table, read = tmp_path / "flights.lance", tmp_path / "read.lance"
    for number in range(12):
        lance.write_dataset(pa.table({"n": [number]}), read, mode="append")
    uri = "s3://lake/flights.lance"
    run_first_block("docs/reference/spark.md", {uri: str(read)}, spark=spark)
    frame = spark.range(3).selectExpr("id as n")
    source = tmp_path / "events"
    spark.range(3, 5).selectExpr("id as n").write.json(str(source))
    events = spark.readStream.schema("n long").json(str(source))
    # The topics are this test's own, which the page leaves to their default.
    given = "".join(f'.option("{name}", "{text}")' for name, text in options(bootstrap, topic_names).items())
    addresses = {
        uri: str(table),
        '.option("kafka.bootstrap.servers", "broker:9092")': given,
        "broker:9092": bootstrap,
        "/var/flights": str(tmp_path / "checkpoint"),
    }
    with ready_committer(bootstrap, topic_names, tmp_path):
        run_first_block("docs/reference/spark-writes.md", addresses, spark=spark, frame=frame, events=events)
        (query,) = spark.streams.active
        try:
            query.processAllAvailable()
        finally:
            query.stop()
    assert numbers(table) == list(range(5))


def test_a_delta_table_is_written_by_both_doors(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """By `format("lakefold")`, which creates and replaces, and by the sink; delta-rs reads the rows."""
    table, given = tmp_path / "t", options(bootstrap, topic_names)
    rows = spark.range(100).selectExpr("id as n", "cast(id % 3 as string) as p", "timestamp_micros(id) as at")
    door = sink(
        table,
        bootstrap,
        "door",
        transactions_topic=topic_names.transactions,
        outcomes_topic=topic_names.outcomes,
        format="delta",
    )
    with ready_committer(bootstrap, topic_names, tmp_path):

        def write(frame: DataFrame, mode: str = "append", **more: str) -> None:
            frame.write.format("lakefold").mode(mode).options(**given, **more).save(str(table))

        write(rows, format="delta", partitionBy="p")
        assert [type(door(rows.where("n < 5"), batch)) for batch in (0, 0)] == [Committed, Duplicate]
        write(rows.where("n < 3 and p = '1'"), "overwrite", replaceWhere="p = '1'")
    read = pa.table(DeltaTable(str(table)).to_pyarrow_table())
    expected = [n for n in range(100) if n % 3 != 1] + [0, 2, 3] + [1]
    assert sorted(read["n"].to_pylist()) == sorted(expected)
    assert read.filter(pc.equal(read["n"], 99))["at"][0].value == 99
    assert DeltaTable(str(table)).metadata().partition_columns == ["p"]


def test_rows_of_a_delta_table_are_merged_by_both_doors(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """The sink merges in tasks, `format("lakefold")` stages rows; both with the clauses of MERGE."""
    table, given = tmp_path / "t", options(bootstrap, topic_names)
    names: dict[str, Any] = {
        "transactions_topic": topic_names.transactions,
        "outcomes_topic": topic_names.outcomes,
    }
    many = ROWS_A_TASK + 10_000
    rows = spark.range(many).selectExpr("id as n", "'first' as s")
    with ready_committer(bootstrap, topic_names, tmp_path):

        def write(frame: DataFrame, mode: str, **more: str) -> None:
            frame.write.format("lakefold").mode(mode).options(**given, **more).save(str(table))

        write(rows, "append", format="delta")
        upsert = sink(table, bootstrap, "door", write_mode="upsert", keys="n", **names)
        changed = rows.where("n % 2 = 0").selectExpr("if(n < 10, n + 1000000, n) as n", "'second' as s")
        results = [upsert(changed.union(changed.where("n < 0")), batch) for batch in (0, 0)]
        assert [type(each) for each in results] == [Committed, Duplicate]
        delete = sink(table, bootstrap, "gone", write_mode="delete", keys="n", **names)
        assert isinstance(delete(rows.where("n between 100 and 199"), 0), Committed)
        cdc = sink(table, bootstrap, "cdc", write_mode="cdc", keys="n", operation_column="op", **names)
        events = spark.createDataFrame([("u", 1, "third"), ("d", 3, None)], "op string, n long, s string")
        assert isinstance(cdc(events, 0), Committed)
        write(rows.where("n = 5"), "append", writeMode="upsert", keys="n", whenMatchedDelete="true")
        write(
            spark.sql("select 7L as n, 'new' as s, 1 as more"),
            "append",
            writeMode="upsert",
            keys="n",
            mergeSchema="true",
        )
        write(
            spark.sql("select 21L as n, 'replaced' as s, 2 as more"),
            "overwrite",
            replaceWhere="n >= 20 and n < 23",
        )
    expected = {n: "second" if n % 2 == 0 else "first" for n in range(10, many)}
    expected |= dict.fromkeys(range(1, 10, 2), "first") | dict.fromkeys(range(0, 10, 2), "first")
    expected |= {n + 1_000_000: "second" for n in range(0, 10, 2)}
    for gone in (*range(100, 200), 3, 5, 20, 22):
        del expected[gone]
    expected |= {1: "third", 7: "new", 21: "replaced"}
    read = pa.table(DeltaTable(str(table)).to_pyarrow_table())
    assert dict(zip(read["n"].to_pylist(), read["s"].to_pylist(), strict=True)) == expected
    assert read.num_rows == len(expected)
    assert sorted(read["more"].drop_null().to_pylist()) == [1, 2]


def test_a_frame_is_appended_once_or_replaces_what_the_table_has(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    table, given = tmp_path / "t", options(bootstrap, topic_names)

    def write(frame: DataFrame, mode: str = "append", **more: str) -> None:
        frame.write.format("lakefold").mode(mode).options(**given, **more).save(str(table))

    rows = spark.range(100).selectExpr(
        "id as n", "cast(id as string) as s", "if(id < 9, current_timestamp(), null) as at"
    )
    with ready_committer(bootstrap, topic_names, tmp_path):
        write(rows, maxRecordsPerFile="30")
        write(rows.where("n < 10"), txnAppId="app", txnVersion="7", commitProperties="team=search")
        write(rows.where("n < 10"), txnAppId="app", txnVersion="7")
        assert numbers(table) == sorted([*range(100), *range(10)])
        assert lance.dataset(table).schema.field("at").type == pa.timestamp("us", "UTC")
        assert len(lance.dataset(table).get_fragments()) == 5
        assert files_of(table)[0] == files_of(table)[1]
        transaction = lance.dataset(table).read_transaction(3)
        assert transaction is not None
        assert (transaction.transaction_properties or {})["team"] == "search"
        read = spark.read.format("lakefold").load(str(table))
        assert read.where("n >= 95").count() == 5

        write(rows.selectExpr("n", "'new' s").where("n >= 95"), "overwrite", replaceWhere="n >= 20")
        assert numbers(table) == sorted([*range(20), *range(10), *range(95, 100)])
        with pytest.raises(PySparkException, match="100 rows of the batch don't satisfy 's is null'"):
            write(rows.selectExpr("n", "s"), "overwrite", replaceWhere="s is null")
        assert lance.dataset(table).count_rows("s = 'new'") == 5

        write(rows.selectExpr("n", "s").where("n < 3"), "overwrite")
        assert numbers(table) == [0, 1, 2]
        assert lance.dataset(table).schema.names == ["n", "s", "at"]
        write(spark.sql("select 1.5D as x, 7 as n"), "overwrite", overwriteSchema="true")
        assert lance.dataset(table).to_table().to_pylist() == [{"x": 1.5, "n": 7}]
        write(spark.sql("select 2D as x, 7 as n").where("n < 7"), "overwrite")
        assert lance.dataset(table).count_rows() == 0
    lance.dataset(table).validate()


def test_a_frame_and_a_stream_merge_and_delete_rows_by_their_keys(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    table, given = tmp_path / "t", options(bootstrap, topic_names)

    def write(frame: DataFrame, **more: str) -> None:
        frame.write.format("lakefold").mode("append").options(**given, **more).save(str(table))

    def content() -> dict[int, str]:
        rows = lance.dataset(table).to_table().to_pylist()
        assert len(rows) == len({row["n"] for row in rows})
        return {row["n"]: row["s"] for row in rows}

    upsert, expected = {"writeMode": "upsert", "keys": "n"}, dict.fromkeys(range(10), "first")
    with ready_committer(bootstrap, topic_names, tmp_path):
        write(spark.range(0, 10, 1, 3).selectExpr("id as n", "'first' s"), **upsert, stableRowIds="true")
        assert content() == expected
        twice = spark.range(8, 14, 1, 2).selectExpr("id as n", "explode(array(2, 1)) at")
        with pytest.raises(PySparkException, match="keys that are in several rows of the batch: 6"):
            write(twice.selectExpr("n", "cast(at as string) s"), **upsert)
        changes = twice.selectExpr("n", "cast(at as string) s", "at")
        write(changes, **upsert, orderBy="at", txnAppId="app", txnVersion="1")
        write(changes, **upsert, orderBy="at", txnAppId="app", txnVersion="1")
        expected |= dict.fromkeys(range(8, 14), "2")
        assert content() == expected
        clauses = {"whenMatchedDelete": "source.s = 'gone'", "whenMatchedUpdate": "target.n <> 1"}
        batch = spark.range(3).selectExpr("id as n", "if(id = 0, 'gone', 'new') s")
        write(batch, **upsert, **clauses, whenMatchedSet="s=concat(target.s, ', ', source.s)")
        expected[2] = "first, new"
        del expected[0]
        assert content() == expected
        with pytest.raises(
            PySparkException, match=r"the batch doesn't fit the table: more .* is not in the table"
        ):
            write(spark.sql("select 1L n, 'x' s, 1 more"), **upsert)
        with pytest.raises(PySparkException, match="do you mean whenMatchedUpdate"):
            write(batch, **upsert, whenMatchedUpdates="true")

        (tmp_path / "gone").mkdir()
        for number in (3, 4):
            (tmp_path / "gone" / f"{number}.json").write_text(f'{{"n": {number}}}')
            query = (
                spark.readStream.schema("n long")
                .json(str(tmp_path / "gone"))
                .writeStream.format("lakefold")
                .queryName("gone")
                .options(
                    **given, writeMode="delete", keys="n", checkpointLocation=str(tmp_path / "checkpoint")
                )
                .trigger(availableNow=True)
                .start(str(table))
            )
            query.awaitTermination()
            del expected[number]
            assert content() == expected
    lance.dataset(table).validate()


def second_task_fails(
    first_task_ended: Path, how: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for `mapInArrow`. The task with row 5 fails as soon as another task has ended."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column("id").to_pylist()
            if 5 in numbers:
                until(first_task_ended.exists, "the end of the first task")
                if how == "raised":
                    raise ValueError("no such number")
            small = pa.array([None if number == 7 else 1 for number in numbers], pa.int32())
            yield pa.record_batch({"id": batch.column("id"), "small": small})

    return rows


@contextmanager
def first_task_ended(spark: SparkSession, file: Path) -> Iterator[Path]:
    """Makes the file as soon as Spark's driver knows that a task of the running stage has ended."""
    tracker = spark.sparkContext.statusTracker()

    def ended() -> bool:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage is not None and stage.numCompletedTasks > 0 for stage in stages)

    def watch() -> None:
        until(ended, "the end of a task")
        file.touch()

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        yield file
        watching.result()


def test_what_can_not_be_written_is_named_and_leaves_nothing(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    table, given = tmp_path / "t", options(bootstrap, topic_names)

    def writer(frame: DataFrame, **more: str) -> DataFrameWriter:
        return frame.write.format("lakefold").mode("append").options(**given, **more)

    with ready_committer(bootstrap, topic_names, tmp_path):
        writer(spark.range(10).selectExpr("id", "cast(id as int) as small")).save(str(table))
        log = OwnLog.make(bootstrap, topic_names)
        before = watermarks(log.admin, topic_names.transactions, 0), files_of(table)
        wrong = spark.range(0, 10, 1, 2).selectExpr("id", "cast(id as double) as small", "1 as more")
        with pytest.raises(
            PySparkException, match=r"small is double in the batch, int32 in the table; more .* is not"
        ):
            writer(wrong).save(str(table))
        # The first task succeeds, and its files are removed by the driver.
        for name, error in (("null", "small in 1: it is null"), ("raised", "no such number")):
            with first_task_ended(spark, tmp_path / name) as ended:
                failing = spark.range(0, 10, 1, 2).mapInArrow(
                    second_task_fails(ended, name), "id long, small int"
                )
                with pytest.raises(PySparkException, match=error):
                    writer(failing, driverRows="0").save(str(table))
        with pytest.raises(PySparkException, match="do you mean mergeSchema"):
            writer(spark.range(1), mergeShema="true").save(str(table))
        once = spark.range(2).selectExpr("id", "cast(id as int) small")
        twice = once.selectExpr("1L id", "small")
        late = twice.selectExpr("id", "if(small = 0, null, small) small")
        for keyed, words in (
            (writer(once, whenMatchedUpdate="target.small >"), r"target\.small >"),
            (writer(once, whenMatchedUpdate="source.nope > 1"), r"source\.nope > 1"),
            (writer(twice), r"keys that are in several rows of the batch: 1"),
            (writer(late, orderBy="small"), r"the orderBy column small has no value"),
        ):
            with pytest.raises(PySparkException, match=words):
                keyed.options(writeMode="upsert", keys="id").save(str(table))
        for mode in ("error", "ignore"):
            with pytest.raises(PySparkException, match="cannot be written in the"):
                writer(spark.range(1)).mode(mode).save(str(table))
        assert (watermarks(log.admin, topic_names.transactions, 0), files_of(table)) == before


def test_many_rows_are_staged_by_tasks_and_merged_in_parts(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """The files of its tasks are gone when the batch is merged. If a task fails, the table is unchanged."""
    table, given = tmp_path / "t", options(bootstrap, topic_names)
    upsert = {**given, "writeMode": "upsert", "keys": "n", "orderBy": "at"}

    def write(frame: DataFrame, **more: str) -> None:
        frame.write.format("lakefold").mode("append").options(**more).save(str(table))

    def batch(start: int, end: int, at: int) -> DataFrame:
        return spark.range(start, end, 1, 3).selectExpr("id n", f"concat('{at} of ', id) s", f"{at} at")

    with ready_committer(bootstrap, topic_names, tmp_path):
        write(batch(0, 100_000, 0), **given)
        write(
            batch(50_000, 350_000, 2).union(batch(90_000, 200_000, 1)), **upsert, txnAppId="a", txnVersion="0"
        )
        version = lance.dataset(table).version
        assert not [file for file in (table / "data").iterdir() if "staged" in file.name]
        again = {"txnAppId": "a", "txnVersion": "0", "onReusedKey": "skip"}
        write(batch(50_000, 350_000, 3), **upsert, **again)
        failing = batch(0, 350_000, 4).selectExpr("n", "if(n = 349999, raise_error('no'), s) s", "at")
        with pytest.raises(PySparkException, match="no"):
            write(failing, **upsert)
        assert lance.dataset(table).version == version
    rows = lance.dataset(table).to_table(columns=["n", "s", "at"]).sort_by("n")
    assert rows["n"].to_pylist() == list(range(350_000))
    assert rows["at"].to_pylist() == [0] * 50_000 + [2] * 300_000
    assert rows["s"].to_pylist() == [
        f"{at} of {n}" for n, at in zip(range(350_000), rows["at"].to_pylist(), strict=True)
    ]
    lance.dataset(table).validate()


@pytest.mark.timeout(600)
def test_a_query_killed_at_any_step_adds_each_row_once(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """A query, restarted from its checkpoint after each kill, each in another batch.

    The driver writes the rows of two of them, and the tasks those of the others.
    """
    table, events, kill = tmp_path / "t", tmp_path / "events", tmp_path / "kill"
    events.mkdir()

    def run(step: str, driver_rows: int = 0) -> str:
        frame = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(events))
        query = (
            frame.writeStream.format("lakefold-killed")
            .options(**options(bootstrap, topic_names), killAt=step, killFile=str(kill))
            .option("driverRows", driver_rows)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(table))
        )
        try:
            query.awaitTermination()
        finally:
            query_ids.add(str(query.id))
        return str(query.id)

    query_ids: set[str] = set()
    with ready_committer(bootstrap, topic_names, tmp_path):
        for batch, step in enumerate(killed_format.STEPS):
            lines = [json.dumps({"n": batch * 10 + row}) for row in range(10)]
            (events / f"{batch}.json").write_text("\n".join(lines))
            kill.touch()
            with pytest.raises(StreamingQueryException):
                run(step, driver_rows=10 * (batch % 2))
            assert not kill.exists(), step
        run("")
        view = read_view(canonical(table), {})
        log = OwnLog.make(bootstrap, topic_names)
        outcomes = [type(outcome.result) for outcome in log.answers()]
    assert numbers(table) == list(range(40))
    assert view is not None
    assert {app: mark.intervals for app, mark in view.marks.apps.items()} == {query_ids.pop(): ((0, 3),)}
    # The creation and four batches; those killed after the send were found in the table's marks, unless their
    # first proposal was folded only after the query had started again.
    assert outcomes[:1] == [Committed]
    assert outcomes.count(Committed) == 5
    assert set(outcomes) <= {Committed, Duplicate}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("merge", [{}, {"writeMode": "upsert", "keys": "n"}], ids=["append", "upsert"])
def test_a_second_query_with_the_same_app_id_is_noticed(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path, merge: dict[str, str]
) -> None:
    """It is at the same batch and sends it first."""
    table, events = tmp_path / "t", tmp_path / "events"
    events.mkdir()

    def add(n: int) -> None:
        (events / f".{n}").write_text(json.dumps({"n": n}))
        (events / f".{n}").rename(events / f"{n}.json")

    frame = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(events))
    writing = (
        frame.writeStream.format("lakefold")
        .options(**options(bootstrap, topic_names), **merge, txnAppId="app")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    put = sink(
        table,
        bootstrap,
        "app",
        transactions_topic=topic_names.transactions,
        outcomes_topic=topic_names.outcomes,
    )
    with ready_committer(bootstrap, topic_names, tmp_path):
        query = writing.start(str(table))
        try:
            for n in range(2):
                add(n)
                until(partial(is_committed, query, n), f"batch {n}", seconds=240)
            put(spark.sql("select 100L as n"), 2)
            add(2)
            with pytest.raises(StreamingQueryException, match=r"batch 2 of app .* another query uses"):
                query.awaitTermination(240)
        finally:
            query.stop()
        assert numbers(table) == [0, 1, 100]
        # The first batch of a run may be a repetition, unless it does something else.
        query = writing.trigger(availableNow=True).start(str(table))
        if merge:
            with pytest.raises(StreamingQueryException, match="batch 2 of app was folded before"):
                query.awaitTermination()
        else:
            query.awaitTermination()
    assert numbers(table) == [0, 1, 100]


@pytest.mark.timeout(600)
def test_a_query_that_does_not_wait_for_its_commits_adds_each_row_once(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    table, events = tmp_path / "t", tmp_path / "events"
    events.mkdir()
    for n in range(4):
        (events / f"{n}.json").write_text(json.dumps({"n": n}))
    frame = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(events))
    writing = (
        frame.writeStream.format("lakefold")
        .options(**options(bootstrap, topic_names), wait="log", maxUnanswered=1)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    with ready_committer(bootstrap, topic_names, tmp_path):
        writing.start(str(table)).awaitTermination()
        until(lambda: numbers(table) == [0, 1, 2, 3], "the last batch", seconds=240)
        # The creation and the batches; without the limit all could be sent before the first is answered.
        log = OwnLog.make(bootstrap, topic_names)
        until(lambda: len(log.answers()) == 5, "the outcome of the last batch", seconds=240)
        assert {type(each.result) for each in log.answers()} == {Committed}


def test_a_stream_proposes_what_its_tasks_relied_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark makes another writer for the commit, which plans on a newer version of the table."""
    proposed: list[tuple[int, Key]] = []

    def commit(plan: WritePlan, key: Key, _: object, sender: Sender) -> BatchReport:
        assert sender == Sender(in_order=True)
        assert isinstance(plan.operation, AppendWritten)
        proposed.append((plan.operation.read_version, key))
        return BatchReport(Committed(2))

    monkeypatch.setattr(WritePlan, "commit", commit)
    given = {"path": str(tmp_path / "t"), "kafka.bootstrap.servers": "127.0.0.1:1", "txnAppId": "app"}
    schema = StructType([StructField("n", LongType())])
    lance.write_dataset(pa.table({"n": [1]}), tmp_path / "t")
    message = LakefoldFormat(given).streamWriter(schema, overwrite=False).write(iter(()))
    lance.write_dataset(pa.table({"n": [2]}), tmp_path / "t", mode="append")
    LakefoldFormat(given).streamWriter(schema, overwrite=False).commit([message], 7)
    assert proposed == [(1, Key("app", 7))]


def test_a_complete_result_replaces_the_one_before(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    (tmp_path / "events").mkdir()
    with ready_committer(bootstrap, topic_names, tmp_path):
        for last in (3, 5):
            (tmp_path / "events" / f"{last}.json").write_text("\n".join('{"n": 1}' for _ in range(last)))
            query = (
                spark.readStream.schema("n long")
                .json(str(tmp_path / "events"))
                .groupBy()
                .count()
                .writeStream.format("lakefold")
                .outputMode("complete")
                .options(**options(bootstrap, topic_names), txnAppId="counter")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start(str(tmp_path / "t"))
            )
            query.awaitTermination()
    assert numbers(tmp_path / "t", "count") == [8]

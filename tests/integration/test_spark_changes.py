"""Spark applies change events by both doors: Debezium messages from Kafka, and the change feed of a table."""

from __future__ import annotations

import json
from datetime import time
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import lance
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException

import lakefold
from lakefold.spark import register, sink
from lakefold_ingest.spark import sink as sink_module
from lakefold_ingest.spark.keyed_tasks import in_tasks
from lakefold_ingest.writing.log_client import close_clients
from lakefold_table.uri import canonical
from tests.change_events import TABLE, debezium_history
from tests.debezium_values import base64_of
from tests.integration.committers import ready_committer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from confluent_kafka import KafkaError, Message
    from pyspark.sql import DataFrame, SparkSession

    from lakefold_ingest.operations.keyed_parts import KeyedOperation, KeyedParts
    from tests.integration.conftest import TopicNames


@pytest.fixture(autouse=True)
def _no_line_is_left(spark: SparkSession) -> Iterator[None]:
    register(spark)
    yield
    close_clients()


def send(bootstrap: str, topic: str) -> dict[int, tuple[int, str]]:
    """Sends the history of some rows to four partitions, and returns what it leaves.

    The producer is idempotent: another one may send messages again after later ones, and a row that was
    deleted in between would come back.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 4)])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    messages, rows = debezium_history(3)
    stored: dict[int, tuple[int | None, int | None]] = {}

    def delivered(index: int, error: KafkaError | None, message: Message) -> None:
        assert error is None
        stored[index] = message.partition(), message.offset()

    for index, (key, value) in enumerate(messages):
        producer.produce(topic, value, key, on_delivery=partial(delivered, index))
    assert producer.flush(120) == 0
    for partition in range(4):
        offsets = [stored[index][1] for index in range(len(messages)) if stored[index][0] == partition]
        assert offsets == list(range(len(offsets)))
    return rows


def content(table: Path) -> dict[int, tuple[int, str]]:
    rows = lance.dataset(table).to_table().to_pylist()
    by_id = {row["id"]: (row["at"], row["name"]) for row in rows}
    assert len(by_id) == len(rows)
    return by_id


@pytest.mark.parametrize("door", ["format", "sink", "tasks"])
def test_messages_of_debezium_leave_the_rows_of_their_history(
    spark: SparkSession,
    bootstrap: str,
    topic_names: TopicNames,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    door: str,
) -> None:
    """Also if Spark runs the last batch again, because its checkpoint doesn't say that it was committed."""
    tasks = list[int]()

    def counted(frame: DataFrame, of: Callable[[pa.Table], KeyedOperation], number: int) -> KeyedParts:
        tasks.append(number)
        return in_tasks(frame, of, number)

    monkeypatch.setattr(sink_module, "in_tasks", counted)
    if door == "tasks":
        monkeypatch.setattr(sink_module, "ROWS_A_TASK", 10)
    topic, table, checkpoint = f"{topic_names.transactions}-shop", tmp_path / "t", tmp_path / "checkpoint"
    log: lakefold.WriteOptions = {
        "bootstrap_servers": bootstrap,
        "transactions_topic": topic_names.transactions,
        "outcomes_topic": topic_names.outcomes,
    }
    given = {"kafka.bootstrap.servers": bootstrap, "transactionsTopic": topic_names.transactions}
    given |= {"outcomesTopic": topic_names.outcomes, "writeMode": "cdc", "keys": "id"}
    put = sink(
        table, write_mode="cdc", keys="id", order_by="source.at", envelope="debezium", app_id="shop", **log
    )

    def run() -> None:
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        source = source.option("subscribe", topic).option("startingOffsets", "earliest")
        writer = source.option("maxOffsetsPerTrigger", 60).load().select("key", "value").writeStream
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        if door == "format":
            writer = writer.format("lakefold").options(**given, orderBy="source.at", envelope="debezium")
            writer.option("txnAppId", "shop").start(str(table)).awaitTermination()
        else:
            writer.foreachBatch(put).start().awaitTermination()

    rows = send(bootstrap, topic)
    with ready_committer(bootstrap, topic_names, tmp_path):
        lakefold.append(table, TABLE.empty_table(), **log)
        run()
        assert content(table) == rows
        version, commits = (
            lance.dataset(table).version,
            sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name)),
        )
        assert len(commits) > 3
        for file in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
            file.unlink(missing_ok=True)
        run()
        assert (content(table), lance.dataset(table).version) == (rows, version)
        assert (len(tasks) > 3) == (door == "tasks")
    lance.dataset(table).validate()


PARSED: Final = "id: long, t: long, price: string, f: double, tags: array<string>, attrs: map<string,string>"
PARSED_TABLE: Final = pa.schema(
    {
        "id": pa.int64(),
        "t": pa.time64("us"),
        "price": pa.decimal128(9, 2),
        "f": pa.float64(),
        "tags": pa.list_(pa.binary()),
        "attrs": pa.map_(pa.string(), pa.string()),
    }
)
NAMED: Final = {"t": "MicroTime", "price": "Decimal(2)", "tags": "Bytes"}


def test_events_that_spark_parsed_have_the_same_forms_and_ranges(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    from pyspark.sql.functions import col, from_json

    table = tmp_path / "t"
    log: lakefold.WriteOptions = {
        "bootstrap_servers": bootstrap,
        "transactions_topic": topic_names.transactions,
        "outcomes_topic": topic_names.outcomes,
        "data_storage_version": "2.2",
    }
    put = sink(
        table,
        write_mode="cdc",
        keys="id",
        envelope="debezium",
        debezium_types=NAMED,
        app_id="parsed",
        **log,
    )
    row: dict[str, Any] = {"id": 1, "t": 86_399_999_999, "price": base64_of(-5), "f": "NaN", "tags": ["AP8="]}
    row |= {"attrs": {"a": "1", "b": None}}

    def parsed(kinds: str, **values: Any) -> DataFrame:  # noqa: ANN401 - any value of JSON
        text = json.dumps({"op": "c", "after": row | values})
        event = from_json(col("value"), f"op string, after struct<{kinds}>")
        return spark.createDataFrame([(text,)], "value string").select(event.alias("value"))

    with ready_committer(bootstrap, topic_names, tmp_path):
        lakefold.append(table, PARSED_TABLE.empty_table(), **log)
        put(parsed(PARSED), 0)
        wrong: list[dict[str, Any]] = [{"t": 86_400_000_000}, {"t": -1}, {"price": "no"}, {"tags": ["A"]}]
        for number, values in enumerate(wrong, 1):
            with pytest.raises(lakefold.BadRowsError, match="1 rows of the batch can't be written"):
                put(parsed(PARSED, **values), number)
        with pytest.raises(lakefold.InvalidError, match="price: it is double, which a Decimal"):
            put(parsed(PARSED.replace("price: string", "price: double"), price=1.5), 9)
    (stored,) = lance.dataset(table).to_table().to_pylist()
    expected = {"t": time(23, 59, 59, 999999), "price": Decimal("-0.05"), "tags": [b"\x00\xff"]}
    assert expected.items() <= {name: stored[name] for name in expected}.items()
    assert (repr(stored["f"]), dict(stored["attrs"])) == ("nan", row["attrs"])
    # What Spark itself has made of a number can't be seen any more.
    (made,) = spark.sql(
        """select from_json('{"f": 1e39, "d": 1.255}', 'f float, d decimal(9,2)') as v"""
    ).collect()
    assert (repr(made.v.f), made.v.d) == ("inf", Decimal("1.26"))


def test_a_table_is_created_by_the_schemas_of_many_messages(
    spark: SparkSession,
    bootstrap: str,
    topic_names: TopicNames,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sink_module, "ROWS_A_TASK", 10)
    table = tmp_path / "t"
    log: lakefold.WriteOptions = {
        "bootstrap_servers": bootstrap,
        "transactions_topic": topic_names.transactions,
        "outcomes_topic": topic_names.outcomes,
    }
    image = [
        {"field": "id", "type": "int64"},
        {"field": "born", "type": "int32", "name": "io.debezium.time.Date"},
    ]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": image}]}
    events = [{"op": "c", "after": {"id": number, "born": number}} for number in range(40)]
    texts = [(json.dumps({"schema": schema, "payload": event}).encode(),) for event in events]
    put = sink(table, write_mode="cdc", keys="id", envelope="debezium", app_id="new", **log)
    with ready_committer(bootstrap, topic_names, tmp_path):
        put(spark.createDataFrame(texts, "value binary").repartition(4), 0)
    rows = lance.dataset(table).to_table()
    assert rows.schema == pa.schema({"id": pa.int64(), "born": pa.date32()})
    assert sorted(rows["id"].to_pylist()) == list(range(40))


def test_the_change_feed_of_a_table_is_applied_to_another_one(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    table, copy = tmp_path / "t", tmp_path / "copy"
    given = {"kafka.bootstrap.servers": bootstrap, "transactionsTopic": topic_names.transactions}
    given |= {"outcomesTopic": topic_names.outcomes, "keys": "id"}

    def write(frame: DataFrame, target: Path, **more: str) -> None:
        frame.write.format("lakefold").mode("append").options(**given, **more).save(str(target))

    with ready_committer(bootstrap, topic_names, tmp_path):
        write(spark.sql("select explode(sequence(0L, 9L)) id, 0L at, 'a' name"), table, writeMode="upsert")
        write(spark.sql("select explode(sequence(5L, 12L)) id, 1L at, 'b' name"), table, writeMode="upsert")
        write(spark.sql("select explode(sequence(4L, 6L)) id"), table, writeMode="delete")
        reader = spark.read.format("lakefold").option("readChangeFeed", "true")
        feed = reader.option("startingVersion", "1").load(canonical(table))
        write(feed, copy, writeMode="cdc", envelope="lakefold")
        assert content(copy) == content(table)
        truncated = spark.sql("select 't' op, struct(1L id) before, struct(1L id) after")
        with pytest.raises(PySparkException, match="truncates its source"):
            write(truncated, copy, writeMode="cdc", envelope="debezium")
        with pytest.raises(PySparkException, match="the column what with the operations is not in the batch"):
            write(feed, copy, writeMode="cdc", operationColumn="what")
        with pytest.raises(PySparkException, match="1 rows of the batch can't be written: id in 1"):
            write(spark.sql("select 'c' op, null id"), copy, writeMode="cdc", operationColumn="op")
        assert content(copy) == content(table)

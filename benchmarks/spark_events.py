"""Events in Kafka, and the streaming queries that read them, as all measurements of Spark's sinks do."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from lakefold.local.spark import prepare_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    Start = Callable[[DataStreamWriter], DataStreamWriter]
    """Chooses the sink of a query and its options, except for the checkpoint."""

SCHEMA = "id long, at long, origin string, dest string, delay double, carrier string, distance int"


@contextmanager
def session(folder: Path, options: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Yields a session on two cores; `folder` is for Spark's own files."""
    builder = SparkSession.builder.appName("lakefold-bench")
    for name, value in (prepare_session(folder, memory="2g") | dict(options or {})).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def send_events(spark: SparkSession, bootstrap: str, topic: str, rows: int) -> int:
    """Puts events as JSON into a new topic of two partitions; returns their size in bytes."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)]).values():
        made.result(60)
    events = spark.range(rows, numPartitions=2).selectExpr(
        "id",
        "1700000000000 + id * 13 as at",
        "element_at(array('EWR', 'JFK', 'LGA'), cast(id % 3 + 1 as int)) as origin",
        "concat('A', id % 307) as dest",
        "(id * 7919 % 100000) / 100.0 as delay",
        "element_at(array('UA', 'AA', 'DL', 'B6'), cast(id % 4 + 1 as int)) as carrier",
        "cast(id % 2600 as int) as distance",
    )
    values = events.select(sql.to_json(sql.struct("*")).alias("value"))
    writer = values.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", topic).save()
    size = values.agg(sql.sum(sql.length("value"))).first()
    return int(size[0]) if size else 0


def start(
    spark: SparkSession, bootstrap: str, topic: str, rows_a_batch: int, checkpoint: Path, into: Start
) -> StreamingQuery:
    """Starts a query that reads all events of a topic, so many a batch, and then ends."""
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    read = read.option("subscribe", topic).option("startingOffsets", "earliest")
    raw = read.option("maxOffsetsPerTrigger", max(1, rows_a_batch)).load()
    events = raw.select(sql.from_json(raw.value.cast("string"), SCHEMA).alias("event")).select("event.*")
    writer = into(events.writeStream).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def seconds_of(begin: Callable[[], StreamingQuery]) -> float:
    """Returns the seconds from the start of a query until all events are written. Raises its error."""
    begun = time.perf_counter()
    begin().awaitTermination()
    return time.perf_counter() - begun


def into_nothing(writer: DataStreamWriter) -> DataStreamWriter:
    """Has a query call a function for each batch that does nothing."""
    return writer.foreachBatch(_nothing)


def _nothing(_: DataFrame, __: int) -> None:
    """Leaves the rows of a batch where they are, so Spark doesn't even read them."""


def into_driver(writer: DataStreamWriter) -> DataStreamWriter:
    """Has a query call a function for each batch that only gets its rows from the JVM."""
    return writer.foreachBatch(_get)


def _get(frame: DataFrame, _: int) -> None:
    frame.toArrow()


def into_count(writer: DataStreamWriter) -> DataStreamWriter:
    """Has a query call a function for each batch that lets the executors count its rows in Python."""
    return writer.foreachBatch(_count)


def _count(frame: DataFrame, _: int) -> None:
    frame.mapInArrow(_count_task, "rows long").collect()


def _count_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

"""How fast events go the whole way: from Kafka through Spark into visible rows, beside Parquet files.

The same streaming query runs over the same events by `foreachBatch(sink(…))`, by `format("lakefold")`, and by
Spark's own file sink; a short run of each goes before, so that none pays for a cold JVM.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from benchmarks.ground import committer, prove
from lakefold.local.spark import prepare_session
from lakefold.spark import register, sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from benchmarks.ground import Ground

SCHEMA = "id long, at long, origin string, dest string, delay double, carrier string, distance int"
EVENTS = "streaming-events"
BATCHES = 16
WARM_UP_SHARE = 16
MEGABYTE = 1_000_000


def measure(ground: Ground, rows: int) -> dict[str, float]:
    """Streams `rows` JSON events into a table and into Parquet files; rows and megabytes of JSON a second."""
    builder = SparkSession.builder.appName("lakefold-bench")
    for name, value in prepare_session(ground.root / "spark", memory="2g").items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    try:
        with committer(ground):
            return _all_ways(spark, ground, rows)
    finally:
        spark.stop()


def _all_ways(spark: SparkSession, ground: Ground, rows: int) -> dict[str, float]:
    warm_up = rows // WARM_UP_SHARE
    _send(spark, ground, "warm", warm_up)
    size = _send(spark, ground, "full", rows)
    seconds: dict[str, float] = {}
    for name, count in (("warm", warm_up), ("full", rows)):
        seconds["parquet"] = _run(spark, ground, name, count, _into_parquet(ground, name))
        seconds["lakefold"] = _run(spark, ground, name, count, _into_lakefold(ground, name))
        seconds["format"] = _run(spark, ground, name, count, _by_format(ground, name))
    prove(ground.root / "full", rows)
    prove(ground.root / "full-format", rows)
    return {
        "rows": rows,
        "lakefold rows/s": rows / seconds["lakefold"],
        "lakefold MB/s": size / seconds["lakefold"] / MEGABYTE,
        "parquet rows/s": rows / seconds["parquet"],
        "parquet MB/s": size / seconds["parquet"] / MEGABYTE,
        "lakefold / parquet": seconds["parquet"] / seconds["lakefold"],
        "format rows/s": rows / seconds["format"],
        "format / parquet": seconds["parquet"] / seconds["format"],
    }


def _send(spark: SparkSession, ground: Ground, name: str, rows: int) -> int:
    """Puts events into a topic of two partitions; returns their size in bytes."""
    topic = NewTopic(f"{EVENTS}-{name}", num_partitions=2, replication_factor=1)
    admin = AdminClient({"bootstrap.servers": ground.bootstrap})
    for made in admin.create_topics([topic]).values():
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
    writer = values.write.format("kafka").option("kafka.bootstrap.servers", ground.bootstrap)
    writer.option("topic", f"{EVENTS}-{name}").save()
    size = values.agg(sql.sum(sql.length("value"))).first()
    return int(size[0]) if size else 0


def _events(spark: SparkSession, ground: Ground, name: str, rows: int) -> DataFrame:
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", ground.bootstrap)
    read = read.option("subscribe", f"{EVENTS}-{name}").option("startingOffsets", "earliest")
    raw = read.option("maxOffsetsPerTrigger", max(1, rows // BATCHES)).load()
    return raw.select(sql.from_json(raw.value.cast("string"), SCHEMA).alias("event")).select("event.*")


def _run(
    spark: SparkSession, ground: Ground, name: str, rows: int, start: Callable[[DataFrame], StreamingQuery]
) -> float:
    """Seconds from the query's start until all events are written."""
    begun = time.perf_counter()
    query = start(_events(spark, ground, name, rows))
    query.awaitTermination()
    return time.perf_counter() - begun


def _into_parquet(ground: Ground, name: str) -> Callable[[DataFrame], StreamingQuery]:
    target = ground.root / f"parquet-{name}"

    def start(events: DataFrame) -> StreamingQuery:
        writer = events.writeStream.format("parquet").option("path", str(target))
        return writer.option("checkpointLocation", f"{target}-checkpoint").trigger(availableNow=True).start()

    return start


def _into_lakefold(ground: Ground, name: str) -> Callable[[DataFrame], StreamingQuery]:
    write = sink(
        ground.uri(name),
        ground.bootstrap,
        transactions_topic=ground.topics.transactions,
        outcomes_topic=ground.topics.outcomes,
    )

    def start(events: DataFrame) -> StreamingQuery:
        checkpoint = str(ground.root / f"{name}-checkpoint")
        writer = events.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
        return writer.trigger(availableNow=True).start()

    return start


def _by_format(ground: Ground, name: str) -> Callable[[DataFrame], StreamingQuery]:
    options = {
        "kafka.bootstrap.servers": ground.bootstrap,
        "transactionsTopic": ground.topics.transactions,
        "outcomesTopic": ground.topics.outcomes,
    }

    def start(events: DataFrame) -> StreamingQuery:
        checkpoint = str(ground.root / f"{name}-format-checkpoint")
        writer = events.writeStream.format("lakefold").options(**options)
        writer = writer.option("checkpointLocation", checkpoint)
        return writer.trigger(availableNow=True).start(ground.uri(f"{name}-format"))

    return start

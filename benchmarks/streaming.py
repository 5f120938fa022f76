"""How fast events go the whole way: from Kafka through Spark into visible rows, beside other sinks.

The same streaming query runs over the same events by `foreachBatch(sink(…))`, by `format("lakefold")`, by
Spark's own file sink, by Delta's sink, and by a function that only counts the rows in Python, which is as
fast as any sink written in Python can be. It runs in large batches, and in small ones. A short run of each
goes before, so that none pays for a cold JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import delta_spark
from benchmarks.ground import committer, prove
from benchmarks.spark_events import into_count, seconds_of, send_events, session, start
from lakefold.spark import register, sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from benchmarks.ground import Ground
    from benchmarks.spark_events import Start

BATCHES = 16
SMALL_BATCHES = 40
SMALL_SHARE = 10
"""The small batches have this part of all rows together."""
WARM_UP_SHARE = 16
MEGABYTE = 1_000_000
WAYS = ("parquet", "lakefold", "format", "counting")


def measure(ground: Ground, rows: int) -> dict[str, float]:
    """Streams `rows` JSON events into tables and into Parquet files; rows and megabytes of JSON a second."""
    small = rows // SMALL_SHARE
    topics = {"warm": rows // WARM_UP_SHARE, "full": rows, "small": small}
    each = {
        "warm": rows // WARM_UP_SHARE // BATCHES,
        "full": rows // BATCHES,
        "small": small // SMALL_BATCHES,
    }
    with session(ground.root / "spark") as spark, committer(ground):
        register(spark)
        sizes = {name: send_events(spark, ground.bootstrap, name, count) for name, count in topics.items()}
        seconds = {
            (name, target): _run(spark, ground, name, each[name], target)
            for name in topics
            for target in WAYS
        }
        for name in ("full", "small"):
            prove(ground.root / name, topics[name])
            prove(ground.root / f"{name}-format", topics[name])
    delta = delta_spark.run("stream", ground.root, bootstrap=ground.bootstrap, topics=each)
    seconds |= {(name, "delta"): spent for name, spent in delta.items()}
    return _figures("full", rows, sizes["full"], seconds) | {
        f"{each['small']:,} rows a batch: {name}": value
        for name, value in _figures("small", small, sizes["small"], seconds).items()
    }


def _figures(topic: str, rows: int, size: int, seconds: dict[tuple[str, str], float]) -> dict[str, float]:
    spent = {target: seconds[topic, target] for target in (*WAYS, "delta")}
    figures = {"rows": float(rows)}
    for target, value in spent.items():
        figures[f"{target} rows/s"] = rows / value
    for target in ("lakefold", "parquet"):
        figures[f"{target} MB/s"] = size / spent[target] / MEGABYTE
    for target in ("parquet", "counting", "delta"):
        figures[f"lakefold / {target}"] = spent[target] / spent["lakefold"]
    return figures | {"format / parquet": spent["parquet"] / spent["format"]}


def _run(spark: SparkSession, ground: Ground, topic: str, rows_a_batch: int, target: str) -> float:
    """Seconds from the query's start until all events are written."""
    checkpoint = ground.root / f"{topic}-{target}-checkpoint"
    into = _into(ground, topic, target)
    return seconds_of(lambda: start(spark, ground.bootstrap, topic, rows_a_batch, checkpoint, into))


def _into(ground: Ground, topic: str, target: str) -> Start:
    def parquet(writer: DataStreamWriter) -> DataStreamWriter:
        return writer.format("parquet").option("path", str(ground.root / f"parquet-{topic}"))

    def by_sink(writer: DataStreamWriter) -> DataStreamWriter:
        return writer.foreachBatch(sink(ground.uri(topic), **ground.log_options))

    def by_format(writer: DataStreamWriter) -> DataStreamWriter:
        options = {
            "kafka.bootstrap.servers": ground.bootstrap,
            "transactionsTopic": ground.topics.transactions,
            "outcomesTopic": ground.topics.outcomes,
            "path": ground.uri(f"{topic}-format"),
        }
        return writer.format("lakefold").options(**options)

    return {"parquet": parquet, "lakefold": by_sink, "format": by_format, "counting": into_count}[target]

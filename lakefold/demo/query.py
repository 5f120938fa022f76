"""The demo's streaming query, which runs in its own process: the job that a user of Lakefold would write.

It reads JSON events from a topic, converts them to typed columns, and passes each batch to the sink. The rest
of this file is only for the demo: it records each batch in a file that the demo reads, and exits after all
events.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_TYPES: Final = {"int64": "BIGINT", "int32": "INT", "string": "STRING", "timestamp[us, tz=UTC]": "TIMESTAMP"}
_LOOK_EVERY_S: Final = 0.1


def main() -> None:
    """Runs until the topic's first `--rows` events are in versions of the table."""
    given = _arguments()
    session = _session(given.scratch)
    try:
        query = start(session, given)
        with given.progress.open("a") as progress:
            _record(progress, event="started")
            _follow(query, given.topic, given.rows, progress)
            query.stop()
            _record(progress, event="done")
    finally:
        session.stop()


def start(session: SparkSession, given: argparse.Namespace) -> StreamingQuery:
    """Starts the query from the topic into the table. This is all that a job needs."""
    from pyspark.sql.functions import col, from_json

    from lakefold.spark import sink

    source = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", given.bootstrap_servers)
        .option("subscribe", given.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given.batch_rows)
        .load()
    )
    event = from_json(col("value").cast("string"), _schema(), {"mode": "FAILFAST"}).alias("event")
    flights: DataFrame = source.select(event).select("event.*")
    to_table = sink(
        table=given.table,
        format=given.format,
        bootstrap_servers=given.bootstrap_servers,
        app_id="departures",
        wait="commit",
    )
    return flights.writeStream.foreachBatch(to_table).option("checkpointLocation", given.checkpoint).start()


def _session(scratch: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    from lakefold.local.spark import prepare_session

    options = prepare_session(scratch)
    # Otherwise Java writes a file to a shared temporary folder, which stays there if Java is killed.
    options["spark.driver.extraJavaOptions"] += " -XX:-UsePerfData"
    options["spark.sql.session.timeZone"] = "UTC"
    builder = SparkSession.builder.appName("lakefold-demo")
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


def _schema() -> str:
    """Returns the events' columns as a schema of Spark."""
    from lakefold.demo.dataset import SCHEMA

    return ", ".join(f"`{field.name}` {_TYPES[str(field.type)]}" for field in SCHEMA)


def _follow(query: StreamingQuery, topic: str, rows: int, progress: IO[str]) -> None:
    """Records each batch until `rows` rows are committed. Raises the query's own error if it fails."""
    last, done = -1, 0
    while done < rows:
        if not query.isActive:
            query.awaitTermination()
        time.sleep(_LOOK_EVERY_S)
        for batch in query.recentProgress:
            reached = sum(json.loads(batch.sources[0].endOffset)[topic].values())
            if batch.batchId > last and reached > done:
                seconds = batch.durationMs["triggerExecution"] / 1000
                _record(progress, event="batch", batch=batch.batchId, rows=reached - done, seconds=seconds)
                last, done = batch.batchId, reached


def _record(progress: IO[str], **values: object) -> None:
    progress.write(json.dumps(values) + "\n")
    progress.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap-servers", "topic", "table", "format", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("scratch", "progress"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    for name in ("rows", "batch-rows"):
        parser.add_argument(f"--{name}", required=True, type=int)
    return parser.parse_args()


if __name__ == "__main__":
    main()

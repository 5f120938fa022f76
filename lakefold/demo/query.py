"""The demo's streaming query, which runs in its own process: the job that a user of Lakefold would write.

It reads JSON events from a topic, converts them to typed columns, and passes each batch to the sink. The rest
of this file is only for the demo: it prints each batch as a line of JSON, and exits after all events.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lakefold.console.output import print_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_EVERY_S: Final = 0.2


def main() -> None:
    """Runs until the topic's first `rows` events are in versions of the table."""
    given = Namespace(**json.loads(sys.argv[1]))
    session = _session(Path(given.scratch))
    try:
        query = start(session, given)
        print_json({"state": "streaming, first batch"})
        _follow(query, given.topic, given.rows)
        query.stop()
        print_json({"state": "done", "done": True})
    finally:
        session.stop()


def start(session: SparkSession, given: Namespace) -> StreamingQuery:
    """Starts the query from the topic into the table. This is all that a job needs."""
    from pyspark.sql.functions import col, from_json
    from pyspark.sql.pandas.types import from_arrow_schema

    from lakefold.demo.dataset import SCHEMA
    from lakefold.spark import sink

    source = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", given.bootstrap_servers)
        .option("subscribe", given.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given.batch_rows)
        .load()
    )
    columns = from_arrow_schema(SCHEMA)
    event = from_json(col("value").cast("string"), columns, {"mode": "FAILFAST"}).alias("event")
    to_table = sink(
        table=given.table,
        format=given.format,
        bootstrap_servers=given.bootstrap_servers,
        app_id="departures",
        wait="commit",
    )
    flights = source.select(event).select("event.*")
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


def _follow(query: StreamingQuery, topic: str, rows: int) -> None:
    """Prints each batch until `rows` rows are committed. Raises the query's own error if it fails."""
    done = 0
    while done < rows:
        if not query.isActive:
            query.awaitTermination()
        time.sleep(_LOOK_EVERY_S)
        batch = query.lastProgress
        if batch and batch.sources[0].endOffset:
            done = sum(json.loads(batch.sources[0].endOffset)[topic].values())
            print_json({"state": f"batch {batch.batchId}, {done:,} rows"})


if __name__ == "__main__":
    main()

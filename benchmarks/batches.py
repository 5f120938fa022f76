"""What a small batch costs a streaming query: by the sink, and by a function that does nothing.

The same query over the same events, a hundred a batch, so that a batch consists of what Spark and the sink
do for each. The sink waits until the batch is in the table. A function that does nothing does not even have
Spark read the rows. One that only has the driver get them, as Arrow from the JVM, is what Spark itself takes
of a sink's time; and one counts them in Python. Medians of the times that Spark reports; the first batches
are left out.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.ground import committer, prove
from benchmarks.spark_events import into_count, into_driver, into_nothing, send_events, session, start
from lakefold.spark import sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.ground import Ground
    from benchmarks.spark_events import Start
    from lakefold_ingest.writing.report import BatchReport

ROWS_A_BATCH = 100
TOPIC = "batches"
WARM_UP = 10
MOST = 80
"""Spark keeps the progress of a hundred batches."""
MILLISECONDS = 1000


def measure(ground: Ground, batches: int) -> dict[str, float]:
    """Runs a query of so many small batches with each function; milliseconds a batch."""
    batches = min(max(batches, 2 * WARM_UP), MOST)
    rows = batches * ROWS_A_BATCH
    reports: list[BatchReport] = []
    write = sink(ground.uri("table"), on_report=reports.append, **ground.log_options)
    with session(ground.root / "spark") as spark, committer(ground):
        send_events(spark, ground.bootstrap, TOPIC, rows)
        empty = _batch_ms(spark, ground, "empty", into_nothing)
        given = _batch_ms(spark, ground, "reading", into_driver)
        counted = _batch_ms(spark, ground, "counting", into_count)
        written = _batch_ms(spark, ground, "table", lambda writer: writer.foreachBatch(write))
        prove(ground.root / "table", rows)
    parts = [report.figures for report in reports[WARM_UP:]]
    return {
        "batches": batches,
        "empty ms": empty,
        "reading ms": given,
        "counting ms": counted,
        "with the sink ms": written,
        "overhead ms": written - empty,
        "overhead to reading ms": written - given,
        "overhead to counting ms": written - counted,
        "of it, files ms": MILLISECONDS * median(part.write_s for part in parts),
        "of it, sending ms": MILLISECONDS * median(part.send_s for part in parts),
        "of it, waiting ms": MILLISECONDS * median(part.wait_s for part in parts),
    }


def _batch_ms(spark: SparkSession, ground: Ground, name: str, into: Start) -> float:
    """Returns the median duration of the batches of a query that runs to its end."""
    query = start(spark, ground.bootstrap, TOPIC, ROWS_A_BATCH, ground.root / f"{name}-checkpoint", into)
    query.awaitTermination()
    progress = [each for each in query.recentProgress if "addBatch" in each.durationMs]
    return float(median(each.durationMs["triggerExecution"] for each in progress[WARM_UP:]))

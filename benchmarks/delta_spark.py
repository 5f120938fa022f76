"""Delta's own sink and MERGE in Spark, in a process of their own: the same rows, the same two cores.

Delta needs its classes on the class path of the JVM and its extension in the session, which other sinks must
not be measured with. `run` starts the process with one of `JOBS`, and returns the figures that it prints.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from benchmarks.spark_events import SCHEMA, seconds_of, session, start
from lakefold.local.jars import fetch_jars

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LAST_SECONDS = 1800.0
OPTIONS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # The default, 50, is for a cluster: it would slow each commit down on two cores.
    "spark.databricks.delta.snapshotPartitions": "2",
}
VECTORS = "spark.databricks.delta.properties.defaults.enableDeletionVectors"


def run(job: str, folder: Path, **arguments: object) -> dict[str, float]:
    """Returns the figures of one of `JOBS`. Raises `CalledProcessError` if it fails, with its output."""
    text = json.dumps(arguments)
    command = [sys.executable, "-m", "benchmarks.delta_spark", job, str(folder), text]
    with (folder / f"delta-{job}.log").open("w") as log:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=log, text=True, check=True, timeout=LAST_SECONDS
        )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def stream(
    spark: SparkSession, folder: Path, *, bootstrap: str, topics: Mapping[str, int]
) -> dict[str, float]:
    """Returns the seconds of a query for each topic, into a table each. `topics`: with their rows a batch."""

    def seconds(topic: str, rows_a_batch: int) -> float:
        checkpoint, into = folder / f"delta-{topic}-checkpoint", _into(folder / f"delta-{topic}")
        return seconds_of(lambda: start(spark, bootstrap, topic, rows_a_batch, checkpoint, into))

    return {topic: seconds(topic, rows_a_batch) for topic, rows_a_batch in topics.items()}


def queries(
    spark: SparkSession, folder: Path, *, bootstrap: str, topics: Sequence[str], rows_a_batch: int
) -> dict[str, float]:
    """Returns the seconds of concurrent queries into one table, how many failed, and repeated commits."""
    table = folder / "delta-shared"
    spark.createDataFrame([], SCHEMA).write.format("delta").save(str(table))
    begun = time.perf_counter()
    running = [
        start(spark, bootstrap, topic, rows_a_batch, folder / f"delta-{topic}-checkpoint", _into(table))
        for topic in topics
    ]
    failed = 0
    for query in running:
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            sys.stderr.write(f"{error}\n")
            failed += 1
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "repeated": float(_repeated(table)), "failed": float(failed)}


def merges(spark: SparkSession, folder: Path, *, rows: str, batches: Sequence[str]) -> dict[str, float]:
    """Returns the seconds of the fastest of some MERGEs by `id`, with and without deletion vectors."""
    figures = {}
    for name, enabled in (("with vectors", "true"), ("without vectors", "false")):
        spark.conf.set(VECTORS, enabled)
        table = folder / f"delta-merged-{enabled}"
        spark.read.parquet(rows).write.format("delta").save(str(table))
        spent = []
        for batch in batches:
            begun = time.perf_counter()
            spark.sql(
                f"merge into delta.`{table}` as target using parquet.`{batch}` as source "
                "on target.id = source.id when matched then update set * when not matched then insert *"
            )
            spent.append(time.perf_counter() - begun)
        figures[name] = min(spent)
    return figures


def _into(table: Path) -> Callable[[DataStreamWriter], DataStreamWriter]:
    return lambda writer: writer.format("delta").option("path", str(table))


def _repeated(table: Path) -> int:
    """Returns how many versions of others each commit had to be tried again for, all of them together."""
    count = 0
    for path in (table / "_delta_log").glob("*.json"):
        lines = map(json.loads, path.read_text().splitlines())
        info = next(line["commitInfo"] for line in lines if "commitInfo" in line)
        count += max(0, int(path.stem) - info.get("readVersion", int(path.stem) - 1) - 1)
    return count


JOBS: dict[str, Callable[..., dict[str, float]]] = {"stream": stream, "queries": queries, "merges": merges}
"""What is measured, by its name."""


def main() -> None:
    """Runs the job that the command line names, and prints its figures as the last line."""
    job, folder, text = sys.argv[1:]
    jars = {"spark.jars": ",".join(map(str, [*fetch_jars("spark"), *fetch_jars("delta")]))}
    with session(Path(folder) / "spark", OPTIONS | jars) as spark:
        figures = JOBS[job](spark, Path(folder), **json.loads(text))
    sys.stdout.write(f"{json.dumps(figures)}\n")


if __name__ == "__main__":
    main()

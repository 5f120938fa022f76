"""A Spark driver as a user starts it: one streaming query from a table into a folder of JSON files.

Run as a program with a JSON object of arguments. `hang_after`: once this batch is written it makes the file
`hanging` and stays there, before Spark commits the batch; the test waits for that and kills it. Each batch is
written under its own number, so that a batch that is run again replaces itself, as an idempotent sink does; a
copy is kept of what it held each time.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefold.spark import register
from tests.integration.drivers import run_in_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream(spark: SparkSession, reported: dict[str, Any]) -> None:
    """Reads what there is now, one or more batches."""
    register(spark)
    folder = Path(reported["folder"])

    def write(frame: DataFrame, batch_id: int) -> None:
        rows = sorted(row["id"] for row in frame.select("id").collect())
        runs = folder / "batches" / str(batch_id)
        runs.mkdir(parents=True, exist_ok=True)
        (runs / f"{time.time_ns()}.json").write_text(json.dumps(rows))
        if batch_id == reported["hang_after"]:
            (folder / "hanging").touch()
            threading.Event().wait()

    query = (
        spark.readStream.format("lakefold")
        .options(**reported["options"])
        .load(reported["table"])
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    run_in_session(stream, json.loads(sys.argv[1]))

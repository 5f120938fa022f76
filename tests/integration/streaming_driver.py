"""A Spark driver as a user starts it: one streaming query from a folder of JSON files into a Lance table.

Run as a program with a JSON object of arguments. `hang_after`: once the sink has returned from this batch
it writes the file `hanging` and stays there, before Spark commits the batch; the test waits for that and
kills it. `fail_after`: the query fails there.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefold.spark import sink
from tests.integration.drivers import run_in_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def stream(spark: SparkSession, reported: dict[str, Any]) -> None:
    """Reads all files there are, one a batch."""
    folder = Path(reported["folder"])
    put = sink(folder / "lake" / "t", **reported["sink"])

    def put_and_hang(frame: DataFrame, batch_id: int) -> None:
        put(frame, batch_id)
        if batch_id == reported["hang_after"]:
            (folder / "hanging").touch()
            threading.Event().wait()
        if batch_id == reported.get("fail_after"):
            raise RuntimeError(f"batch {batch_id} fails")

    events = spark.readStream.schema("n long, s string").option("maxFilesPerTrigger", 1)
    query = (
        events.json(str(folder / "events"))
        .writeStream.foreachBatch(put_and_hang)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    run_in_session(stream, json.loads(sys.argv[1]))

"""A Spark driver whose tasks write their rows and then fail or are killed, once each.

Run as a program with one JSON object of arguments. In each write the first attempt of task 0 fails after it
has written its rows, and the process of the first attempt of task 1 is killed then. Spark runs both again.
With `linger` the first attempt of task 0 goes on without end instead, until a speculative attempt has won,
which ends only after the first one has written its rows as well.
Each attempt leaves an empty file `NAME-TASK-ATTEMPT` in the folder `tried`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from lakefold.spark import sink
from lakefold.spark_format import LakefoldFormat
from lakefold_ingest.rows import staged_rows
from lakefold_ingest.spark import keyed_tasks
from lakefold_ingest.spark import sink as sink_module
from tests.servers.quick_python import prepare_quick_session
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
    from pyspark.sql.types import StructType

MASTER = "local[2,3]"
"""Two tasks at once, and three attempts of each."""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
LINGER = "TEST_LINGER"
"""A variable of the executors' environment."""
ROWS = 100
FOLDER, NAME = "testFolder", "testName"


class TriedFormat(LakefoldFormat):
    """`format("lakefold-tried")`: writes as `format("lakefold")`; what its first attempts wrote is lost."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._where = self.options.pop(FOLDER), self.options.pop(NAME)

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "lakefold-tried"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 - Spark's signature
        """Returns a writer of a batch."""
        return TriedWriter(super().writer(schema, overwrite), self._where)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802 - Spark's name and signature
        """Returns a writer of a streaming query's batch."""
        return TriedStreamWriter(super().streamWriter(schema, overwrite), self._where)


class TriedWriter(DataSourceArrowWriter):
    """A writer of a batch."""

    def __init__(self, writer: DataSourceArrowWriter, where: tuple[str, str]) -> None:
        self._writer = writer
        self._where = where

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of a task, all of them in files."""
        staged_rows.INLINE_BYTES = 0  # type: ignore[misc]  # in the task's process
        message = self._writer.write(iterator)
        lose_first_attempt(*self._where)
        return message

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commits the batch."""
        self._writer.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Aborts the batch."""
        self._writer.abort(messages)


class TriedStreamWriter(DataSourceStreamArrowWriter):
    """A writer of a streaming query's batch."""

    def __init__(self, writer: DataSourceStreamWriter, where: tuple[str, str]) -> None:
        self._writer = writer
        self._where = where

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of a task, all of them in files."""
        staged_rows.INLINE_BYTES = 0  # type: ignore[misc]  # in the task's process
        message = self._writer.write(iterator)
        lose_first_attempt(*self._where)
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commits the batch."""
        self._writer.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Aborts the batch."""
        self._writer.abort(messages, batchId)


def lose_first_attempt(folder: str, name: str) -> None:
    """Fails or kills this process if this is the first attempt of a task."""
    context = TaskContext.get()
    assert context is not None
    task, attempt = context.partitionId(), context.attemptNumber()
    tries = Path(folder) / "tried"
    (tries / f"{name}-{task}-{attempt}").touch()
    if attempt == 1 and LINGER in os.environ:
        # Spark kills the first attempt when this one ends.
        until((tries / f"{name}-{task}-0").exists, "the rows of the first attempt")
    if attempt == 0 and LINGER in os.environ:
        while task == 0:
            signal.pause()
    elif attempt == 0:
        if task == 0:
            raise RuntimeError("the task fails after it has written its rows")
        os.kill(os.getpid(), signal.SIGKILL)


def tried(
    function: Callable[..., Iterator[pa.RecordBatch]], folder: str, name: str
) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Returns a function for `mapInArrow` whose first attempts are lost."""

    def run(*arguments: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - as the function
        results = list(function(*arguments))
        lose_first_attempt(folder, name)
        yield from results

    return run


def session(folder: Path, cluster: str) -> SparkSession:
    """Starts Spark: on this machine, or on a cluster whose executors have one core, if one is given."""
    from pyspark.sql import SparkSession

    options = prepare_quick_session(folder / "spark") | {"spark.master": cluster or MASTER}
    if cluster:
        environment = {LINGER: "1", "PYTHONPATH": os.environ["PYTHONPATH"]}
        options |= SPECULATION | {f"spark.executorEnv.{name}": each for name, each in environment.items()}
    builder = SparkSession.builder
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(TriedFormat)
    return spark


def rows(spark: SparkSession, start: int, end: int, name: str) -> DataFrame:
    """Rows in two partitions."""
    return spark.range(start, end, 1, 2).selectExpr("id n", f"'{name}' name")


def run(given: dict[str, Any]) -> None:
    """Writes each table twice: the rows 0 to 99, and then in tasks whose first attempts are lost."""
    folder = Path(given["folder"])
    spark, lake = session(folder, given["cluster"]), folder / "lake"
    merge, write = keyed_tasks._merge_rows, sink_module._write_task
    second = rows(spark, ROWS // 2, ROWS * 2, "second")
    for name in given["names"]:
        sink(lake / name, app_id="first", **given["sink"])(rows(spark, 0, ROWS, "first"), 0)
        door, _, mode = name.partition("-")
        if door == "format":
            write_format(spark, second, given, name)
            continue
        more = {} if mode == "append" else {"write_mode": mode, "keys": "n"}
        if mode == "cdc":
            more["operation_column"] = "op"
        put = sink(lake / name, app_id="second", **more, **given["sink"])
        sink_module.ROWS_A_TASK = ROWS // 2
        keyed_tasks._merge_rows = tried(merge, given["folder"], name)
        sink_module._write_task = tried(write, given["folder"], name)
        put(second.selectExpr("*", "if(n < 75, 'd', 'u') op") if mode == "cdc" else second, 0)
        keyed_tasks._merge_rows, sink_module._write_task = merge, write
    spark.stop()


def write_format(spark: SparkSession, second: DataFrame, given: dict[str, Any], name: str) -> None:
    """Writes by the data source in the mode at the end of `name`."""
    folder, mode = Path(given["folder"]), name.partition("-")[2]
    options = {FOLDER: str(folder), NAME: name, **given["options"]}
    table = str(folder / "lake" / name)
    if mode in {"upsert", "delete"}:
        options |= {"writeMode": mode, "keys": "n"}
    if mode == "stream":
        events = str(folder / "events")
        second.write.json(events)
        frame = spark.readStream.schema("n long, name string").json(events).repartition(2)
        options["checkpointLocation"] = str(folder / "checkpoint")
        stream = frame.writeStream.format("lakefold-tried").options(**options).trigger(availableNow=True)
        stream.start(table).awaitTermination()
    else:
        output = "overwrite" if mode == "overwrite" else "append"
        second.write.format("lakefold-tried").mode(output).options(**options).save(table)


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))

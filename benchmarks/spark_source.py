"""How fast Spark reads a table, beside the same rows in Parquet files by Spark's own reader.

Rows of a Python source go through Arrow from a Python process to the JVM; Parquet is read in the JVM. Each
read hands every row to Spark's `noop` writer; a short read goes before, so that none pays for a cold JVM.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import SparkSession

from lakefold.local.spark import prepare_session
from lakefold.spark import register

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

ROWS = 8_000_000
FILES = 16
FEW = "id >= 1000000 and id < 1010000"


def measure(root: Path, share: int) -> dict[str, float]:
    """Rows a second of a full read, of two columns, and of the same as a stream; seconds for few rows."""
    rows = ROWS // share
    _write(root, rows)
    builder = SparkSession.builder.appName("lakefold-bench")
    for name, value in prepare_session(root / "spark", memory="2g").items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    try:
        return {"rows": rows, **_reads(spark, root, rows), "stream rows/s": rows / _stream(spark, root)}
    finally:
        spark.stop()


def _write(root: Path, rows: int) -> None:
    """The same rows as a table and as Parquet files, as many fragments as files."""
    (root / "parquet").mkdir()
    each = rows // FILES
    for number in range(FILES):
        ids = np.arange(number * each, (number + 1) * each, dtype=np.int64)
        dests = pa.DictionaryArray.from_arrays(
            pa.array((ids % 307).astype(np.int32)), pa.array([f"A{n}" for n in range(307)])
        )
        table = pa.table(
            {"id": ids, "delay": ids % 7919 / 8.0, "dest": dests.cast(pa.string()), "distance": ids % 2600}
        )
        lance.write_dataset(table, str(root / "lance"), mode="append" if number else "create")
        pyarrow.parquet.write_table(table, root / "parquet" / f"{number}.parquet")


def _reads(spark: SparkSession, root: Path, rows: int) -> dict[str, float]:
    ours = spark.read.format("lakefold").option("minPartitions", 4)
    table, parquet = ours.load(str(root / "lance")), spark.read.parquet(str(root / "parquet"))
    narrow = ours.option("columns", "id,delay").load(str(root / "lance"))
    _seconds(table.where("id < 1000"))
    _seconds(parquet.where("id < 1000"))
    whole, theirs = _seconds(table), _seconds(parquet)
    return {
        "lakefold rows/s": rows / whole,
        "parquet rows/s": rows / theirs,
        "lakefold / parquet": theirs / whole,
        "two columns rows/s": rows / _seconds(narrow),
        "parquet two columns rows/s": rows / _seconds(parquet.select("id", "delay")),
        "few rows s": _seconds(table.where(FEW)),
        "parquet few rows s": _seconds(parquet.where(FEW)),
    }


def _stream(spark: SparkSession, root: Path) -> float:
    """Seconds of a query that reads the table's content and ends."""
    begun = time.perf_counter()
    query = (
        spark.readStream.format("lakefold")
        .option("minPartitions", 4)
        .load(str(root / "lance"))
        .writeStream.format("noop")
        .option("checkpointLocation", str(root / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return time.perf_counter() - begun


def _seconds(frame: DataFrame) -> float:
    begun = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begun

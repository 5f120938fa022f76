"""Properties and partitions of a new Delta table that Spark writes: options reach a Python source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException

from lakefold.spark import register
from lakefold_ingest.writing.log_client import close_clients
from tests.integration.committers import ready_committer
from tests.integration.test_spark_writes import options

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.conftest import TopicNames


def test_partitions_and_properties_are_options_and_no_methods(
    spark: SparkSession, bootstrap: str, topic_names: TopicNames, tmp_path: Path
) -> None:
    """Spark refuses the method of a batch, and passes nothing of that of a stream to a Python source."""
    register(spark)
    given = {**options(bootstrap, topic_names), "format": "delta", "delta.enableDeletionVectors": "true"}
    rows = spark.range(4).selectExpr("id as n", "id % 2 as p")
    rows.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))

    def run(table: str, *, by: str | None = None, **more: str) -> None:
        writer = stream.writeStream.format("lakefold").options(**given, **more)
        writer = writer if by is None else writer.partitionBy(by)
        writer = writer.option("checkpointLocation", str(tmp_path / f"{table}-checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / table)).awaitTermination()

    def created(table: str) -> tuple[list[str], dict[str, str]]:
        made = DeltaTable(str(tmp_path / table)).metadata()
        return made.partition_columns, made.configuration

    on = {"delta.enableDeletionVectors": "true"}
    with ready_committer(bootstrap, topic_names, tmp_path):
        run("option", partitionBy="p")
        run("method", by="p")
        assert created("option") == (["p"], on)
        assert created("method") == ([], on)
        writer = rows.write.format("lakefold").mode("append").options(**given)
        with pytest.raises(PySparkException, match="partition"):
            writer.partitionBy("p").save(str(tmp_path / "batch"))
        assert not (tmp_path / "batch").exists()
    close_clients()

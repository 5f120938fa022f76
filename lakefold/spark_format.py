"""Registers `format("lakefold")` with Spark: reads and writes, with the settings of a write."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark.errors import AnalysisException

from lakefold.writing.options import WriteOptions, write_settings
from lakefold_ingest.spark.batch_metrics import MetricsAddress, count_stored
from lakefold_ingest.spark.data_source import TableFormat
from lakefold_reader.spark.data_source import PUSHDOWN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakefold_ingest.spark.given_options import GivenWrite
    from lakefold_ingest.writing.settings import WriteSettings


def register(
    spark: SparkSession, *, metrics_port: int | None = None, metrics_host: str = "127.0.0.1"
) -> None:
    """Lets tables answer the filters of a session's queries, and makes `format("lakefold")` known to it.

        register(spark)
        spark.read.format("lakefold").option("versionAsOf", 12).load("s3://lake/flights.lance")
        frame.write.format("lakefold").mode("append").save("s3://lake/flights.lance")

    Spark knows the format without this as well, if lakefold is installed in the Python of its driver; then it
    reads all rows of a table, and filters them itself. Call it once for each session; the executors need
    lakefold installed, too. The options are those of docs/reference/spark.md and
    docs/reference/spark-writes.md. That Python sources answer filters is off in Spark by default
    (`spark.sql.python.filterPushdown.enabled`); if that is turned off again, Spark refuses to read tables of
    the session. With `metrics_port` the driver serves the sums over the batches of the
    session's streaming queries for Prometheus, as `sink` does. Raises `InvalidError` if it can't,
    also because the session is one of Spark Connect.
    """
    if metrics_port is not None:
        count_stored(spark, MetricsAddress(metrics_port, metrics_host))
    spark.conf.set(PUSHDOWN, "true")
    try:
        spark.dataSource.register(LakefoldFormat)
    except AnalysisException as refused:
        # Spark 4.0 keeps the format that it finds by itself. No source answers filters there.
        if refused.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


class LakefoldFormat(TableFormat):
    """Tables as Spark reads and writes them. Spark loads this class by its name in processes of its own."""

    def write_settings(self, given: GivenWrite) -> WriteSettings:
        """Returns the settings of a write: its options, else those of the environment and `config`."""
        return write_settings(given.path, cast("WriteOptions", given.settings()))


class ScanFormat(LakefoldFormat):
    """The same in a session that has not called `register`: Spark refuses readers that answer filters."""

    answers_filters = False

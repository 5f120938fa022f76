"""Tables as a source of Spark, `format("lakefold")`: the reader's one door to Spark.

Spark makes these objects in Python processes of its own, one after the other, and hands what they hold from
each to the next: on the driver `LakefoldSource` for a `load()`, a reader for each planned query, and the
reader again in each task. So the version is pinned where the source is made, and all that a task needs
travels with it. What they do is told in the modules `spark_…`, which need no Spark.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lakefold_reader.spark_batch import Pinned, cut_of, pieces, pin, rows_of
from lakefold_reader.spark_filters import push
from lakefold_reader.spark_options import Given, Use, read_options
from lakefold_reader.spark_types import arrow_schema, spark_schema, unchanged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

FORMAT = "lakefold"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark's setting that lets Python sources answer filters; off as Spark comes (4.1 and 4.2)."""


def register(spark: SparkSession) -> None:
    """Make `format("lakefold")` known to this session, for `spark.read` and `spark.readStream`.

    Lets Python sources answer filters, which Spark comes without; a session in which it is turned off again
    can't read tables. Needs to be called once in each session; the executors need lakefold installed.
    """
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(LakefoldSource)


class LakefoldSource(DataSource):
    """A table as Spark reads it: `spark.read.format("lakefold").load("s3://lake/flights")`."""

    _pinned: Pinned | None = None

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of the pinned version; raises `InvalidError` for one that Spark has no type for."""
        return StructType.fromJson(spark_schema(self._pin().chosen(self._given())))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the pinned version's rows."""
        given = self._given()
        given.check(Use.ROWS)
        return VersionReader(given, self._pin(), arrow_schema(json.loads(schema.json())))

    def _given(self) -> Given:
        return read_options(dict(self.options))

    def _pin(self) -> Pinned:
        if self._pinned is None:
            self._pinned = pin(self._given())
        return self._pinned


class VersionReader(DataSourceReader):
    """Reads one version: plans its partitions on the driver, reads them in tasks."""

    def __init__(self, given: Given, pinned: Pinned, target: pa.Schema) -> None:
        self._cut = cut_of(given)
        self._pinned = pinned
        self._target = target
        self._rows = rows_of(pinned, target, None)

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """Takes the filters that Lance answers as Spark would; gives back the others."""
        told = push(filters, unchanged(self._pinned.schema.arrow, self._target))
        self._rows = rows_of(self._pinned, self._target, told.where)
        return told.left

    def partitions(self) -> Sequence[InputPartition]:
        """The fragments, neighbours together. Spark hands nothing on that is noted here."""
        return [InputPartition(piece) for piece in pieces(self._pinned, self._cut)] or [InputPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        yield from self._rows.read(partition.value, self._target)

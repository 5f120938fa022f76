"""Tables as a source of Spark, `format("lakefold")`: no other module of the reader imports Spark.

Spark makes these objects in a sequence of Python processes of its own, and copies their content from
each to the next: on the driver `LakefoldSource` for a `load()`, a reader for each planned query, and the
reader again in each task. So the version is pinned when the source is made, and all that a task needs is
copied with it. A streaming query's reader lives on the driver as long as the query does; its tasks get
another object, made from the same source. The work is done in the other modules of this folder, which need no
Spark.
"""

from __future__ import annotations

import json
import platform
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lakefold_reader.spark.batch import Pinned, cut_of, pieces, pin, planned_changes, rows_of, shown
from lakefold_reader.spark.filters import push
from lakefold_reader.spark.garbage import spare_imports
from lakefold_reader.spark.offsets import Offset
from lakefold_reader.spark.options import Given, Use, read_options
from lakefold_reader.spark.stream import Limit, Stream, limit_of
from lakefold_reader.spark.types import arrow_schema, spark_schema, unchanged
from lakefold_table.errors import InvalidError
from lakefold_table.packages import MissingPackageError

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, SupportsTriggerAvailableNow
except ImportError:  # Spark before 4.2 has none of them: see `TableStreamReader.latestOffset`.
    ReadAllAvailable = ReadMaxFiles = None  # type: ignore[assignment, misc]
    SupportsTriggerAvailableNow = object  # type: ignore[assignment, misc]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit

    from lakefold_reader.spark.rows import FeedRows, VersionRows

FORMAT = "lakefold"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark's setting that lets Python sources answer filters; off by default (4.1 and 4.2)."""


class LakefoldSource(DataSource):
    """A table as Spark reads it: `spark.read.format("lakefold").load("s3://lake/flights.lance")`."""

    answers_filters: ClassVar[bool] = True
    """Whether the reader of a version takes a query's filters: then Spark's setting `PUSHDOWN` must be on."""
    _pinned: Pinned | None = None

    @classmethod
    def name(cls) -> str:
        """Returns the name for `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Returns the columns of the pinned version. Raises `InvalidError` if Spark has no type for one."""
        return StructType.fromJson(spark_schema(shown(self._pin(), self._given())))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns a reader of the pinned version's rows, or of the changes up to it."""
        given, pinned, target = self._given(), self._pin(), _target(schema)
        if given.value("readChangeFeed"):
            given.check(Use.CHANGES)
            return ChangesReader(given, pinned, target)
        given.check(Use.ROWS)
        reader = FilteringReader if self.answers_filters else VersionReader
        return reader(given, pinned, target)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Returns a reader that follows the table."""
        given = self._given()
        given.check(Use.STREAM)
        return TableStreamReader(given, self._pin(), _target(schema))

    def _given(self) -> Given:
        return read_options(dict(self.options))

    def _pin(self) -> Pinned:
        if self._pinned is None:
            self._pinned = pin(self._given())
        return self._pinned


class TaskReader:
    """Reads the partitions of a table in tasks, whose executors may lack a package: then an error says so."""

    _rows: VersionRows | FeedRows
    _target: pa.Schema

    def __reduce__(self) -> tuple[object, ...]:
        """Has an executor load the reader by a function that needs nothing but Python."""
        return _loader(), (cloudpickle.dumps((type(self), vars(self))),)  # type: ignore[no-untyped-call] # pyspark gives it no types

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a partition. Raises `InvalidError` if the executor lacks a package."""
        try:
            yield from self._rows.read(partition.value, self._target)
        except (ModuleNotFoundError, MissingPackageError) as error:
            package = error.package if isinstance(error, MissingPackageError) else error.name
            message = f"Spark's executor on {platform.node()} can't read the table: it has no {package}"
            hint = (
                "install lakefold[ingest] and pylance there, in the driver's releases, or have "
                "PYSPARK_PYTHON name a Python that has them"
            )
            raise InvalidError(message, where='format("lakefold")', hint=hint) from error
        spare_imports()


def _loader() -> Callable[[bytes], object]:
    """Returns a function that is copied to executors as it is, since it has no name in this module."""

    def load(content: bytes) -> object:
        import pickle
        import platform

        try:
            kind, state = pickle.loads(content)  # noqa: S301 - the driver has written it
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"Spark's executor on {platform.node()} can't read the table: it has no {error.name} "
                "(install lakefold[ingest] and pylance there, in the driver's releases, or have "
                "PYSPARK_PYTHON name a Python that has them)",
                name=error.name,
            ) from error
        made = kind.__new__(kind)
        vars(made).update(state)
        return made

    return load


class VersionReader(TaskReader, DataSourceReader):
    """Reads a version: plans its partitions on the driver, reads them in tasks."""

    def __init__(self, given: Given, pinned: Pinned, target: pa.Schema) -> None:
        self._cut = cut_of(given)
        self._pinned = pinned
        self._target = target
        self._rows = rows_of(pinned, target, None)

    def partitions(self) -> Sequence[InputPartition]:
        """Returns the pieces of the version, with neighbours in one partition."""
        return _partitions(pieces(self._pinned, self._cut))


class FilteringReader(VersionReader):
    """Reads the rows of a version for which the filters of a query hold."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 - Spark's name
        """Takes the filters that Lance answers as Spark would. Returns the others."""
        if not self._pinned.answers_filters:
            return filters
        pushed = push(filters, unchanged(self._pinned.schema.arrow, self._target))
        self._rows = rows_of(self._pinned, self._target, pushed.where)
        return pushed.left


class ChangesReader(TaskReader, DataSourceReader):
    """Reads the change feed of some versions."""

    def __init__(self, given: Given, pinned: Pinned, target: pa.Schema) -> None:
        self._given = given
        self._pinned = pinned
        self._target = target
        self._rows = pinned.feed_rows(target, given)

    def partitions(self) -> Sequence[InputPartition]:
        """Returns the parts of the feed, with neighbours in one partition."""
        return _partitions(planned_changes(self._pinned, self._given))


class TableStreamReader(TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a table for a streaming query."""

    def __init__(self, given: Given, pinned: Pinned, target: pa.Schema) -> None:
        self._given = given
        self._pinned = pinned
        self._target = target
        self._rows: FeedRows = pinned.feed_rows(target, given)
        self._stream: Stream | None = None
        self._last: Offset | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Returns the offset at which a new query begins."""
        self._last = self._following().initial()
        return self._last.json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Says that there are limits; `latestOffset` knows them."""
        return ReadMaxFiles(limit_of(self._given).versions or 1)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Returns the offset at which the next batch ends.

        Spark before 4.2 passes neither where it begins nor how much it may take: then it begins where the
        last batch ended. Right after a restart that is not known, and the batch goes to the newest version.
        """
        following = self._following()
        is_before_4_2 = start is None and limit is None
        begun = self._last if is_before_4_2 else Offset.of(start)
        everything = begun is None or (limit is not None and isinstance(limit, ReadAllAvailable))
        if begun is None:
            begun = following.newest()
        self._last = following.latest(begun, Limit() if everything else limit_of(self._given))
        return self._last.json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Has the query end at the version that is the newest now."""
        self._following().end_here()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Returns what the tasks of a batch read. The same offsets always give the same result."""
        self._last = Offset.of(end)
        return [InputPartition(task) for task in self._following().plan(Offset.of(start), self._last)]

    def commit(self, end: dict[str, Any]) -> None:
        """Is called after Spark has processed all up to this offset and has recorded that."""
        self._following().committed(Offset.of(end))

    def stop(self) -> None:
        """Ends the query."""
        if self._stream is not None:
            self._stream.close()

    def _following(self) -> Stream:
        """Returns the stream, which is made when it is first needed: never in a task."""
        if self._stream is None:
            names = self._rows.columns.names
            self._stream = Stream(self._given, self._pinned, names, cut_of(self._given))
        return self._stream


def _target(schema: StructType) -> pa.Schema:
    return arrow_schema(json.loads(schema.json()))


def _partitions(planned: Sequence[Any]) -> list[InputPartition]:
    """Returns the partitions. Spark accepts an empty list only for a query that it planned itself."""
    return [InputPartition(piece) for piece in planned] or [InputPartition(())]

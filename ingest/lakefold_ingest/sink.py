"""The Spark end of the sink: a function for `foreachBatch` that has executors write the rows of a batch.

Rows never come to the driver: each task turns its Arrow batches into files and returns what it wrote, some
hundred bytes a file. The driver makes one proposal of them (see `batch`).
"""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakefold_ingest.batch import put_batch
from lakefold_ingest.fragments import write_fragments
from lakefold_ingest.proposals import check_key
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from lakefold_ingest.batch import Settings
    from lakefold_ingest.fragments import Target

_QUERY_ID = "sql.streaming.queryId"
_RESULT = "fragment binary, fault string"


@dataclass(frozen=True, slots=True)
class Sink:
    """A function for `DataStreamWriter.foreachBatch`. It holds plain values only and connects when called.

    Without an `app_id` the streaming query's id serves. Raises `InvalidError` where it can't be one.
    """

    settings: Settings
    app_id: str | None = None

    def __post_init__(self) -> None:
        if self.app_id is not None:
            check_key(self.app_id, 0)

    def __call__(self, frame: DataFrame, batch_id: int) -> Any:  # noqa: ANN401 - pyspark's type says None
        """Put the rows of one batch into the table; returns its outcome, which is logged too.

        Returns a `Result` or None, and raises, as `lakefold_ingest.batch.put_batch` does. Spark drops what is
        returned; within a `foreachBatch` function of one's own it can be looked at.
        """
        query_id: str = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID) or ""
        app_id = self.app_id or _checked_app_id(query_id)
        schema, write = _arrow_schema(frame), partial(_write, frame)
        return put_batch(self.settings, app_id, batch_id, schema, write, in_order=bool(query_id))


def _checked_app_id(query_id: str) -> str:
    """Returns the id of the query that runs this batch. Raises `InvalidError` if it is empty."""
    if not query_id:
        raise InvalidError(
            "there is no streaming query whose id could tell this writer from others",
            where="app_id",
            hint="give the sink an app_id that stays the same when the job is run again",
        )
    return query_id


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    """The Arrow schema of the frame's rows: nullability as Spark says, instants in UTC.

    Raises `InvalidError` naming the columns that have no Arrow type.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    # Spark 4.0 and 4.1 take no time zone and mean UTC.
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    convert = partial(to_arrow_schema, timezone="UTC") if takes_zone else to_arrow_schema
    columns, faults = [], []
    for field in frame.schema:
        try:
            columns += convert(StructType([field]))
        except PySparkException as error:
            faults.append(f"{field.name} ({field.dataType.simpleString()}): {error}")
    if faults:
        reason = f"these columns can't be handed over as Arrow: {'; '.join(faults)}"
        raise InvalidError(reason, hint="cast them, or leave them out")
    return pa.schema(columns)


def _write(frame: DataFrame, target: Target) -> list[DataFragment]:
    """Have the executors write the frame's rows; the fragments come in the order of its partitions."""
    rows = frame.mapInArrow(partial(_write_task, target), _RESULT).collect()
    for row in rows:
        if row.fault is not None:
            message, where, hint = json.loads(row.fault)
            raise InvalidError(message, where=where, hint=hint)
    return [DataFragment.FromString(bytes(row.fragment)) for row in rows]


def _write_task(target: Target, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task: the fragments it wrote, encoded.

    Rows that don't fit are an answer, not a failure: Spark would run the task again, and then tell the
    driver in a text of many lines.
    """
    try:
        written = [one.SerializeToString() for one in write_fragments(target, batches)]
        yield _rows(written, [None] * len(written))
    except InvalidError as error:
        yield _rows([None], [json.dumps([error.message, error.where, error.hint])])


def _rows(fragments: list[bytes] | list[None], faults: list[str] | list[None]) -> pa.RecordBatch:
    columns = {"fragment": pa.array(fragments, pa.binary()), "fault": pa.array(faults, pa.string())}
    return pa.record_batch(columns)

"""The function for `foreachBatch`: the executors write the rows of a batch, the driver proposes their files.

Rows never reach the driver: each task writes its Arrow batches as files and returns their descriptions, some
hundred bytes a file. The driver makes one proposal of them (see `writing.batch`).
"""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.proposals.key import Key, check_app_id
from lakefold_ingest.rows.fragments import write_fragments
from lakefold_ingest.writing.batch import put_batch
from lakefold_protos.lance.table_pb2 import DataFragment
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from lakefold_ingest.rows.fragments import Target
    from lakefold_ingest.writing.settings import WriteSettings

_QUERY_ID = "sql.streaming.queryId"
_RESULT = "fragment binary, fault string"


@dataclass(frozen=True, slots=True)
class Sink:
    """A function for `DataStreamWriter.foreachBatch`. It holds plain values only and connects when called.

    If it has no `app_id`, the streaming query's id is used. Raises `InvalidError` if `app_id` can't be one.
    """

    settings: WriteSettings
    app_id: str | None = None

    def __post_init__(self) -> None:
        if self.app_id is not None:
            check_app_id(self.app_id)

    def __call__(self, frame: DataFrame, batch_id: int) -> Any:  # noqa: ANN401 - pyspark's type says None
        """Appends the rows of one batch to the table. Returns its outcome, or None if that is not known.

        Raises as `lakefold_ingest.writing.batch.put_batch` does. Spark ignores the returned value; a
        `foreachBatch` function that calls this one may use it.
        """
        query_id: str = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID) or ""
        key = Key(self.app_id or _checked_app_id(query_id), batch_id)
        operation = AppendRows(_arrow_schema(frame), partial(_write, frame))
        return put_batch(self.settings, key, operation, in_order=bool(query_id)).result


def _checked_app_id(query_id: str) -> str:
    """Returns the id of the query that runs this batch. Raises `InvalidError` if it is empty."""
    if not query_id:
        raise InvalidError(
            "no streaming query runs this batch, so its id can't identify the writer",
            where="app_id",
            hint="give the sink an app_id that stays the same when the job is run again",
        )
    return query_id


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    """Returns the Arrow schema of the frame's rows: nullability as in Spark, instants in UTC.

    Raises `InvalidError` naming the columns that have no Arrow type.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    # In Spark 4.0 and 4.1 the function has no parameter for the time zone and uses UTC.
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    convert = partial(to_arrow_schema, timezone="UTC") if takes_zone else to_arrow_schema
    columns, faults = [], []
    for field in frame.schema:
        try:
            columns += convert(StructType([field]))
        except PySparkException as error:
            faults.append(f"{field.name} ({field.dataType.simpleString()}): {error}")
    if faults:
        reason = f"these columns can't be converted to Arrow: {'; '.join(faults)}"
        raise InvalidError(reason, hint="cast them, or leave them out")
    return pa.schema(columns)


def _write(frame: DataFrame, target: Target) -> list[DataFragment]:
    """Has the executors write the frame's rows.

    Returns the fragments in the order of the frame's partitions.
    """
    rows = frame.mapInArrow(partial(_write_task, target), _RESULT).collect()
    for row in rows:
        if row.fault is not None:
            message, where, hint = json.loads(row.fault)
            raise InvalidError(message, where=where, hint=hint)
    return [DataFragment.FromString(bytes(row.fragment)) for row in rows]


def _write_task(target: Target, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes the rows of one task and returns its fragments, encoded.

    Rows that don't fit are returned as a fault, not raised: Spark would run the task again, and then report a
    text of many lines to the driver.
    """
    try:
        written = [fragment.SerializeToString() for fragment in write_fragments(target, batches)]
        yield _rows(written, [None] * len(written))
    except InvalidError as error:
        yield _rows([None], [json.dumps([error.message, error.where, error.hint])])


def _rows(fragments: list[bytes] | list[None], faults: list[str] | list[None]) -> pa.RecordBatch:
    columns = {"fragment": pa.array(fragments, pa.binary()), "fault": pa.array(faults, pa.string())}
    return pa.record_batch(columns)

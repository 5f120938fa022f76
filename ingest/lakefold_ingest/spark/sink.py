"""The function for `foreachBatch`: the executors write the rows of a batch, the driver proposes their files.

Rows never reach the driver: each task writes its Arrow batches as files and returns their descriptions, some
hundred bytes a file. The driver makes one proposal of them (see `writing.batch`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.proposals.key import Key, check_app_id
from lakefold_ingest.rows.task_files import TaskFiles, collect_fragments, write_task
from lakefold_ingest.spark.arrow_schema import arrow_schema_of
from lakefold_ingest.writing.batch import put_batch
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from lakefold_ingest.rows.fragments import Target
    from lakefold_ingest.writing.report import BatchReport
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lance.table_pb2 import DataFragment

_QUERY_ID = "sql.streaming.queryId"
_RESULT = "fragments array<binary>, fault array<string>, seconds double, misfits bigint"
_ARROW_RESULT = pa.schema(
    {
        "fragments": pa.list_(pa.binary()),
        "fault": pa.list_(pa.string()),
        "seconds": pa.float64(),
        "misfits": pa.int64(),
    }
)


@dataclass(frozen=True, slots=True)
class Sink:
    """A function for `DataStreamWriter.foreachBatch`. It holds plain values only and connects when called.

    If it has no `app_id`, the streaming query's id is used. `on_report` is called with the report of each
    batch. Raises `InvalidError` if `app_id` can't be one.
    """

    settings: WriteSettings
    app_id: str | None = None
    on_report: Callable[[BatchReport], object] | None = None

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
        operation = AppendRows(arrow_schema_of(frame.schema), partial(_write, frame), count=frame.count)
        report = put_batch(self.settings, key, operation, in_order=bool(query_id))
        if self.on_report is not None:
            self.on_report(report)
        return report.result


def _checked_app_id(query_id: str) -> str:
    """Returns the id of the query that runs this batch. Raises `InvalidError` if it is empty."""
    if not query_id:
        raise InvalidError(
            "no streaming query runs this batch, so its id can't identify the writer",
            where="app_id",
            hint="give the sink an app_id that stays the same when the job is run again",
        )
    return query_id


def _write(frame: DataFrame, target: Target) -> list[DataFragment]:
    """Has the executors write the frame's rows.

    Returns the fragments in the order of the frame's partitions. Raises as `collect_fragments`.
    """
    rows = frame.mapInArrow(partial(_write_task, target), _RESULT).collect()
    tasks = [
        TaskFiles(
            tuple(bytes(fragment) for fragment in row.fragments),
            None if row.fault is None else tuple(row.fault),
            row.seconds,
            row.misfits,
        )
        for row in rows
    ]
    return collect_fragments(target, tasks)


def _write_task(target: Target, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes the rows of one task. Yields one row that says what it wrote."""
    yield pa.RecordBatch.from_pylist([asdict(write_task(target, batches))], schema=_ARROW_RESULT)

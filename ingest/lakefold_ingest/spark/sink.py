"""The function for `foreachBatch`: the executors write the rows of a batch, the driver proposes their files.

Rows that are appended never reach the driver: each task writes its Arrow batches as files and returns their
descriptions, some hundred bytes a file. The driver makes one proposal of them (see `writing.batch`). The rows
of an upsert or a delete, and change events, are collected by the driver, which finds their keys in the table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa

from lakefold_ingest.cdc.change_format import ChangeFormat, change_format
from lakefold_ingest.merge.modes import merge_of
from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.upsert import UpsertRows, check_waits
from lakefold_ingest.proposals.key import Key, check_app_id
from lakefold_ingest.rows.task_files import TaskFiles, bad_rows_of, collect_fragments, write_task
from lakefold_ingest.spark.arrow_schema import arrow_schema_of
from lakefold_ingest.writing.batch import put_batch
from lakefold_table.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame

    from lakefold_ingest.merge.clauses import Clause, Merge
    from lakefold_ingest.rows.fragments import Target
    from lakefold_ingest.writing.operation import Operation
    from lakefold_ingest.writing.report import BatchReport
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_protos.lance.table_pb2 import DataFragment

SinkMode = Literal["append", "upsert", "delete", "cdc"]
_QUERY_ID = "sql.streaming.queryId"
_RESULT = "fragments array<binary>, fault array<string>, seconds double, misfits bigint, bad_rows binary"
_ARROW_RESULT = pa.schema(
    {
        "fragments": pa.list_(pa.binary()),
        "fault": pa.list_(pa.string()),
        "seconds": pa.float64(),
        "misfits": pa.int64(),
        "bad_rows": pa.binary(),
    }
)


@dataclass(frozen=True, slots=True)
class Sink:
    """A function for `DataStreamWriter.foreachBatch`. It holds plain values only and connects when called.

    If it has no `app_id`, the streaming query's id is used. `on_report` is called with the report of each
    batch. `merge` says what is done with the rows, or how they say it themselves; None: they are appended.
    Raises `InvalidError` if `app_id` can't be one, or a merge would not be awaited.
    """

    settings: WriteSettings
    app_id: str | None = None
    on_report: Callable[[BatchReport], object] | None = None
    merge: Merge | ChangeFormat | None = None

    def __post_init__(self) -> None:
        if self.app_id is not None:
            check_app_id(self.app_id)
        if self.merge is not None:
            check_waits(self.settings)

    def __call__(self, frame: DataFrame, batch_id: int) -> Any:  # noqa: ANN401 - pyspark's type says None
        """Applies the rows of a batch to the table. Returns its outcome, or None if that is not known.

        Raises as `lakefold_ingest.writing.batch.put_batch` does. Spark ignores the returned value; a
        `foreachBatch` function that calls it may use it.
        """
        query_id: str = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID) or ""
        key = Key(self.app_id or _checked_app_id(query_id), batch_id)
        report = put_batch(self.settings, key, self._operation(frame), in_order=bool(query_id))
        if self.on_report is not None:
            self.on_report(report)
        return report.result

    def _operation(self, frame: DataFrame) -> Operation:
        schema = arrow_schema_of(frame.schema)
        if self.merge is None:
            bad_rows: list[pa.Table] = []
            # How many rows fit is known once they are written.
            count = None if self.settings.bad_records else frame.count
            return AppendRows(schema, partial(_write, frame, bad_rows), count=count, bad_rows=bad_rows)
        if isinstance(self.merge, ChangeFormat):
            return ApplyChanges(frame.toArrow().cast(schema), self.merge)
        if self.merge.needs_one_row:
            return UpsertRows(frame.toArrow().cast(schema), self.merge)
        self.merge.check_columns(frame.columns, frame.columns, self.settings.table)
        keys = frame.select(*self.merge.keys)
        return UpsertRows(keys.toArrow().cast(arrow_schema_of(keys.schema)), self.merge)


def sink_merge(
    write_mode: SinkMode,
    keys: str | Iterable[str] | None,
    order_by: str | Iterable[str] | None,
    clauses: Iterable[Clause] | None,
    changes: Mapping[str, Any],
) -> Merge | ChangeFormat | None:
    """Returns what a sink does with the rows of a batch; None if it appends them.

    `changes`: the parameters `operation_column`, `operations` and `envelope`. Raises `InvalidError` if the
    mode is unknown, or something is given that it has no use for.
    """
    if write_mode not in get_args(SinkMode):
        hint = f"give one of {', '.join(get_args(SinkMode))}"
        raise InvalidError(f"there is no write mode {write_mode!r}", where="write_mode", hint=hint)
    given = [name for name, value in changes.items() if value]
    if given and write_mode != "cdc":
        hint = 'give write_mode="cdc", or leave it out'
        raise InvalidError(f"it has no meaning in the mode {write_mode}", where=given[0], hint=hint)
    if write_mode == "cdc":
        if clauses:
            message = "change events say themselves what happens to which row"
            raise InvalidError(message, where="clauses", hint="leave them out")
        return change_format(keys, order_by, **changes)
    if write_mode != "append":
        return merge_of(write_mode, keys, order_by, clauses or ())
    if keys or order_by or clauses:
        hint = 'give write_mode="upsert", or leave keys, order_by and clauses out'
        raise InvalidError("rows that are appended need no keys", where="write_mode", hint=hint)
    return None


def _checked_app_id(query_id: str) -> str:
    """Returns the id of the query that runs this batch. Raises `InvalidError` if it is empty."""
    if not query_id:
        raise InvalidError(
            "no streaming query runs this batch, so its id can't identify the writer",
            where="app_id",
            hint="give the sink an app_id that stays the same when the job is run again",
        )
    return query_id


def _write(frame: DataFrame, bad_rows: list[pa.Table], target: Target) -> list[DataFragment]:
    """Has the executors write the frame's rows.

    Returns the fragments in the order of the frame's partitions, and puts rows that don't fit into `bad_rows`
    if the target keeps them. Raises as `collect_fragments`.
    """
    rows = frame.mapInArrow(partial(_write_task, target), _RESULT).collect()
    tasks = [
        TaskFiles(
            tuple(bytes(fragment) for fragment in row.fragments),
            None if row.fault is None else tuple(row.fault),
            row.seconds,
            row.misfits,
            bytes(row.bad_rows),
        )
        for row in rows
    ]
    fragments = collect_fragments(target, tasks)
    bad_rows[:] = [bad_rows_of(tasks)]
    return fragments


def _write_task(target: Target, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes the rows of a task. Yields one row that says what it wrote."""
    yield pa.RecordBatch.from_pylist([asdict(write_task(target, batches))], schema=_ARROW_RESULT)

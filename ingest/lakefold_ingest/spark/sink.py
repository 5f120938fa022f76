"""The function for `foreachBatch`: the executors write the rows of a batch, the driver proposes their files.

Each task writes its Arrow batches as files and returns their descriptions, some hundred bytes a file. The
driver makes one proposal of them (see `writing.batch`). The rows of an upsert or a delete, and change events,
are partitioned by their keys, and each task finds its keys in the table. If a batch is so small that one task
is enough, the driver does all this itself, without a task that runs Python (`small_batches`). If a merge has
clauses for rows that the batch lacks, the tasks stage the rows and the driver merges them in parts.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa

from lakefold_ingest.cdc.change_format import ChangeFormat, change_format
from lakefold_ingest.merge.modes import merge_of
from lakefold_ingest.operations.append import AppendRows
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.upsert import UpsertRows, check_waits
from lakefold_ingest.proposals.key import APP_ID, Key, check_app_id
from lakefold_ingest.rows.fitting import with_types
from lakefold_ingest.rows.source_columns import own_columns
from lakefold_ingest.rows.task_files import TaskFiles, bad_rows_of, collect_files, write_task
from lakefold_ingest.spark.arrow_schema import arrow_schema_of, spark_schema_of
from lakefold_ingest.spark.batch_metrics import MetricsAddress, failures_noted, note_batch, serve
from lakefold_ingest.spark.executors import check_executors
from lakefold_ingest.spark.file_layout import FileLayout, kept, laid_out
from lakefold_ingest.spark.keyed_plan import plan_merge
from lakefold_ingest.spark.keyed_tasks import in_tasks, staged
from lakefold_ingest.spark.query_runs import DESCRIPTION, QUERY_ID, RUN_ID, begin_batch
from lakefold_ingest.spark.small_batches import (
    MOST_ROWS,
    BatchSize,
    counted,
    recent_sizes,
    rows_if_small,
    sum_of,
)
from lakefold_ingest.writing.batch import put_batch, wait_for_outcomes
from lakefold_ingest.writing.sending_query import Sender
from lakefold_reader.spark.garbage import spare_imports
from lakefold_table.errors import InvalidError, LakefoldError, OptionName, shown_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark import SparkContext
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from lakefold_ingest.merge.clauses import Clause, Merge
    from lakefold_ingest.operations.keyed_parts import KeyedOperation
    from lakefold_ingest.rows.target import Target, WrittenFile
    from lakefold_ingest.spark.small_batches import RecentSizes
    from lakefold_ingest.writing.operation import Operation
    from lakefold_ingest.writing.report import BatchReport
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_table.entry import Committed, Duplicate

LOGGER = logging.getLogger("lakefold")
SinkMode = Literal["append", "upsert", "delete", "cdc"]
ROWS_A_TASK = MOST_ROWS
"""The most rows that one task merges, or events that it applies; each task reads the table's key columns."""
_WRITTEN = pa.schema(
    {
        "fragments": pa.list_(pa.binary()),
        "fault": pa.list_(pa.string()),
        "seconds": pa.float64(),
        "misfits": pa.int64(),
        "bad_rows": pa.binary(),
        "rows": pa.int64(),
        "bytes": pa.int64(),
    }
)


@dataclass(frozen=True, slots=True)
class Sink:
    """A function for `DataStreamWriter.foreachBatch`. It holds plain values only and connects when called.

    If it has no `app_id`, the streaming query's id is used. `on_report` is called with the report of each
    batch. `merge` says what is done with the rows, or how they say it themselves; None: they are appended, in
    files as `layout` says. `metrics`: where the driver serves the sums over its batches. Raises
    `InvalidError` if `app_id` can't be one, or a merge would not be awaited or has a layout.
    """

    settings: WriteSettings
    app_id: str | None = None
    on_report: Callable[[BatchReport], object] | None = None
    merge: Merge | ChangeFormat | None = None
    layout: FileLayout = field(default_factory=FileLayout)
    metrics: MetricsAddress | None = None

    def __post_init__(self) -> None:
        if self.app_id is not None:
            check_app_id(self.app_id)
        if self.merge is not None:
            check_waits(self.settings)
            if self.layout != FileLayout():
                hint = "leave them out: the rows of other modes are partitioned by their keys"
                where = "target_rows_per_file, target_file_size, sort_by, driver_rows"
                raise InvalidError("they are for rows that are appended", where=where, hint=hint)

    def __call__(self, frame: DataFrame, batch_id: int) -> Any:  # noqa: ANN401 - pyspark's type says None
        """Applies the rows of a batch to the table. Returns its outcome, or None if that is not known.

        Raises as `lakefold_ingest.writing.batch.put_batch` does. Spark ignores the returned value; a
        `foreachBatch` function that calls it may use it.
        """
        try:
            return self._put(frame, batch_id)
        except LakefoldError as error:
            # Spark prints an error three times, each time with its causes and their stacks.
            LOGGER.debug("batch %s failed", batch_id, exc_info=True)
            raise error.with_traceback(None) from None

    def _put(self, frame: DataFrame, batch_id: int) -> Committed | Duplicate | None:
        """Applies the rows of a batch to the table. Returns and raises as `__call__` does."""
        if self.metrics is not None:
            serve(self.metrics)
        context = _context_of(frame)
        query_id: str = context.getLocalProperty(QUERY_ID) or ""
        key = Key(self.app_id or _checked_app_id(query_id), batch_id)
        run_id = context.getLocalProperty(RUN_ID) if query_id else None
        with failures_noted(self.settings.table, key.app_id):
            name = _query_name(context.getLocalProperty(DESCRIPTION) or "") if query_id else ""
            sender = Sender(bool(query_id), query_id=query_id, query_name=name)
            plan = frame.semanticHash(), self.merge
            batch = begin_batch(run_id, key, self.settings, sender, plan=plan)
            check_executors(frame.sparkSession, self.settings, merges=self.merge is not None)
            with self._operation(frame, key) as operation:
                report = put_batch(self.settings, key, operation, batch.sender)
        note_batch(self.settings.table, key, run_id, report)
        recent_sizes(self.settings.table, key.app_id).note_files(report.figures.rows, report.figures.bytes)
        if self.on_report is not None:
            self.on_report(report)
        batch.check(report)
        return report.result

    def wait_for_outcomes(self, query: StreamingQuery) -> None:
        """Waits for the outcomes of the batches that a query has sent with `wait="log"`, after its end.

        Raises `RefusedError` if one was refused (unless `on_refused` is "warn"), `RetryError` if one has no
        outcome within the timeout, `InvalidError` if this user may not read outcomes.
        """
        wait_for_outcomes(self.settings, self.app_id or str(query.id))

    @contextmanager
    def _operation(self, frame: DataFrame, key: Key) -> Iterator[Operation]:
        merge = self.merge
        if merge is None:
            given, bad_rows = arrow_schema_of(frame.schema), list[pa.Table]()
            schema = own_columns(given, self.settings.bad_records_columns)
            # How many rows fit is known once they are written.
            count = None if self.settings.bad_records else frame.count
            write = partial(
                _write, frame, self.layout, recent_sizes(self.settings.table, key.app_id), bad_rows
            )
            yield AppendRows(schema, write, count=count, bad_rows=bad_rows, given=given)
        else:
            with self._merging(frame, merge, key) as operation:
                yield operation

    @contextmanager
    def _merging(self, frame: DataFrame, merge: Merge | ChangeFormat, key: Key) -> Iterator[Operation]:
        if not isinstance(merge, ChangeFormat):
            if not merge.needs_one_row or not merge.by_source:
                given = frame.columns
                merge.check_columns(given, [*given, *merge.assigned], self.settings.table)
            if not merge.needs_one_row:
                frame = frame.select(*merge.keys, *self.settings.bad_records_columns)
            if merge.by_source:
                plan = plan_merge(self.settings, merge, arrow_schema_of(frame.schema), key)
                with staged(frame, plan) as operation:
                    yield operation
                return
        recent, schema = recent_sizes(self.settings.table, key.app_id), arrow_schema_of(frame.schema)
        operation_of = partial(_operation, merge=merge, source=self.settings.bad_records_columns)
        rows = rows_if_small(frame, recent, ROWS_A_TASK)
        if rows is not None:
            yield operation_of(with_types(rows, schema))
            return
        with kept(frame):
            count = frame.count()
            tasks = min(-(-count // ROWS_A_TASK), frame.sparkSession.sparkContext.defaultParallelism)
            if tasks > 1:
                recent.note(BatchSize(count))
                yield in_tasks(frame, operation_of, tasks)
            else:
                rows = frame.toArrow()
                recent.note(BatchSize(count, rows.nbytes))
                yield operation_of(with_types(rows, schema))


def sink_merge(
    write_mode: SinkMode,
    keys: str | Iterable[str] | None,
    order_by: str | Iterable[str] | None,
    clauses: Iterable[Clause] | None,
    changes: Mapping[str, Any],
) -> Merge | ChangeFormat | None:
    """Returns what a sink does with the rows of a batch; None if it appends them.

    `changes`: the parameters `operation_column`, `operations`, `envelope` and `debezium_types`. Raises
    `InvalidError` if the mode is unknown, or something is given that it has no use for.
    """
    if write_mode not in get_args(SinkMode):
        hint = f"give one of {', '.join(get_args(SinkMode))}"
        raise InvalidError(
            f"there is no write mode {write_mode!r}", where=OptionName("write_mode"), hint=hint
        )
    given = [name for name, value in changes.items() if value]
    if given and write_mode != "cdc":
        hint = 'give write_mode="cdc", or leave it out'
        raise InvalidError(f"it has no meaning in the mode {write_mode}", where=given[0], hint=hint)
    if write_mode == "cdc":
        if clauses:
            message = "change events say themselves what happens to which row"
            raise InvalidError(message, where=OptionName("clauses"), hint="leave them out")
        return change_format(keys, order_by, **changes)
    if write_mode != "append":
        return merge_of(write_mode, keys, order_by, clauses)
    if keys or order_by or clauses:
        hint = 'give write_mode="upsert", or leave keys, order_by and clauses out'
        raise InvalidError("rows that are appended need no keys", where=OptionName("write_mode"), hint=hint)
    return None


def _context_of(frame: DataFrame) -> SparkContext:
    """Returns the frame's context. Raises `InvalidError` if the frame is one of Spark Connect."""
    try:
        return frame.sparkSession.sparkContext
    except AttributeError as error:
        raise InvalidError(
            "sink needs the process of Spark's driver, which a session of Spark Connect doesn't have",
            where="foreachBatch",
            hint='use writeStream.format("lakefold") or write.format("lakefold")',
        ) from error


def _query_name(description: str) -> str:
    """Returns the name of the streaming query whose batch has this description, empty if it has no name.

    Spark describes the jobs of a batch in lines: the name, which may be empty, and `id = ...` after it.
    """
    name, separator, _ = description.partition("\nid = ")
    return name.strip() if separator else ""


def _checked_app_id(query_id: str) -> str:
    """Returns the id of the query that runs this batch. Raises `InvalidError` if it is empty."""
    if not query_id:
        raise InvalidError(
            "no streaming query runs this batch, so its id can't identify the writer",
            where=APP_ID,
            hint=("give the sink an ", APP_ID, " that stays the same when the job is run again"),
        )
    return query_id


def _operation(rows: pa.Table, merge: Merge | ChangeFormat, source: tuple[str, ...]) -> KeyedOperation:
    if isinstance(merge, ChangeFormat):
        return ApplyChanges(rows, merge, source=source)
    return UpsertRows(rows, merge, source=source)


def _write(
    frame: DataFrame, layout: FileLayout, recent: RecentSizes, bad_rows: list[pa.Table], target: Target
) -> list[WrittenFile]:
    """Has the frame's rows written, by the driver if they are few, else by the executors.

    Returns the files in the order of the frame's partitions, and puts rows that don't fit into `bad_rows`
    if the target keeps them. Raises as `collect_files`.
    """
    rows = rows_if_small(frame, recent, layout.most_on_driver)
    tasks = (
        _in_tasks(frame, layout, recent, target) if rows is None else [write_task(target, rows.to_batches())]
    )
    files = collect_files(target, tasks)
    bad_rows[:] = [bad_rows_of(tasks)]
    return files


def _in_tasks(frame: DataFrame, layout: FileLayout, recent: RecentSizes, target: Target) -> list[TaskFiles]:
    """Has the executors write the frame's rows. Returns what each task wrote."""
    with laid_out(frame, layout.rows_a_file(recent.file_bytes_a_row()), layout.sort_by) as parts:
        rows = parts.mapInArrow(partial(_write_task, target), spark_schema_of(_WRITTEN)).collect()
    recent.note(sum_of(BatchSize(row.rows, row.bytes) for row in rows))
    return [
        TaskFiles(
            tuple(bytes(fragment) for fragment in row.fragments),
            None if row.fault is None else tuple(row.fault),
            row.seconds,
            row.misfits,
            bytes(row.bad_rows),
        )
        for row in rows
    ]


def _write_task(target: Target, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes the rows of a task. Yields one row that says what it wrote."""
    sizes: list[BatchSize] = []
    task = write_task(target, counted(batches, sizes))
    spare_imports()
    written = asdict(task) | asdict(sum_of(sizes)) | {"fault": task.fault and shown_texts(task.fault)}
    yield pa.RecordBatch.from_pylist([written], schema=_WRITTEN)

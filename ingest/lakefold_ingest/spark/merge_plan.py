"""What a write of Spark's that finds rows by their keys does in its tasks and on the driver.

A task sends its rows to the driver, as Arrow's bytes, since which rows of the table change is decided for the
whole batch. So a batch must fit into the driver's memory; Spark's `spark.driver.maxResultSize` limits it.
Nothing here knows Spark.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_ingest.merge.merge_batch import merge_batch
from lakefold_ingest.operations.upsert import UpsertRows, check_waits
from lakefold_ingest.writing.batch import put_batch
from lakefold_ingest.writing.evolution import with_columns_of
from lakefold_ingest.writing.log_client import open_client
from lakefold_ingest.writing.view import read_view

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_ingest.merge.clauses import Merge
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.spark.change_plan import ChangePlan
    from lakefold_ingest.writing.report import BatchReport
    from lakefold_ingest.writing.settings import WriteSettings

_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class TaskRows:
    """The rows of one task: an Arrow stream. `seconds`: how long it took."""

    stream: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class MergePlan:
    """How a batch is merged, decided before its tasks. `schema`: the columns that the tasks send."""

    settings: WriteSettings
    merge: Merge
    schema: pa.Schema

    def operation(self, rows: pa.Table) -> UpsertRows:
        """Returns what merges the rows of all tasks."""
        return UpsertRows(rows, self.merge)


def plan_merge(settings: WriteSettings, merge: Merge, schema: pa.Schema) -> MergePlan:
    """Returns how rows with this schema are merged into the table.

    Raises `InvalidError` if the rows don't fit the table, or the outcome would not be awaited.
    """
    check_waits(settings)
    view = read_view(settings.table, settings.storage_options)
    added = UpsertRows(schema.empty_table(), merge).batch_columns if settings.merge_schema else None
    if view is not None and added is not None:
        view = with_columns_of(
            view, added, settings, open_client(settings.kafka, settings.topics, settings.timeout_s)
        )
    merge.check_columns(schema.names, schema.names if view is None else view.schema.names, settings.table)
    if not merge.needs_one_row:
        schema = pa.schema([schema.field(name) for name in merge.keys])
    if view is not None:
        merge_batch(schema.empty_table(), merge, view.schema, view.uri)
    return MergePlan(settings, merge, schema)


def pack_rows(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> TaskRows:
    """Returns the rows of one task, in the columns of this schema."""
    start, sink = time.perf_counter(), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_COMPRESSED) as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_batches([batch]).select(schema.names).cast(schema))
    return TaskRows(sink.getvalue().to_pybytes(), time.perf_counter() - start)


def _rows_of(schema: pa.Schema, tasks: Sequence[TaskRows]) -> pa.Table:
    """Returns the rows of all tasks, in their order."""
    return pa.concat_tables(
        [schema.empty_table(), *(pa.ipc.open_stream(task.stream).read_all() for task in tasks)]
    )


def commit_rows(
    plan: MergePlan | ChangePlan, key: Key, tasks: Sequence[TaskRows], *, in_order: bool = False
) -> BatchReport:
    """Merges the rows or applies the events of all tasks as one batch. Raises as `put_batch` does."""
    write_s = max((task.seconds for task in tasks), default=0.0)
    operation = plan.operation(_rows_of(plan.schema, tasks))
    return put_batch(plan.settings, key, operation, in_order=in_order, write_s=write_s)

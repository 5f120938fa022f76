"""What a write of Spark's that finds rows by their keys does in its tasks and on the driver.

Which row of a key counts is decided for the whole batch, so the tasks stage their rows (`rows.staged_rows`)
and the driver merges them, in parts if they are many. The parts are merged into the version that the batch is
built on, again for another version if it is refused. Only what the tasks sent that Spark counts is read, so
the rows of a repeated or speculative attempt are merged once. Nothing here knows Spark.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakefold_ingest.formats import read_view
from lakefold_ingest.merge.key_numbers import key_numbers, key_types
from lakefold_ingest.merge.read_version import stored_schema
from lakefold_ingest.operations.apply_changes import ApplyChanges
from lakefold_ingest.operations.keyed_parts import KeyedParts
from lakefold_ingest.operations.upsert import UpsertRows, check_waits
from lakefold_ingest.rows.source_columns import own_columns
from lakefold_ingest.rows.staged_rows import RowStage, StagedRows, TaskRows
from lakefold_ingest.writing.batch import open_or_create, put_batch
from lakefold_ingest.writing.evolution import with_columns_of
from lakefold_ingest.writing.log_client import open_client
from lakefold_ingest.writing.sending_query import ANYBODY, Sender
from lakefold_table.errors import InvalidError, RetryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from lakefold_ingest.cdc.change_format import ChangeFormat
    from lakefold_ingest.merge.clauses import Merge
    from lakefold_ingest.operations.keyed_parts import KeyedOperation, MergedPart, MergeTask
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.divided_rows import RowKeys
    from lakefold_ingest.view import View
    from lakefold_ingest.writing.report import BatchReport
    from lakefold_ingest.writing.settings import WriteSettings


@dataclass(frozen=True, slots=True)
class KeyedPlan:
    """How a batch is merged or its events applied, decided before its tasks.

    `operation` has no rows, but the columns that the tasks stage. `table` is the table's schema, in storage
    types, with which the tasks find the keys of their rows.
    """

    settings: WriteSettings
    operation: KeyedOperation
    stage: RowStage
    table: pa.Schema

    def numbered(self, rows: pa.Table) -> tuple[RowKeys, NDArray[np.int64]]:
        """Returns the keys of these rows, and a number of each, which is the same for equal keys.

        Raises `InvalidError` if they are change events that can't be read.
        """
        keys = self.operation.with_rows(rows).row_keys(self.table)
        return keys, key_numbers(keys.keys, key_types(self.operation.key_names, self.table))

    def run(self, batches: Iterable[pa.RecordBatch], task: int = 0) -> TaskRows:
        """Stages the rows of the task with this number."""
        return self.stage.put(batches, self.numbered, task)

    def failed(self, fault: tuple[str, str, str]) -> TaskRows:
        """Returns the result of a task that can't stage rows: see `TaskRows.fault`."""
        return TaskRows(b"", (), 0, 0, 0.0, fault)

    def commit(self, key: Key, tasks: Sequence[TaskRows], sender: Sender = ANYBODY) -> BatchReport:
        """Merges the rows or applies the events of all tasks as one batch, and removes what they staged.

        Raises as `put_batch` and `merging` do.
        """
        write_s = max((task.seconds for task in tasks), default=0.0)
        with self.merging(tasks) as operation:
            return put_batch(self.settings, key, operation, sender, write_s=write_s)

    @contextmanager
    def merging(self, tasks: Sequence[TaskRows]) -> Iterator[KeyedOperation | KeyedParts]:
        """Yields what merges the rows or applies the events of all tasks, and removes what they staged.

        Raises `InvalidError` if events of a task can't be read.
        """
        try:
            fault = next((task.fault for task in tasks if task.fault is not None), None)
            if fault is not None:
                message, where, hint = fault
                raise InvalidError(message, where=where, hint=hint)
            yield self.batch_operation(tasks)
        finally:
            self.stage.remove(tasks)

    def abort(self, tasks: Sequence[TaskRows | None]) -> None:
        """Removes what the tasks of a batch staged, if one of them failed (its entry is None)."""
        if None in tasks:
            self.stage.remove(task for task in tasks if task is not None)

    def batch_operation(self, tasks: Sequence[TaskRows]) -> KeyedOperation | KeyedParts:
        """Returns what merges the rows of all tasks, in parts if they are many."""
        rows = StagedRows(self.stage, tasks)
        if rows.fits_in_memory:
            return self.operation.with_rows(rows.all())
        count = sum(task.rows for task in tasks)
        return KeyedParts(self.operation, partial(_merged, self, rows), rows=count)


def plan_merge(settings: WriteSettings, merge: Merge, schema: pa.Schema, key: Key) -> KeyedPlan:
    """Returns how rows with this schema are merged into the table, which is created if it doesn't exist.

    Raises `InvalidError` if the rows don't fit the table, or the outcome would not be awaited.
    """
    check_waits(settings)
    view = read_view(settings.table, settings.storage_options)
    source = settings.bad_records_columns
    own_columns(schema, source)
    operation = UpsertRows(schema.empty_table(), merge, source=source)
    added = operation.batch_columns if settings.merge_schema else None
    if view is not None and added is not None:
        client = open_client(settings.kafka, settings.topics, settings.timeout_s)
        view = with_columns_of(view, added, settings, client, operation.check)
    merge.check_columns(schema.names, schema.names if view is None else view.schema.names, settings.table)
    if not merge.needs_one_row:
        operation = operation.with_rows(operation.rows.select([*merge.keys, *source]))
    if view is not None:
        operation.batch(view.schema, view.uri)
    return _plan(settings, operation, view, key)


def plan_changes(settings: WriteSettings, format_: ChangeFormat, schema: pa.Schema, key: Key) -> KeyedPlan:
    """Returns how events with this schema are applied to the table, which is created if it doesn't exist.

    Raises `InvalidError` if they don't fit the table, or the outcome would not be awaited.
    """
    check_waits(settings)
    view = read_view(settings.table, settings.storage_options)
    operation = ApplyChanges(schema.empty_table(), format_, source=settings.bad_records_columns)
    if view is not None and settings.merge_schema:
        # Columns that the table lacks are added when the batch is committed.
        _ = operation.batch_columns
    elif view is not None:
        operation.check(view.schema, view.uri)
    return _plan(settings, operation, view, key)


def _plan(settings: WriteSettings, operation: KeyedOperation, view: View | None, key: Key) -> KeyedPlan:
    if view is None:
        view = open_or_create(settings, key, lambda: operation.schema, operation.check)
    stage = RowStage(view.uri, operation.rows.schema, settings.storage_options)
    return KeyedPlan(settings, operation, stage, stored_schema(view.schema))


def _merged(plan: KeyedPlan, rows: StagedRows, task: MergeTask) -> Iterator[MergedPart]:
    """Yields what became of each part, until one has a fault."""
    if task.key_types != key_types(plan.operation.key_names, plan.table):
        hint = "run the batch again: its rows are divided by the new types"
        raise RetryError(
            "the types of the key columns were changed meanwhile", where=plan.stage.uri, hint=hint
        )
    needs_all = isinstance(plan.operation, UpsertRows) and bool(plan.operation.merge.by_source)
    for buckets, part in rows.parts(plan.numbered):
        if not part.num_rows and not needs_all:
            continue
        merged = task.run(part, buckets)
        yield merged
        if merged.fault is not None:
            return

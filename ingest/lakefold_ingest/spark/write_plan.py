"""Plans a write of Spark's on the driver before its tasks, and ends it after them.

`plan_write` opens the table and decides how the tasks write (`rows.task_files`). `WritePlan.commit` writes
the rows that tasks left to it, since they had few (`rows.few_rows`), and makes one proposal of all files.
Nothing here knows Spark.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_ingest.delta.data_files import ParquetTarget
from lakefold_ingest.delta.new_table import new_table
from lakefold_ingest.delta.replacement import check_replaceable, with_other_columns
from lakefold_ingest.delta.schemas import new_fields, schema_text
from lakefold_ingest.delta.view import DeltaView
from lakefold_ingest.lance.file_types import check_types
from lakefold_ingest.lance.view import LanceView, lance_view
from lakefold_ingest.merge.conditions import RowCondition
from lakefold_ingest.merge.delta.row_condition import DeltaRowCondition
from lakefold_ingest.operations.replace import ReplaceDelta, ReplaceWhere
from lakefold_ingest.operations.written_files import AppendWritten, OverwriteWritten
from lakefold_ingest.options.write_options import WriteMode, WriteUse
from lakefold_ingest.rows.few_rows import FEW_BYTES, FewRows, FewRowsStage
from lakefold_ingest.rows.fitting import plain_field
from lakefold_ingest.rows.source_columns import from_source, own_columns
from lakefold_ingest.rows.task_files import TaskFiles, bad_rows_of, collect_files, decoded_files, write_task
from lakefold_ingest.rows.unused_files import remove_unused
from lakefold_ingest.spark.small_batches import MOST_ROWS
from lakefold_ingest.view import BatchColumns, View
from lakefold_ingest.writing.batch import open_or_create, put_batch
from lakefold_ingest.writing.evolution import with_columns_of
from lakefold_ingest.writing.log_client import open_client
from lakefold_ingest.writing.sending_query import ANYBODY, Sender
from lakefold_protos.lance.file_pb2 import Schema
from lakefold_table.delta.actions.lines import line_of
from lakefold_table.lance.schemas.arrow import schema_from_arrow, schema_to_arrow
from lakefold_table.lance.schemas.data_files import file_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.target import Target, WrittenFile
    from lakefold_ingest.spark.given_options import GivenWrite
    from lakefold_ingest.writing.report import BatchReport
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_table.delta.actions.table_actions import TableMetadata


@dataclass(frozen=True, slots=True)
class WritePlan:
    """How one batch is written, decided on the driver before its tasks.

    `read_version` is that for which the tasks write. `stage` takes the rows of tasks with few. `columns`:
    those for which they replace rows of a Lance table (an encoded `Schema`), or the schema of a Delta table;
    if `keeps_schema`, the table's own. `metadata`: the metaData action by which a Delta table gets other
    columns, empty if it keeps its own. `condition`: that of `replaceWhere`. `table_id`: see `WrittenBefore`.
    """

    settings: WriteSettings
    mode: WriteMode
    target: Target
    stage: FewRowsStage
    read_version: int
    columns: bytes = b""
    keeps_schema: bool = True
    condition: RowCondition | None = None
    metadata: bytes = b""
    table_id: str = ""

    def run(self, batches: Iterable[pa.RecordBatch], task: int = 0) -> TaskFiles | FewRows:
        """Writes the rows of the task with this number, or leaves them to `commit` if they are few."""
        return self.stage.run(batches, self._write, task)

    def _write(self, batches: Iterable[pa.RecordBatch]) -> TaskFiles:
        if self.condition is None:
            return write_task(self.target, batches)
        return write_task(self.target.fitted(), self.condition.fitted(self.target, batches))

    def failed(self, fault: tuple[str, str, str]) -> TaskFiles:
        """Returns the result of a task that can't write: see `TaskFiles.fault`."""
        return TaskFiles((), fault, 0.0)

    def commit(
        self,
        key: Key,
        tasks: Sequence[TaskFiles | FewRows],
        sender: Sender = ANYBODY,
    ) -> BatchReport:
        """Writes the rows that tasks left to it, and proposes the files of all tasks as `put_batch` does.

        Removes the files if nothing was sent. Raises as `put_batch` does, and `InvalidError` if rows don't
        fit the table.
        """
        return self._propose(key, self.with_few(tasks), sender)

    def with_few(self, tasks: Sequence[TaskFiles | FewRows]) -> list[TaskFiles]:
        """Returns what the tasks wrote, with the rows that they staged as what one more task wrote."""
        written = [task for task in tasks if isinstance(task, TaskFiles)]
        few = [task for task in tasks if isinstance(task, FewRows)]
        if not few:
            return written
        waited_s = max(task.seconds for task in tasks)
        try:
            together = self._write(self.stage.batches(few))
        except BaseException as error:
            self._remove(decoded_files(self.target, written), str(error))
            raise
        finally:
            self.stage.remove(few)
        return [*written, replace(together, seconds=waited_s + together.seconds)]

    def _propose(self, key: Key, tasks: Sequence[TaskFiles], sender: Sender) -> BatchReport:
        files = collect_files(self.target, tasks)
        operation = self._operation(files, bad_rows_of(tasks))
        try:
            write_s = max((task.seconds for task in tasks), default=0.0)
            report = put_batch(self.settings, key, operation, sender, write_s=write_s)
        except BaseException as error:
            if not operation.built:
                self._remove(files, str(error))
            raise
        if not operation.built:
            self._remove(files, "the batch was added before")
        return report

    def abort(self, tasks: Sequence[TaskFiles | FewRows | None]) -> None:
        """Removes the files of a batch of which a task failed (its entry is None).

        If no task failed, then the batch's proposal may have been sent, and its files stay.
        """
        if None in tasks:
            written = (task for task in tasks if isinstance(task, TaskFiles))
            self._remove(decoded_files(self.target, written), "a task of the batch failed")
            self.stage.remove(task for task in tasks if isinstance(task, FewRows))

    def _operation(
        self, files: Sequence[WrittenFile], bad_rows: pa.Table
    ) -> AppendWritten | OverwriteWritten | ReplaceWhere | ReplaceDelta:
        table_id = self.table_id
        if self.mode is WriteMode.APPEND:
            return AppendWritten(files, self.target, self.read_version, [bad_rows], table_id=table_id)
        if isinstance(self.target, ParquetTarget):
            where = "" if self.condition is None else self.condition.where
            schema, target = self.columns.decode(), self.target
            return ReplaceDelta(files, schema, where, self.metadata, target=target, table_id=table_id)
        columns = Schema.FromString(self.columns)
        if self.condition is not None:
            return ReplaceWhere(files, columns, self.condition.where, table_id=table_id)
        return OverwriteWritten(files, columns, self.keeps_schema, table_id=table_id)

    def _remove(self, files: Sequence[WrittenFile], reason: str) -> None:
        remove_unused(self.target, files, reason)


def plan_write(
    given: GivenWrite,
    settings: WriteSettings,
    schema: pa.Schema,
    key: Key,
    *,
    use: WriteUse,
    overwrite: bool,
) -> WritePlan:
    """Opens the table, creates it if it does not exist, and returns how rows with this schema are written.

    `overwrite`: Spark's mode replaces all rows. Raises `InvalidError` for options that have no meaning and
    for rows that don't fit the table, and as `put_batch` does if the table can't be created.
    """
    mode = given.mode(overwrite=overwrite)
    given.check(use, mode)
    keeps_schema = not given.value("overwriteSchema")
    settings = replace(settings, keeps_partitions=keeps_schema)
    rows, source = schema, settings.bad_records_columns
    schema = own_columns(rows, source)
    where = given.value("replaceWhere")
    view = open_or_create(settings, key, lambda: schema, partial(_check_new, where, settings, key))
    if settings.merge_schema and keeps_schema:
        client = open_client(settings.kafka, settings.topics, settings.timeout_s)
        check = partial(_check_condition, where, view.metadata if isinstance(view, DeltaView) else None)
        view = with_columns_of(view, BatchColumns(schema), settings, client, check)
    file_bytes = given.value("targetFileSize")
    stage = _stage(view, settings, given.value("driverRows"), file_bytes)
    if mode is WriteMode.APPEND:
        target = from_source(view.target(schema, settings), rows, source)
        target = target.with_file_bytes(file_bytes)
        return WritePlan(settings, mode, target, stage, view.version, table_id=view.carried.full_id)
    if isinstance(view, DeltaView):
        plan = _plan_replacing(settings, mode, view, schema, stage, where or "", keeps_schema=keeps_schema)
        target = plan.target.with_file_bytes(file_bytes)
        return replace(plan, target=target, table_id=view.carried.full_id)
    replaced = lance_view(view, "replacing rows")
    if not keeps_schema:
        replaced = _with_columns_of(schema, replaced)
    metadata = {name.decode(): value for name, value in (replaced.schema.metadata or {}).items()}
    columns = Schema(fields=replaced.fields, metadata=metadata)
    target = replaced.target(schema, settings).with_file_bytes(file_bytes)
    condition = None if where is None else _condition(where, replaced)
    plan = WritePlan(settings, mode, target, stage, view.version, table_id=view.carried.full_id)
    return replace(plan, columns=columns.SerializeToString(), keeps_schema=keeps_schema, condition=condition)


def _stage(
    view: View, settings: WriteSettings, driver_rows: int | None, file_bytes: int | None
) -> FewRowsStage:
    """Returns which tasks leave their rows to the driver: see the options `driverRows`, `targetFileSize`."""
    if file_bytes is None:
        most_rows, most_bytes = MOST_ROWS, FEW_BYTES
    else:
        most_rows, most_bytes = sys.maxsize, file_bytes
    most_rows = most_rows if driver_rows is None else driver_rows
    return FewRowsStage(view.uri, settings.storage_options, most_rows, most_bytes)


def _plan_replacing(
    settings: WriteSettings,
    mode: WriteMode,
    view: DeltaView,
    schema: pa.Schema,
    stage: FewRowsStage,
    where: str,
    *,
    keeps_schema: bool,
) -> WritePlan:
    """Returns how rows of a Delta table are replaced. Raises `InvalidError` if they can't be."""
    check_replaceable(view, where)
    condition = _condition(where, view) if where else None
    columns, metadata = view.metadata.schema_text.encode(), b""
    if not keeps_schema:
        before, view = view, with_other_columns(view, schema, settings.partition_by)
        metadata = b"" if view is before else line_of(view.metadata).encode()
    target = view.target(schema, settings)
    return WritePlan(settings, mode, target, stage, view.version, columns, keeps_schema, condition, metadata)


def _check_new(where: str | None, settings: WriteSettings, key: Key, columns: pa.Schema, uri: str) -> None:
    """Raises `InvalidError` if the condition can't be evaluated on the new table that gets these columns."""
    metadata = new_table(settings, key, columns)[1] if settings.format == DeltaView.format else None
    _check_condition(where, metadata, columns, uri)


def _check_condition(where: str | None, delta: TableMetadata | None, columns: pa.Schema, _: str) -> None:
    """Raises `InvalidError` if the condition can't be evaluated on the columns that a table will have.

    `delta`: the metadata of a Delta table, perhaps without some of the columns.
    """
    if where is None:
        return
    plain = pa.schema([plain_field(column) for column in columns])
    condition = RowCondition(where, plain, "replaceWhere")
    if delta is not None:
        text = schema_text(new_fields(columns))
        condition = DeltaRowCondition(where, plain, "replaceWhere", text, delta.partition_columns)
    condition.check()


def _condition(where: str, view: View) -> RowCondition:
    columns = pa.schema([plain_field(column) for column in view.schema])
    if isinstance(view, DeltaView):
        text, partitions = view.metadata.schema_text, view.partition_columns()
        condition: RowCondition = DeltaRowCondition(where, columns, "replaceWhere", text, partitions)
    else:
        condition = RowCondition(where, columns, "replaceWhere")
    condition.check()
    return condition


def _with_columns_of(schema: pa.Schema, view: LanceView) -> LanceView:
    """Returns the view as if the table had the columns of these rows."""
    version = file_version(view.data_storage_version)
    check_types(schema, version)
    columns = schema_from_arrow(schema, version)
    shown = schema_to_arrow(columns.fields, columns.metadata)
    return replace(view, fields=columns.fields, schema=shown)

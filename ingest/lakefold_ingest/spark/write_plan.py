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

from lakefold_ingest.formats import DEFAULT
from lakefold_ingest.merge.formats import check_condition, merge_format
from lakefold_ingest.operations.append import AppendWritten
from lakefold_ingest.options.write_options import WriteMode, WriteUse
from lakefold_ingest.rows.few_rows import FEW_BYTES, FewRows, FewRowsStage
from lakefold_ingest.rows.source_columns import from_source, own_columns
from lakefold_ingest.rows.task_files import TaskFiles, bad_rows_of, collect_files, decoded_files, write_task
from lakefold_ingest.rows.unused_files import remove_unused
from lakefold_ingest.spark.small_batches import MOST_ROWS
from lakefold_ingest.view import BatchColumns, View
from lakefold_ingest.writing.batch import open_or_create, put_batch
from lakefold_ingest.writing.evolution import with_columns_of
from lakefold_ingest.writing.log_client import open_client
from lakefold_ingest.writing.sending_query import ANYBODY, Sender

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from lakefold_ingest.merge.conditions import RowCondition
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.target import Target, WrittenFile
    from lakefold_ingest.spark.given_options import GivenWrite
    from lakefold_ingest.writing.report import BatchReport
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_ingest.writing.written_before import WrittenBefore


@dataclass(frozen=True, slots=True)
class WritePlan:
    """How one batch is written, decided on the driver before its tasks.

    `stage` takes the rows of tasks with few. `operation` is to get the files of all tasks, and proposes them.
    `condition`: that of `replaceWhere`.
    """

    settings: WriteSettings
    target: Target
    stage: FewRowsStage
    operation: WrittenBefore
    condition: RowCondition | None = None

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
        operation = self.operation.with_files(files, bad_rows_of(tasks))
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
    settings = replace(settings, keeps_schema=not given.value("overwriteSchema"))
    rows, source = schema, settings.bad_records_columns
    schema = own_columns(rows, source)
    where = given.value("replaceWhere")
    check = partial(check_condition, where, settings.format or DEFAULT, settings.partition_by)
    view = open_or_create(settings, key, lambda: schema, check)
    if settings.merge_schema and settings.keeps_schema:
        client = open_client(settings.kafka, settings.topics, settings.timeout_s)
        check = partial(check_condition, where, view.format, view.partition_columns())
        view = with_columns_of(view, BatchColumns(schema), settings, client, check)
    file_bytes = given.value("targetFileSize")
    stage = _stage(view, settings, given.value("driverRows"), file_bytes)
    if mode is WriteMode.APPEND:
        target = from_source(view.target(schema, settings), rows, source)
        target = target.with_file_bytes(file_bytes)
        operation = AppendWritten((), target, view.version, table_id=view.carried.full_id)
        return WritePlan(settings, target, stage, operation)
    planned = merge_format(view).replacement(view, schema, settings, where)
    target = planned.target.with_file_bytes(file_bytes)
    return WritePlan(settings, target, stage, planned.operation, planned.condition)


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

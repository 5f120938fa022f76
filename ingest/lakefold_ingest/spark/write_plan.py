"""What a write of Spark's does on the driver, before its tasks and after them.

`plan_write` opens the table and decides how the tasks write (`rows.task_files`). `WritePlan.commit`
makes one proposal of what they wrote. Nothing here knows Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefold_ingest.merge.row_condition import RowCondition
from lakefold_ingest.operations.append import target_for
from lakefold_ingest.operations.replace_where import ReplaceWhere
from lakefold_ingest.operations.written import AppendWritten, OverwriteWritten
from lakefold_ingest.options.write_options import WriteMode
from lakefold_ingest.rows.fitting import plain_field
from lakefold_ingest.rows.new_columns import check_structs
from lakefold_ingest.rows.task_files import bad_rows_of, collect_fragments, decoded_fragments, write_task
from lakefold_ingest.rows.unused_files import remove_unused
from lakefold_ingest.writing.batch import open_or_create, put_batch
from lakefold_ingest.writing.evolution import with_columns_of
from lakefold_ingest.writing.log_client import open_client
from lakefold_ingest.writing.operation import BatchColumns
from lakefold_protos.lance.file_pb2 import Schema
from lakefold_table.lance.schemas.arrow import schema_from_arrow, schema_to_arrow
from lakefold_table.lance.schemas.data_files import file_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakefold_ingest.options.given import GivenWrite
    from lakefold_ingest.options.write_options import WriteUse
    from lakefold_ingest.proposals.key import Key
    from lakefold_ingest.rows.fragments import Target
    from lakefold_ingest.rows.task_files import TaskFiles
    from lakefold_ingest.writing.report import BatchReport
    from lakefold_ingest.writing.settings import WriteSettings
    from lakefold_ingest.writing.view import View
    from lakefold_protos.lance.table_pb2 import DataFragment


@dataclass(frozen=True, slots=True)
class WritePlan:
    """How one batch is written, decided on the driver before its tasks.

    `read_version` and `columns` (an encoded `Schema`) are those for which the tasks write. If `keeps_schema`,
    `columns` are the table's own. `condition`: that of `replaceWhere`.
    """

    settings: WriteSettings
    mode: WriteMode
    target: Target
    read_version: int
    columns: bytes
    keeps_schema: bool
    condition: RowCondition | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskFiles:
        """Writes the rows of a task as `write_task` does."""
        if self.condition is None:
            return write_task(self.target, batches)
        return write_task(self.target.fitted(), self.condition.fitted(self.target, batches))

    def commit(self, key: Key, tasks: Sequence[TaskFiles], *, in_order: bool = False) -> BatchReport:
        """Proposes the files of a batch's tasks as `put_batch` does. Removes them if nothing was sent.

        Raises as `put_batch` does, and `InvalidError` if rows of a task don't fit the table.
        """
        fragments = collect_fragments(self.target, tasks)
        operation = self._operation(fragments, bad_rows_of(tasks))
        try:
            write_s = max((task.seconds for task in tasks), default=0.0)
            report = put_batch(self.settings, key, operation, in_order=in_order, write_s=write_s)
        except BaseException as error:
            if not operation.built:
                self._remove(fragments, str(error))
            raise
        if not operation.built:
            self._remove(fragments, "the batch was added before")
        return report

    def abort(self, tasks: Sequence[TaskFiles | None]) -> None:
        """Removes the files of a batch of which a task failed (its entry is None).

        If no task failed, then the batch's proposal may have been sent, and its files stay.
        """
        if None in tasks:
            written = decoded_fragments(task for task in tasks if task is not None)
            self._remove(written, "a task of the batch failed")

    def _operation(
        self, fragments: Sequence[DataFragment], bad_rows: pa.Table
    ) -> AppendWritten | OverwriteWritten | ReplaceWhere:
        if self.mode is WriteMode.APPEND:
            return AppendWritten(fragments, self.read_version, [bad_rows])
        columns = Schema.FromString(self.columns)
        if self.condition is not None:
            return ReplaceWhere(fragments, columns, self.condition.where)
        return OverwriteWritten(fragments, columns, self.keeps_schema)

    def _remove(self, fragments: Sequence[DataFragment], reason: str) -> None:
        remove_unused(self.target.uri, self.target.storage_options, fragments, reason)


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
    view = open_or_create(settings, key, schema)
    if settings.merge_schema:
        client = open_client(settings.kafka, settings.topics, settings.timeout_s)
        view = with_columns_of(view, BatchColumns(schema), settings, client)
    keeps_schema = not given.value("overwriteSchema")
    if not keeps_schema:
        view = _with_columns_of(schema, view)
    metadata = {name.decode(): value for name, value in (view.schema.metadata or {}).items()}
    columns = Schema(fields=view.fields, metadata=metadata)
    target = target_for(schema, view, settings)
    where = given.value("replaceWhere")
    condition = None if where is None else _condition(where, view)
    return WritePlan(
        settings, mode, target, view.version, columns.SerializeToString(), keeps_schema, condition
    )


def _condition(where: str, view: View) -> RowCondition:
    columns = pa.schema([plain_field(column) for column in view.schema])
    condition = RowCondition(where, columns, "replaceWhere")
    condition.check()
    return condition


def _with_columns_of(schema: pa.Schema, view: View) -> View:
    """Returns the view as if the table had the columns of these rows."""
    version = file_version(view.data_storage_version)
    check_structs(schema, version)
    columns = schema_from_arrow(schema, version)
    shown = schema_to_arrow(columns.fields, columns.metadata)
    return replace(view, fields=columns.fields, schema=shown)
